"""Kernels whose blocks may leave before they have done anything.

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
import tvm_ffi
from tvm import tirx

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
        condition: of these variables and of the function's scalars; ``None``: always.
    """

    blocks: Mapping[str, Any]
    condition: Any


def leave_unless(condition: Any) -> tirx.Stmt:
    """The statement by which a block leaves unless a condition holds."""
    return tirx.Evaluate(leaving(condition))


def leaving(condition: Any) -> Any:
    """The call that :func:`leave_unless` is a statement of."""
    return tirx.call_extern("int32", _NAME, condition)


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
        needs: of each of its kernels, in order.
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
    return [p for p in func.params if not is_tensor(p)]


@tirx.transform.prim_func_pass(opt_level=0, name="LeaveEarly")
@dataclass(frozen=True, slots=True)
class LeaveEarly:
    """Put the early return at the start of each kernel of a function that says when.

    before: ``attr blockIdx.x = 64: attr threadIdx.x = 256: y[...] = ...``
    after:  ``attr blockIdx.x = 64: attr threadIdx.x = 256: leave unless ...; y[...] = ...``
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
    """Writes the returns of a function's kernels, one behind the other."""

    def __init__(self, needs: Sequence[Any], scalars: Mapping[Any, Any]) -> None:
        self._needs = iter(needs)
        self._scalars = scalars

    def changed(self, statement: Any) -> Any:
        """A statement whose kernels, which are in it in order, leave early."""
        if isinstance(statement, tirx.SeqStmt):
            return tirx.SeqStmt([self.changed(one) for one in statement])
        if isinstance(statement, tirx.AttrStmt):
            if statement.attr_key == _EXTENT:
                return self._kernel(statement, next(self._needs), {})
            body = self.changed(statement.body)
            return tirx.AttrStmt(statement.node, statement.attr_key, statement.value, body)
        if hasattr(statement, "body"):
            raise NotImplementedError(f"a kernel within {type(statement).__name__}")
        return statement

    def _kernel(self, statement: Any, need: Any, known: dict[str, Any]) -> Any:
        if isinstance(statement, tirx.AttrStmt) and statement.attr_key == _EXTENT:
            known = {**known, str(statement.node.thread_tag): statement.node.var}
            body = self._kernel(statement.body, need, known)
            return tirx.AttrStmt(statement.node, statement.attr_key, statement.value, body)
        if not need:
            return statement
        tags, variables, condition = need
        values = {v: known[str(tag)] for tag, v in zip(tags, variables, strict=True)}
        values |= dict(self._scalars)

        def variable(var: Any) -> Any:
            found = values.get(var, var)
            same = str(found.ty.dtype) == str(var.ty.dtype)
            return found if same else tirx.Cast(str(var.ty.dtype), found)

        needed = tvm_ffi.structural_map(condition, [(tirx.Var, variable)], order="post")
        return tirx.SeqStmt([leave_unless(needed), statement])
