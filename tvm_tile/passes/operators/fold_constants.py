"""Values that constants alone decide are computed during compilation, as kernels would."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import tvm
from tvm import ir, relax, tirx
from tvm_ffi import StructuralKey

from tvm_tile.build.exact.in_tvm import exact_on_cpu
from tvm_tile.frontend.fold import is_large
from tvm_tile.graph.constant_tensors import elements_of
from tvm_tile.graph.extract import nodes_in
from tvm_tile.graph.functions import bindings_of, is_tensor, with_relax_functions, with_values
from tvm_tile.loops.decoding import format_of
from tvm_tile.passes.ir.rewriter import is_call_tir, size_of

_ARGUMENTS = 2  # of a call whose function takes tensors alone
_MOST_BYTES = 1 << 16  # of a constant and of what is made of it, for that to be kept


@tvm.transform.module_pass(opt_level=0, name="FoldConstants")
@dataclass(frozen=True, slots=True)
class FoldConstants:
    """Calls of functions on constants become constants, NaN and infinities as they are written.

    before: ``y = call_tir(relu, (constant,))``   after: ``y`` is a constant

    TVM's own pass computes them by its CPU build, to which the larger of NaN and 0 is 0. Weights
    that are kept as codes stay codes: functions that decode are not shown to it, nor those that
    make a large mask, or distances, of much smaller tensors.

    Args:
        is_open: whether extents are to be open, so that none of them may decide what is large.
    """

    is_open: bool = False

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Called by TVM's pass infrastructure."""
        folding = _Computing(mod, self.is_open)
        computed = with_relax_functions(mod, folding.computed)
        functions = {v: f for v, f in mod.functions_items() if isinstance(f, tirx.PrimFunc)}
        shown = computed.clone()
        for var, func in functions.items():
            if str(var.name_hint) in folding.left:
                shown[var] = exact_on_cpu(func)
            else:
                del shown[var]
        folded = relax.transform.FoldConstant()(shown)
        folded.update(functions)
        return folded


class _Computing:
    """Computes what calls of functions on constants give, each once for all models.

    Attributes:
        left: names of functions whose calls on constants are left to TVM.
    """

    def __init__(self, mod: tvm.IRModule, is_open: bool) -> None:
        self.left: set[str] = set()
        self._mod, self._is_open = mod, is_open

    def computed(self, func: relax.Function) -> relax.Function:
        """A Relax function whose variables are bound to constants where these are known."""
        known: dict[int, Any] = {}
        left: set[int] = set()
        changed: dict[int, Any] = {}
        for var, value in bindings_of(func.body):
            key, found = var.__chandle__(), known.get(value.__chandle__(), value)
            found = found if isinstance(found, ir.Constant) else None
            if self._is_folded(value):
                given = [known.get(own.__chandle__(), own) for own in value.args[1].fields]
                if all(isinstance(own, ir.Constant) for own in given):
                    found = changed[key] = self._value(value, given)
                if found is None and all(self._is_known(own, left) for own in given):
                    left.add(key)
                    self.left.add(str(value.args[0].name_hint))
            if found is not None:
                known[key] = found
        changed = {key: own for key, own in changed.items() if own is not None}
        return with_values(func, changed) if changed else func

    def _is_folded(self, value: Any) -> bool:
        """Whether an expression calls a function of tensors alone that TVM is to compute."""
        if not is_call_tir(value) or len(value.args) != _ARGUMENTS:
            return False
        func = self._mod[value.args[0]]
        return format_of(func) is None and (self._is_open or not _spreads(func))

    @staticmethod
    def _is_known(value: Any, left: set[int]) -> bool:
        return isinstance(value, ir.Constant) or _handle(value) in left

    def _value(self, call: relax.Call, given: Sequence[Any]) -> Any:
        """What a call gives for constants; ``None`` where that is left to TVM."""
        if not isinstance(call.ty, relax.TensorType):
            return None
        func, ty = self._mod[call.args[0]], call.ty
        if any(size_of(own) > _MOST_BYTES for own in (ty, *(own.ty for own in given))):
            return _computed(func, given, ty)
        values = tuple((StructuralKey(own.ty), elements_of(own).tobytes()) for own in given)
        key = StructuralKey(func.without_attr("global_symbol")), values
        return _known_value(_Asked(key, func, tuple(given), ty))


def _handle(value: Any) -> int:
    return int(value.__chandle__())


@dataclass(frozen=True, slots=True)
class _Asked:
    """A call on constants: equal for equal functions of equal constants."""

    key: Any
    func: Any = field(compare=False)
    given: tuple[Any, ...] = field(compare=False)
    ty: Any = field(compare=False)


@functools.lru_cache(maxsize=256)
def _known_value(asked: _Asked) -> Any:
    """What a call gives: to build a function takes TVM 20 ms."""
    return _computed(asked.func, asked.given, asked.ty)


def _computed(func: tirx.PrimFunc, given: Sequence[Any], ty: Any) -> Any:
    """What a function gives for constants; ``None`` where TVM does not compute it."""
    builder = relax.BlockBuilder()
    with builder.function("main", []):
        var = builder.add_func(exact_on_cpu(func), "computed")
        builder.emit_func_output(builder.emit(relax.call_tir(var, relax.Tuple(given), ty)))
    body = relax.transform.FoldConstant()(builder.get())["main"].body
    values = dict(bindings_of(body))
    found = values.get(body.body, body.body)
    return found if isinstance(found, ir.Constant) else None


def _spreads(func: tirx.PrimFunc) -> bool:
    """Whether a function makes as much of smaller tensors, of others of bools besides, as is better
    computed where it is used: masks, and positions."""
    *inputs, last = (param.ty for param in func.params if is_tensor(param))
    made = _elements(last)
    others = [ty for ty in inputs if str(ty.dtype) != "bool" or _elements(ty) != made]
    is_spread = len(inputs) > max(0, 1 - len(others)) and is_large(
        made, sum(map(_elements, others))
    )
    return is_spread and not nodes_in(func.body, ir.Call)


def _elements(ty: Any) -> int:
    extents = [int(own) for own in ty.shape if isinstance(own, tirx.IntImm)]
    return math.prod(extents) if len(extents) == len(ty.shape) else 0
