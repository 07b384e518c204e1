"""What a call's inputs say of open extents, checked against what the model was compiled for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tvm_tile.errors import InputError
from tvm_tile.graph.open_extents import Symbol
from tvm_tile.graph.signature import Signature

# Graphs of a model stay in memory, each some hundred kilobytes.
_MOST_GRAPHED = 128


class Graphed:
    """The extents for which a program in memory has captured CUDA graphs: so many, at most."""

    def __init__(self) -> None:
        self._points: set[tuple[int, ...]] = set()

    def has_room(self, signatures: Sequence[Signature], values: Sequence[Any]) -> bool:
        """Whether the program may capture graphs for a call, which are counted then.

        Args:
            signatures: of the model's inputs.
            values: the call's.
        """
        point = tuple(
            int(value.shape[one.axis])
            for value, signature in zip(values, signatures, strict=True)
            for one in signature.open_axes
        )
        if point not in self._points and len(self._points) == _MOST_GRAPHED:
            return False
        self._points.add(point)
        return True


def at_call(values: Sequence[Any], signatures: Sequence[Signature]) -> list[Signature]:
    """The signatures of a call's inputs, all of their extents known.

    An input of another rank, or without a shape, keeps its signature: what is wrong with it is told
    by whoever compares it with that.

    Args:
        values: of a call, in the order of ``signatures``.
        signatures: of the model's inputs.

    Raises:
        InputError: an extent is out of its range, or differs from another one of its name.
    """
    settled: dict[Symbol, tuple[str, int]] = {}
    found = []
    for value, signature in zip(values, signatures, strict=True):
        shape = tuple(getattr(value, "shape", ()))
        if not signature.open_axes or len(shape) != len(signature.shape):
            found.append(signature)
            continue
        known = list(signature.shape)
        for one in signature.open_axes:
            assert one.symbol is not None, signature
            known[one.axis] = _checked(signature, int(shape[one.axis]), one.symbol, settled)
        found.append(replace(signature, shape=tuple(known), open_axes=()))
    return found


def _checked(
    signature: Signature, extent: int, symbol: Symbol, settled: dict[Symbol, tuple[str, int]]
) -> int:
    """An extent that is a value of its symbol, and that of all others of it."""
    if extent not in symbol.values:
        step = f" in steps of {symbol.step}" if symbol.step > 1 else ""
        raise InputError(
            f"input {signature} has {symbol.name} from {symbol.low} to {symbol.high}{step}",
            f"{symbol.name} = {extent}",
            "pass an extent within the range, or compile the model for a wider one",
        )
    name, known = settled.setdefault(symbol, (signature.name, extent))
    if known != extent:
        raise InputError(
            f"all extents {symbol.name} of a call are equal",
            f"{known} in input {name!r}, {extent} in input {signature.name!r}",
            "pass inputs of one such extent",
        )
    return extent
