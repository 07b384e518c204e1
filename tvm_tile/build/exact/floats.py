"""Floating-point arithmetic as it is written: NaN, infinities and rounding come through.

TVM's simplifier computes with floating-point numbers as with real ones: ``(x + y) - y`` is ``x`` to
it, ``x - x`` is 0, ``x == x`` is true, ``not x < y`` is ``x >= y``, ``x * 0`` is 0. None holds for
NaN or infinities, and the first not for plain numbers. So what a rule of its could match is hidden
while a function is lowered, behind an operator that TVM knows nothing about.

The extrema of C and of GPUs, in turn, return the number of a number and NaN, where PyTorch, NumPy
and ONNX mean IEEE's ``maximum`` and ``minimum``, which return NaN.
"""

from __future__ import annotations

import math
from typing import Any

from tvm_tile.build.exact.numerics import with_bodies
from tvm_tile.registered import as_written, is_as_written

_FLOATS = ("float16", "bfloat16", "float32", "float64")
_LEAST = {"int32": -(2**31), "int64": -(2**63)}


def hide_arithmetic(function: Any) -> Any:
    """A PrimFunc whose floating-point arithmetic TVM's simplifier leaves as it is.

    before: ``x + y - y``               ``not x < y``
    after:  ``as_written(x + y) - y``   ``not as_written(x < y)``
    """
    import tvm_ffi
    from tvm.tirx import EQ, GE, GT, LE, LT, NE, Sub

    def first(node: Any) -> Any:
        return type(node)(as_written(node.a), node.b) if is_float(node.a) else node

    def truth(node: Any) -> Any:
        return as_written(node) if is_float(node.a) else node

    changes = [(Sub, first), (EQ, first), (NE, first)]
    changes += [(kind, truth) for kind in (LT, LE, GT, GE)]
    return hide_zeros(tvm_ffi.structural_map(function, changes, order="post"))


def hide_zeros(code: Any) -> Any:
    """A PrimFunc, statement or expression that neither adds a plain zero nor multiplies with one.

    before: ``x * 0.0``   after: ``x * as_written(0.0)``

    TVM takes that for 0, prints it as 0, and refuses to print ``x / 0.0``, and ``n // 0`` of
    integers.
    """
    import tvm_ffi
    from tvm.tirx import Add, Div, FloorDiv, FloorMod, IntImm, Mod, Mul

    def hide(node: Any) -> Any:
        if not any(_is_zero(e) for e in (node.a, node.b)):
            return node
        return type(node)(*(as_written(e) if _is_zero(e) else e for e in (node.a, node.b)))

    def hide_divisor(node: Any) -> Any:
        if not isinstance(node.b, IntImm) or int(node.b.value) != 0:
            return node
        return type(node)(node.a, as_written(node.b))

    changes = [((Add, Mul), hide), (Div, lambda node: hide_divisor(hide(node)))]
    changes += [((Mod, FloorDiv, FloorMod), hide_divisor)]
    return tvm_ffi.structural_map(code, changes, order="post")


def show_arithmetic(kernel: Any) -> Any:
    """A lowered kernel (an IRModule), as it is to be written: the inverse of `hide_arithmetic`.

    before: ``max(as_written(x), y)``   after: ``maximum(x, y)``
    """
    from tvm.ir import Call
    from tvm.tirx import Cast, FloatImm, IntImm, Max, Min, Sub, call_pure_extern, const

    def show(call: Any) -> Any:
        return call.args[0] if is_as_written(call) else call

    def extremum(name: str) -> Any:
        def call(node: Any) -> Any:
            return call_pure_extern(node.ty, name, node.a, node.b) if is_float(node) else node

        return call

    def spell(constant: Any) -> Any:
        """TVM prints infinities of bfloat16 in no language."""
        value = float(constant.value)
        if str(constant.ty.dtype) != "bfloat16" or math.isfinite(value):
            return constant
        return Cast("bfloat16", const(value, "float32"))

    def spell_least(constant: Any) -> Any:
        """In C the digits of the least integer are of a wider type, and then its negation is."""
        dtype, value = str(constant.ty.dtype), int(constant.value)
        if value != _LEAST.get(dtype):
            return constant
        return Sub(IntImm(dtype, value + 1), IntImm(dtype, 1))

    changes = [
        (FloatImm, spell),
        (IntImm, spell_least),
        (Call, show),
        (Max, extremum("maximum")),
        (Min, extremum("minimum")),
    ]
    return with_bodies(kernel, changes)


def is_float(value: Any) -> bool:
    """Whether an expression is a floating-point number, or several."""
    return str(value.ty.dtype).partition("x")[0] in _FLOATS


def _is_zero(value: Any) -> bool:
    """Whether a value is a zero."""
    from tvm.tirx import FloatImm

    return isinstance(value, FloatImm) and float(value.value) == 0
