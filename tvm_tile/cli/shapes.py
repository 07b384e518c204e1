"""Shapes of inputs and values of open extents, as words of the command line."""

from __future__ import annotations

import argparse
import re

from tvm_tile.graph.open_extents import Open

SHAPE = "NAME=1x3x320x320"
EXTENT = "NAME=128"

_RANGE = re.compile(r"\[(?:([A-Za-z_]\w*)=)?(\d+):(\d+)(?::(\d+))?\]", re.ASCII)
_ONE = re.compile(r"[0-9]+|\[[^\]]*\]")
_NAMED_SHAPE = re.compile(
    rf"(.+?)=((?:{_ONE.pattern})(?:x(?:{_ONE.pattern}))*|)", re.ASCII | re.DOTALL
)


def named_shape(text: str) -> tuple[str, tuple[int | Open, ...]]:
    """The name and the extents in ``tokens=1x128``, with ranges in ``tokens=1x[n=32:512:32]``.

    The name of a range, ``n``, and its step, the last number, may be left out.

    Raises:
        argparse.ArgumentTypeError: it is no such text.
    """
    found = _NAMED_SHAPE.fullmatch(text)
    name, extents = found.groups() if found else ("", "")
    shape = [_extent(one) for one in _ONE.findall(extents)]
    if found is None or None in shape:
        raise argparse.ArgumentTypeError(
            f"{text!r} does not look like {SHAPE}, nor, with a range of extents, like "
            "NAME=1x[1:4096], NAME=1x[n=1:4096] or NAME=1x[32:4096:32]"
        )
    return name, tuple(one for one in shape if one is not None)


def _extent(text: str) -> int | Open | None:
    """An extent of the command line: a number, or a range; ``None`` for anything else."""
    if text.isdecimal():
        return int(text)
    found = _RANGE.fullmatch(text)
    if found is None:
        return None
    name, low, high, step = found.groups()
    return Open(int(low), int(high), name or "", 1 if step is None else int(step))


def named_extent(text: str) -> tuple[str, int]:
    """The name and the value in ``n=128``.

    Raises:
        argparse.ArgumentTypeError: it is no such text.
    """
    name, _, value = text.rpartition("=")
    if not name or not value.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} does not look like {EXTENT}")
    return name, int(value)
