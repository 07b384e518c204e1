"""Numbers of bfloat16 where a target has none: each result is rounded, as it is where there are.

For such a target TVM computes in float32 (its pass BF16ComputeLegalize) and rounds what is stored
in the end: casts to bfloat16 and back are left out, and so is the rounding between two operators
of a kernel, on which ``x - float32(bfloat16(x))`` and comparisons depend.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import tvm
import tvm_ffi
from tvm import tirx

from tvm_tile.graph.extract import is_choice
from tvm_tile.graph.functions import with_prim_funcs
from tvm_tile.registered import is_as_written, rounded_to_bfloat16, type_like

_HALF, _WIDE = "bfloat16", "float32"


@tvm.transform.module_pass(opt_level=0, name="RoundBfloat16")
@dataclass(frozen=True, slots=True)
class RoundBfloat16:
    """:func:`round_bfloat16` of functions for targets without bfloat16."""

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Called by TVM's pass infrastructure."""
        return with_prim_funcs(
            mod, lambda func: round_bfloat16(func, (func.attrs or {}).get("target"))
        )


def round_bfloat16(function: tirx.PrimFunc, target: Any = None) -> tirx.PrimFunc:
    """A PrimFunc that rounds what it computes in bfloat16, result by result, in float32.

    before: ``x + y``   after: ``bfloat16(rounded_to_bfloat16(float32(x) + float32(y)))``

    Args:
        function: any function.
        target: target that it is built for; a CPU where it is None.
    """
    if target is not None and _has_bfloat16(target):
        return function
    changes: list[Any] = [
        (kind, _round_arithmetic) for kind in (tirx.Add, tirx.Sub, tirx.Mul, tirx.Div, tirx.Mod)
    ]
    changes += [
        (tirx.Cast, _round_cast),
        (tvm.ir.Call, _round_call),
        (tirx.FloatImm, _round_number),
    ]
    return tvm_ffi.structural_map(function, changes, order="post")


def _has_bfloat16(target: Any) -> bool:
    """Whether TVM takes a target's compiler to have arithmetic in bfloat16."""
    if target.kind.name != "cuda":
        return False
    supports = tvm.get_global_func("tvm.support.nvcc.supports_bf16")
    major_minor = "".join(filter(str.isdigit, str(target.attrs["arch"])))
    return bool(supports(f"{major_minor[:-1]}.{major_minor[-1]}"))


def _round_arithmetic(node: Any) -> Any:
    """Arithmetic in float32, rounded to bfloat16."""
    if not _is_half(node):
        return node
    return _rounded(type(node)(*(_wide(operand) for operand in (node.a, node.b))))


def _round_cast(cast: Any) -> Any:
    """A cast to bfloat16, rounded."""
    return _rounded(_wide(cast.value)) if _is_half(cast) and not _is_half(cast.value) else cast


def _round_call(call: Any) -> Any:
    """A call in float32, rounded to bfloat16, unless it is exact."""
    is_exact = is_choice(call) or is_as_written(call) or not isinstance(call.op, tvm.ir.Op)
    return call if is_exact or not _is_half(call) else _rounded(_wide(call))


def _round_number(constant: Any) -> Any:
    """A constant rounded to bfloat16."""
    if not _is_half(constant):
        return constant
    return tirx.FloatImm(constant.ty, float(ml_dtypes.bfloat16(float(constant.value))))


def _rounded(value: Any) -> Any:
    """A float32 value rounded to bfloat16."""
    return tirx.Cast(type_like(_HALF, value), rounded_to_bfloat16(value))


def _wide(value: Any) -> Any:
    """A value as float32."""
    wide = type_like(_WIDE, value)
    return value if str(value.ty.dtype) == wide else tirx.Cast(wide, value)


def _is_half(value: Any) -> bool:
    """Whether a value is of bfloat16."""
    return str(getattr(value.ty, "dtype", "")).partition("x")[0] == _HALF
