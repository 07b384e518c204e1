"""Scans of all kinds, and what they come to by NumPy and PyTorch in double precision."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import tvm
from tvm import relax

from tvm_tile.graph.rowwise import Combine
from tvm_tile.loops.scans import scan

_NUMPY = {
    Combine.SUM: np.add,
    Combine.PRODUCT: np.multiply,
    Combine.LOG_SUM_EXP: np.logaddexp,
}


@dataclass(frozen=True, slots=True)
class Wanted:
    """One scan of an input, which is drawn at random."""

    combine: Combine
    shape: tuple[int, ...]
    axis: int | None
    source: str = "float32"
    result: str | None = None
    is_exclusive: bool = False
    is_reversed: bool = False

    @property
    def has_places(self) -> bool:
        return self.combine in (Combine.LARGEST, Combine.SMALLEST)

    def emitted(self, builder: Any, x: Any) -> tuple[Any, ...]:
        """The scan of ``x``, as calls in a dataflow block."""
        return scan(
            builder, x, self.combine, self.axis, self.result,
            is_exclusive=self.is_exclusive, is_reversed=self.is_reversed,
            has_places=self.has_places,
        )  # fmt: skip

    def drawn(self, rng: np.random.Generator) -> np.ndarray:
        """An input: small integers, among floating-point numbers some NaN where these count."""
        if self.source == "bool":
            return rng.integers(0, 2, self.shape).astype("bool")
        if not self.source.startswith("float"):
            return rng.integers(-3, 4, self.shape).astype(self.source)
        x = rng.standard_normal(self.shape)
        if self.has_places:
            x = np.where(rng.random(self.shape) < 0.01, np.nan, np.round(x))
        return x.astype(self.source)

    def expected(self, x: np.ndarray) -> tuple[np.ndarray, ...]:
        """The scan in double precision, or in the result's integers."""
        if self.axis is None:
            x = x.ravel()
        axis = self.axis or 0
        if self.has_places:
            extreme = torch.cummax if self.combine is Combine.LARGEST else torch.cummin
            values, places = extreme(torch.from_numpy(x), axis)
            return values.numpy(), places.numpy()
        result = np.dtype(self.result or self.source)
        own = (np.flip(x, axis) if self.is_reversed else x).astype(
            np.float64 if result.kind == "f" else result
        )
        found = _NUMPY[self.combine].accumulate(own, axis)
        if self.is_exclusive:
            nothing = np.full_like(found.take([0], axis), int(self.combine is Combine.PRODUCT))
            found = np.concatenate([nothing, found.take(range(x.shape[axis] - 1), axis)], axis)
        return (np.flip(found, axis) if self.is_reversed else found,)


def model(wanted: list[Wanted]) -> tvm.IRModule:
    """``main(x0, ...)``: a scan of each input; all their outputs, one after another."""

    def body(builder: Any, inputs: list[Any]) -> list[Any]:
        pairs = zip(wanted, inputs, strict=True)
        return [output for own, x in pairs for output in own.emitted(builder, x)]

    return module_of([(own.shape, own.source) for own in wanted], body)


def module_of(
    inputs: list[tuple[tuple[int, ...], str]], body: Callable[[Any, list[Any]], list[Any]]
) -> tvm.IRModule:
    """``main(x0, ...)``: what ``body`` emits, all its results as one tuple."""
    builder = relax.BlockBuilder()
    params = [relax.Var(f"x{i}", relax.TensorType(*own)) for i, own in enumerate(inputs)]
    with builder.function("main", params):
        with builder.dataflow():
            outputs = builder.emit_output(relax.Tuple(body(builder, params)))
        builder.emit_func_output(outputs)
    return builder.get()


def results(compiled: Any, arrays: list[np.ndarray]) -> list[np.ndarray]:
    """A compiled model's outputs, in their order."""
    found = compiled(*arrays)
    if isinstance(found, dict):
        found = list(found.values())
    values = found if isinstance(found, list | tuple) else [found]
    return [np.asarray(value) for value in values]
