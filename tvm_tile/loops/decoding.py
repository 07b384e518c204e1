"""Values of tensors that are kept as codes of a few bits, in loops.

Halves are computed in float32 and rounded after each step, which for one sum or product is what
they are themselves: no device needs arithmetic of its own for them. Numbers of the codes are made
by integer arithmetic on their bits, and no step computes with a subnormal number that is none of
the tensor's.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tvm
from tvm import relax, te, tirx

from tvm_tile.files.json_data import revived, text_of
from tvm_tile.graph.codes import Coded
from tvm_tile.graph.constant_tensors import elements_of
from tvm_tile.graph.tensor_format import Code, Entries, Floats, Integers, Shared, TensorFormat
from tvm_tile.loops.rows import number

_FORMAT = "tvm_tile.tensor_format"
_BYTE = 8  # bits
_MANTISSA, _BIAS = 23, 127  # of float32
_INFINITY, _NAN = 0x7F800000, 0x7FC00000
_HALVES = ("float16", "bfloat16")


def kept_constants(coded: Coded) -> list[relax.Expr]:
    """All that is kept of a tensor, in the order in which its loops take it."""
    return [relax.const(array, str(array.dtype)) for array in coded.arrays]


def decode(
    builder: relax.BlockBuilder, coded: Coded, constants: Sequence[relax.Expr]
) -> relax.Call:
    """A call of the function that decodes a tensor.

    before: ``w``, a constant of float16   after: ``call_tir(decode, (packed codes, scales))``

    Args:
        builder: builder that the function is added to, too.
        coded: the tensor.
        constants: constants as made by :func:`kept_constants`.
    """
    function = builder.add_func(decoding_loops(coded.format, coded.shape), "decode")
    out = relax.TensorType(coded.shape, coded.format.dtype)
    return relax.call_tir(function, list(constants), out)


def format_of(function: tirx.PrimFunc) -> TensorFormat | None:
    """The format that a function decodes; ``None`` of any other function."""
    text = (function.attrs or {}).get(_FORMAT)
    return None if text is None else revived(TensorFormat, json.loads(str(text)))


def coded_of(form: TensorFormat, shape: tuple[int, ...], constants: Sequence[Any]) -> Coded:
    """The tensor that is kept as some constants, which are as :func:`kept_constants` makes them."""
    packed, *others = map(elements_of, constants)
    table = others.pop(0) if isinstance(form.code, Entries) else None
    return Coded(form, shape, packed, table, tuple(others))


def has_codes(mod: tvm.IRModule) -> bool:
    """Whether a function of a module decodes codes."""
    return any(format_of(f) for f in mod.functions.values() if isinstance(f, tirx.PrimFunc))


def constant_format(call: Any, mod: tvm.IRModule) -> TensorFormat | None:
    """The format that a call decodes constants of; ``None`` where it does not."""
    if not isinstance(call, relax.Call) or call.op != tvm.ir.Op.get("relax.call_tir"):
        return None
    is_constant = all(isinstance(own, tvm.ir.Constant) for own in call.args[1].fields)
    return format_of(mod[call.args[0]]) if is_constant else None


def decoded_by(call: Any, mod: tvm.IRModule) -> Coded | None:
    """The tensor that a call decodes; ``None`` where it decodes no constants."""
    form = constant_format(call, mod)
    if form is None:
        return None
    return coded_of(form, tuple(map(int, call.ty.shape)), call.args[1].fields)


def values_of(coded: Coded) -> relax.Expr:
    """The values of a tensor as a constant."""
    return relax.const(np.ascontiguousarray(coded.values()), coded.format.dtype)


def decoding_loops(form: TensorFormat, shape: tuple[int, ...]) -> tirx.PrimFunc:
    """The function that decodes a tensor, which says in an attribute what it decodes.

    Args:
        form: how the tensor is kept.
        shape: shape of its values.

    Returns:
        A function of the packed codes (uint8), of the table, if there is one, of what boxes share,
        in the order of ``form.shared`` (floats of a byte as uint8), and of the values.
    """
    packed = _placeholder(form.packed_shape(shape), "uint8", "packed")
    is_table = isinstance(form.code, Entries)
    tables = [_placeholder((1 << form.code.bits,), form.entry, "table")] if is_table else []
    shared = [
        _placeholder(
            own.shape(shape), "uint8" if isinstance(own.stored, Floats) else own.stored, name
        )
        for own, name in zip(form.shared, _names(form), strict=True)
    ]

    def element(*at: Any) -> Any:
        pattern = _pattern(packed, form.code.bits, at, shape[-1])
        value = tables[0](tirx.Cast("int64", pattern)) if tables else meaning(form.code, pattern)
        for step, own, tensor in zip(_steps(form), form.shared, shared, strict=True):
            value = _rounded(step, value, _operand(own, tensor, at, shape), own.dtype)
        return _cast(value, form.dtype)

    # Of functions that become one their blocks are left, and what is said of these.
    told = {_FORMAT: text_of(form)}
    extents = [number(extent) for extent in shape]
    values = te.compute(extents, element, name="decode", attrs=told)
    loops = te.create_prim_func([packed, *tables, *shared, values])
    # Else each of them would be called main, for others than the module, too.
    return loops.without_attr("global_symbol").with_attr(_FORMAT, text_of(form))


def format_of_block(block: Any) -> TensorFormat | None:
    """The format that a block decodes; ``None`` of any other block."""
    text = (block.annotations or {}).get(_FORMAT)
    return None if text is None else revived(TensorFormat, json.loads(str(text)))


def _placeholder(shape: Sequence[int], dtype: str, name: str) -> te.Tensor:
    """A tensor that is a parameter of the loops."""
    return te.placeholder([number(extent) for extent in shape], dtype, name)


def _names(form: TensorFormat) -> list[str]:
    """Names of the parameters that a format's steps take."""
    zero, offset = form.zero is not None, form.offset is not None
    scales = [f"scale{place or ''}" for place in range(len(form.scales))]
    return ["zero"] * zero + scales + ["offset"] * offset


