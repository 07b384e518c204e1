"""Equal values are computed once."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import ir, relax
from tvm_ffi import StructuralKey

from tvm_tile.graph.functions import global_vars, relax_functions, with_relax_functions
from tvm_tile.passes.ir.rewriter import is_in_place, written_over
from tvm_tile.passes.state.separate_in_place import with_blocks, writes_in_place

_WEIGHT = 1 << 12  # elements


@tvm.transform.module_pass(opt_level=0, name="ShareEqualValues")
@dataclass(frozen=True, slots=True)
class ShareEqualValues:
    """EliminateCommonSubexpr, also in functions that write over their parameters.

    before: ``with dataflow(): a = add(x, y); b = add(x, y); c = multiply(cache, y)``
            ``new = call_tir_inplace(f, (cache, a)); other = call_tir_inplace(f, (kept, b))``
    after:  the same without ``b``; ``other = call_tir_inplace(f, (kept, a))``

    Where one of two equal values is written over, the other one is not. So there only values are
    shared that are computed from nothing that the function writes, and only such as are computed
    in one block, or as lie in memory for other blocks anyway. A function that writes over values of
    its own is left alone, as is one that has others write over something: two loops over memory of
    their own would share it.
    """

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Called by TVM's pass infrastructure."""
        shared = _unread(mod, relax.transform.EliminateCommonSubexpr())
        for var in _writers(mod):
            shared[var] = mod[var]
        return with_relax_functions(
            shared, lambda func: _shared(func) if writes_in_place(func) else func
        )


def _unread(mod: tvm.IRModule, change: tvm.transform.Pass) -> tvm.IRModule:
    """What a pass makes of a module if weights are equal only where they are one constant.

    TVM compares constants by their content, for which it would read all weights.
    """
    numbers: dict[Any, Any] = {}  # a weight -> its place among them, as a number of its type

    def number(constant: Any) -> Any:
        if not hasattr(constant.value, "shape") or math.prod(constant.value.shape) < _WEIGHT:
            return constant
        if constant not in numbers:
            place = tvm.runtime.tensor(np.array(len(numbers)))
            numbers[constant] = ir.GenericConst(place, constant.ty)
        return numbers[constant]

    def weight(constant: Any) -> Any:
        # A number is one of no axes, and says of itself that it has a weight's.
        is_number = getattr(constant.value, "shape", None) == () and len(constant.ty.shape) > 0
        return weights[int(constant.value.numpy())] if is_number else constant

    changed = change(_mapped(mod, number))
    weights = list(numbers)
    return _mapped(changed, weight)


def _mapped(mod: tvm.IRModule, change: Callable[[Any], Any]) -> tvm.IRModule:
    """A module with all constants as ``change`` makes them."""
    return with_relax_functions(
        mod, lambda func: tvm_ffi.structural_map(func, (ir.GenericConst, change))
    )


def _writers(mod: tvm.IRModule) -> set[Any]:
    """The functions that write in place, by others or not."""
    functions = relax_functions(mod)
    found = {var for var, func in functions.items() if writes_in_place(func)}
    grows = bool(found)
    while grows:
        more = {
            var
            for var, func in functions.items()
            if var not in found and not found.isdisjoint(global_vars(func))
        }
        found |= more
        grows = bool(more)
    return found


def _shared(func: relax.Function) -> relax.Function:
    """The function with equal values computed once."""
    written = _written(func)
    if written is None:
        return func
    first: dict[Any, tuple[Any, int]] = {}  # of equal values, with its block
    same: dict[Any, Any] = {}  # a variable -> that of the first equal value
    promoted: dict[Any, Any] = {}  # a variable of one block -> one of the function in its place
    dropped: set[Any] = set()
    for number, binding in _bindings(func):
        var, value = binding.var, binding.value
        if is_in_place(value) or any(v in written for v in relax.analysis.free_vars(value)):
            written.add(var)
            continue
        key = _key(value, same)
        if key is None:
            continue
        known, home = first.setdefault(key, (var, number))
        if known is var:
            continue
        same[var] = known
        if home == number and _is_local(known) and not _is_local(var):
            promoted.setdefault(known, relax.Var(known.name, known.ty))
        if home == number or not _is_local(promoted.get(known, known)):
            dropped.add(var)
    renamed = promoted | {var: promoted.get(same[var], same[var]) for var in dropped}
    blocks = [
        type(block)([binding for binding in block.bindings if binding.var not in dropped])
        for block in func.body.blocks
    ]
    return with_blocks(func, [block for block in blocks if block.bindings], renamed)


def _bindings(func: relax.Function) -> Iterator[tuple[int, Any]]:
    """All bindings in their order, with the number of their block."""
    for number, block in enumerate(func.body.blocks):
        for binding in block.bindings:
            yield number, binding


def _is_local(var: Any) -> bool:
    """Whether a variable is known within its block only."""
    return isinstance(var, relax.DataflowVar)


def _written(func: relax.Function) -> set[Any] | None:
    """The parameters that a function writes over; none where it writes over other values, too."""
    written: set[Any] = set()
    made: set[Any] = set()
    for _, binding in _bindings(func):
        if isinstance(binding.value, relax.If):
            return None
        if not is_in_place(binding.value):
            continue
        for target in written_over(binding.value):
            if target is not None and target not in made:
                written.add(target)
        made.add(binding.var)
    return written if all(var in set(func.params) for var in written) else None


def _key(value: Any, same: dict[Any, Any]) -> Any:
    """A key that calls which compute the same share; ``None`` unless of a pure operator."""
    if not isinstance(value, relax.Call) or not isinstance(value.op, ir.Op):
        return None
    if not value.op.get_attr("FPurity"):
        return None
    types = tuple(map(StructuralKey, value.ty_args))
    operands = tuple(_operand(argument, same) for argument in value.args)
    return value.op, operands, None if value.attrs is None else StructuralKey(value.attrs), types


def _operand(argument: Any, same: dict[Any, Any]) -> Any:
    """Key of an operand, equal for equal values."""
    if isinstance(argument, relax.Var):
        return same.get(argument, argument)
    if isinstance(argument, relax.Tuple):
        return tuple(_operand(field, same) for field in argument.fields)
    if isinstance(argument, ir.GenericConst) and argument.ty.ndim:
        return argument  # a weight, which is not read for this
    return argument if isinstance(argument, ir.GlobalVar) else StructuralKey(argument)
