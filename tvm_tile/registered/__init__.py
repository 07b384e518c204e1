"""Entries in TVM's registries, made once a process: operators, reductions, functions of ours.

As `compat.py` does, this adapts to TVM's moving API.
"""

from __future__ import annotations

import ctypes
import functools
import math
import threading
from collections.abc import Callable
from typing import Any

from tvm_tile.errors import BuildError
from tvm_tile.registered.philox import Steps, philox_steps

MARK = "// tvm_tile: "
"""What the first line of a CUDA text begins with that tells how the text is to be compiled."""

REQUIRE_ENDED = "vm.builtin.tvm_tile.require_ended"
"""The name of what programs call behind kernels that have bounds (:mod:`tvm_tile.runtime.ended`).

No CUDA graph takes in what TVM knows as its virtual machine's own.
"""

_AS_WRITTEN = "tirx.tvm_tile.as_written"
_MAXIMUM, _MINIMUM = "tirx.tvm_tile.maximum", "tirx.tvm_tile.minimum"
_QUOTIENT, _REST = "tirx.tvm_tile.floor_quotient", "tirx.tvm_tile.floor_rest"
_SAFE, _FACTOR = "tirx.tvm_tile.safe_divisor", "tirx.tvm_tile.factor_of_divisor"
_LEFT, _RIGHT = "tirx.tvm_tile.shift_left", "tirx.tvm_tile.shift_right"
_ROUNDED = "tirx.tvm_tile.rounded_to_bfloat16"
_SEALED = "tirx.tvm_tile.sealed"
_PHILOX = "tirx.tvm_tile.philox"
_LOCK = threading.Lock()


def as_written(value: Any) -> Any:
    """A value of whatever type that TVM's passes carry along and can find out nothing about."""
    return _call(_AS_WRITTEN, value)


def is_as_written(call: Any) -> bool:
    """Whether a call was made by :func:`as_written`; its argument is the value."""
    return getattr(call.op, "name", "") == _AS_WRITTEN


def is_registered(call: Any) -> bool:
    """Whether a call is of an operator of ours, of which TVM knows nothing."""
    return str(getattr(call.op, "name", "")).startswith("tirx.tvm_tile.")


def maximum(a: Any, b: Any) -> Any:
    """The larger of two floating-point numbers, NaN where one is, in builds of TVM's own."""
    return _call(_MAXIMUM, a, b)


def minimum(a: Any, b: Any) -> Any:
    """The smaller of two floating-point numbers, NaN where one is, in builds of TVM's own."""
    return _call(_MINIMUM, a, b)


def rounded_to_bfloat16(value: Any) -> Any:
    """The float32 that is a float32 rounded to bfloat16, or several."""
    return _call(_ROUNDED, value)


def floor_quotient(a: Any, b: Any) -> Any:
    """The largest integer not above a quotient, whose divisor is not 0, nor -1 of the least."""
    return _call(_QUOTIENT, a, b)


def floor_rest(a: Any, b: Any) -> Any:
    """The remainder of :func:`floor_quotient`, whose sign is the divisor's."""
    return _call(_REST, a, b)


def safe_divisor(b: Any) -> Any:
    """An integer by which any other can be divided: 1 instead of 0 and of -1."""
    return _call(_SAFE, b)


def factor_of_divisor(b: Any) -> Any:
    """Factor that replaces a division by :func:`safe_divisor`: 0, -1, or else 1."""
    return _call(_FACTOR, b)


def shift_left(a: Any, b: Any) -> Any:
    """An integer shifted by whatever number of bits: 0 where it does not have as many."""
    return _call(_LEFT, a, b)


def shift_right(a: Any, b: Any) -> Any:
    """An integer shifted right by any number of bits: 0 or -1, by its sign, if it has fewer."""
    return _call(_RIGHT, a, b)


def philox(*arguments: Any) -> Any:
    """A random word, a uint32, of what :func:`~tvm_tile.registered.philox.philox_steps` takes.

    It is one operator until kernels are written, lest passes walk through all of its steps.
    """
    from tvm import tirx

    return tirx.call_intrin("uint32", _operator(_PHILOX), *arguments)


def is_philox(call: Any) -> bool:
    """Whether a call was made by :func:`philox`."""
    return getattr(call.op, "name", "") == _PHILOX


def sealed() -> Any:
    """The body of a function that is built already: of it TVM itself generates no code.

    Code generation raises a BuildError, which says with which TIR pipeline such functions go.
    """
    from tvm import tirx

    return tirx.call_intrin("int32", _operator(_SEALED))


def _call(name: str, *arguments: Any) -> Any:
    """A call of one of our operators."""
    from tvm import tirx

    return tirx.call_intrin(arguments[0].ty, _operator(name), *arguments)


