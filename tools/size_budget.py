"""Fail when something of the house grows too large for a stranger to find the way.

A file has at most 400 lines, a function 60; the package 8 files at its root, each of its folders
30; and few names are those of classes in more than one file.

Usage: python tools/size_budget.py [FOLDER ...]     (default: every Python folder here)
"""

from __future__ import annotations

import ast
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 60
MAX_ROOT_FILES = 8
MAX_FOLDER_FILES = 30
# Names that still stand for several things: this number goes down, never up.
MAX_SHARED_NAMES = 7
PACKAGE = "tvm_tile"
FOLDERS = (PACKAGE, "tests", "bench", "demo", "tutorials", "docs", "tools")


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


def too_full(package: Path) -> Iterator[str]:
    """One line of text for each folder of the package that has too many files of Python."""
    counts = Counter(path.parent for path in package.rglob("*.py"))
    for folder, count in sorted(counts.items()):
        most = MAX_ROOT_FILES if folder == package else MAX_FOLDER_FILES
        if count > most:
            yield f"{folder}: {count} files, at most {most} are allowed"


def shared_names(package: Path) -> Iterator[str]:
    """One line of text for each name of classes in several files, where there are too many."""
    homes: dict[str, set[str]] = defaultdict(set)
    for path in package.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                homes[node.name].add(path.relative_to(package).as_posix())
    shared = {name: files for name, files in sorted(homes.items()) if len(files) > 1}
    if len(shared) > MAX_SHARED_NAMES:
        most = f"at most {MAX_SHARED_NAMES} are allowed"
        yield f"{len(shared)} names of classes in several files, {most}"
        yield from (f"  {name}: {', '.join(sorted(files))}" for name, files in shared.items())


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
    complaints += [*too_full(root / PACKAGE), *shared_names(root / PACKAGE)]
    print("\n".join(complaints) or f"{len(files)} files within the size budget")
    return int(bool(complaints))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
