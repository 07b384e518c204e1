"""Values of calls whose arguments are known: the arithmetic of shapes.

Later operators may need such a value while the model is compiled: the target of a reshape, the
bounds of a slice. Only small tensors are computed here, and only by operators whose result is exact
in NumPy; all others become operators of Relax.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from tvm_tile.frontend.relay.call import OperatorCall, Value
from tvm_tile.frontend.relay.operators.creation import arange_values
from tvm_tile.frontend.relay.operators.elementwise import integer_bound
from tvm_tile.frontend.relay.operators.reductions import reduced_axes
from tvm_tile.frontend.relay.operators.reshape_codes import with_ones, without_ones
from tvm_tile.frontend.relay.operators.reshapes import reshape_target, transposed_axes
from tvm_tile.frontend.relay.operators.shapes import known_shape, split_ends
from tvm_tile.frontend.relay.operators.slicing import strided_parts
from tvm_tile.frontend.relay.values import constant

_MOST = 1024  # elements of an argument or of a result
_KINDS = frozenset("biuf")  # truth values, integers, floating-point numbers that NumPy has

Known = Any
"""An array, or a tuple of such."""
Evaluate = Callable[..., Known]


def fold(call: OperatorCall) -> Value | None:
    """The value of a call, as a constant or as a tuple of constants.

    Returns:
        ``None`` where an argument is known only at run time, where something is large, and where
        the operator is none of shape arithmetic.
    """
    evaluate = _EVALUATIONS.get(call.name)
    if evaluate is None:
        return None
    known = [_known(call, value) for value in call.arguments]
    if any(value is None for value in known) or not _has_few_results(call):
        return None
    with np.errstate(all="ignore"):
        return _constants(evaluate(call, *known))


def _has_few_results(call: OperatorCall) -> bool:
    """Whether a tensor that is made of a number is small; others are not larger than many."""
    if call.name in _OF_SHAPES:
        return math.prod(known_shape(call, _OF_SHAPES[call.name])) <= _MOST
    return True


def _known(call: OperatorCall, value: Value) -> Known | None:
    if isinstance(value, tuple):
        fields = tuple(_known(call, field) for field in value)
        return None if any(field is None for field in fields) else fields
    array = OperatorCall(call.name, (value,), {}, call.builder).known(0)
    return array if array is not None and _is_small(array) else None


def _is_small(array: np.ndarray) -> bool:
    return array.size <= _MOST and array.dtype.kind in _KINDS


def _constants(value: Known | None) -> Value | None:
    if value is None:
        return None
    if isinstance(value, tuple):
        fields = tuple(_constants(field) for field in value)
        return None if any(field is None for field in fields) else fields
    array = np.asarray(value)
    # TVM cannot read back a constant without elements.
    return constant(array, str(array.dtype)) if array.size and _is_small(array) else None


def _of_one_type(function: Callable[[Any, Any], Any]) -> Evaluate:
    """An operator on two tensors of one type, with a result of that type or of truth values."""

    def evaluate(_: OperatorCall, left: np.ndarray, right: np.ndarray) -> Known:
        is_flag = left.dtype == bool and function not in _OF_FLAGS
        if left.dtype != right.dtype or is_flag:
            return None
        result = np.asarray(function(left, right))
        return result if result.dtype == bool else result.astype(left.dtype)

    return evaluate


def _of_integers(function: Callable[[Any, Any], Any]) -> Evaluate:
    """A division; of integers by a number other than zero alone."""
    inner = _of_one_type(function)

    def evaluate(call: OperatorCall, left: np.ndarray, right: np.ndarray) -> Known:
        if left.dtype.kind not in "iu" or not right.all():
            return None
        return inner(call, left, right)

    return evaluate


def _truncated(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """A quotient of integers, cut off towards zero."""
    remainder = np.fmod(left, right)
    result: np.ndarray = (left - remainder) // right
    return result


def _quotient(call: OperatorCall, left: np.ndarray, right: np.ndarray) -> Known:
    """Divide; quotients of integers are cut off towards zero."""
    if left.dtype.kind == "f" and left.dtype == right.dtype:
        return left / right
    return _of_integers(_truncated)(call, left, right)


def _cast(array: np.ndarray, dtype: str) -> np.ndarray | None:
    """An array in another type; ``None`` where NumPy and C may differ."""
    if dtype == "bool":
        return array != 0
    if dtype not in np.sctypeDict:
        return None
    if array.dtype.kind == "f" and np.dtype(dtype).kind in "iu":
        limits = np.iinfo(dtype)
        whole = np.trunc(array.astype(np.float64))
        if not np.all((whole >= limits.min) & (whole <= limits.max)):
            return None
    return array.astype(dtype)


def _clip(call: OperatorCall, x: np.ndarray) -> Known:
    if x.dtype.kind not in "iu":
        return None
    bounds = (integer_bound(float(call.attributes[n]), str(x.dtype)) for n in ("a_min", "a_max"))
    low, high = (np.array(bound, x.dtype) for bound in bounds)
    return np.minimum(np.maximum(x, low), high)


# TVM's modes of "take" -> NumPy's.
_MODES: dict[str, Literal["wrap", "clip"]] = {"wrap": "wrap", "clip": "clip", "fast": "clip"}


def _take(call: OperatorCall, x: np.ndarray, indices: np.ndarray) -> Known:
    axis, mode = call.attributes["axis"], call.attributes["mode"]
    if call.attributes.get("batch_dims") or mode not in _MODES or indices.dtype.kind not in "iu":
        return None
    whole = x.reshape(-1) if axis is None else x
    place = 0 if axis is None else int(axis)
    return np.take(whole, indices.astype("int64"), place, mode=_MODES[mode])


def _reduction(function: Callable[..., np.ndarray]) -> Evaluate:
    """Sums and the like of integers, of the operand's type."""

    def evaluate(call: OperatorCall, x: np.ndarray) -> Known:
        attributes = call.attributes
        axes = reduced_axes(x.ndim, attributes["axis"], attributes["exclude"])
        is_flag = function in (np.all, np.any)
        if (x.dtype.kind not in "iu" and not is_flag) or not x.size:
            return None
        result = function(x, axis=axes, keepdims=bool(attributes["keepdims"]))
        return result if is_flag else np.asarray(result).astype(x.dtype)

    return evaluate


