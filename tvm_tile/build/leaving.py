"""Kernels whose blocks may leave before they have done anything, or are not launched at all.

Where the blocks that have something to do are the first ones along an axis of the grid, the host
launches so many: one that leaves at once still costs about a nanosecond. Elsewhere blocks leave.
TVM puts no barrier into a branch, and has no statement that returns from a kernel. So a kernel
calls a function, which its text defines as a macro: an early return. All threads of a block must
agree whether they take it, and no barrier may be in front of it.

When the blocks of a scheduled function leave stands in its attribute until they are kernels: a
statement among its loops would change what TVM's passes make of these.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import tirx

from tvm_tile.graph.expression import substituted
from tvm_tile.graph.extract import nodes_in
from tvm_tile.graph.functions import is_tensor

_NAME = "tvm_tile_leave_unless"
_MACRO = f"#define {_NAME}(needed) if (!(needed)) return\n"
_NOTHING = f"#define {_NAME}(needed)\n"
_OPENCL_BARRIER = "barrier("
_ATTRIBUTE = "tvm_tile.needed_blocks"
_EXTENT = "thread_extent"


@dataclass(frozen=True, slots=True)
class Need:
    """When a block of a kernel has anything to do.

    Attributes:
        blocks: thread tag, such as ``"blockIdx.x"`` -> the variable in ``condition`` that is it.
        condition: condition on these variables and the function's scalars; ``None``: always.
    """

    blocks: Mapping[str, Any]
    condition: Any


def leave_unless(condition: Any) -> tirx.Stmt:
    """The statement by which a block leaves unless a condition holds."""
    return tirx.Evaluate(leaving(condition))


def leaving(condition: Any) -> Any:
    """The call that :func:`leave_unless` is a statement of."""
    return tirx.call_extern("int32", _NAME, condition)


def leaves(statement: Any) -> bool:
    """Whether a block may leave by a statement."""
    calls = nodes_in(statement, tvm.ir.Call)
    return any(str(arg.value) == _NAME for call in calls for arg in _texts(call))


def _texts(call: Any) -> list[Any]:
    """The arguments of a call that are texts."""
    return [arg for arg in call.args if isinstance(arg, tvm.ir.StringImm)]


def with_leaving(source: str) -> str:
    """The text of a kernel, with the macro if it needs that.

    In OpenCL a kernel with barriers stays: PoCL, which runs it on the CPU, computes something else
    where a return is in front of one. What such blocks write is needed by nobody.
    """
    if _NAME not in source:
        return source
    return (_NOTHING if _OPENCL_BARRIER in source else _MACRO) + source


def leaving_unless(func: tirx.PrimFunc, needs: Sequence[Need]) -> tirx.PrimFunc:
    """A scheduled function whose blocks leave where they have nothing to do.

    Args:
        func: the function; conditions may have its scalar parameters.
        needs: needs of each of its kernels, in order.
    """
    if all(need.condition is None for need in needs):
        return func
    told = [
        [list(map(str, n.blocks)), list(n.blocks.values()), n.condition] if n.condition is not None
        else []
        for n in needs
    ]  # fmt: skip
    return func.with_attr(_ATTRIBUTE, [_scalars(func), told])


def _scalars(func: tirx.PrimFunc) -> list[Any]:
    """Parameters of a function that are scalars."""
    return [p for p in func.params if not is_tensor(p)]


@tirx.transform.prim_func_pass(opt_level=0, name="LeaveEarly")
@dataclass(frozen=True, slots=True)
class LeaveEarly:
    """Launch no blocks that have nothing to do, or have them return at the start of their kernel.

    before: ``attr blockIdx.x = 64: attr threadIdx.x = 256: y[...] = ...``
    after:  ``attr blockIdx.x = max(min((n + 3) // 4, 64), 1): attr threadIdx.x = 256: y[...] =
            ...`` if the condition is ``blockIdx.x * 4 < n``, and where it cannot be solved
            ``attr blockIdx.x = 64: attr threadIdx.x = 256: leave unless ...; y[...] = ...``
    """

    def transform_function(
        self, func: tirx.PrimFunc, _: tvm.IRModule, __: tvm.transform.PassContext
    ) -> tirx.PrimFunc:
        """Called by TVM's pass infrastructure."""
        attribute = (func.attrs or {}).get(_ATTRIBUTE)
        if attribute is None:
            return func
        scalars = dict(zip(attribute[0], _scalars(func), strict=True))
        return func.with_body(_Leaving(list(attribute[1]), scalars).changed(func.body))


class _Leaving:
    """Writes the grids or the returns of a function's kernels, one behind the other."""

    def __init__(self, needs: Sequence[Any], scalars: Mapping[Any, Any]) -> None:
        self._needs = iter(needs)
        self._scalars = scalars

    def changed(self, statement: Any) -> Any:
        """A statement whose kernels, which are in it in order, leave early."""
        if isinstance(statement, tirx.SeqStmt):
            return tirx.SeqStmt([self.changed(one) for one in statement])
        if isinstance(statement, tirx.AttrStmt):
            if statement.attr_key == _EXTENT:
                return self._smaller(statement, next(self._needs))
            body = self.changed(statement.body)
            return tirx.AttrStmt(statement.node, statement.attr_key, statement.value, body)
        if hasattr(statement, "body"):
            raise NotImplementedError(f"a kernel within {type(statement).__name__}")
        return statement

    def _smaller(self, statement: Any, need: Any) -> Any:
        """A kernel of no more blocks than are needed."""
        tags, variables, condition = need or ((), (), None)
        for tag, variable in zip(tags, variables, strict=True):
            count = first_blocks(condition, variable)
            if count is not None:
                return self._with_grid(statement, str(tag), self._known(count, {}))
        return self._kernel(statement, need, {})

    def _with_grid(self, statement: Any, tag: str, count: Any) -> Any:
        """A kernel launched with ``count`` blocks along an axis of its grid, at least one."""
        value, body = statement.value, statement.body
        if str(statement.node.thread_tag) == tag:
            wanted = tirx.Cast(str(value.ty.dtype), tirx.Min(count, tirx.Cast("int64", value)))
            value = tirx.Max(wanted, tirx.const(1, str(value.ty.dtype)))
        else:
            body = self._with_grid(body, tag, count)
        return tirx.AttrStmt(statement.node, statement.attr_key, value, body)

    def _kernel(self, statement: Any, need: Any, known: dict[str, Any]) -> Any:
        """A kernel whose blocks leave unless they are needed."""
        if isinstance(statement, tirx.AttrStmt) and statement.attr_key == _EXTENT:
            known = {**known, str(statement.node.thread_tag): statement.node.var}
            body = self._kernel(statement.body, need, known)
            return tirx.AttrStmt(statement.node, statement.attr_key, statement.value, body)
        if not need:
            return statement
        tags, variables, condition = need
        blocks = {v: known[str(tag)] for tag, v in zip(tags, variables, strict=True)}
        return tirx.SeqStmt([leave_unless(self._known(condition, blocks)), statement])

    def _known(self, expr: Any, blocks: Mapping[Any, Any]) -> Any:
        """An expression of the kernel's own variables."""
        return substituted(expr, {**blocks, **self._scalars})


def first_blocks(condition: Any, block: tirx.Var) -> Any | None:
    """The number of first blocks outside of which a condition holds for no block; int64.

    Args:
        condition: comparisons of what grows with the block's number, joined.
        block: the number of a block along an axis of the grid.

    Returns:
        An expression without ``block``; ``None`` if the condition has another form, or other
        blocks' numbers in it.
    """
    if isinstance(condition, tirx.And | tirx.Or):
        both = first_blocks(condition.a, block), first_blocks(condition.b, block)
        if both[0] is None or both[1] is None:
            return None
        return (tirx.Min if isinstance(condition, tirx.And) else tirx.Max)(*both)
    return _first(condition.a, condition.b, block) if isinstance(condition, tirx.LT) else None


def _first(value: Any, limit: Any, block: tirx.Var) -> Any | None:
    """How many blocks there are for which a value is less than a limit."""
    if isinstance(value, tirx.Cast):
        return _first(value.value, limit, block)
    if value.same_as(block):
        return tirx.Cast("int64", limit)
    step = int(value.b) if isinstance(getattr(value, "b", None), tirx.IntImm) else 0
    if step < 1:
        return None
    if isinstance(value, tirx.Mul):
        return _first(value.a, tirx.FloorDiv(limit + (step - 1), tirx.const(step, "int64")), block)
    if isinstance(value, tirx.FloorDiv):
        return _first(value.a, limit * step, block)
    return None
