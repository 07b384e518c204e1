"""Rewriting of lowered kernels so that their numbers come out as the model means them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

# What TVM's rules leave of floor, ceil, round, trunc and nearbyint, before types' affixes.
_ROUNDING = ("ceil", "floor", "nearbyint", "rint", "round", "trunc", "hceil", "hfloor", "hrint")

# Functions that TVM cannot lower for CUDA in half precision.
_FLOAT_ONLY = frozenset(
    f"tirx.{name}"
    for name in (
        "acos", "acosh", "asin", "asinh", "atan2", "atanh", "copysign", "cosh", "fmod",
        "hypot", "log1p", "nearbyint", "sinh",
    )
)  # fmt: skip
_BYTES = {"int8": "char", "uint8": "uchar"}  # in OpenCL C
_NARROW_INTEGERS = _BYTES | {"int16": "short", "uint16": "ushort"}
_HALVES = ("float16", "bfloat16")
_MANTISSAS = {"float32": 24, "float64": 53}  # bits


def with_bodies(kernel: Any, changes: Any) -> Any:
    """A lowered kernel (an IRModule) whose statements and expressions are mapped, parts first.

    Args:
        kernel: itself, and the device functions that it calls.
        changes: changes as ``tvm_ffi.structural_map`` takes them: (node type, function) pairs, or
            one.
    """
    import tvm
    import tvm_ffi

    functions = {
        name: function.with_body(tvm_ffi.structural_map(function.body, changes))
        for name, function in kernel.functions.items()
    }
    return tvm.IRModule(functions, attrs=kernel.attrs)


def float8_in(function: Any) -> str:
    """An 8-bit float that a PrimFunc loads, stores or makes; empty where there is none."""
    import tvm
    import tvm_ffi
    from tvm.tirx import BufferStore, Cast

    found = []

    def note(node: Any) -> None:
        value = node.value if isinstance(node, BufferStore) else node
        if "float8" in str(value.ty.dtype):
            found.append(str(value.ty.dtype))

    tvm_ffi.structural_walk(function.body, ((tvm.ir.TensorLoad, BufferStore, Cast), note))
    return next(iter(found), "")


def widen_halves(function: Any) -> Any:
    """A PrimFunc whose functions of half-precision numbers that TVM lacks run in float32.

    before: ``acos(x)``   after: ``float16(acos(float32(x)))``

    From one kind of half precision to the other goes by way of float32, too.
    """
    import tvm
    import tvm_ffi
    from tvm.tirx import Cast, Mod

    def widen(call: Any) -> Any:
        if getattr(call.op, "name", "") not in _FLOAT_ONLY or str(call.ty.dtype) not in _HALVES:
            return call
        arguments = [Cast("float32", argument) for argument in call.args]
        return Cast(str(call.ty.dtype), tvm.tirx.call_intrin("float32", call.op, *arguments))

    def widen_remainder(mod: Any) -> Any:
        if str(mod.ty.dtype) not in _HALVES:
            return mod
        return Cast(str(mod.ty.dtype), Mod(Cast("float32", mod.a), Cast("float32", mod.b)))

    def widen_between(cast: Any) -> Any:
        kinds = {str(cast.ty.dtype), str(cast.value.ty.dtype)}
        return Cast(cast.ty, Cast("float32", cast.value)) if kinds == set(_HALVES) else cast

    changes = [(tvm.ir.Call, widen), (Mod, widen_remainder), (Cast, widen_between)]
    return tvm_ffi.structural_map(function, changes)


def bfloat16_as_bits(kernel: Any) -> Any:
    """A lowered kernel (an IRModule) that widens bfloat16 in shared memory by shifts, exactly.

    before: ``float32(A[i])``   after: ``reinterpret(float32, uint32(bits of A[i]) << 16)``

    Behind CUDA's own conversion, a piece of assembly, the compiler loads neighbours one by one;
    those that are shifted it loads in vectors. Code generation reads what is reinterpreted ahead
    of the statement: from global memory that might leave the condition that guards it.
    """
    import tvm
    from tvm.tirx import Cast, const, reinterpret

    def widen(cast: Any) -> Any:
        load = cast.value
        is_wider = (str(load.ty.dtype), str(cast.ty.dtype)) == ("bfloat16", "float32")
        if not is_wider or not isinstance(load, tvm.ir.TensorLoad):
            return cast
        if not load.source.scope().startswith("shared"):
            return cast
        bits = Cast("uint32", reinterpret("uint16", load))
        return reinterpret("float32", bits << const(16, "uint32"))

    return with_bodies(kernel, (Cast, widen))


def exact_doubles(kernel: Any) -> Any:
    """A lowered kernel (an IRModule) whose constants of float64 are printed without a loss.

    before: ``1e-20``, which TVM prints with 15 digits behind the point: 0
    after:  ``float64(6646139978924579) / 2**119``, which compilers compute exactly
    """
    from tvm.tirx import Cast, Div, FloatImm, IntImm

    def spell_out(constant: Any) -> Any:
        value = float(constant.value)
        if str(constant.ty.dtype) != "float64" or not math.isfinite(value):
            return constant
        numerator, denominator = value.as_integer_ratio()
        # Below 2**-970 quotients might be rounded twice.
        if float(f"{value:.15f}") == value or denominator > 2**1022:
            return constant
        divisor = FloatImm("float64", float(denominator))
        return Div(Cast("float64", IntImm("int64", numerator)), divisor)

    return with_bodies(kernel, (FloatImm, spell_out))


def exact_constants(kernel: Any) -> Any:
    """A lowered kernel (an IRModule) for OpenCL whose constants are printed without a loss.

    before: ``-3.4028234663852886e38``, the lowest number, which TVM prints for OpenCL with six
            digits behind the point: another number
    after:  ``ldexp(float32(-16777215), 104)``

    Those of float64 alike. An infinity is one of float32 in OpenCL C, whatever TVM means.
    """
    from tvm.tirx import Cast, FloatImm, IntImm, call_pure_extern

    def spell_out(constant: Any) -> Any:
        dtype, value = str(constant.ty.dtype), float(constant.value)
        if dtype not in _MANTISSAS:
            return constant
        if not math.isfinite(value):
            return Cast(dtype, FloatImm("float32", value)) if dtype == "float64" else constant
        rounded = np.dtype(dtype).type
        if rounded(f"{value:.6e}") == rounded(value):
            return constant
        bits = _MANTISSAS[dtype]
        fraction, exponent = math.frexp(rounded(value))
        numerator = IntImm("int64", int(fraction * 2**bits))
        power = IntImm("int32", exponent - bits)
        return call_pure_extern(dtype, "ldexp", Cast(dtype, numerator), power)

    return with_bodies(kernel, (FloatImm, spell_out))


def round_doubled_halves(kernel: Any) -> Any:
    """A lowered kernel (an IRModule) for CUDA whose halves, doubled, are rounded by themselves.

    before: ``x - x * 2``   after: ``x - __hmul_rn(x, 2)``

    Where products may be fused into sums, NVIDIA's compiler makes ``-x`` of the first, which
    differs where ``x`` is infinite (or twice ``x`` is): so for float16 and bfloat16, and for no
    other factor.
    """
    from tvm import tirx

    def rounded(product: Any) -> Any:
        dtype = str(product.ty.dtype)
        if not dtype.startswith(_HALVES) or not any(map(_is_two, (product.a, product.b))):
            return product
        return tirx.call_pure_extern(dtype, "__hmul_rn", product.a, product.b)

    return with_bodies(kernel, (tirx.Mul, rounded))


def _is_two(value: Any) -> bool:
    """Whether a value is 2 or -2, in whatever type."""
    from tvm.tirx import Broadcast, Cast, FloatImm

    while isinstance(value, Broadcast | Cast):
        value = value.value
    return isinstance(value, FloatImm) and abs(float(value.value)) == 2


def choices_of_one_type(kernel: Any) -> Any:
    """A lowered kernel (an IRModule) for OpenCL that chooses among integers of the type it means.

    before: ``select(x + y, x, c)``, where C makes an ``int`` of a sum of two ``char``
    after:  ``select((char)(x + y), (char)(x), c)``
    """
    from tvm import tirx

    def choose(select: Any) -> Any:
        name = _NARROW_INTEGERS.get(str(select.ty.dtype))
        if name is None:
            return select
        # A cast to the type that it has already is not printed.
        arms = (select.true_value, select.false_value)
        own = (tirx.call_pure_extern(select.ty, f"({name})", arm) for arm in arms)
        return tirx.Select(select.condition, *own)

    return with_bodies(kernel, (tirx.Select, choose))


def gathered_bytes(kernel: Any) -> Any:
    """A lowered kernel (an IRModule) for OpenCL that gathers bytes one by one into vectors.

    before: ``x[(i, j)]``, of which TVM makes an ``int`` that is assigned to a vector
    after:  ``(char2)(x[i], x[j])``
    """
    import tvm
    from tvm import tirx

    def gather(load: Any) -> Any:
        kind, _, lanes = str(load.ty.dtype).partition("x")
        if kind not in _BYTES or not lanes:
            return load
        *outer, last = load.indices
        if (
            isinstance(last, tirx.Ramp)
            and isinstance(last.stride, tirx.IntImm)
            and last.stride == 1
        ):
            return load
        places = [tirx.Shuffle([last], [lane]) for lane in range(int(lanes))]
        loads = [tirx.BufferLoad(load.source, [*outer, place]) for place in places]
        return tirx.call_pure_extern(load.ty, f"({_BYTES[kind]}{lanes})", *loads)

    return with_bodies(kernel, (tvm.ir.TensorLoad, gather))


def vectors_of_truths(kernel: Any) -> Any:
    """A lowered kernel (an IRModule) for OpenCL, with vectors of truths as that language has them.

    What compares vectors is -1 there where it is true. So counted they are made 1, and what is no
    comparison is made one where it chooses, as ``select`` looks at the first bit only::

        before: int32x2(x < y)          after: int32x2(x < y) & 1
        before: select((b, b), x, y)    after: select(int32x2((b, b)) != 0, x, y)
    """
    from tvm import tirx

    comparing = (tirx.EQ, tirx.NE, tirx.LT, tirx.LE, tirx.GT, tirx.GE, tirx.And, tirx.Or, tirx.Not)

    def vector(value: int, lanes: int) -> Any:
        return tirx.Broadcast(tirx.const(value, "int32"), lanes)

    def count(cast: Any) -> Any:
        lanes = _lanes_of_truths(cast.value)
        if not lanes:
            return cast
        bits = tirx.Cast(f"int32x{lanes}", cast.value)
        ones = tirx.bitwise_and(bits, vector(1, lanes))
        return ones if str(cast.ty.dtype) == str(bits.ty.dtype) else tirx.Cast(cast.ty, ones)

    def choose(select: Any) -> Any:
        lanes = _lanes_of_truths(select.condition)
        if not lanes or isinstance(select.condition, comparing):
            return select
        is_true = tirx.NE(tirx.Cast(f"int32x{lanes}", select.condition), vector(0, lanes))
        return tirx.Select(is_true, select.true_value, select.false_value)

    return with_bodies(kernel, ((tirx.Cast, count), (tirx.Select, choose)))


def _lanes_of_truths(value: Any) -> int:
    """How many truths a vector has; 0 of what is none."""
    truth, _, lanes = str(value.ty.dtype).partition("x")
    return int(lanes) if truth == "bool" and lanes else 0


def rounds_to_integers(kernel: Any) -> bool:
    """Whether a lowered kernel (an IRModule) makes integers of floating-point numbers.

    There the last bit counts: 3.5 * 0.2857143 - 1 is 0 where the product is rounded, and 4e-8,
    whose ceiling is 1, where it is fused into the sum. Models mean the former.
    """
    import tvm
    import tvm_ffi
    from tvm.tirx import Cast

    def cast(node: Any) -> Any:
        source, result = str(node.value.ty.dtype), str(node.ty.dtype)
        return tvm_ffi.VisitInterrupt() if "float" in source and "int" in result else None

    def call(node: Any) -> Any:
        is_extern = getattr(node.op, "name", "") == "tirx.call_pure_extern"
        name = str(node.args[0].value) if is_extern else ""
        return tvm_ffi.VisitInterrupt() if name.startswith(_ROUNDING) else None

    return any(
        tvm_ffi.structural_walk(function.body, [(Cast, cast), (tvm.ir.Call, call)]) is not None
        for function in kernel.functions.values()
    )


def may_round_quotients(kernel: Any) -> bool:
    """Whether quotients of a lowered kernel (an IRModule) may be off by two units in float32.

    Correct rounding of every quotient takes a branch each. Where all that a kernel stores to
    global memory is of 16 bits it is rounded away, unless an integer or a comparison is made of
    some number on the way: whether that number is a quotient is not asked.
    """
    import tvm_ffi
    from tvm.tirx import EQ, GE, GT, LE, LT, NE, BufferStore

    def store(node: Any) -> Any:
        is_output = node.buffer.scope() == "global"
        is_wide = str(node.buffer.ty.dtype) not in _HALVES
        return tvm_ffi.VisitInterrupt() if is_output and is_wide else None

    def compare(node: Any) -> Any:
        return tvm_ffi.VisitInterrupt() if "float" in str(node.a.ty.dtype) else None

    found = [(BufferStore, store), *((kind, compare) for kind in (EQ, NE, LT, LE, GT, GE))]
    return not rounds_to_integers(kernel) and all(
        tvm_ffi.structural_walk(function.body, found) is None
        for function in kernel.functions.values()
    )
