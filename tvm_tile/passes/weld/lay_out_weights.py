"""Weights of products of few rows are stored as their kernels read them fastest."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tvm
import tvm_ffi
from tvm import ir, relax, tirx
from tvm.relax.expr_functor import PyExprVisitor, mutator, visitor
from tvm.s_tir import SBlock

from tvm_tile.device.device import Device
from tvm_tile.graph.constant_tensors import transposed
from tvm_tile.graph.extract import extract
from tvm_tile.passes.ir.rewriter import ModuleRewriter, is_call_tir, size_of
from tvm_tile.passes.scheduling.first_choices import FirstChoices, content_of
from tvm_tile.passes.weld.fuse_tiles import Predict
from tvm_tile.report.turned_weights import TurnedWeights
from tvm_tile.schedule.s_tir.steps import replace_parts
from tvm_tile.tile.few_rows.weight_layout import is_weight

Place = tuple[Any, int]
"""A function's variable in the module, and the position of one of its parameters."""

_NEAR_TIE = 1.02
"""Kernels whose predicted times are nearer than this are no reason to copy weights."""

RecordTurned = Callable[[TurnedWeights], None]


@tvm.transform.module_pass(opt_level=0, name="LayOutWeights")
@dataclass(frozen=True, slots=True)
class LayOutWeights:
    """Transpose constant weights where that makes the kernel that reads them faster.

    before: ``y = call_tir(f, (x, w))`` with ``y[i, j] = sum(x[i, k] * w[k, j])``, ``i`` of few rows
    after:  ``y = call_tir(g, (x, w'))`` with ``y[i, j] = sum(x[i, k] * w'[j, k])``

    Or the other way. This comes when it is known what else a kernel does: functions as they are
    are compared, norms before a product and several products side by side included. Constants that
    others read, too, such as the table of tied embeddings, stay as they are: nothing is stored
    twice. So do those of recurrent cells, which are to stay in persistent kernels: what cells take
    there is not what their kernels take.

    Args:
        device: the device that the kernels are made for.
        predict: scheduler of functions, shared with whoever schedules them afterwards.
        refused: why functions must not be made of others, by their contents.
        record: called with each matrix that is transposed, for ``explain()``.
    """

    device: Device
    predict: Predict | None = None
    refused: Mapping[Any, str] | None = None
    record: RecordTurned | None = None

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Called by TVM's pass infrastructure."""
        predict = self.predict or FirstChoices(self.device)
        layouts = _Layouts(mod, self.device, predict, self.refused or {}, self.record)
        changed = layouts.rewritten(mod)
        return relax.transform.DeadCodeElimination()(changed)


@visitor
class _Places(PyExprVisitor):
    """Finds where constants are read.

    Attributes:
        places: constant -> parameters of kernels that it is given for.
        others: constants that are used in other ways.
    """

    def __init__(self) -> None:
        self.places: dict[Any, list[Place]] = {}
        self.others: set[Any] = set()

    def visit_call_(self, call: relax.Call) -> None:
        if not is_call_tir(call) or not isinstance(call.args[1], relax.Tuple):
            super().visit_call_(call)
            return
        for number, argument in enumerate(call.args[1].fields):
            if isinstance(argument, ir.Constant):
                self.places.setdefault(argument, []).append((call.args[0], number))

    def visit_generic_const_(self, constant: Any) -> None:
        self.others.add(constant)

    def is_own(self, constant: Any) -> bool:
        """Whether one parameter is all that a constant is given for, however often."""
        return constant not in self.others and len(set(self.places.get(constant, ()))) == 1


@dataclass(frozen=True, slots=True)
class _Faster:
    """A function that takes weights transposed, and what that is worth.

    Attributes:
        var: variable of the function, in the module that is made.
        seconds: predicted seconds of a call, amid a model.
        seconds_before: predicted seconds of a call of the function as it was.
    """

    var: Any
    seconds: float
    seconds_before: float