def _equal_elements(call: OperatorCall, *_: np.ndarray) -> np.ndarray:
    value = 1 if call.name.endswith("ones") else 0
    return np.full(known_shape(call, 0), value, call.attributes.get("dtype") or "float32")


def _full(call: OperatorCall, value: np.ndarray, *_: np.ndarray) -> Known:
    whole = np.full(known_shape(call, 1), value.reshape(()))
    return _cast(whole, str(call.attributes.get("dtype") or value.dtype))


def _split(call: OperatorCall, x: np.ndarray) -> Known:
    axis = int(call.attributes["axis"])
    ends = split_ends(x.shape[axis], call.attributes["indices_or_sections"])
    return tuple(np.split(x, ends[:-1], axis))


def _sliced(call: OperatorCall, x: np.ndarray, *_: np.ndarray) -> np.ndarray:
    places = np.ix_(*(np.arange(p.start, p.stop, p.step) for p in strided_parts(call)))
    return x[places]


def _reshaped(call: OperatorCall, x: np.ndarray, *_: np.ndarray) -> np.ndarray:
    return x.reshape(reshape_target(call))


def _sorted(call: OperatorCall, x: np.ndarray) -> Known:
    if x.dtype.kind not in "iu":
        return None
    axis = int(call.attributes["axis"])
    ascending = np.sort(x, axis)
    return ascending if call.attributes["is_ascend"] else np.flip(ascending, axis)


def _arange(call: OperatorCall, *bounds: np.ndarray) -> Known:
    start, stop, step = (bound.reshape(()) for bound in bounds)
    dtype = str(call.attributes["dtype"])
    return arange_values(start, stop, step, dtype) if dtype in np.sctypeDict else None


