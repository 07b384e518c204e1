"""A Sphinx extension: the lessons in tutorials/ are pages, as they lie.

A lesson is a Python file. Its docstring and the comments that begin a paragraph are prose, the rest
is code, and behind each section stands what it prints and draws, as the tests keep it in
tutorials/output/.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from docutils import nodes
from myst_parser.parsers.sphinx_ import MystParser

_OUTPUT = Path(__file__).parent.parent / "tutorials" / "output"
_NUMBER = re.compile(r"(\d+)\. ")
_HEADING = re.compile(r"(?P<heading>.{1,70}?)(?P<end>[.:?])\s+(?P<rest>.*)", re.DOTALL)
_PICTURE = "picture: "


class LessonParser(MystParser):
    """Makes MyST Markdown of a lesson."""

    supported = ("lesson",)

    def parse(self, inputstring: str, document: nodes.document) -> None:
        """Add the lesson's content to ``document``."""
        name = Path(document["source"]).stem
        super().parse(markdown(inputstring, _printed(name), f"output/{name}"), document)


def markdown(source: str, printed: dict[int, str], pictures: str) -> str:
    """The page of a lesson.

    Args:
        source: the lesson's text.
        printed: section number -> what it prints; "picture: NAME" is a line for each drawing.
        pictures: the folder of the drawings, as seen from the page.
    """
    docstring = ast.get_docstring(ast.parse(source)) or ""
    title, _, about = docstring.partition("\n")
    code = source[source.index('"""', 3) + 3 :]
    pieces = [f"# {title.rstrip('.')}", about.strip()]
    number = 0
    for is_prose, lines in _paragraphs(code):
        text = _prose(lines) if is_prose else lines
        if is_prose and (found := _NUMBER.match(text)):
            pieces += _shown(printed.get(number, ""), pictures)
            number = int(found[1])
            pieces.append(_headed(number, text[found.end() :]))
        elif is_prose:
            pieces.append(text)
        else:
            pieces.append(f"```python\n{text}\n```")
    return "\n\n".join([*pieces, *_shown(printed.get(number, ""), pictures)]) + "\n"


def _paragraphs(code: str) -> Iterator[tuple[bool, str]]:
    """(whether it is prose, its text) of each part: comments behind an empty line, and the rest."""
    tokens = tokenize.generate_tokens(io.StringIO(code).readline)
    comments = {t.start[0] for t in tokens if t.type == tokenize.COMMENT and t.start[1] == 0}
    lines = ["", *code.splitlines()]
    held: list[str] = []
    is_prose = False
    for at in range(1, len(lines)):
        begins = at in comments and not lines[at - 1].strip()
        if begins or (is_prose and at not in comments):
            if text := "\n".join(held).strip("\n"):
                yield is_prose, text
            held, is_prose = [], begins
        held.append(lines[at])
    yield is_prose, "\n".join(held).strip("\n")


def _prose(comments: str) -> str:
    """Markdown of comments; lines that are indented further are shown as they are."""
    first, _, rest = re.sub(r"^# ?", "", comments, flags=re.MULTILINE).partition("\n")
    # "3. A sentence" goes on under its first word.
    margin = " " * 3 if _NUMBER.match(first) else ""
    text = re.sub(f"^{margin}", "", rest, flags=re.MULTILINE)
    shown = re.sub(r"((?:^ {2,}.*\n?)+)", r"\n```text\n\1\n```\n", text, flags=re.MULTILINE)
    return f"{first}\n{shown}".strip()


def _headed(number: int, text: str) -> str:
    """The first sentence, or what is ahead of its colon, becomes a heading, if it is short."""
    found = _HEADING.match(text + " ")
    if not found:
        raise ValueError(f"section {number} must begin with a sentence of at most 70 characters")
    end = "?" if found["end"] == "?" else ""
    rest = found["rest"].strip()
    heading = found["heading"].replace("\n", " ") + end
    return f"## {number}. {heading}\n\n{rest[:1].upper()}{rest[1:]}"


def _shown(printed: str, pictures: str) -> Iterator[str]:
    lines = printed.splitlines()
    text = "\n".join(line for line in lines if not line.startswith(_PICTURE))
    if text:
        yield f"It prints:\n\n```text\n{text}\n```"
    for line in lines:
        if line.startswith(_PICTURE):
            name = line.removeprefix(_PICTURE)
            yield f"![{Path(name).stem}]({pictures}/{name})"


def _printed(name: str) -> dict[int, str]:
    """What the lesson of this name prints, by section."""
    text = (_OUTPUT / name / "printed.txt").read_text(encoding="utf-8")
    parts = re.split(r"^===== (\d+) =====\n", text, flags=re.MULTILINE)[1:]
    return {int(at): told.strip("\n") for at, told in zip(parts[::2], parts[1::2], strict=True)}


def setup(app: Any) -> dict[str, bool]:
    """What Sphinx calls."""
    app.add_source_parser(LessonParser)
    return {"parallel_read_safe": True}