@mutator
class _Layouts(ModuleRewriter):
    def __init__(
        self,
        mod: tvm.IRModule,
        device: Device,
        predict: Predict,
        refused: Mapping[Any, str],
        record: RecordTurned | None,
    ) -> None:
        super().__init__(mod)
        self._mod, self._device = mod, device
        self._predict, self._refused, self._record = predict, refused, record
        self._found = _Places()
        for func in mod.functions.values():
            if isinstance(func, relax.Function):
                self._found.visit_expr(func)
        self._weights: dict[Any, tuple[int, ...]] = {}
        self._functions: dict[Any, _Faster | None] = {}
        self._turned: dict[Any, relax.Expr] = {}

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = super().visit_call_(call)
        if not is_call_tir(call) or not isinstance(call.args[1], relax.Tuple):
            return call
        var, args = call.args[0], list(call.args[1].fields)
        places = tuple(n for n in self._weights_of(var) if self._found.is_own(args[n]))
        if not places:
            return call
        if (var, places) not in self._functions:
            self._functions[var, places] = self._faster(var, places)
        faster = self._functions[var, places]
        if faster is None:
            return call
        for place in places:
            args[place] = self._transposed(args[place], faster)
        return relax.call_tir(faster.var, args, call.ty_args[0])

    def _weights_of(self, var: Any) -> tuple[int, ...]:
        """The positions of parameters that a function reads as weights of few rows only."""
        if var not in self._weights:
            func = self._mod[var]
            # What no constant is given for need not be read.
            is_asked = any(place[0] == var for own in self._found.places.values() for place in own)
            graph = extract(func) if is_asked and isinstance(func, tirx.PrimFunc) else None
            reads = [(o, r) for o in graph.operators for r in o.reads] if graph else []
            named = [
                [is_weight(o, r) for o, r in reads if r.tensor.name == str(param.name)]
                for param in func.params
            ]
            self._weights[var] = tuple(n for n, own in enumerate(named) if own and all(own))
        return self._weights[var]

    def _faster(self, var: Any, places: Sequence[int]) -> _Faster | None:
        """A function that takes some matrices transposed; ``None`` where it takes no less time."""
        func = self._mod[var]
        now, other = self._predict(func, None), transposing(func, places)
        if now is None or now.rule.is_timed_inside or content_of(other) in self._refused:
            return None
        found = self._predict(other, None)
        if found is None:
            return None
        if now.seconds < _NEAR_TIE * found.seconds:
            return None
        name = self.builder_.add_func(other, str(var.name_hint))
        return _Faster(name, found.seconds, now.seconds)

    def _transposed(self, weights: Any, reader: _Faster) -> relax.Expr:
        """The weights transposed, made once, and told to the report."""
        if weights not in self._turned:
            self._turned[weights] = transposed(weights)
            if self._record:
                ty = self._turned[weights].ty
                rows, columns = map(int, ty.shape)
                name, times = str(reader.var.name_hint), (reader.seconds, reader.seconds_before)
                self._record(TurnedWeights(name, (rows, columns), size_of(ty), *times))
        return self._turned[weights]


def transposing(func: tirx.PrimFunc, places: Sequence[int]) -> tirx.PrimFunc:
    """``func`` with some matrices transposed in memory, and read accordingly.

    Args:
        func: an unscheduled function.
        places: positions of those parameters, matrices that it only reads.
    """
    params = list(func.params)
    for place in places:
        old = params[place]
        rows, columns = old.ty.shape
        params[place] = tirx.decl_buffer([columns, rows], str(old.ty.dtype), str(old.name))
    pairs = [(func.params[place], params[place]) for place in places]

    def renewed(buffer: Any) -> Any:
        return next((new for old, new in pairs if buffer.same_as(old)), None)

    def load(node: ir.TensorLoad) -> Any:
        new = renewed(node.source)
        return node if new is None else tirx.BufferLoad(new, list(reversed(node.indices)))

    def region(node: Any) -> Any:
        new = renewed(node.source)
        return node if new is None else tirx.BufferRegion(new, list(reversed(node.region)))

    def block(node: SBlock) -> SBlock:
        return replace_parts(node, reads=[region(read) for read in node.reads])

    entries = [(ir.TensorLoad, load), (SBlock, block)]
    body = tvm_ffi.structural_map(func.body, entries, order="post")
    return tirx.PrimFunc(params, body, func.ret_type, func.attrs)
