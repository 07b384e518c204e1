"""A random graph: lines of code on named tensors, as data."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

_INTEGER_SHARE = 0.25  # of graphs
_NAME = re.compile(r"\b[xcv]\d+\b")


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor that is drawn: an input or a weight.

    Attributes:
        name: ``x0`` for inputs, ``c0`` for weights.
        shape: its extents.
        dtype: as PyTorch names it; ``"float"`` is the graph's own floating-point type.
        below: integers are drawn from 0 to below this; 0: from all that the type has.
        order: dimensions from the slowest to the fastest in memory; empty for row-major.
        scale: standard deviation of floats.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str = "float"
    below: int = 0
    order: tuple[int, ...] = ()
    scale: float = 1.0

    @property
    def is_weight(self) -> bool:
        return self.name.startswith("c")


@dataclass(frozen=True, slots=True)
class Call:
    """One line: ``results = text``.

    Attributes:
        text: an expression in which other values stand by name.
        results: the names that it gives its value to.
    """

    text: str
    results: tuple[str, ...]

    @property
    def operands(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(_NAME.findall(self.text)))

    @property
    def operator(self) -> str:
        """The function that is called, for people and signatures."""
        found = re.search(r"([A-Za-z_][\w.]*)\s*[(<]", self.text)
        if found is None or _NAME.fullmatch(found[1].partition(".")[0]) is None:
            return found[1] if found else "index" if "[" in self.text else "arithmetic"
        return found[1].partition(".")[2]


@dataclass(frozen=True, slots=True)
class Graph:
    """Inputs and weights, calls in order, and which values are returned.

    Attributes:
        language: ``"torch"`` or ``"onnx"``: what the calls are written in.
        dtype: the floating-point type of what is ``"float"``.
    """

    language: str
    dtype: str
    tensors: tuple[Tensor, ...]
    calls: tuple[Call, ...]
    outputs: tuple[str, ...]

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        return tuple(tensor for tensor in self.tensors if not tensor.is_weight)

    @property
    def weights(self) -> tuple[Tensor, ...]:
        return tuple(tensor for tensor in self.tensors if tensor.is_weight)

    @property
    def is_exact(self) -> bool:
        """Whether it has integers and truths only, which no rounding decides."""
        return all(tensor.dtype != "float" for tensor in self.tensors)

    @property
    def operators(self) -> tuple[str, ...]:
        return tuple(sorted({call.operator for call in self.calls}))

    def pruned(self) -> Graph:
        """The graph without what no output depends on."""
        wanted = set(self.outputs)
        kept: list[Call] = []
        for call in reversed(self.calls):
            if wanted & set(call.results):
                kept.append(call)
                wanted |= set(call.operands)
        tensors = tuple(tensor for tensor in self.tensors if tensor.name in wanted)
        return replace(self, calls=tuple(reversed(kept)), tensors=tensors)

    def lines(self) -> Iterator[str]:
        """The calls as lines of code."""
        for call in self.calls:
            yield f"{', '.join(call.results)} = {call.text}"

    def to_data(self) -> dict[str, Any]:
        """Plain data, as JSON keeps it."""
        return asdict(self)

    @classmethod
    def from_data(cls, data: dict[str, Any]) -> Graph:
        """The reverse of :meth:`to_data`."""
        tensors = (
            Tensor(**{**t, "shape": tuple(t["shape"]), "order": tuple(t["order"])})
            for t in data["tensors"]
        )
        calls = (Call(call["text"], tuple(call["results"])) for call in data["calls"])
        own = {"tensors": tuple(tensors), "calls": tuple(calls), "outputs": tuple(data["outputs"])}
        return cls(**{**data, **own})


def is_of_integers(seed: int) -> bool:
    """Whether a seed's graph has integers only, of the whole range of their types."""
    return random.Random(seed + 4).random() < _INTEGER_SHARE
