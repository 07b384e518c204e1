"""What TVM's registries are told of, once a process: operators and two reductions of ours.

As `compat.py` does, this adapts to TVM's moving API.
"""

from __future__ import annotations

import ctypes
import functools
import math
import threading
from collections.abc import Callable
from typing import Any

_AS_WRITTEN = "tirx.tvm_tile.as_written"
_MAXIMUM, _MINIMUM = "tirx.tvm_tile.maximum", "tirx.tvm_tile.minimum"
_LOCK = threading.Lock()


def as_written(value: Any) -> Any:
    """A value of whatever type that TVM's passes carry along and can find out nothing about."""
    return _call(_AS_WRITTEN, value)


def is_as_written(call: Any) -> bool:
    """Whether a call was made by :func:`as_written`; its argument is the value."""
    return getattr(call.op, "name", "") == _AS_WRITTEN


def maximum(a: Any, b: Any) -> Any:
    """The larger of two floating-point numbers, NaN where one is, in builds of TVM's own."""
    return _call(_MAXIMUM, a, b)


def minimum(a: Any, b: Any) -> Any:
    """The smaller of two floating-point numbers, NaN where one is, in builds of TVM's own."""
    return _call(_MINIMUM, a, b)


def _call(name: str, *arguments: Any) -> Any:
    from tvm import tirx

    return tirx.call_intrin(arguments[0].ty, _operator(name), *arguments)


@functools.cache
def _operator(name: str) -> Any:
    from tvm.ir import Op

    with _LOCK:
        _register_operators()
    return Op.get(name)


@functools.cache
def _register_operators() -> None:
    from tvm.ir import Op, _ffi_api
    from tvm.tirx import GT, LT, CallEffectKind
    from tvm.tirx.op import register_intrin_lowering

    # What code is generated of.
    lowered: dict[str, tuple[int, Callable[[Any], Any]]] = {
        _AS_WRITTEN: (1, lambda call: call.args[0]),
        _MAXIMUM: (2, lambda call: _better(GT, *call.args)),
        _MINIMUM: (2, lambda call: _better(LT, *call.args)),
    }
    for name, (count, lower) in lowered.items():
        if name not in Op.list_op_names():
            _ffi_api.RegisterOp(name, "See tvm_tile.registered.")
            operator = Op.get(name)
            operator.set_num_inputs(count)
            operator.set_attr("TCallEffectKind", CallEffectKind.Pure.value)
            operator.set_attr("TVectorizable", True)
            register_intrin_lowering(name, target="default", f=_immortal(lower))


def _better(beats: Any, a: Any, b: Any) -> Any:
    """``b`` where it beats ``a`` or is NaN, else ``a``; both, which may be long, computed once."""
    from tvm.tirx import EQ, Let, Not, Or, Select, Var

    first, second = Var("first", a.ty), Var("second", b.ty)
    wins = Or(beats(second, first), Not(EQ(second, second)))
    return Let(first, a, Let(second, b, Select(wins, second, first)))


def register_extrema() -> None:
    """Tell TVM's schedules of maxima that start at minus infinity, and minima at infinity.

    They know of those that start at the lowest finite number, which minus infinity is below.
    """
    with _LOCK:
        _register_extrema()


@functools.cache
def _register_extrema() -> None:
    import tvm
    from tvm.tirx import Max, Min, const

    register = tvm.get_global_func("s_tir.schedule.RegisterReducer")
    for kind, start in ((Max, -math.inf), (Min, math.inf)):
        register(
            1,
            _immortal(lambda left, right, kind=kind: [kind(left[0], right[0])]),
            _immortal(lambda values, start=start: [const(start, str(values[0].ty.dtype))]),
        )


def _immortal(function: Any) -> Any:
    """A function for TVM's registries, which let go of it when Python has ended."""
    import tvm_ffi

    converted = tvm_ffi.convert(function)
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(converted))
    return converted
