"""ONNX's element-wise operators, norms and reductions in forms that TVM's importer misreads."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from tvm import relax, te, tirx
from tvm.relax import op

from tvm_tile.frontend.onnx.model import dtype_name
from tvm_tile.frontend.onnx.node import Node
from tvm_tile.frontend.ops.values import Value, constant, counted_axis, dtype_of, shape_of
from tvm_tile.frontend.powers import integer_power


def convert_lp_normalization(node: Node) -> Value:
    """LpNormalization: a line of zeros stays one."""
    x, p = node.inputs[0], node.attrs.get("p", 2)
    size = op.abs(x) if p == 1 else op.multiply(x, x)
    norm = op.sum(size, [node.attrs.get("axis", -1)], keepdims=True)
    norm = node.emit(norm if p == 1 else op.sqrt(norm))
    zero = relax.const(0.0, dtype_of(x))
    return op.where(op.equal(norm, zero), op.multiply(x, zero), op.divide(x, norm))


def convert_scan(node: Node) -> Value:
    """CumSum or CumProd along a constant axis."""
    x, axis = node.inputs[0], node.parameter(1, "an axis")
    assert axis is not None
    along = counted_axis(int(axis.item()), len(x.ty.shape))
    reverse = bool(node.attrs.get("reverse", 0))
    x = op.flip(x, along) if reverse else x
    scan = op.cumsum if node.op_type == "CumSum" else op.cumprod
    result = scan(x, along, exclusive=bool(node.attrs.get("exclusive", 0)))
    return op.flip(result, along) if reverse else result


def convert_is_infinite(node: Node) -> Value | None:
    """IsInf of one sign: TVM's converter looks for both, whatever the attributes say."""
    x = node.inputs[0]
    positive, negative = (node.attrs.get(f"detect_{s}", 1) for s in ("positive", "negative"))
    if positive and negative:
        return None
    # Neither: no value is greater than infinity.
    wanted = op.equal if positive or negative else op.greater
    return wanted(x, relax.const(-np.inf if negative else np.inf, dtype_of(x)))


def convert_celu(node: Node) -> Value:
    """Celu; of a single number, too, of which its definition as a function makes a list of one."""
    x = node.inputs[0]
    values = (node.attrs.get("alpha", 1.0), 1.0, 0.0)
    alpha, one, zero = (constant(value, dtype_of(x)) for value in values)
    return op.maximum(x, zero) + op.minimum(alpha * (op.exp(x / alpha) - one), zero)


def convert_power(node: Node) -> Value | None:
    """Pow: ONNX lets the exponent be of another type; the result has the base's."""
    base, exponent = node.inputs
    dtypes = dtype_of(base), dtype_of(exponent)
    if "float" in dtypes[0]:
        return op.power(base, op.astype(exponent, dtypes[0])) if dtypes[0] != dtypes[1] else None
    if "float" in dtypes[1]:
        return op.astype(op.power(op.astype(base, dtypes[1]), exponent), dtypes[0])
    return integer_power(node.emit, base, exponent)


def convert_sign(node: Node) -> Value | None:
    """Sign of what is no number: ONNX, as NumPy, has none; TVM's, as PyTorch's, is 0."""
    (x,) = node.inputs
    if "float" not in dtype_of(x):
        return None
    return op.where(node.emit(op.isnan(x)), x, op.sign(x))


def convert_modulo(node: Node) -> Value | None:
    """Mod of the divisor's sign; TVM's x - floor(x / y) * y is no number where one is infinite."""
    x, y = node.inputs
    is_float = all("float" in str(getattr(v.ty, "dtype", "")) for v in (x, y))
    if not is_float or node.attrs.get("fmod", 0):
        return None
    remainder = node.emit(op.mod(x, y))  # exact, of the sign of x
    zero = relax.const(0.0, dtype_of(x))
    differs = op.logical_xor(op.less(remainder, zero), op.less(y, zero))
    moved = op.logical_and(op.not_equal(remainder, zero), differs)
    return op.where(moved, op.add(remainder, y), remainder)


#: Operators that are :func:`convert_reduction`'s.
REDUCTIONS = (
    *("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean"),
    *("ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare"),
)

# The largest of no numbers; TVM has the largest finite number's negative.
_EXTREMES = {"ReduceMax": -np.inf, "ReduceMin": np.inf}

# What reductions that do more than to reduce make of one element.
_OF_ONE: dict[str, Callable[[Value], Value]] = {
    "ReduceL1": op.abs,
    "ReduceL2": op.abs,
    "ReduceLogSum": op.log,
    "ReduceLogSumExp": lambda x: x,
    "ReduceSumSquare": lambda x: op.multiply(x, x),
}


