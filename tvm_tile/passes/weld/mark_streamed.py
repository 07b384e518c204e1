"""Tell functions which arguments come from memory: weights of models larger than the cache.

What a model computes is read a moment later, and found in the second-level cache. Weights are read
once a run: if all of them together are more than the cache keeps, none is there when it is read
again (``tile/time.py``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import tirx

from tvm_tile.device.device import Device
from tvm_tile.passes.ir.rewriter import is_call_tir, is_in_place, size_of
from tvm_tile.schedule.scene import STREAMED, with_streamed


@tvm.transform.module_pass(opt_level=0, name="MarkStreamed")
@dataclass(frozen=True, slots=True)
class MarkStreamed:
    """Mark arguments of functions that are constants in all of their calls, in a large model.

    before: ``call_tir(dense, (x, constant))``
    after:  the same, ``dense`` with the attribute ``tvm_tile.streamed = [1]``
    """

    device: Device

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Called by TVM's pass infrastructure."""
        calls = list(_calls(mod))
        weights = {value: size_of(value.ty) for call in calls for value in _constants(call)}
        kept = self.device.l2_capacity * self.device.times.chip.kept_share
        if sum(weights.values()) <= kept:
            return mod
        places: dict[Any, set[int]] = {}
        for call in calls:
            own = {n for n, value in enumerate(call.args[1].fields) if _is_constant(value)}
            places[call.args[0]] = places.get(call.args[0], own) & own
        marked = mod.clone()
        for var, own in places.items():
            if own:
                marked[var] = with_streamed(mod[var], sorted(own))
        return marked


def streamed_again(
    func: tirx.PrimFunc, parts: Sequence[tirx.PrimFunc], outer: Sequence[Any]
) -> tirx.PrimFunc:
    """A function that was made of others, with its own weights marked if any of theirs were.

    Args:
        func: the function.
        parts: the functions that it was made of.
        outer: its arguments.
    """
    if not any(STREAMED in (part.attrs or {}) for part in parts):
        return func
    return with_streamed(func, [n for n, value in enumerate(outer) if _is_constant(value)])


def _calls(mod: tvm.IRModule) -> list[Any]:
    """All calls of kernels in a module's dataflow blocks."""
    functions = (func for func in mod.functions.values() if not isinstance(func, tirx.PrimFunc))
    values = [
        binding.value
        for func in functions
        for block in getattr(func.body, "blocks", ())
        for binding in block.bindings
    ]
    return [value for value in values if is_call_tir(value) or is_in_place(value)]


def _constants(call: Any) -> list[Any]:
    """The arguments of a call that are constants."""
    return [value for value in call.args[1].fields if _is_constant(value)]


def _is_constant(value: Any) -> bool:
    """Whether a value is a constant of the model."""
    return isinstance(value, tvm.ir.Constant)
