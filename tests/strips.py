"""Runs a kernel of strips in NumPy: all threads at once, and every place they touch is checked.

Places of a vector must be neighbours in memory, the first at a multiple of their number.

Such a kernel has no shared memory and no barriers, so threads may go in step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import ir, tirx
from tvm.s_tir import SBlockRealize

_OPERATORS: dict[type, Callable[[Any, Any], Any]] = {
    tirx.Add: np.add,
    tirx.Sub: np.subtract,
    tirx.Mul: np.multiply,
    tirx.Div: np.divide,
    tirx.FloorDiv: np.floor_divide,
    tirx.FloorMod: np.mod,
    tirx.Min: np.minimum,
    tirx.Max: np.maximum,
    tirx.LT: np.less,
    tirx.LE: np.less_equal,
    tirx.GE: np.greater_equal,
    tirx.And: np.logical_and,
    tirx.Or: np.logical_or,
}
_IF = ir.Op.get("prim.if_then_else")


class Threads:
    """All threads of a launch.

    Attributes:
        stored: how often each element of an output was written, by its parameter's position.
    """

    def __init__(self, func: tirx.PrimFunc, arrays: list[np.ndarray]) -> None:
        self.memory = [(p, array) for p, array in zip(func.params, arrays, strict=True)]
        self.stored = {i: np.zeros(array.shape, np.int64) for i, array in enumerate(arrays)}
        self.registers: list[tuple[Any, np.ndarray]] = []
        self.variables: list[tuple[Any, Any]] = []
        self.count = 1
        self.lane: tuple[int, int] | None = None
        self.run(func.body, np.ones(1, bool))

    def run(self, node: Any, active: np.ndarray) -> None:
        """One statement, by the active threads."""
        if isinstance(node, SBlockRealize):
            pending, body = list(node.block.alloc_buffers), node.block.body
            body = self._launch(body)
            for buffer in pending:
                shape = (self.count, *(int(e) for e in buffer.ty.shape))
                self.registers.append((buffer, np.full(shape, np.nan, str(buffer.ty.dtype))))
            self.run(body, np.ones(self.count, bool))
        elif isinstance(node, tirx.SeqStmt):
            for part in node.seq:
                self.run(part, active)
        elif isinstance(node, tirx.For):
            for value in range(int(node.extent)):
                self.variables.append((node.loop_var, value))
                if node.kind == tirx.ForKind.VECTORIZED:
                    self.lane = value, int(node.extent)
                self.run(node.body, active)
                self.variables.pop()
            self.lane = None
        elif isinstance(node, tirx.IfThenElse):
            holds = np.asarray(self.value(node.condition, active), bool)
            self.run(node.then_case, active & holds)
        else:
            self._store(node, active)

    def _launch(self, loop: Any) -> Any:
        """Bind the variables of blocks and threads; the loops are outermost."""
        bound = []
        while isinstance(loop, tirx.For) and loop.kind == tirx.ForKind.THREAD_BINDING:
            bound.append(loop)
            loop = loop.body
        self.count = int(np.prod([int(b.extent) for b in bound]))
        rest = np.arange(self.count)
        for binding in reversed(bound):
            self.variables.append((binding.loop_var, rest % int(binding.extent)))
            rest = rest // int(binding.extent)
        return loop

    def _store(self, store: tirx.BufferStore, active: np.ndarray) -> None:
        value = np.broadcast_to(self.value(store.value, active), active.shape)[active]
        array, places = self._places(store.buffer, store.indices, active)
        array[places] = value
        for position, (param, _) in enumerate(self.memory):
            if param.same_as(store.buffer):
                np.add.at(self.stored[position], places, 1)

    def _places(self, buffer: Any, indices: Any, active: np.ndarray) -> tuple[np.ndarray, Any]:
        """An array and where the active threads touch it: always inside."""
        places = [np.broadcast_to(self.value(i, active), active.shape)[active] for i in indices]
        for place, extent in zip(places, buffer.ty.shape, strict=True):
            assert place.size == 0 or (place.min() >= 0 and place.max() < int(extent)), buffer
        for own, array in self.registers:
            if own.same_as(buffer):
                return array, (np.flatnonzero(active), *places)
        array = next(array for param, array in self.memory if param.same_as(buffer))
        if self.lane is not None and active.any():
            place, count = self.lane
            assert (np.ravel_multi_index(tuple(places), array.shape) % count == place).all(), buffer
        return array, tuple(places)

    def value(self, expr: Any, active: np.ndarray) -> Any:
        """An expression in all threads; what inactive ones have is arbitrary."""
        if isinstance(expr, tirx.Var):
            return next(value for var, value in self.variables[::-1] if var.same_as(expr))
        if isinstance(expr, tirx.IntImm | tirx.FloatImm):
            return expr.value
        if isinstance(expr, ir.TensorLoad):
            result = np.zeros(active.shape, str(expr.ty.dtype))
            array, places = self._places(expr.source, expr.indices, active)
            result[active] = array[places]
            return result
        if isinstance(expr, tirx.Cast):
            return np.asarray(self.value(expr.value, active)).astype(str(expr.ty.dtype))
        if isinstance(expr, ir.Call) and expr.op.same_as(_IF):
            condition = np.broadcast_to(self.value(expr.args[0], active), active.shape)
            one = self.value(expr.args[1], active & condition)
            return np.where(condition, one, self.value(expr.args[2], active & ~condition))
        if isinstance(expr, tirx.Select):
            parts = (expr.condition, expr.true_value, expr.false_value)
            return np.where(*(self.value(part, active) for part in parts))
        if isinstance(expr, ir.Call):
            assert expr.op.name == "tirx.sigmoid", expr
            return 1 / (1 + np.exp(-self.value(expr.args[0], active)))
        operate = _OPERATORS[type(expr)]
        return operate(self.value(expr.a, active), self.value(expr.b, active))
