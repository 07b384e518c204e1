"""Values that are written in place are computed by the kernel that writes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tvm
import tvm_ffi
from tvm import relax, tirx
from tvm.s_tir import SBlock

from tvm_tile.device.device import Device
from tvm_tile.graph.functions import with_relax_functions
from tvm_tile.passes.ir.rewriter import is_in_place, written_over
from tvm_tile.passes.scheduling.first_choices import FirstChoices, content_of
from tvm_tile.passes.state.separate_in_place import writes_in_place
from tvm_tile.passes.weld.fuse_tiles import (
    Predict,
    bindings_of,
    is_plain_call,
    kind_of,
    overwritten,
    with_outputs,
)
from tvm_tile.passes.weld.one_function import JoinedFunctions, as_one, joined_name, outer_values
from tvm_tile.schedule.s_tir.normalize import inlined
from tvm_tile.schedule.s_tir.steps import replace_parts
from tvm_tile.tile.weld.connect import Kind


@tvm.transform.module_pass(opt_level=0, name="FeedWrites")
@dataclass(frozen=True, slots=True)
class FeedWrites:
    """Join calls that write in place with what makes their operands, element by element.

    before: ``k = call_tir(rotated, (y, cos, sin))``
            ``cache2 = call_tir_inplace(write_rows, (cache, position, k))``
    after:  ``cache2 = call_tir_inplace(joined, (cache, position, y, cos, sin))``

    Nothing else may read ``k``, but for views, which cost nothing: these are made anew. Nor may
    what it is made of be written over before the call, or by it: no thread would know whether
    others have read it. Each element is made once, as it is written once.

    Args:
        device: the device that the kernels are made for.
        predict: scheduler of functions, shared with whoever schedules them afterwards.
        refused: why functions must not be made of others, by their contents.
    """

    device: Device
    predict: Predict | None = None
    refused: Mapping[Any, str] | None = None

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Called by TVM's pass infrastructure."""
        predict = self.predict or FirstChoices(self.device)
        added = JoinedFunctions()

        def fed(func: relax.Function) -> relax.Function:
            if not writes_in_place(func):
                return func
            return _Fed(mod, func, predict, self.refused or {}, added).result()

        changed = with_relax_functions(mod, fed)
        added.add_to(changed)
        return changed


class _Fed:
    """One function, while its calls are joined."""

    def __init__(
        self,
        mod: tvm.IRModule,
        func: relax.Function,
        predict: Predict,
        refused: Mapping[Any, str],
        added: JoinedFunctions,
    ) -> None:
        self._mod, self._func, self._predict, self._refused = mod, func, predict, refused
        self._added, self._over = added, overwritten(func)
        self._places = {b.var: place for place, (_, b) in enumerate(bindings_of(func))}
        self._makers = {
            binding.var: binding.value
            for block, binding in bindings_of(func)
            if isinstance(block, relax.DataflowBlock) and is_plain_call(binding.value)
        }
        values = [binding.value for _, binding in bindings_of(func)]
        used = [var for value in values for var in relax.analysis.free_vars(value)]
        self._used = [*used, *relax.analysis.free_vars(func.body.body)]

    def result(self) -> relax.Function:
        """The function with its writes joined."""
        blocks = []
        for block in self._func.body.blocks:
            found = [self._binding(binding) for binding in block.bindings]
            kind = relax.DataflowBlock if isinstance(block, relax.DataflowBlock) else None
            blocks.append((kind or relax.BindingBlock)(found))
        func = self._func
        body = relax.SeqExpr(blocks, func.body.body)
        joined = relax.Function(func.params, body, func.ret_ty, func.is_pure, func.attrs)
        return with_outputs(joined)

    def _binding(self, binding: Any) -> Any:
        """A call that writes in place, joined with what makes its operand if that pays."""
        call = binding.value
        if not is_in_place(call) or len(call.ty_args) != 1 or len(call.attrs.inplace_indices) != 1:
            return binding
        makers = self._feeding(call, self._places[binding.var])
        joined = self._joined(binding, makers) if makers else None
        return binding if joined is None else relax.VarBinding(binding.var, joined)

    def _feeding(self, call: Any, place: int) -> list[Any]:
        """The values that the call can make itself, in the order of the program."""
        written = int(call.attrs.inplace_indices[0])
        left = [a for n, a in enumerate(call.args[1].fields) if n != written]
        found: list[Any] = []
        while left:
            value = left.pop()
            made = self._makers.get(value) if isinstance(value, relax.Var) else None
            if made is None or any(value.same_as(own) for own in found):
                continue
            kind = kind_of(self._mod[made.args[0]])
            alone = sum(value.same_as(own) for own in self._used) == 1
            if kind is not Kind.VIEW and not (kind is Kind.SPATIAL and alone):
                continue
            arguments = list(made.args[1].fields)
            is_late = any(
                self._places[value] < at <= place and argument.same_as(gone)
                for argument in arguments
                for at, gone in self._over
            )
            if not is_late:
                found.append(value)
                left += arguments
        return sorted(found, key=self._places.__getitem__)

    def _joined(self, binding: Any, makers: Sequence[Any]) -> Any | None:
        """The call of one function for all of it; ``None`` where no rule writes that."""
        made = [(value, self._makers[value]) for value in makers]
        last = (binding.var, call := binding.value)
        outer = outer_values([last, *made])
        func = _as_one_block(as_one(self._mod, [*made, last], outer))
        if func is None or content_of(func) in self._refused or self._predict(func, None) is None:
            return None
        names = [str(own.args[0].name_hint) for own in (*(maker for _, maker in made), call)]
        var = self._added.named(func, joined_name(names))
        (written,) = written_over(call)
        place = next(n for n, value in enumerate(outer) if value.same_as(written))
        return relax.call_tir_inplace(var, outer, [place], call.ty_args[0])


def _as_one_block(func: tirx.PrimFunc) -> tirx.PrimFunc | None:
    """All that a function computes as the block that writes; ``None`` where that cannot be.

    What the block reads of the tensor that it writes is the element that the same thread writes:
    as :mod:`tvm_tile.frontend.torch.operators.rows_in_place` has it, schedules need not know.
    """
    sch, form = inlined(func, keep_producers=False)
    if form is None or form.producers or form.reductions or len(form.outputs) != 1:
        return None

    def without_own(block: SBlock) -> SBlock:
        own = [region.source for region in block.writes]
        reads = [r for r in block.reads if not any(r.source.same_as(o) for o in own)]
        return replace_parts(block, reads=reads)

    whole = sch.mod["main"]
    body = tvm_ffi.structural_map(whole.body, [(SBlock, without_own)], order="post")
    written = tirx.PrimFunc(whole.params, body, whole.ret_type, func.attrs)
    return written.without_attr("global_symbol")
