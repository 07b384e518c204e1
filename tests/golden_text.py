"""Scheduled functions as text for people: shorter than TVM's, and as telling."""

from __future__ import annotations

import re
from typing import Any

# The same text at each of its calls.
_SOURCE_OF_HELPER = re.compile(r', source_code="(?:[^"\\]|\\.)*"')
_ELEMENT = re.compile(r"(\w+)\[(\d+)\]")
_SEVERAL = re.compile(r"\w+\[\d+\](?:, \w+\[\d+\])+")


def readable(func: Any) -> str:
    """A TensorIR function as TVMScript, with one slice for arguments that lie side by side.

    before: ``f(a[0], a[1], a[2])``, or the lines ``g(a[0])``, ``g(a[1])``, ``g(a[2])``
    after:  ``f(*a[0:3])``, or the line ``g(a[0]) ... g(a[2])``
    """
    script = func.without_attr("global_symbol").script()
    return shortened(_SOURCE_OF_HELPER.sub("", script)) + "\n"


def shortened(text: str) -> str:
    """``text`` as :func:`readable` writes it; different texts remain different."""
    lines = [_SEVERAL.sub(_slices, line) for line in text.splitlines()]
    kept: list[str] = []
    first = 0
    while first < len(lines):
        end = first + 1
        while end < len(lines) and lines[end] == _following(lines[end - 1]):
            end += 1
        own = lines[first:end]
        kept += own if len(own) < 3 else [f"{own[0]} ... {own[-1].lstrip()}"]
        first = end
    return "\n".join(kept)


def _slices(found: re.Match[str]) -> str:
    """A list of elements, of which those side by side become one slice."""
    runs: list[tuple[str, int, int]] = []
    for name, index in _ELEMENT.findall(found[0]):
        if runs and runs[-1][0] == name and runs[-1][2] == int(index):
            runs[-1] = (name, runs[-1][1], int(index) + 1)
        else:
            runs.append((name, int(index), int(index) + 1))
    return ", ".join(
        f"{name}[{start}]" if end == start + 1 else f"*{name}[{start}:{end}]"
        for name, start, end in runs
    )


def _following(line: str) -> str | None:
    """``line`` with the next element, if it has one element only."""
    found = _ELEMENT.findall(line)
    if len(found) != 1:
        return None
    ((name, index),) = found
    return line.replace(f"{name}[{index}]", f"{name}[{int(index) + 1}]")
