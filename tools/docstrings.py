"""Fail when a docstring of the package begins without a noun, or names a file that is not there.

Who meets "Of a code." in an editor or in a list of names has nothing that the sentence is about.
Say what it is ("Bits of a code."), or what is done ("Wait for all threads of the block."). A method
that implements a protocol says what this implementation does, not that it is "As `Unit` says.".
So do descriptions of arguments: "rows: of the tile." is no help, "rows: rows of the tile." is.

Usage: python tools/docstrings.py
"""

from __future__ import annotations

import argparse
import ast
import random
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
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
_ARGUMENT = re.compile(r"^ {4}\w+: (?:of|that|what|whose)\b.*", re.MULTILINE)
# Arguments whose descriptions still begin so, nearly all of frontend/: it goes down, never up.
MAX_ARGUMENTS_WITHOUT_NOUN = 120
_FILES = re.compile(r"`([\w.][\w./]*(?:\.(?:py|h|zig|md|json|css|js|jinja|toml)|/))`")
_Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def without_noun(path: Path) -> Iterator[str]:
    """One line of text for each docstring in ``path`` that begins with nothing to be about."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), str(path))):
        told = ast.get_docstring(node) if isinstance(node, _Documented) else None
        if told is not None and _OPENINGS.match(told):
            line = 1 if isinstance(node, ast.Module) else node.lineno
            yield f"{path}:{line}: {told.splitlines()[0]}"


def arguments_without_noun(path: Path) -> Iterator[str]:
    """One line of text for each argument in ``path`` whose description begins with "of" or so."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), str(path))):
        told = ast.get_docstring(node) if isinstance(node, _Documented) else None
        for line in _ARGUMENT.findall(told or ""):
            yield f"{path}: {line.strip()}"


def names_no_file(path: Path) -> Iterator[str]:
    """One line of text for each name of a file or folder in ``path`` that is none's."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        text = ast.get_docstring(ast.parse(text, str(path))) or ""
    for name in _FILES.findall(text):
        places = (ROOT, ROOT / PACKAGE, path.parent)
        if "NAME" not in name and not any(place.joinpath(name).exists() for place in places):
            yield f"{path}: there is no {name}"


def functions(path: Path) -> Iterator[tuple[str, str]]:
    """The functions and methods of ``path``: ``module:Class.method``, and the docstring."""
    module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")

    def found(body: list[ast.stmt], prefix: str) -> Iterator[tuple[str, str]]:
        for node in body:
            if isinstance(node, ast.ClassDef):
                yield from found(node.body, f"{prefix}{node.name}.")
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield f"{module}:{prefix}{node.name}", ast.get_docstring(node) or "(no docstring)"

    yield from found(ast.parse(path.read_text(encoding="utf-8"), str(path)).body, "")


def main(words: list[str]) -> int:
    """Print what is wrong, 1 when anything is; or the docstrings that were drawn."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sample", type=int, metavar="N", help="print N functions' docstrings")
    parser.add_argument("--seed", type=int, default=0, help="which ones (default: 0)")
    given = parser.parse_args(words)
    files = sorted((ROOT / PACKAGE).rglob("*.py"))
    if given.sample is not None:
        told = sorted(function for path in files for function in functions(path))
        for name, docstring in random.Random(given.seed).sample(told, given.sample):
            print(name, *docstring.splitlines(), sep="\n    ")
        return 0
    rooms = [ROOT / "CONTRIBUTING.md", *(path for path in files if path.name == "__init__.py")]
    complaints = [line for path in files for line in without_noun(path)]
    complaints += [line for path in rooms for line in names_no_file(path)]
    arguments = [line for path in files for line in arguments_without_noun(path)]
    if len(arguments) > MAX_ARGUMENTS_WITHOUT_NOUN:
        complaints += [*arguments, f"at most {MAX_ARGUMENTS_WITHOUT_NOUN} of these are allowed"]
    print("\n".join(complaints) or f"{len(files)} files whose docstrings begin with what they tell")
    return int(bool(complaints))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