def _steps(form: TensorFormat) -> list[Callable[[Any, Any], Any]]:
    """Arithmetic of a format's steps, in order."""
    steps: list[Callable[[Any, Any], Any]] = [tirx.Sub] * (form.zero is not None)
    return steps + [tirx.Mul] * len(form.scales) + [tirx.Add] * (form.offset is not None)


def _rounded(step: Callable[[Any, Any], Any], a: Any, b: Any, dtype: str) -> Any:
    """A sum, difference or product of two numbers in an element type; float32 of a half's."""
    if dtype not in _HALVES:
        return step(_cast(a, dtype), _cast(b, dtype))
    exact = step(_in_half(a, dtype), _in_half(b, dtype))
    return _in_half(exact, dtype)


def _in_half(value: Any, dtype: str) -> Any:
    """The float32 that is the value, rounded to a half.

    Of casts to bfloat16 and back TVM leaves out both, where the device has none of its own.
    """
    if dtype == "float16" or str(value.ty.dtype) == "bfloat16":
        return _cast(_cast(value, dtype), "float32")
    bits = tirx.reinterpret("uint32", _cast(value, "float32"))
    rounded = bits + _bits(0x7FFF) + (bits >> 16 & _bits(1)) & _bits(0xFFFF0000)
    is_nan = (bits & _bits(0x7FFFFFFF)) > _bits(_INFINITY)
    return tirx.reinterpret("float32", tirx.Select(is_nan, _bits(_NAN), rounded))


def _cast(value: Any, dtype: str) -> Any:
    """A value in another type."""
    return value if str(value.ty.dtype) == dtype else tirx.Cast(dtype, value)


def _pattern(packed: te.Tensor, bits: int, at: Sequence[Any], extent: int) -> Any:
    """The code of an element, int32."""
    *row, place = at
    if _BYTE % bits:
        first = place * number(bits)
        byte, shift = first // number(_BYTE), tirx.Cast("int32", first % number(_BYTE))
        # A code may end in the byte that follows, if there is one.
        last = -(-extent * bits // _BYTE) - 1
        high = packed(*row, tirx.min(byte + number(1), number(last)))
        both = tirx.Cast("int32", packed(*row, byte)) | tirx.Cast("int32", high) << _BYTE
        return both >> shift & (1 << bits) - 1
    per_byte = _BYTE // bits
    if per_byte == 1:
        return tirx.Cast("int32", packed(*at))
    byte = tirx.Cast("int32", packed(*row, place // number(per_byte)))
    shift = tirx.Cast("int32", place % number(per_byte)) * bits
    return byte >> shift & (1 << bits) - 1


def _operand(own: Shared, tensor: te.Tensor, at: Sequence[Any], shape: Sequence[int]) -> Any:
    """Number that the box of an element has."""
    place = [
        number(0) if side >= extent else index // number(side) if side > 1 else index
        for index, side, extent in zip(at, own.box, shape, strict=True)
    ]
    value = tensor(*place)
    if isinstance(own.stored, Floats):
        return meaning(own.stored, tirx.Cast("int32", value))
    return value


def meaning(code: Code, pattern: Any) -> Any:
    """The number that a code means, of an int32 of its bits: an int32, of floats a float32.

    Of entries only their table knows it, so they are not for this function.
    """
    if isinstance(code, Integers):
        half = 1 << (code.bits - 1)
        return (pattern ^ half) - half if code.is_signed else pattern
    assert isinstance(code, Floats)
    return tirx.reinterpret("float32", _float_bits(code, pattern))


def _float_bits(code: Floats, pattern: Any) -> Any:
    """The bits of the float32 that has the value of a float of fewer bits, uint32.

    ``sign | exponent + bias' - bias | mantissa``, but for numbers without an exponent: these are
    multiples of the least one. (Compared as signed integers: of unsigned ones TVM makes quotients.)
    """
    magnitude = pattern & ((1 << (code.exponent + code.mantissa)) - 1)
    shifted = tirx.Cast("uint32", magnitude) << (_MANTISSA - code.mantissa)
    wide = shifted + _bits((_BIAS - code.bias) << _MANTISSA)
    tiny: Any = _bits(1 << (_MANTISSA - 1))  # 2**-127, all that there is without a sign
    if code.is_signed:
        least = math.ldexp(1, 1 - code.bias - code.mantissa)
        product = tirx.Cast("float32", magnitude) * tirx.const(least, "float32")
        tiny = tirx.reinterpret("uint32", product)
    found = tirx.Select(magnitude < 1 << code.mantissa, tiny, wide)
    first = code.first_special
    if first < 1 << (code.bits - code.is_signed):
        special: Any = _bits(_NAN)
        if code.infinities:
            is_infinite = magnitude < first + code.infinities
            special = tirx.Select(is_infinite, _bits(_INFINITY), special)
        found = tirx.Select(magnitude < first, found, special)
    if not code.is_signed:
        return found
    return found | tirx.Cast("uint32", pattern >> (code.bits - 1)) << 31


def _bits(value: int) -> Any:
    """A word of bits."""
    return tirx.const(value, "uint32")
