"""Tensors without elements: nobody has to compute them, and TVM cannot load them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import relax, tirx
from tvm.relax.expr_functor import mutator
from tvm.s_tir import SBlockRealize

from tvm_tile.graph.functions import with_prim_funcs
from tvm_tile.passes.ir.rewriter import ModuleRewriter, is_call_tir
from tvm_tile.runtime.arrays import numpy_dtype
from tvm_tile.schedule.s_tir.steps import begun


@tvm.transform.module_pass(opt_level=0, name="EmptyResults")
@dataclass(frozen=True, slots=True)
class EmptyResults:
    """Replace a function's results without elements by constants without any.

    before: ``x = call_tir(expand_dims, (y,), out_ty=Tensor((2, 1, 0, 48)))``
    after:  ``x = constant of shape (2, 1, 0, 48)``

    TVM would take the function for a reshape, for which an extent of 0 means that of the operand.
    """

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Called by TVM's pass infrastructure."""
        return _Results(mod).rewritten(mod)


@tvm.transform.module_pass(opt_level=0, name="EmptySums")
@dataclass(frozen=True, slots=True)
class EmptySums:
    """A reduction over no elements becomes what it starts from.

    before: ``for i, j, k in grid(3, 4, 0): init: y[i, j] = 0   y[i, j] += a[i, k] * b[k, j]``
    after:  ``for i, j in grid(3, 4): y[i, j] = 0``

    TVM starts a sum in the first turn of its loop, which does not come: whatever was in memory
    would be the result.
    """

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Called by TVM's pass infrastructure."""
        return with_prim_funcs(mod, _without_empty_sums)


@tvm.transform.module_pass(opt_level=0, name="EmptyConstants")
@dataclass(frozen=True, slots=True)
class EmptyConstants:
    """A constant without elements becomes a tensor that nothing is written to.

    before: ``f(constant of shape (1, 0))``
    after:  ``t = builtin.alloc_tensor((1, 0)); f(t)``

    For functions without dataflow blocks, whose memory is not planned yet.
    """

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Called by TVM's pass infrastructure."""
        return _Constants(mod).rewritten(mod)


@mutator
class _Results(ModuleRewriter):
    def visit_call_(self, call: relax.Call) -> relax.Expr:
        if not is_call_tir(call) or not _is_empty(call.ty):
            return super().visit_call_(call)
        kind = call.ty
        dtype = str(kind.dtype)
        array = np.zeros([int(extent) for extent in kind.shape], numpy_dtype(dtype))
        return relax.const(array, dtype)


@mutator
class _Constants(ModuleRewriter):
    def visit_generic_const_(self, constant: tvm.ir.GenericConst) -> relax.Expr:
        if not _is_empty(constant.ty):
            return super().visit_generic_const_(constant)
        kind = constant.ty
        return self.builder_.emit(relax.op.builtin.alloc_tensor(kind.shape, str(kind.dtype), 0))


def _without_empty_sums(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """The function without sums over nothing, which leave their start."""
    unused: set[Any] = set()  # loops that ran over what was to be summed

    def start(realize: SBlockRealize) -> SBlockRealize:
        block = realize.block
        pairs = zip(block.iter_vars, realize.iter_values, strict=True)
        summed = [(v, value) for v, value in pairs if v.iter_type == tirx.IterVar.CommReduce]
        if block.init is None or not any(_extent(v) == 0 for v, _ in summed):
            return realize
        unused.update(value for _, value in summed if isinstance(value, tirx.Var))
        return begun(realize)

    def loop(node: tirx.For) -> Any:
        return node.body if node.loop_var in unused else node

    changes = [(SBlockRealize, start), (tirx.For, loop)]
    body = tvm_ffi.structural_map(func.body, changes, order="post")
    return func.with_body(body) if unused else func


def _extent(variable: tirx.IterVar) -> int | None:
    """Extent of a loop variable, if it is known."""
    extent = variable.dom.extent
    return int(extent) if isinstance(extent, tirx.IntImm) else None


def _is_empty(kind: tvm.ir.Type) -> bool:
    """Whether a type is a tensor's of known extents, some of which are 0."""
    extents = list(kind.shape) if isinstance(kind, relax.TensorType) and kind.shape else []
    known = all(isinstance(extent, tirx.IntImm) for extent in extents)
    return known and 0 in map(int, extents)