@functools.cache
def _operator(name: str) -> Any:
    """One of our operators, registered if it is not yet."""
    from tvm.ir import Op

    with _LOCK:
        _register_operators()
    return Op.get(name)


def _lowerings() -> dict[str, tuple[int, Callable[[Any], Any]]]:
    """Our operators: how many operands they take, and what code is generated of."""
    from tvm.tirx import GT, LT

    return {
        _SEALED: (0, _refuse),
        _AS_WRITTEN: (1, lambda call: call.args[0]),
        _MAXIMUM: (2, lambda call: _better(GT, *call.args)),
        _MINIMUM: (2, lambda call: _better(LT, *call.args)),
        _QUOTIENT: (2, lambda call: _rounded_down(*call.args, is_rest=False)),
        _REST: (2, lambda call: _rounded_down(*call.args, is_rest=True)),
        _SAFE: (1, lambda call: _of_divisor(call.args[0], is_factor=False)),
        _FACTOR: (1, lambda call: _of_divisor(call.args[0], is_factor=True)),
        _LEFT: (2, lambda call: _shifted(*call.args, is_left=True)),
        _RIGHT: (2, lambda call: _shifted(*call.args, is_left=False)),
        _ROUNDED: (1, lambda call: _rounded_by_bits(call.args[0])),
        _PHILOX: (5, lambda call: _step_by_step(*philox_steps(*call.args))),
    }


def in_plain_tir(code: Any) -> Any:
    """A PrimFunc without operators of ours, for others' pipelines: of each what it stands for."""
    import tvm_ffi
    from tvm.ir import Call

    lowered = _lowerings()

    def shown(call: Any) -> Any:
        return lowered[call.op.name][1](call) if is_registered(call) else call

    return tvm_ffi.structural_map(code, (Call, shown), order="post")


@functools.cache
def _register_operators() -> None:
    """Register our operators, and how they are lowered."""
    from tvm.ir import Op, _ffi_api
    from tvm.tirx import CallEffectKind
    from tvm.tirx.op import register_intrin_lowering

    lowered = _lowerings()
    for name, (count, lower) in lowered.items():
        if name not in Op.list_op_names():
            _ffi_api.RegisterOp(name, "See tvm_tile.registered.")
            operator = Op.get(name)
            operator.set_num_inputs(count)
            effect = CallEffectKind.Opaque if name == _SEALED else CallEffectKind.Pure
            operator.set_attr("TCallEffectKind", effect.value)
            operator.set_attr("TVectorizable", name != _PHILOX)
            # For errors of TVM's, which print functions.
            operator.set_attr("TScriptPrinterName", name.removeprefix("tirx."))
            register_intrin_lowering(name, target="default", f=_immortal(lower))


def _refuse(_: Any) -> Any:
    """Refuse a TIR pipeline that cannot build the kernels."""
    raise BuildError(
        'the Relax pipeline "tvm_tile_full" goes with the TIR pipeline "tvm_tile"',
        "another TIR pipeline, which cannot build tensor-core kernels",
        'tvm.compile(mod, target, relax_pipeline="tvm_tile_full", tir_pipeline="tvm_tile"), or '
        'relax_pipeline="tvm_tile" alone for kernels that TVM builds itself',
    )


def _better(beats: Any, a: Any, b: Any) -> Any:
    """``b`` where it beats ``a`` or is NaN, else ``a``; both, which may be long, computed once."""
    from tvm.tirx import EQ, Let, Not, Or, Select, Var

    first, second = Var("first", a.ty), Var("second", b.ty)
    wins = Or(beats(second, first), Not(EQ(second, second)))
    return Let(first, a, Let(second, b, Select(wins, second, first)))


def _rounded_down(a: Any, b: Any, *, is_rest: bool) -> Any:
    """A floor division in terms of C's, which rounds to zero; each operand computed once."""
    from tvm.tirx import EQ, LT, Add, And, Div, Let, Mod, Not, Select, Sub, Var

    first, second, rest = Var("first", a.ty), Var("second", b.ty), Var("rest", a.ty)
    zero, one = (_number_like(value, a) for value in (0, 1))
    differ = Not(EQ(rest, zero)), Select(LT(second, zero), LT(zero, rest), LT(rest, zero))
    is_apart = And(*differ)
    quotient = Div(first, second)
    results = (Add(rest, second), rest) if is_rest else (Sub(quotient, one), quotient)
    chosen = Let(rest, Mod(first, second), Select(is_apart, *results))
    return Let(first, a, Let(second, b, chosen))


def _of_divisor(b: Any, *, is_factor: bool) -> Any:
    """A divisor without 0 and -1, or the factor that makes up for that."""
    from tvm.tirx import EQ, Let, Select, Var

    divisor = Var("divisor", b.ty)
    zero, one = (_number_like(value, b) for value in (0, 1))
    is_zero = EQ(divisor, zero)
    result = Select(is_zero, zero if is_factor else one, one if is_factor else divisor)
    if not str(b.ty.dtype).startswith("u"):
        least = _number_like(-1, b)
        result = Select(EQ(divisor, least), least if is_factor else one, result)
    return Let(divisor, b, result)


