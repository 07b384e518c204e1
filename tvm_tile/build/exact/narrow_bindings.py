"""Values that are bound to a name and computed from numbers that a target does not know."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

from tvm_tile.graph.extract import nodes_in
from tvm_tile.graph.functions import with_prim_funcs

_NARROW = ("bfloat16", "float8")


@tvm.transform.module_pass(opt_level=0, name="StoreNarrowBindings")
@dataclass(frozen=True, slots=True)
class StoreNarrowBindings:
    """Values of narrow floats are bound by way of a number in memory, where TVM widens them.

    before: ``v = reinterpret("int32", Cast("float32", x[i]))``
    after:  ``kept[0] = reinterpret("int32", Cast("float32", x[i]))``   ``v = kept[0]``

    TVM writes bfloat16 and the eight-bit floats as integers for every target but CUDA. Its pass
    (BF16ComputeLegalize) does not look into what is bound to a name, so that the bits of ``x[i]``
    were taken for a number.
    """

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Called by TVM's pass infrastructure."""
        return with_prim_funcs(
            mod, lambda func: func if _is_for_cuda(func) else store_narrow_bindings(func)
        )


def store_narrow_bindings(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """A PrimFunc as :class:`StoreNarrowBindings` leaves it."""
    body = tvm_ffi.structural_map(func.body, (tirx.SeqStmt, _stored), order="post")
    return func if body.same_as(func.body) else func.with_body(body)


def _is_for_cuda(func: tirx.PrimFunc) -> bool:
    """Whether a function is compiled for CUDA."""
    target = (func.attrs or {}).get("target")
    return target is not None and target.kind.name == "cuda"


def _stored(statements: tirx.SeqStmt) -> Any:
    """Statements with narrow values kept in memory instead of bound to names."""
    if not any(_binds_narrow(statement) for statement in statements.seq):
        return statements
    result: list[Any] = []
    loads: dict[Any, Any] = {}  # of bound values that are narrow themselves
    for original in statements.seq:
        statement = _with_loads(original, loads)
        if not _binds_narrow(statement):
            result.append(statement)
            continue
        var, value = statement.var, statement.value
        kept = tirx.decl_buffer((1,), value.ty.dtype, f"{var.name}_kept", scope="local")
        load = tirx.BufferLoad(kept, [0])
        result += [tirx.AllocBuffer(kept), tirx.BufferStore(kept, value, [0])]
        if _is_narrow(value):
            loads[var] = load
        else:
            result.append(tirx.Bind(var, load))
    return tirx.SeqStmt(result)


def _with_loads(statement: Any, loads: Mapping[Any, Any]) -> Any:
    """A statement with variables replaced by loads."""
    if not loads:
        return statement
    replaced = (tirx.Var, lambda var: loads.get(var, var))
    return tvm_ffi.structural_map(statement, replaced, order="post")


def _binds_narrow(statement: Any) -> bool:
    """Whether a statement binds what is computed from narrow floats."""
    if not isinstance(statement, tirx.Bind):
        return False
    kinds = (tvm.ir.TensorLoad, tirx.Cast, tirx.Var)
    return any(map(_is_narrow, nodes_in(statement.value, *kinds)))


def _is_narrow(value: Any) -> bool:
    """Whether a value's type is unknown to the target."""
    return str(getattr(value.ty, "dtype", "")).startswith(_NARROW)
