"""Calls that write over their arguments stay between what is before and what is behind them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tvm
import tvm_ffi
from tvm import relax

from tvm_tile.graph.functions import calls_in, with_relax_functions
from tvm_tile.passes.ir.rewriter import is_in_place


@tvm.transform.module_pass(opt_level=0, name="SeparateInPlace")
@dataclass(frozen=True, slots=True)
class SeparateInPlace:
    """Divide dataflow blocks at their calls of ``call_tir_inplace``.

    before: ``with dataflow(): a = f(x); b = g(a); c = call_tir_inplace(h, (a,)); d = add(c, b)``
    after:  ``with dataflow(): a = f(x); b = g(a)``
            ``c = call_tir_inplace(h, (a,))``
            ``with dataflow(): d = add(c, b)``

    Within a block, passes order calls by the values that they take: FuseOps would compute ``b``
    together with ``d``, from what ``h`` has left of ``a``.
    """

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Called by TVM's pass infrastructure."""
        return with_relax_functions(
            mod, lambda func: _separated(func) if writes_in_place(func) else func
        )


def writes_in_place(func: relax.Function) -> bool:
    """Whether a function has calls that write over their arguments."""
    return any(map(is_in_place, calls_in(func)))


def _separated(func: relax.Function) -> relax.Function:
    """The function with its blocks divided at calls that write over their arguments."""
    blocks: list[Any] = []
    renamed: dict[Any, Any] = {}
    for block in func.body.blocks:
        parts = _parts(block)
        home = {b.var: n for n, part in enumerate(parts) for b in part}
        for number, part in enumerate(parts):
            for binding in part:
                for var in relax.analysis.free_vars(binding.value):
                    if isinstance(var, relax.DataflowVar) and home[var] != number:
                        renamed[var] = relax.Var(var.name, var.ty)
                if is_in_place(binding.value) and isinstance(binding.var, relax.DataflowVar):
                    renamed[binding.var] = relax.Var(binding.var.name, binding.var.ty)
        for part in parts:
            is_dataflow = isinstance(block, relax.DataflowBlock) and not is_in_place(part[0].value)
            kind = relax.DataflowBlock if is_dataflow else relax.BindingBlock
            blocks.append(kind(part))
    return with_blocks(func, blocks, renamed)


def with_blocks(
    func: relax.Function, blocks: Sequence[Any], renamed: Mapping[Any, Any]
) -> relax.Function:
    """A function with other blocks, and with other variables in the place of some."""

    def use(var: relax.Var) -> Any:
        return renamed.get(var, var)

    renaming = [(relax.Var, use), (relax.DataflowVar, use)]
    body = relax.SeqExpr(list(blocks), func.body.body)
    mapped = tvm_ffi.structural_map(body, renaming, order="post") if renamed else body
    return relax.Function(func.params, mapped, func.ret_ty, func.is_pure, func.attrs)


def _parts(block: Any) -> list[list[Any]]:
    """The bindings of a block, each that writes in place by itself."""
    if not isinstance(block, relax.DataflowBlock):
        return [list(block.bindings)]
    parts: list[list[Any]] = [[]]
    for binding in block.bindings:
        if is_in_place(binding.value):
            parts += [[binding], []]
        else:
            parts[-1].append(binding)
    return [part for part in parts if part]
