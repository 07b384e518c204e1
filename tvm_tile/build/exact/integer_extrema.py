"""Clamped places, written so that NVIDIA's assembler computes them right."""

from __future__ import annotations

from typing import Any

from tvm_tile.build.exact.numerics import with_bodies


def add_behind_extrema(kernel: Any) -> Any:
    """A lowered kernel (an IRModule) that adds constants behind extrema of integers, not in front.

    before: ``max(min(i - 5, 4), 0)``   after: ``max(min(i, 9), 5) - 5``

    From sm_90 on an addition and the extremum behind it are one instruction, VIADDMNMX. Where a
    loop that ptxas unrolls makes ``i`` a constant, ptxas (13.0 and 13.5) swaps its operands: of
    ``max(i - 1, 0)`` it made ``max(1 - i, 0)``, and a padded convolution read one plane again and
    again. It is done last of all, as TVM's simplifier prefers the form before.
    """
    from tvm.tirx import Max, Min

    return with_bodies(kernel, ((Max, _moved), (Min, _moved)))


def _moved(node: Any) -> Any:
    """An extreme of ``x + c`` and a bound as one of ``x``, if the bound less ``c`` fits."""
    from tvm.tirx import Add, IntImm, Sub

    value, bound = node.a, node.b
    if isinstance(value, IntImm):
        value, bound = bound, value
    if not isinstance(bound, IntImm) or not isinstance(value, Add | Sub):
        return node
    if not isinstance(value.b, IntImm):
        return node
    added = int(value.b.value) * (1 if isinstance(value, Add) else -1)
    dtype = str(bound.ty.dtype)
    inner = type(node)(value.a, IntImm(dtype, int(bound.value) - added))
    return (Add if added > 0 else Sub)(inner, IntImm(dtype, abs(added)))