_UNARY: dict[str, Callable[[np.ndarray], Any]] = {
    "negative": lambda x: np.negative(x) if x.dtype.kind != "b" else None,
    "abs": np.abs,
    "floor": lambda x: np.floor(x).astype(x.dtype),
    "ceil": lambda x: np.ceil(x).astype(x.dtype),
    "trunc": lambda x: np.trunc(x).astype(x.dtype),
    "logical_not": np.logical_not,
    "copy": lambda x: x,
}
_ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "maximum": np.maximum,
    "minimum": np.minimum,
}
_COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    **{name: getattr(np, name) for name in ("equal", "not_equal", "less", "less_equal")},
    **{name: getattr(np, name) for name in ("greater", "greater_equal")},
    **{f"logical_{name}": getattr(np, f"logical_{name}") for name in ("and", "or", "xor")},
}
_OF_FLAGS = frozenset(_COMPARISONS.values())
_DIVISIONS: dict[str, Callable[[Any, Any], Any]] = {
    "floor_divide": np.floor_divide,
    "floor_mod": np.mod,
    "mod": np.fmod,
    "trunc_mod": np.fmod,
    "trunc_divide": _truncated,
}
# Operators that make a tensor of some shape -> which argument that may be.
_OF_SHAPES = {
    **dict.fromkeys(("zeros", "ones", "dyn.zeros", "dyn.ones"), 0),
    **dict.fromkeys(("full", "dyn.full", "broadcast_to", "dyn.broadcast_to"), 1),
}


def _unary(function: Callable[[np.ndarray], Any]) -> Evaluate:
    return lambda _, x: function(x)


_EVALUATIONS: dict[str, Evaluate] = {
    **{name: _unary(function) for name, function in _UNARY.items()},
    **{name: _of_one_type(f) for name, f in (*_ARITHMETIC.items(), *_COMPARISONS.items())},
    **{name: _of_integers(function) for name, function in _DIVISIONS.items()},
    "divide": _quotient,
    "cast": lambda call, x: _cast(x, str(call.attributes["dtype"])),
    "cast_like": lambda _, x, like: _cast(x, str(like.dtype)),
    "clip": _clip,
    "where": lambda _, condition, yes, no: np.where(condition != 0, yes, no),
    "take": _take,
    **{name: _reduction(getattr(np, name)) for name in ("sum", "prod", "max", "min", "all", "any")},
    **dict.fromkeys(("zeros", "ones", "dyn.zeros", "dyn.ones"), _equal_elements),
    **dict.fromkeys(("full", "dyn.full"), _full),
    "zeros_like": lambda _, x: np.zeros_like(x),
    "ones_like": lambda _, x: np.ones_like(x),
    "arange": _arange,
    **dict.fromkeys(
        ("broadcast_to", "dyn.broadcast_to"),
        lambda call, x, *_: np.broadcast_to(x, known_shape(call, 1)),
    ),
    "concatenate": lambda call, xs: np.concatenate(xs, int(call.attributes["axis"])),
    "stack": lambda call, xs: np.stack(xs, int(call.attributes["axis"])),
    "sort": _sorted,
    "split": _split,
    **dict.fromkeys(("strided_slice", "dyn.strided_slice"), _sliced),
    **dict.fromkeys(("reshape", "dyn.reshape", "contrib_reverse_reshape"), _reshaped),
    "squeeze": lambda call, x: x.reshape(without_ones(x.shape, call.attributes["axis"])),
    "expand_dims": lambda call, x: x.reshape(
        with_ones(x.shape, int(call.attributes["axis"]), int(call.attributes["num_newaxis"]))
    ),
    "transpose": lambda call, x: x.transpose(transposed_axes(x.ndim, call.attributes["axes"])),
    "reverse": lambda call, x: np.flip(x, int(call.attributes["axis"])),
    "tile": lambda call, x: np.tile(x, call.attributes["reps"]),
}
