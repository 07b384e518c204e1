"""Count the package's lines of code: those that are more than docstring, comment and blank."""

from __future__ import annotations

import argparse
import ast
import io
import tempfile
import tokenize
from dataclasses import dataclass
from pathlib import Path

from bench.compare.trees import ROOT, committed

PACKAGE = "tvm_tile"
_NO_CODE = frozenset(
    {
        *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT),
        *(tokenize.ENCODING, tokenize.ENDMARKER),
    }
)
_Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Count:
    """What is in some files.

    Attributes:
        code: lines of code.
        docstrings: lines of docstrings.
        functions: how many functions are defined.
    """

    code: int = 0
    docstrings: int = 0
    functions: int = 0

    def __add__(self, other: Count) -> Count:
        return Count(
            self.code + other.code,
            self.docstrings + other.docstrings,
            self.functions + other.functions,
        )


def count(source: str) -> Count:
    """What is in a file's text."""
    tree = ast.parse(source)
    told: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, _Documented) and ast.get_docstring(node) is not None:
            told.update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    code: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _NO_CODE:
            code.update(range(token.start[0], token.end[0] + 1))
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    defined = sum(isinstance(node, functions) for node in ast.walk(tree))
    return Count(len(code - told), len(told), defined)


def by_folder(root: Path) -> dict[str, Count]:
    """Counts of the package's folders, and of all under the package's own name.

    Args:
        root: the folder in which the package is.
    """
    found: dict[str, Count] = {PACKAGE: Count()}
    for path in (root / PACKAGE).rglob("*.py"):
        parts = path.relative_to(root).parts
        folder = "/".join(parts[:2]) if len(parts) > 2 else f"{PACKAGE}/*.py"
        own = count(path.read_text(encoding="utf-8"))
        found[PACKAGE] += own
        found[folder] = found.get(folder, Count()) + own
    return found


def of_commit(commit: str) -> dict[str, Count]:
    """:func:`by_folder` of the package at a commit."""
    with tempfile.TemporaryDirectory() as folder:
        committed(commit).extract(Path(folder))
        return by_folder(Path(folder))


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("commit", nargs="?", help="show the lines of this commit, too")
    commit = parser.parse_args().commit
    now = by_folder(ROOT)
    before = of_commit(commit) if commit else now
    print(f"{'folder':24} {'code':>7} {'before':>7} {'change':>8} {'docstring a function':>22}")
    for folder in sorted(now | before):
        own, former = now.get(folder, Count()), before.get(folder, Count())
        change = f"{own.code / former.code - 1:+.1%}" if former.code else "new"
        told = " from ".join(f"{c.docstrings / max(1, c.functions):.2f}" for c in (own, former))
        print(f"{folder:24} {own.code:7} {former.code:7} {change:>8} {told:>22}")


if __name__ == "__main__":
    main()
