"""Let reads of a table at indices that are data go with what is computed of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax, tirx

from tvm_tile.graph.expression import is_in_order
from tvm_tile.graph.extract import blocks_in, loads_in
from tvm_tile.passes.ir.op_pattern import OpPattern, pattern_of, with_pattern
from tvm_tile.passes.ir.rewriter import is_call_tir


@tvm.transform.module_pass(opt_level=0, name="MarkGathers")
@dataclass(frozen=True, slots=True)
class MarkGathers:
    """Tell FuseOps that a gather is an injective function, where only element-wise ones follow.

    before: ``x = take(tokens_table, tokens); p = take(places_table, places); y = add(x, p)``, where
            TVM marks ``take`` as opaque: it cannot tell where that reads
    after:  each ``take`` is marked as injective, so that all of it is one function

    Left apart are gathers that sums and products read: their rules want to know what lies side by
    side. So are those of what the block makes, but for indices: it would be made anew for each
    element that is read.
    """

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Called by TVM's pass infrastructure."""
        marked = mod.clone()
        for func in mod.functions.values():
            if isinstance(func, relax.Function) and isinstance(func.body, relax.SeqExpr):
                for var in _followed(mod, func):
                    marked[var] = with_pattern(mod[var], OpPattern.INJECTIVE)
        return marked


def _followed(mod: tvm.IRModule, func: relax.Function) -> Iterator[Any]:
    """The gathers of which each call can be fused with all that reads its value."""
    results = set(relax.analysis.free_vars(func.body.body))
    can_be: dict[Any, bool] = {}
    for block in func.body.blocks:
        made = {binding.var: binding.value for binding in block.bindings}
        readers: dict[Any, list[Any]] = {}
        for value in made.values():
            for var in relax.analysis.free_vars(value):
                readers.setdefault(var, []).append(value)
        for var, value in made.items():
            if not is_call_tir(value) or not _is_gather(mod[value.args[0]]):
                continue
            is_inner = isinstance(var, relax.DataflowVar) and var not in results
            alike = all(_is_injective(mod, reader) for reader in readers.get(var, [None]))
            is_cheap = all(_is_cheap(mod, field, made) for field in value.args[1].fields)
            can_be[value.args[0]] = (
                can_be.get(value.args[0], True) and is_inner and alike and is_cheap
            )
    return (var for var, fits in can_be.items() if fits)


def _is_cheap(mod: tvm.IRModule, value: Any, made: Mapping[Any, Any]) -> bool:
    """Whether a value is in memory, or may be computed anew where it is read: indices are."""
    maker = made.get(value) if isinstance(value, relax.Var) else None
    if maker is None or not _is_injective(mod, maker):
        return True
    arguments = maker.args[1].fields
    is_index = all("int" in str(own.ty.dtype) for own in (value, *arguments))
    return is_index and all(_is_cheap(mod, argument, made) for argument in arguments)


def _is_injective(mod: tvm.IRModule, value: Any) -> bool:
    """Whether an expression calls a function that computes each element from others alike."""
    pattern = pattern_of(mod[value.args[0]]) if is_call_tir(value) else None
    return pattern is not None and pattern <= OpPattern.INJECTIVE


def _is_gather(func: Any) -> bool:
    """Whether a function is one block that makes each element at its own place, and reads where
    data tell."""
    if pattern_of(func) is not OpPattern.OPAQUE:
        return False
    inner = blocks_in(func.body)
    if len(inner) != 1 or not is_in_order(inner[0]):
        return False
    (block,) = inner
    if any(v.iter_type != tirx.IterVar.DataPar for v in block.iter_vars):
        return False
    loads = loads_in(block.body.value)
    return any(loads_in(index) for load in loads for index in load.indices)
