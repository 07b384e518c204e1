"""Fail when a file has more than 400 lines or a function more than 60.

Usage: python tools/size_budget.py [FOLDER ...]     (default: every Python folder here)
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 60
FOLDERS = ("tvm_tile", "tests", "bench", "demo", "tutorials", "docs", "tools")


def too_long(path: Path) -> Iterator[str]:
    """One line of text for each thing in ``path`` that is over its budget."""
    source = path.read_text(encoding="utf-8")
    lines = source.count("\n")
    if lines > MAX_FILE_LINES:
        yield f"{path}: {lines} lines, at most {MAX_FILE_LINES} are allowed"
    for node in ast.walk(ast.parse(source, str(path))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > MAX_FUNCTION_LINES:
                yield (
                    f"{path}:{node.lineno}: {node.name} has {length} lines, "
                    f"at most {MAX_FUNCTION_LINES} are allowed"
                )


def main(folders: list[str]) -> int:
    """Print what is over budget; 1 when anything is."""
    root = Path(__file__).parent.parent
    files = sorted(
        file
        for name in folders or FOLDERS
        for file in (root / name).rglob("*.py")
        if file.is_file()
    )
    complaints = [line for file in files for line in too_long(file)]
    print("\n".join(complaints) or f"{len(files)} files within the size budget")
    return int(bool(complaints))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