def _shifted(a: Any, b: Any, *, is_left: bool) -> Any:
    """A shift by less bits than there are, or what is left where that is too far."""
    from tvm.tirx import GE, LT, Cast, Let, LShift, Or, RShift, Select, Var

    dtype = str(a.ty.dtype).partition("x")[0]
    bits = int(dtype.partition("int")[2])
    fills = not is_left and not dtype.startswith("u")
    value, amount = Var("value", a.ty), Var("amount", b.ty)
    is_far = GE(amount, _number_like(bits, b))
    if not str(b.ty.dtype).startswith("u"):
        is_far = Or(is_far, LT(amount, _number_like(0, b)))
    near = Select(is_far, _number_like(bits - 1 if fills else 0, b), amount)
    if is_left:  # of signed numbers C does not say what is shifted out
        word = type_like(f"uint{max(bits, 32)}", a)
        shifted = Cast(a.ty, LShift(Cast(word, value), Cast(word, near)))
    else:
        shifted = RShift(value, near)
    result = shifted if fills else Select(is_far, _number_like(0, a), shifted)
    return Let(value, a, Let(amount, b, result))


def _step_by_step(steps: Steps, result: Any) -> Any:
    """An expression of variables that are bound within it."""
    from tvm.tirx import Let

    for var, value in reversed(steps):
        result = Let(var, value, result)
    return result


def _number_like(value: int, like: Any) -> Any:
    """A number of an expression's type, or as many as that has."""
    from tvm.tirx import Broadcast, const

    dtype, _, lanes = str(like.ty.dtype).partition("x")
    return Broadcast(const(value, dtype), int(lanes)) if lanes else const(value, dtype)


def type_like(dtype: str, like: Any) -> str:
    """An element type, or a vector of as many as an expression has."""
    _, times, lanes = str(like.ty.dtype).partition("x")
    return f"{dtype}{times}{lanes}"


def _rounded_by_bits(value: Any) -> Any:
    """Round to the nearest bfloat16 number, halfway to the even one; NaN stays NaN."""
    from tvm.tirx import Let, Select, Var, reinterpret

    words = type_like("uint32", value)
    bits = Var("bits", words)

    def word(number: int) -> Any:
        return _number_like(number, bits)

    nearest = bits + word(0x7FFF) + (bits >> word(16) & word(1)) & word(0xFFFF0000)
    is_nan = (bits & word(0x7FFFFFFF)) > word(0x7F800000)
    rounded = Select(is_nan, word(0x7FC00000), nearest)
    return Let(bits, reinterpret(words, value), reinterpret(str(value.ty.dtype), rounded))


def register_extrema() -> None:
    """Tell TVM's schedules of maxima that start at minus infinity, and minima at infinity.

    They know of those that start at the lowest finite number, which minus infinity is below; of
    integers there is no other, and TVM is told that again.
    """
    with _LOCK:
        _register_extrema()


@functools.cache
def _register_extrema() -> None:
    """Register reducers for maxima and minima that start at infinities."""
    import tvm
    from tvm.tirx import Max, Min, const, max_value, min_value

    def start(infinity: float, values: Any) -> list[Any]:
        dtype = str(values[0].ty.dtype)
        if "float" in dtype:
            return [const(infinity, dtype)]
        return [min_value(dtype) if infinity < 0 else max_value(dtype)]

    register = tvm.get_global_func("s_tir.schedule.RegisterReducer")
    for kind, infinity in ((Max, -math.inf), (Min, math.inf)):
        register(
            1,
            _immortal(lambda left, right, kind=kind: [kind(left[0], right[0])]),
            _immortal(lambda values, infinity=infinity: start(infinity, values)),
        )


@functools.cache
def register_function(name: str, function: Callable[..., Any]) -> None:
    """Give TVM's registry a function, for programs that call it by its name."""
    import tvm_ffi

    tvm_ffi.register_global_func(name, _immortal(function), override=True)


def wrap_function(name: str, wrap: Callable[[Any], Callable[..., Any]]) -> None:
    """Put a function in the place of one in TVM's registry; none is put where there is none.

    Args:
        name: name of the function in the registry.
        wrap: function that takes the former function, which it may call, and gives the new one.
    """
    import tvm_ffi

    former = tvm_ffi.get_global_func(name, allow_missing=True)
    if former is not None:
        tvm_ffi.register_global_func(name, _immortal(wrap(former)), override=True)


def _immortal(function: Any) -> Any:
    """A function for TVM's registries, which let go of it when Python has ended."""
    import tvm_ffi

    converted = tvm_ffi.convert(function)
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(converted))
    return converted
