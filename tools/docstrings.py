"""Fail when a docstring of the package begins without a noun or a verb of its own.

Who meets "Of a code." in an editor or in a list of names has nothing that the sentence is about.
Say what it is ("Bits of a code."), or what is done ("Wait for all threads of the block."). A method
that implements a protocol says what this implementation does, not that it is "As `Unit` says.".

Usage: python tools/docstrings.py
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

PACKAGE = "tvm_tile"

_NO_NOUN_FOLLOWS = r"(?:[,;:.]|\s(?:of|for|by|with|without|that|which|as|in|where|to|at|on)\b)"
_OPENINGS = re.compile(
    rf"""
    (?: Of | That | Those | It | Its | Their | Theirs | Whose | Who | Ones | Other | Others | None
      | As | To | With | So\ (?:many|much|few) | See | Once | Until | In\ whose | While\ it
      | (?:All|Some)\ of\ (?:it|them) | One\ of\ (?:its|them) | One\ (?:that|which|for)
      | Equal\ for | For\ (?:people|those|others?)
    )\b
    | (?: This | These | Both | All\ at\ once ){_NO_NOUN_FOLLOWS}
    | (?: The | Any | Another )\ (?: same | others? | ones? | most | least | next | last | first )
      {_NO_NOUN_FOLLOWS}
    | \S+\.$  # a single word, such as "Elements."
    """,
    re.VERBOSE | re.MULTILINE,
)
_Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def without_noun(path: Path) -> Iterator[str]:
    """One line of text for each docstring in ``path`` that begins with nothing to be about."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), str(path))):
        told = ast.get_docstring(node) if isinstance(node, _Documented) else None
        if told is not None and _OPENINGS.match(told):
            line = 1 if isinstance(node, ast.Module) else node.lineno
            yield f"{path}:{line}: {told.splitlines()[0]}"


def main() -> int:
    """Print the docstrings that begin so; 1 when any does."""
    package = Path(__file__).parent.parent / PACKAGE
    files = sorted(package.rglob("*.py"))
    complaints = [line for path in files for line in without_noun(path)]
    print("\n".join(complaints) or f"{len(files)} files whose docstrings begin with what they tell")
    return int(bool(complaints))


if __name__ == "__main__":
    sys.exit(main())
