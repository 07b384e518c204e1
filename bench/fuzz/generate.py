"""Draw a random graph of PyTorch, line by line, running each on samples as it is drawn."""

from __future__ import annotations

import random
from collections.abc import Sequence

import torch

from bench.fuzz import elementwise, integers, products, reductions, torch_door, views
from bench.fuzz.drawing import INTEGERS, WHOLE, Drawing, Misfit, Value
from bench.fuzz.graph import Call, Graph, Tensor, is_of_integers
from bench.fuzz.open_extents import Range, opened

_TOPICS = (
    (elementwise.OPERATORS, 3.0),
    (products.OPERATORS, 2.0),
    (reductions.OPERATORS, 2.0),
    (views.OPERATORS, 3.0),
)
_OF_INTEGERS = ((integers.OPERATORS, 1.0),)
_MOST_ELEMENTS = 60_000
_KINDS = {torch.float64: "float", torch.bool: "bool"} | {getattr(torch, k): k for k in WHOLE}
_TAME = ("float", "bool", *INTEGERS)  # those in graphs of floats

_COUNTS = (1, 2, 3, 4, 5, 6, 8, 10, 14)
_OPEN_COUNTS = (1, 2, 2, 3, 3, 4, 5, 6, 8)
_ATTEMPTS = 40


def generate(seed: int, dtype: str) -> Graph:
    """The graph of a seed: the same for the same seed and type; some have integers only."""
    rng = random.Random(seed)
    return _Generation(rng, dtype, of_integers=is_of_integers(seed)).graph(rng.choice(_COUNTS))


def generate_open(seed: int, dtype: str, ranges: Sequence[Range]) -> Graph:
    """The graph of a seed whose inputs have open extents: the first that makes sense at all.

    Raises:
        Misfit: none of many is.
    """
    for attempt in range(_ATTEMPTS):
        rng = random.Random(seed * _ATTEMPTS + attempt)
        generation = _Generation(rng, dtype)
        generation.drawing.open = tuple(one.drawn for one in ranges)
        generation.drawing.allow_empty = generation.drawing.allow_large = False
        graph = opened(generation.graph(rng.choice(_OPEN_COUNTS)), ranges, rng)
        if graph is not None:
            return graph
    raise Misfit


class _Generation:
    """One graph on its way."""

    def __init__(self, rng: random.Random, dtype: str, *, of_integers: bool = False) -> None:
        self.samples: dict[str, torch.Tensor] = {}
        self.tensors: list[Tensor] = []
        self.calls: list[Call] = []
        self.dtype = dtype
        self.drawing = Drawing(rng, self._add)
        self.drawing.allow_empty = rng.random() < 0.04
        self.drawing.allow_large = rng.random() < 0.15
        # Some topics more often than others, in each graph others.
        topics = _OF_INTEGERS if of_integers else _TOPICS
        self.topics = [operators for operators, _ in topics]
        self.weights = [weight * rng.choice((0.3, 1.0, 1.0, 3.0)) for _, weight in topics]
        self.of_integers = of_integers

    def _add(self, tensor: Tensor) -> Value:
        one = Graph("torch", "float64", (tensor,), (), ())
        self.tensors.append(tensor)
        return self._keep(tensor.name, torch_door.draw(one, 1)[tensor.name])

    def _keep(self, name: str, sample: torch.Tensor) -> Value:
        self.samples[name] = sample
        low = float(sample.min()) if sample.numel() else 0.0
        high = float(sample.max()) if sample.numel() else 0.0
        own = torch_door.as_float(sample, getattr(torch, self.dtype))
        distinct = len(torch.unique(own)) == sample.numel()
        value = Value(name, tuple(sample.shape), _KINDS[sample.dtype], low, high, distinct)
        self.drawing.values.append(value)
        return value

    def graph(self, count: int) -> Graph:
        rng = self.drawing.rng
        for _ in range(count * 6):
            if len(self.calls) < count:
                self._draw_call(rng.choice(rng.choices(self.topics, self.weights)[0]))
        graph = Graph("torch", self.dtype, tuple(self.tensors), tuple(self.calls), self._outputs())
        return graph.pruned()

    def _draw_call(self, operator: object) -> None:
        before = len(self.tensors), len(self.drawing.values)
        try:
            drawn = operator(self.drawing)  # type: ignore[operator]
            text, count = drawn if isinstance(drawn, tuple) else (drawn, 1)
            results = torch_door.call(text, self.samples)
        except (Misfit, RuntimeError, ValueError, IndexError, NotImplementedError, SyntaxError):
            self._forget(before)
            return
        fits = (
            len(results) == count
            and all(r.dtype in _KINDS and r.numel() <= _MOST_ELEMENTS for r in results)
            and all(r.ndim <= 6 and (self.of_integers or _tame(r)) for r in results)
        )
        if not fits:
            self._forget(before)
            return
        start = sum(len(call.results) for call in self.calls)
        names = tuple(f"v{start + at}" for at in range(count))
        call = Call(text, names)
        self.calls.append(call)
        self.drawing.used |= set(call.operands)
        for name, result in zip(names, results, strict=True):
            self._keep(name, result)

    def _forget(self, before: tuple[int, int]) -> None:
        del self.tensors[before[0] :]
        del self.drawing.values[before[1] :]

    def _outputs(self) -> tuple[str, ...]:
        """What nobody takes, and a few more: values inside, inputs, weights, the same twice."""
        rng = self.drawing.rng
        taken = {operand for call in self.calls for operand in call.operands}
        made = [name for call in self.calls for name in call.results]
        outputs = [name for name in made if name not in taken]
        if made and rng.random() < 0.2:
            outputs.append(rng.choice(made))
        if rng.random() < 0.03 and self.tensors:
            outputs.append(rng.choice(self.tensors).name)
        if len(outputs) > 2 and rng.random() < 0.2:
            outputs = outputs[-2:]
        rng.shuffle(outputs)
        return tuple(outputs)


def _tame(result: torch.Tensor) -> bool:
    """Neither overflowing nor undefined, so that differences mean something."""
    if _KINDS[result.dtype] not in _TAME:
        return False
    if not result.is_floating_point():
        return (
            not result.numel()
            or int(result.abs().max() if result.dtype != torch.bool else 0) < 2**24
        )
    masked = torch.where(result == -torch.inf, 0.0, result)
    return bool(torch.isfinite(masked).all()) and (
        not masked.numel() or float(masked.abs().max()) < 1e5
    )