def convert_reduction(node: Node) -> Value | None:
    """Reductions along no axes, of integers and truths, and the extrema of no elements."""
    x, axes = node.inputs[0], node.attrs.get("axes")
    if node.constant(1) is not None:
        axes = np.asarray(node.constant(1)).tolist()
    keeps_all = int(node.attrs.get("noop_with_empty_axes", 0))
    if keeps_all not in (0, 1):
        raise ValueError(f"noop_with_empty_axes {keeps_all}")
    if node.input(1) is not None and node.constant(1) is None:
        return None
    if not axes and keeps_all:
        # TVM's converters leave out the rest, too.
        return _OF_ONE.get(node.op_type, lambda x: x)(x)
    if node.op_type in _OF_INTEGERS and "int" in dtype_of(x):
        return _OF_INTEGERS[node.op_type](node, x, axes or None)
    if node.op_type == "ReduceLogSumExp" and "float" in dtype_of(x):
        return _log_sum_exp(node, x, axes or None)
    if node.op_type in _EXTREMES and dtype_of(x) == "bool":
        reduce = op.max if node.op_type == "ReduceMax" else op.min
        keeps = bool(node.attrs.get("keepdims", 1))
        return op.astype(reduce(op.astype(x, "int8"), axes or None, keeps), "bool")
    if x.ty.shape is None or node.op_type not in _EXTREMES:
        return None
    # -1: an extent that the data decide
    shape = [int(e) if isinstance(e, tirx.IntImm) else -1 for e in x.ty.shape]
    reduced = {axis % len(shape) for axis in (axes or range(len(shape)))}
    is_known = "float" in dtype_of(x) and -1 not in shape
    if not is_known or all(shape[axis] for axis in reduced):
        return None
    kept = [1 if i in reduced else extent for i, extent in enumerate(shape)]
    if not node.attrs.get("keepdims", 1):
        kept = [extent for i, extent in enumerate(shape) if i not in reduced]
    return relax.const(np.full(kept, _EXTREMES[node.op_type]), dtype_of(x))


def _mean_of_integers(node: Node, x: Value, axes: list[int] | None) -> Value:
    """A sum and a quotient of the integers' type, towards zero; TVM has another type."""
    reduced = range(len(x.ty.shape)) if axes is None else axes
    extents = [x.ty.shape[axis] for axis in reduced]
    if not all(isinstance(extent, tirx.IntImm) for extent in extents):
        raise ValueError("a mean of integers along an open extent")
    total = node.emit(op.sum(x, axes, keepdims=bool(node.attrs.get("keepdims", 1))))
    return op.divide(total, constant(math.prod(map(int, extents)), dtype_of(x)))


def _by_way_of_floats(node: Node, x: Value, axes: list[int] | None) -> Value:
    """Roots and logarithms, cut off to integers."""
    wide = node.emit(op.astype(x, "float64"))
    keeps = bool(node.attrs.get("keepdims", 1))
    if node.op_type == "ReduceLogSumExp":
        result = _log_sum_exp(node, wide, axes)
    elif node.op_type == "ReduceLogSum":
        result = op.log(node.emit(op.sum(wide, axes, keepdims=keeps)))
    else:
        squares = node.emit(op.multiply(wide, wide))
        result = op.sqrt(node.emit(op.sum(squares, axes, keepdims=keeps)))
    return op.astype(node.emit(result), dtype_of(x))


_OF_INTEGERS: dict[str, Callable[[Node, Value, list[int] | None], Value]] = {
    "ReduceMean": _mean_of_integers,
    "ReduceL2": _by_way_of_floats,
    "ReduceLogSum": _by_way_of_floats,
    "ReduceLogSumExp": _by_way_of_floats,
}


def _log_sum_exp(node: Node, x: Value, axes: list[int] | None) -> Value:
    """Without TVM's difference of two infinities, which is no number."""
    largest = node.emit(op.max(x, axes, keepdims=True))
    finite = op.abs(largest) < constant(np.inf, dtype_of(x))
    shift = node.emit(op.where(finite, largest, constant(0.0, dtype_of(x))))
    result = node.emit(op.log(op.sum(op.exp(x - shift), axes, keepdims=True)) + shift)
    if node.attrs.get("keepdims", 1):
        return result
    return op.squeeze(result, list(range(len(x.ty.shape))) if axes is None else axes)


def convert_prelu(node: Node) -> Value:
    """PRelu; TVM's takes a slope that does not broadcast to its input, and fails much later."""
    x, slope = node.inputs
    falling = node.emit(op.multiply(x, slope))
    if shape_of(falling) != shape_of(x):
        raise ValueError(f"a slope of {shape_of(slope)} for {shape_of(x)}")
    return op.where(op.less(x, constant(0, dtype_of(x))), falling, x)


def convert_bit_cast(node: Node) -> Value:
    """BitCast between types of one width."""
    x, target = node.inputs[0], dtype_name(int(node.attrs["to"]))
    widths = np.dtype(dtype_of(x)).itemsize, np.dtype(target).itemsize
    if widths[0] != widths[1] or "bool" in (dtype_of(x), target):
        raise ValueError(f"the bits of {dtype_of(x)} as {target}")

    def bits(x: te.Tensor) -> te.Tensor:
        return te.compute(x.shape, lambda *i: tirx.reinterpret(target, x(*i)), name="bit_cast")

    return x if target == dtype_of(x) else node.compute(bits, x, name="bit_cast")


def convert_binarizer(node: Node) -> Value:
    """Binarizer of ai.onnx.ml: 1 above the threshold, else 0."""
    x, dtype = node.inputs[0], dtype_of(node.inputs[0])
    threshold = constant(float(node.attrs.get("threshold", 0.0)), dtype)
    return op.astype(op.greater(x, threshold), dtype)
