"""What errors and reports say in Python, in the words of the command line."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable

_NAME = r"'(?P<name>(?:[^'\\]|\\.)*)'"
_SHAPE = r"\((?P<shape>(?:[^()]|\([^()]*\))*)\)"
_SIZE = re.compile(f"{_NAME}: {_SHAPE}")
_COMMA = re.compile(r",\s*(?![^()]*\))")
_RANGE = re.compile(
    r"Open\((?P<low>\d+), (?P<high>\d+)(?:, name='(?P<name>\w+)')?(?:, step=(?P<step>\d+))?\)"
)


def in_words(text: str) -> str:
    """A text for people, in which arguments of Python's functions are options of the command.

    ``inputs={'x': (1, height)}`` becomes ``--input 'x=1x<height>'``, ``Options(topk=1)`` becomes
    ``--topk 1``, and ``Open(1, 8)`` becomes ``[1:8]``. What has no option stays.
    """
    for pattern, written in _SPELLINGS:
        text = pattern.sub(written, text)
    return text


def _inputs(found: re.Match[str]) -> str:
    sizes = [_input(*size.group("name", "shape")) for size in _SIZE.finditer(found[1])]
    return " ".join(sizes) or found[0]


def _input(name: str, shape: str) -> str:
    extents = [_extent(extent) for extent in _COMMA.split(shape) if extent]
    return "--input " + shlex.quote(f"{name}={'x'.join(extents)}")


def _extent(text: str) -> str:
    found = _RANGE.fullmatch(text)
    if found is not None:
        return _range(found)
    return text if text.isdecimal() or text == "..." else f"<{text}>"


def _range(found: re.Match[str]) -> str:
    name, step = found["name"], found["step"]
    prefix, suffix = f"{name}=" if name else "", f":{step}" if step else ""
    return f"[{prefix}{found['low']}:{found['high']}{suffix}]"


def _option(found: re.Match[str]) -> str:
    name, value = f"--{found['name'].replace('_', '-')}", found["value"]
    return name if value == "True" else f"{name} {shlex.quote(value)}"


_VALUE = r"(?P<quote>[\"']?)(?P<value>[\w./-]+)(?P=quote)"
_SPELLINGS: tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...] = (
    (re.compile(r"inputs=\{(.*?)\}(?!')", re.DOTALL), _inputs),
    (re.compile(r"\binputs="), "--input"),
    (_RANGE, _range),
    (re.compile(r"\bcache=False"), "--cache none"),
    # Options by themselves are what a model was compiled with.
    (re.compile(rf"Options\((?P<name>tf32|topk|max_loss)={_VALUE}\)"), _option),
    (re.compile(rf"\b(?P<name>device|detail|sort)={_VALUE}"), _option),
    (re.compile(r"\bparams="), "--params"),
)
