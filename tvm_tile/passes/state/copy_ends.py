"""Copies of inputs and outputs, so that CUDA graphs take in the kernels that touch them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax, tirx

from tvm_tile.device import Device
from tvm_tile.frontend.imported import NUM_INPUT
from tvm_tile.graph.functions import entries
from tvm_tile.launches.copied_ends import copied_ends
from tvm_tile.passes.ir.rewriter import is_call_tir, is_in_place, size_of, written_over
from tvm_tile.passes.state.copies import copying

_RESHAPE = tvm.ir.Op.get("relax.reshape")


@tvm.transform.module_pass(opt_level=0, name="CopyEnds")
@dataclass(frozen=True, slots=True)
class CopyEnds:
    """Inputs and outputs that many kernels touch are touched by one: a copy.

    before: ``a = call_tir(f, (x,)); y = call_tir(g, (a, x)); return y``
    after:  ``c = copy(x); a = call_tir(f, (c,)); y = call_tir(g, (a, c)); return y``

    and likewise ``z = copy(y); return z`` of an output that kernels read. Which, is decided by
    :func:`~tvm_tile.launches.copied_ends.copied_ends`, for each function that callers call. What it
    returns as it was given, writes in place or hands to functions that are no kernels is left
    alone; so is a function of branches.
    """

    device: Device

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Called by TVM's pass infrastructure."""
        result = mod.clone()
        for var, func in entries(mod):
            result[var] = self._with_copies(result, func)
        return result

    def _with_copies(self, mod: tvm.IRModule, func: relax.Function) -> relax.Function:
        """The function, its copies added to a module."""
        bindings = [b for block in func.body.blocks for b in block.bindings]
        if not bindings or any(isinstance(binding.value, relax.If) for binding in bindings):
            return func
        touched = _Touched(func)
        sizes = {end: size_of(touched.ends[end].ty) for end in touched.candidates}
        kernels = [frozenset(ends & sizes.keys()) for ends in touched.kernels]
        chosen = [touched.ends[end] for end in sorted(copied_ends(kernels, sizes, self.device))]
        return _with_copies(mod, func, chosen, touched.results) if chosen else func


class _Touched:
    """Inputs and outputs that the kernels of a function touch.

    Attributes:
        ends: inputs, without weights, then outputs that kernels make; each once.
        results: values that the function returns, in order.
        kernels: per call of a kernel, in order, the numbers of what it touches.
        candidates: numbers of those that nothing else touches.
    """

    def __init__(self, func: relax.Function) -> None:
        bindings = [binding for block in func.body.blocks for binding in block.bindings]
        made = {binding.var: binding.value for binding in bindings}
        self.results = _results(func.body.body, made)
        count = int((func.attrs or {}).get(NUM_INPUT, len(func.params)))
        makers = {v: _maker(v, made) for v in self.results if isinstance(v, relax.Var)}
        outputs = [var for var, maker in makers.items() if maker is not None]
        self.ends = [*func.params[:count], *outputs]
        self.kernels: list[set[int]] = []
        self.candidates = {end for end, var in enumerate(self.ends) if _can_be_copied(var.ty)}
        self._roots = {var: {end} for end, var in enumerate(self.ends)}
        self._written: dict[Any, set[int]] = {}
        for end, var in enumerate(outputs, count):
            self._written.setdefault(makers[var], set()).add(end)
        for binding in bindings:
            self._read(binding.var, binding.value)
        for var in makers.keys() - outputs:  # an input, or a view
            self.candidates -= self._of(var)

    def _read(self, var: Any, value: Any) -> None:
        """Follow which inputs and outputs a binding's kernel touches."""
        if is_call_tir(value):
            written = self._written.get(var, set())
            self.kernels.append(written.union(*map(self._of, value.args[1].fields)))
        elif is_in_place(value):
            self._write_over(var, value)
        elif isinstance(value, relax.Var):
            self._roots[var] = self._of(var) | self._of(value)
        elif isinstance(value, relax.Call) and value.op == _RESHAPE:
            self._roots[var] = self._of(var) | self._of(value.args[0])
        elif not isinstance(value, relax.Tuple | relax.TupleGetItem):
            for other in relax.analysis.free_vars(value):
                self.candidates -= self._of(other)

    def _write_over(self, var: Any, call: Any) -> None:
        """A kernel reads some of its arguments; those that it writes to are left alone."""
        self._roots[var] = set().union(*map(self._of, written_over(call)))
        self.candidates -= self._roots[var]
        self.kernels.append(set().union(*map(self._of, call.args[1].fields)))

    def _of(self, value: Any) -> set[int]:
        """Inputs and outputs whose memory a value may share."""
        return self._roots.get(value, set()) if isinstance(value, relax.Var) else set()


def _results(returned: Any, made: dict[Any, Any]) -> list[Any]:
    """Values that a function returns, given those that its variables are bound to."""
    result = made.get(returned, returned) if isinstance(returned, relax.Var) else returned
    return list(result.fields) if isinstance(result, relax.Tuple) else [returned]


def _maker(var: Any, made: dict[Any, Any]) -> Any:
    """The variable that the call of the kernel that makes a tensor is bound to, if one does."""
    value = made.get(var)
    if isinstance(value, relax.TupleGetItem):
        var, value = value.tuple_value, made.get(value.tuple_value)
    return var if is_call_tir(value) else None


def _can_be_copied(ty: Any) -> bool:
    """Whether a type is a tensor's of known extents, none of them 0."""
    if not isinstance(ty, relax.TensorType) or not isinstance(ty.shape, relax.ShapeExpr):
        return False
    return all(isinstance(extent, tirx.IntImm) and int(extent) > 0 for extent in ty.shape)


def _with_copies(
    mod: tvm.IRModule, func: relax.Function, chosen: list[Any], results: list[Any]
) -> relax.Function:
    """A function, some of its inputs and outputs copied by functions that a module gets."""
    first, *blocks = func.body.blocks
    inputs = {var: relax.Var(var.name, var.ty) for var in func.params if _is_among(var, chosen)}
    before = [relax.VarBinding(var, _copy(mod, given)) for var, given in inputs.items()]
    # A variable of the same name in the former's place; an output's copy takes over its name.
    outputs = {var: relax.Var(var.name, var.ty) for var in chosen if var not in inputs}
    behind = [relax.VarBinding(made, _copy(mod, var)) for var, made in outputs.items()]
    fields = [outputs.get(v, v) if isinstance(v, relax.Var) else v for v in results]
    returned = func.body.body
    blocks = [type(first)([*before, *first.bindings]), *blocks]
    if len(results) == 1 and results[0].same_as(returned):  # as it is made
        (result,) = fields
    else:
        kept = [b for b in blocks[-1].bindings if not b.var.same_as(returned)]
        blocks[-1] = type(blocks[-1])(kept)
        result = relax.Var("results", func.ret_ty)
        behind.append(relax.VarBinding(result, relax.Tuple(fields)))
    blocks[-1] = type(blocks[-1])([*blocks[-1].bindings, *behind])
    params = [inputs.get(param, param) for param in func.params]
    body = relax.SeqExpr(blocks, result)
    return relax.Function(params, body, func.ret_ty, func.is_pure, func.attrs)


def _copy(mod: tvm.IRModule, var: Any) -> relax.Call:
    """A call that copies a tensor, whose function is added to a module."""
    return relax.call_tir(copying(mod, var.ty, 1, "copy_of_end"), [var], var.ty)


def _is_among(var: Any, others: list[Any]) -> bool:
    """Whether a variable is one of several, by identity."""
    return any(var.same_as(other) for other in others)
