"""What TVM's registries are told of, once a process: an operator and two reductions of ours.

As `compat.py` does, this adapts to TVM's moving API.
"""

from __future__ import annotations

import ctypes
import functools
import math
import threading
from typing import Any

_AS_WRITTEN = "tirx.tvm_tile.as_written"
_LOCK = threading.Lock()


def as_written(value: Any) -> Any:
    """A value of whatever type that TVM's passes carry along and can find out nothing about."""
    from tvm import tirx

    return tirx.call_intrin(value.ty, _as_written_operator(), value)


def is_as_written(call: Any) -> bool:
    """Whether a call was made by :func:`as_written`; its argument is the value."""
    return getattr(call.op, "name", "") == _AS_WRITTEN


@functools.cache
def _as_written_operator() -> Any:
    from tvm.ir import Op, _ffi_api
    from tvm.tirx import CallEffectKind
    from tvm.tirx.op import register_intrin_lowering

    with _LOCK:
        if _AS_WRITTEN not in Op.list_op_names():
            _ffi_api.RegisterOp(_AS_WRITTEN, "Its argument.")
            operator = Op.get(_AS_WRITTEN)
            operator.set_num_inputs(1)
            operator.set_attr("TCallEffectKind", CallEffectKind.Pure.value)
            operator.set_attr("TVectorizable", True)
            # On the CPU TVM itself takes it away, in its last pass.
            show = _immortal(lambda call: call.args[0])
            register_intrin_lowering(_AS_WRITTEN, target="llvm", f=show)
        return Op.get(_AS_WRITTEN)


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
