"""Sums of few long rows become kernels of their own, where the model says that it pays."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax, tirx
from tvm.relax.expr_functor import PyExprMutator, mutator
from tvm.s_tir import SBlock

from tvm_tile.device.device import Device
from tvm_tile.graph.extract import nodes_in
from tvm_tile.graph.functions import mutated
from tvm_tile.passes.ir.rewriter import is_call_tir
from tvm_tile.passes.scheduling.first_choices import FirstChoices
from tvm_tile.passes.weld.fuse_tiles import Predict
from tvm_tile.passes.weld.kinds import kind_of
from tvm_tile.passes.weld.one_function import nest_function
from tvm_tile.schedule import Scheduled
from tvm_tile.schedule.s_tir.normalize import inlined
from tvm_tile.tile.weld.call_graph import Kind

_WORTHWHILE = 0.8  # of what one kernel takes, which others can be joined with


@tvm.transform.module_pass(opt_level=0, name="SplitRows")
@dataclass(frozen=True, slots=True)
class SplitRows:
    """Take functions of rows apart that a block each cannot go through fast enough.

    before: ``y = call_tir(group_norm, (x, gamma, beta))``
    after:  ``sums = call_tir(sums, (x,)); squares = call_tir(squares, (x, sums))``
            ``y = call_tir(normalized, (x, sums, squares, gamma, beta))``

    As one kernel, rows are read once if they fit on chip, but by one block each: of few long rows,
    such as the groups of an image's channels, most of a device would wait. Apart, each sum is
    spread over all blocks, and what is made of the sums is an element-wise function. Whether that
    takes less time, three launches and reads included, the model says.

    Args:
        device: the device that the kernels are made for.
        predict: scheduler of functions, shared with whoever schedules them afterwards.
    """

    device: Device
    predict: Predict | None = None

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Called by TVM's pass infrastructure."""
        predict = self.predict or FirstChoices(self.device)
        apart = {}
        for var, func in mod.functions_items():
            stages = Stages.of(func) if isinstance(func, tirx.PrimFunc) else None
            if stages is not None and stages.take_less_than(predict(func, None), predict):
                apart[var] = stages
        return mutated(mod, _Splitting(mod, apart)) if apart else mod


@dataclass(frozen=True, slots=True)
class _Stage:
    """A stage of a function as a function of its own.

    Attributes:
        name: name of its block.
        func: the function, whose last parameter is what it makes.
        made: variable of that in the whole function.
        taken: variables of the whole function that it reads, in the order of its parameters.
    """

    name: str
    func: tirx.PrimFunc
    made: Any
    taken: tuple[Any, ...]

    @classmethod
    def of(cls, nest: Any, attrs: Any) -> _Stage:
        """A nest of loops around one block as a function."""
        (block,) = nodes_in(nest, SBlock)
        made = block.writes[0].source
        read = dict.fromkeys(region.source for region in block.reads)
        taken = tuple(source for source in read if not source.same_as(made))
        return cls(str(block.name_hint), nest_function([*taken, made], nest, attrs), made, taken)


@dataclass(frozen=True, slots=True)
class Stages:
    """A function of rows, in stages.

    Attributes:
        params: its parameters.
        ordered: its reductions and its output, in order.
    """

    params: tuple[Any, ...]
    ordered: tuple[_Stage, ...]

    @classmethod
    def of(cls, func: tirx.PrimFunc) -> Stages | None:
        """The stages of a function; ``None`` where it has no reductions that its output reads."""
        if kind_of(func) is not Kind.ROWS:
            return None
        sch, form = inlined(func, keep_producers=False)
        if form is None or form.producers or len(form.outputs) != 1:
            return None
        whole = sch.mod["main"]
        nests = whole.body.block.body.seq
        return cls(tuple(whole.params), tuple(_Stage.of(nest, func.attrs) for nest in nests))

    def take_less_than(self, whole: Scheduled | None, predict: Predict) -> bool:
        """Whether all stages are predicted to take clearly less time than a schedule of it all."""
        left = math.inf if whole is None else _WORTHWHILE * whole.seconds
        for stage in self.ordered:
            own = predict(stage.func, None)
            left -= math.inf if own is None else own.seconds
            if not left > 0:
                return False
        return True


@mutator
class _Splitting(PyExprMutator):
    """Calls the stages of functions in their place."""

    def __init__(self, mod: tvm.IRModule, apart: Mapping[Any, Stages]) -> None:
        super().__init__(mod)
        self._apart = apart

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        stages = self._apart.get(call.args[0]) if is_call_tir(call) else None
        if stages is None:
            return super().visit_call_(call)
        values = [self.visit_expr(value) for value in call.args[1].fields]
        known = dict(zip(stages.params, values, strict=False))
        for stage in stages.ordered:
            name = f"{call.args[0].name_hint}_{stage.name}"
            var = self.builder_.add_func(stage.func, name)
            shape, dtype = stage.made.ty.shape, stage.made.ty.dtype
            given = [known[own] for own in stage.taken]
            made = relax.call_tir(var, given, relax.TensorType(list(shape), str(dtype)))
            if stage is not stages.ordered[-1]:
                known[stage.made] = self.builder_.emit(made)
        return made
