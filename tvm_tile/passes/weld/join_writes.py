"""Tensors that are written in place one right behind the other are written by one kernel."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax

from tvm_tile.device.device import Device
from tvm_tile.graph.functions import with_relax_functions
from tvm_tile.passes.ir.rewriter import is_in_place, written_over
from tvm_tile.passes.scheduling.first_choices import FirstChoices, content_of
from tvm_tile.passes.state.separate_in_place import writes_in_place
from tvm_tile.passes.weld.fuse_tiles import Predict
from tvm_tile.passes.weld.one_function import JoinedFunctions, in_turn, joined_name, outer_values
from tvm_tile.passes.weld.parallel_products import is_static


@tvm.transform.module_pass(opt_level=0, name="JoinWrites")
@dataclass(frozen=True, slots=True)
class JoinWrites:
    """Join calls that write in place, such as those of a layer's cache of keys and of its values.

    before: ``keys2 = call_tir_inplace(f, (keys, position, k), [0])``
            ``values2 = call_tir_inplace(g, (values, position, v), [0])``
    after:  ``both = call_tir_inplace(joined, (keys, values, position, k, v), [0, 1])``
            ``keys2 = both[0]; values2 = both[1]``

    None of them may take what another one writes, before or after: no thread would know whether
    others have written it. Tensors that are written in place are parameters or made by kernels, so
    that no two share memory; nor does an operand, as reshapes are no views where such calls are.

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
        joining = _OneWrite(mod, self.predict or FirstChoices(self.device), self.refused or {})

        def joined(func: relax.Function) -> relax.Function:
            return joining.joined(func) if writes_in_place(func) else func

        changed = with_relax_functions(mod, joined)
        joining.added.add_to(changed)
        return changed


class _OneWrite:
    """The functions of a module, while their calls are joined.

    Attributes:
        added: the joined functions.
    """

    def __init__(self, mod: tvm.IRModule, predict: Predict, refused: Mapping[Any, str]) -> None:
        self._mod, self._predict, self._refused = mod, predict, refused
        self.added = JoinedFunctions()

    def joined(self, func: relax.Function) -> relax.Function:
        """The function with calls joined that stand right behind each other."""
        blocks: list[Any] = []
        for run in _runs(func):
            block = self._as_one(run) if len(run) > 1 else None
            blocks += run if block is None else [block]
        body = relax.SeqExpr(blocks, func.body.body)
        return relax.Function(func.params, body, func.ret_ty, func.is_pure, func.attrs)

    def _as_one(self, run: Sequence[Any]) -> Any | None:
        """Blocks of one call each as one block; ``None`` where that takes no less time."""
        bindings = [block.bindings[0] for block in run]
        calls = [(binding.var, binding.value) for binding in bindings]
        homes = [_written(call) for _, call in calls]
        outer = homes + [value for value in outer_values(calls) if not _is_one_of(value, homes)]
        func = in_turn(self._mod, [((var,), call) for var, call in calls], outer)
        alone = [self._predict(self._mod[call.args[0]], None) for _, call in calls]
        whole = None if content_of(func) in self._refused else self._predict(func, None)
        if whole is None or whole.seconds >= sum(one.seconds for one in alone if one is not None):
            return None
        names = [str(call.args[0].name_hint) for _, call in calls]
        var = self.added.named(func, joined_name(names))
        types = [call.ty_args[0] for _, call in calls]
        both = relax.Var("written", relax.TupleType(types))
        parts = [
            relax.VarBinding(binding.var, relax.TupleGetItem(both, number))
            for number, binding in enumerate(bindings)
        ]
        call = relax.call_tir_inplace(var, outer, list(range(len(homes))), types)
        return relax.BindingBlock([relax.VarBinding(both, call), *parts])


def _runs(func: relax.Function) -> Iterator[list[Any]]:
    """All pieces in order: calls that can be one kernel together, others by themselves."""
    run: list[Any] = []
    for block in _pieces(func):
        call = _write_of(block)
        if call is None or not all(_is_apart(block, other) for other in run):
            if run:
                yield run
            run = []
        if call is None:
            yield [block]
        else:
            run.append(block)
    if run:
        yield run


def _pieces(func: relax.Function) -> Iterator[Any]:
    """The blocks of a function, those that are no dataflow with a binding each."""
    for block in func.body.blocks:
        if isinstance(block, relax.DataflowBlock):
            yield block
        else:
            yield from (relax.BindingBlock([binding]) for binding in block.bindings)


def _write_of(block: Any) -> Any | None:
    """The call of a block that is one call, of static shapes, and writes one tensor, else none."""
    if isinstance(block, relax.DataflowBlock) or len(block.bindings) != 1:
        return None
    call = block.bindings[0].value
    if not is_in_place(call) or not isinstance(call.ty_args[0], relax.TensorType):
        return None
    if not all(is_static(value.ty) for value in call.args[1].fields):
        return None
    homes = written_over(call)
    return call if len(homes) == 1 and homes[0] is not None else None


def _is_apart(later: Any, earlier: Any) -> bool:
    """Whether neither of two writes takes what the other one writes or makes."""
    first, second = earlier.bindings[0], later.bindings[0]
    taken, taking = first.value.args[1].fields, second.value.args[1].fields
    mine, others = _written(second.value), (first.var, _written(first.value))
    return not _is_one_of(mine, taken) and not any(_is_one_of(own, taking) for own in others)


def _written(call: relax.Call) -> Any:
    """The tensor that a call writes."""
    return written_over(call)[0]


def _is_one_of(value: Any, values: Sequence[Any]) -> bool:
    """Whether a value is one of several, by identity."""
    return any(value.same_as(known) for known in values)
