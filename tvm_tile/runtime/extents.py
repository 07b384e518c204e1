"""Values of open extents, checked against what the model was compiled for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tvm_tile.errors import InputError
from tvm_tile.errors.closest import did_you_mean
from tvm_tile.graph.open_extents import Symbol
from tvm_tile.graph.signature import Signature

# Graphs of a model stay in memory, each some hundred kilobytes.
_MOST_GRAPHED = 128


Shapes = tuple[tuple[int, ...], ...]


class Graphed:
    """The extents for which a program in memory has captured CUDA graphs, a bounded number."""

    def __init__(self) -> None:
        self._shapes: set[Shapes] = set()

    def has_room(self, shapes: Shapes) -> bool:
        """Whether the program may capture graphs for a call's shapes, which are counted then."""
        if shapes not in self._shapes and len(self._shapes) == _MOST_GRAPHED:
            return False
        self._shapes.add(shapes)
        return True


class KnownCalls:
    """Signatures of calls: those of the shapes that were checked last are not made again.

    Args:
        signatures: signatures of the model's inputs.
    """

    def __init__(self, signatures: Sequence[Signature]) -> None:
        self._signatures = signatures
        self._open = [at for at, one in enumerate(signatures) if one.open_axes]
        self._known: dict[Shapes, list[Signature]] = {}

    def shapes_of(self, values: Sequence[Any]) -> Shapes:
        """The shapes of a call's inputs of open extents; of what has none, nothing."""
        return tuple([tuple(getattr(values[at], "shape", ())) for at in self._open])

    def at(self, values: Sequence[Any]) -> list[Signature]:
        """Signatures of a call's inputs, as :func:`at_call` makes and checks them."""
        shapes = self.shapes_of(values)
        found = self._known.get(shapes)
        if found is None:
            found = at_call(values, self._signatures)
            if len(self._known) == _MOST_GRAPHED:
                self._known.clear()
            self._known[shapes] = found
        return found


def at_call(values: Sequence[Any], signatures: Sequence[Signature]) -> list[Signature]:
    """The signatures of a call's inputs, all of their extents known.

    An input of another rank, or without a shape, keeps its signature: what is wrong with it is told
    by whoever compares it with that.

    Args:
        values: extents of a call's arrays, in the order of ``signatures``.
        signatures: signatures of the model's inputs.

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


def symbols_of(signatures: Sequence[Signature]) -> tuple[Symbol, ...]:
    """The open extents of a model's inputs, each once, in order."""
    axes = (one for signature in signatures for one in signature.open_axes)
    return tuple(dict.fromkeys(one.symbol for one in axes if one.symbol is not None))


def settled(signatures: Sequence[Signature], extents: Mapping[str, int]) -> list[Signature]:
    """The signatures of a model's inputs at certain values of its open extents.

    Args:
        signatures: signatures of the model's inputs.
        extents: names of open extents -> values; those that are not there have their greatest ones.

    Raises:
        InputError: no open extent has such a name, or one is out of its range.
    """
    symbols = symbols_of(signatures)
    names = [symbol.name for symbol in symbols]
    for name in extents:
        if name not in names:
            known = ", ".join(map(str, symbols)) or "it has none"
            raise InputError(
                f"extents= may name the model's open extents: {known}",
                f"it names {name!r}",
                did_you_mean(name, names, "correct the name, or leave it out"),
            )
    values = {symbol: extents.get(symbol.name, symbol.high) for symbol in symbols}
    for symbol, value in values.items():
        if type(value) is not int or value not in symbol.values:
            raise _out_of_range(f"the model has {symbol}", symbol, value)
    return [_at(signature, values) for signature in signatures]


def problems(inputs: Sequence[Signature], others: Sequence[Signature]) -> Iterator[str]:
    """Contradictions among the open extents of a model's inputs, outputs and state, in words."""
    for signature in (*inputs, *others):
        axes = [one.axis for one in signature.open_axes]
        if axes != sorted(set(axes)) or not all(a in range(len(signature.shape)) for a in axes):
            yield f"{signature.name} has open extents at {axes}"
            return
    for signature in inputs:
        for one in signature.open_axes:
            if one.symbol is None or not _is_range(one.symbol, signature.shape[one.axis]):
                yield f"{signature} has the open extent {one.symbol}"
    if any(one.symbol is not None for signature in others for one in signature.open_axes):
        yield "an open extent is that of an output"
    names = [symbol.name for symbol in symbols_of(inputs)]
    if len(set(names)) < len(names):
        yield f"two of the open extents {', '.join(names)} have one name"


def _is_range(symbol: Symbol, greatest: int) -> bool:
    """Whether a symbol's range makes sense."""
    low, high, step = symbol.low, symbol.high, symbol.step
    return 1 <= low < high == greatest and step >= 1 and low % step == high % step == 0


def _at(signature: Signature, values: Mapping[Symbol, int]) -> Signature:
    """The signature with its open extents known."""
    known = list(signature.shape)
    for one in signature.open_axes:
        assert one.symbol is not None, signature
        known[one.axis] = values[one.symbol]
    return replace(signature, shape=tuple(known), open_axes=())


def _out_of_range(requirement: str, symbol: Symbol, value: Any) -> InputError:
    """The error for an extent out of its range."""
    return InputError(
        requirement,
        f"{symbol.name} = {value!r}",
        "use an extent within the range, or compile the model for a wider one",
    )


def _checked(
    signature: Signature, extent: int, symbol: Symbol, settled: dict[Symbol, tuple[str, int]]
) -> int:
    """An extent that is a value of its symbol, and that of all others of it."""
    if extent not in symbol.values:
        raise _out_of_range(f"input {signature} has {symbol}", symbol, extent)
    name, known = settled.setdefault(symbol, (signature.name, extent))
    if known != extent:
        raise InputError(
            f"all extents {symbol.name} of a call are equal",
            f"{known} in input {name!r}, {extent} in input {signature.name!r}",
            "pass inputs of one such extent",
        )
    return extent
