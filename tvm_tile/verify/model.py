"""A whole model: each of its kernels, then its outputs."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tvm_tile.build.dispatch import script_of
from tvm_tile.errors import InputError
from tvm_tile.graph.open_extents import far, top
from tvm_tile.graph.signature import Signature
from tvm_tile.report.verification import KernelCheck, OutputCheck, Verification
from tvm_tile.runtime import CompiledModel
from tvm_tile.runtime.extents import settled, symbols_of
from tvm_tile.verify.arguments import moved
from tvm_tile.verify.compare import Array, compare, is_float, tolerance
from tvm_tile.verify.kernels import Kernels
from tvm_tile.verify.model_inputs import whole_inputs
from tvm_tile.verify.source import Reference, source_of


def weakly(model: Any) -> Callable[[], Any]:
    """A function that gives a model as long as somebody else holds it, and ``None`` after that; the
    path of a file for good."""
    try:
        return weakref.ref(model)
    except TypeError:  # a text has no weak references
        return lambda: model


@dataclass(frozen=True, slots=True)
class Verifier:
    """Verifies the model that it was compiled with.

    Attributes:
        model: function that gives the compiled model's source, as the caller gave it; None once
            nobody else holds it.
        kernels: its functions, before and after scheduling.
    """

    model: Callable[[], Any]
    kernels: Kernels

    @classmethod
    def of(cls, model: Any, kernels: Kernels) -> Verifier:
        """A verifier that does not keep a model's weights in memory."""
        return cls(weakly(model), kernels)

    def scripts(self) -> Mapping[str, str]:
        """The TensorIR of the kernels, by their names."""
        return {name: script_of(func) for name, func in self.kernels.scheduled.items()}

    def __call__(
        self, compiled: CompiledModel, inputs: Sequence[Any] | None = None
    ) -> Verification:
        """Verify; see :meth:`tvm_tile.runtime.CompiledModel.verify`."""
        places = self.kernels.places
        every = _drawn(compiled.inputs, places) if inputs is None else {"": _as_numpy(inputs)}
        # Memory that is used again then holds NaN; and kernels are loaded, once for all.
        with compiled.state.afresh():
            first = next(iter(every.values()))
            compiled(*(np.full_like(a, np.nan) if is_float(a.dtype) else a for a in first))
        checks = tuple(self.kernels.check())
        outputs: list[OutputCheck] = []
        for where, drawn in every.items():
            named = dict(zip((s.name for s in compiled.inputs), drawn, strict=True))
            with compiled.state.afresh() as state:
                source = source_of(self.model(), state)
                found = _compared(compiled, source, named, checks)
            outputs += (replace(check, name=f"{check.name}{where}") for check in found)
        return Verification(compiled.device_name, checks, tuple(outputs), source.name)


def _compared(
    compiled: CompiledModel,
    source: Reference,
    inputs: Mapping[str, Array],
    kernels: Sequence[KernelCheck],
) -> tuple[OutputCheck, ...]:
    """Comparison of the model's outputs with its source's."""
    if source.run is None:
        return ()
    wanted = source.run(inputs)
    got = compiled(*inputs.values())
    got = got if isinstance(got, tuple) else (got,)
    allowed = max((kernel.allowed for kernel in kernels), default=0.0)
    # Roundings of one kernel behind the other add up as a random walk's steps do.
    allowed *= math.sqrt(max(1, sum(kernel.calls for kernel in kernels)))
    others: list[list[Array]] = []
    checks = []
    for at, (signature, own) in enumerate(zip(compiled.outputs, map(np.asarray, got), strict=True)):
        room = max(allowed, tolerance(signature.dtype, 1))
        found = compare(own, wanted[at].reshape(own.shape), room)
        if not found.is_right:
            others = others or _of_moved(source, inputs)
            found = compare(own, wanted[at].reshape(own.shape), room, [o[at] for o in others])
        checks.append(OutputCheck(signature.name, room, found))
    return tuple(checks)


def _of_moved(source: Reference, inputs: Mapping[str, Array]) -> list[list[Array]]:
    """The source's outputs for inputs that are off by a few roundings."""
    assert source.run is not None
    rng = np.random.default_rng(1)
    return [
        source.run({name: moved(array, rng) for name, array in inputs.items()}) for _ in range(2)
    ]


def _drawn(signatures: Sequence[Signature], places: Mapping[int, int]) -> dict[str, list[Array]]:
    """Random inputs, of open extents at the greatest values and at others, by what these are."""
    symbols = symbols_of(signatures)
    if not symbols:
        return {"": whole_inputs(signatures, places)}
    every = {}
    for point in (top(symbols), *far(symbols)):
        extents = {symbol.name: value for symbol, value in zip(symbols, point, strict=True)}
        where = ", ".join(f"{name} = {value}" for name, value in extents.items())
        every[f" at {where}"] = whole_inputs(settled(signatures, extents), places)
    return every


def _as_numpy(inputs: Sequence[Any]) -> list[Array]:
    """Inputs as NumPy arrays."""
    arrays = [np.asarray(value) for value in inputs]
    if any(array.dtype == object for array in arrays):
        raise InputError(
            "inputs to verify with are arrays that NumPy can hold",
            ", ".join(type(value).__name__ for value in inputs),
            "pass NumPy arrays, in the order of the model's inputs",
        )
    return arrays
