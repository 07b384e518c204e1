"""Random graphs of open extents: drawn once, valid whatever these are.

An open extent is drawn as a prime that nothing else is. Inputs have it as an extent, or integers
below it, and lines of code that mention it, or numbers that come of it, mention an input's shape
instead. Whether the graph then makes sense at other extents, running it tells.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from bench.fuzz import torch_door
from bench.fuzz.graph import Call, Graph, Tensor

DRAWN = (29, 37)
_RANGES = ((1, 12, 1), (2, 33, 1), (1, 6, 1), (3, 20, 1), (1, 17, 1), (4, 32, 4), (8, 64, 8))
_PRIMES = (19, 13, 11, 7, 5, 3, 2)
_NUMBER = re.compile(r"(?<![\w.])\d+(?![\w.])")


@dataclass(frozen=True, slots=True)
class Range:
    """What an open extent may be.

    Attributes:
        drawn: what it is in the graph as drawn.
        low: the least value.
        high: the greatest one.
        step: all values are multiples of it.
    """

    drawn: int
    low: int
    high: int
    step: int = 1

    @property
    def values(self) -> range:
        """All values, from the least one on."""
        return range(self.low, self.high + 1, self.step)

    @property
    def called(self) -> tuple[int, ...]:
        """Values that a model is called with: both ends, the last but one, some amid these."""
        values = self.values
        prime = next((p for p in _PRIMES if p in values[:-1]), values[len(values) // 2])
        return values[0], prime, values[-2], values[-1], values[len(values) // 3]


def ranges_of(seed: int) -> tuple[Range, ...]:
    """The open extents of a seed's graph: one, or two."""
    rng = random.Random(seed + 3)
    drawn = DRAWN if rng.random() < 0.25 else DRAWN[:1]
    return tuple(Range(number, *rng.choice(_RANGES)) for number in drawn)


def points(ranges: Sequence[Range]) -> list[tuple[int, ...]]:
    """Where a model is called; two extents are small and large independently of each other."""
    columns = [one.called for one in ranges]
    if len(columns) > 1:
        columns[1] = columns[1][2:] + columns[1][:2]
    return list(dict.fromkeys(zip(*columns, strict=True)))


def at(graph: Graph, ranges: Sequence[Range], point: Sequence[int]) -> Graph:
    """The graph whose open extents are these."""
    values = {one.drawn: value for one, value in zip(ranges, point, strict=True)}

    def other(tensor: Tensor) -> Tensor:
        shape = tuple(values.get(extent, extent) for extent in tensor.shape)
        return replace(tensor, shape=shape, below=values.get(tensor.below, tensor.below))

    tensors = (tensor if tensor.is_weight else other(tensor) for tensor in graph.tensors)
    return replace(graph, tensors=tuple(tensors))


def opened(graph: Graph, ranges: Sequence[Range], rng: random.Random) -> Graph | None:
    """A drawn graph whose code mentions no open extent by its number.

    The result is ``None`` where no input has one of the extents, or the graph makes no sense at
    some of the points.
    """
    extents = {one.drawn: _shape_with(graph, one.drawn) for one in ranges}
    if None in extents.values():
        return None
    calls = []
    for call in graph.calls:
        text = call.text
        for drawn, extent in extents.items():
            text = _mentioning(text, drawn, str(extent), rng)
        calls.append(Call(text, call.results))
    found = _open_part(replace(graph, calls=tuple(calls)), tuple(extents))
    if None in (_shape_with(found, one.drawn) for one in ranges):
        return None
    return found if is_valid(found, ranges) else None


def _open_part(graph: Graph, drawn: Sequence[int]) -> Graph:
    """The graph with the outputs that come of inputs that have one of the extents."""
    known = {tensor.name for tensor in graph.inputs if set(tensor.shape) & set(drawn)}
    for call in graph.calls:
        if known & set(call.operands):
            known |= set(call.results)
    return replace(graph, outputs=tuple(name for name in graph.outputs if name in known)).pruned()


def is_valid(graph: Graph, ranges: Sequence[Range]) -> bool:
    """Whether PyTorch takes the graph wherever it is called, and next to its greatest extents."""
    columns = [(*one.values[-4:], one.values[0]) for one in ranges]
    near = [tuple(column[i % len(column)] for column in columns) for i in range(5)]
    for point in [*points(ranges), *near]:
        one = at(graph, ranges, point)
        try:
            torch_door.run(one, torch_door.draw(one, 2), torch.float64)
        except Exception:
            return False
    return True


def inputs_of(graph: Graph, ranges: Sequence[Range]) -> dict[str, tuple[Any, ...]]:
    """What ``tvm_tile.compile`` is told of the extents."""
    from tvm_tile import Open

    known = {
        one.drawn: Open(one.low, one.high, name=f"n{number}", step=one.step)
        for number, one in enumerate(ranges)
    }
    shapes = {
        tensor.name: tuple(known.get(extent, extent) for extent in tensor.shape)
        for tensor in graph.inputs
    }
    return {name: shape for name, shape in shapes.items() if set(shape) & set(known.values())}


def _shape_with(graph: Graph, drawn: int) -> str | None:
    """Code that gives the extent at run time."""
    found = (
        f"{tensor.name}.shape[{tensor.shape.index(drawn)}]"
        for tensor in graph.inputs
        if drawn in tensor.shape
    )
    return next(found, None)


def _mentioning(text: str, drawn: int, extent: str, rng: random.Random) -> str:
    """A line in which numbers that come of an extent are made of it."""

    def made(found: re.Match[str]) -> str:
        number = int(found[0])
        if number == drawn:
            return extent
        if number and number % drawn == 0:
            return f"{number // drawn} * {extent}"
        if number in (drawn - 1, drawn - 2):
            return f"{extent} - {drawn - number}"
        return f"{extent} // 2" if number == drawn // 2 and rng.random() < 0.5 else found[0]

    def parts(found: re.Match[str]) -> str:
        is_whole = int(found[1]) + int(found[2]) == drawn
        return f"[1, {drawn - 1}]" if is_whole else found[0]

    if "torch.split(" in text:
        text = re.sub(r"\[(\d+), (\d+)\]", parts, text)
    return _NUMBER.sub(made, text)
