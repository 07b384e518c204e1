"""ONNX operators, or forms of them, that TVM's importer lacks or gets wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from tvm import relax, tirx
from tvm.ir import GenericConst
from tvm.relax import op

from tvm_tile.frontend.onnx_detection import convert_non_max_suppression
from tvm_tile.frontend.onnx_recurrent import RECURRENT_OPERATORS, convert_recurrent

Value = Any  # a Relax expression with a known type
Attrs = Mapping[str, Any]

#: Operators that TVM's importer does not have at all.
ADDED_OPERATORS = RECURRENT_OPERATORS | {"LpNormalization", "CumProd"}


def convert_operator(
    op_type: str, builder: relax.BlockBuilder, inputs: Sequence[Value], attrs: Attrs
) -> Value | None:
    """Convert a node that is ours.

    Args:
        op_type: a standard ONNX operator.
        builder: where operators go.
        inputs: Relax expressions; ``None`` for optional inputs left out.
        attrs: the node's attributes.

    Returns:
        The result (a tuple of several), or ``None`` for a node that TVM's importer converts.
    """
    if op_type in RECURRENT_OPERATORS:
        return convert_recurrent(op_type, builder, inputs, attrs)
    if op_type == "LpNormalization":
        return _lp_normalization(builder, inputs[0], attrs)
    if op_type == "CumProd":
        return _cumulative_product(inputs[0], inputs[1], attrs)
    if op_type == "NonMaxSuppression":
        return convert_non_max_suppression(builder, inputs, attrs)
    if op_type == "IsInf":
        return _is_infinite(inputs[0], attrs)
    if op_type == "Pow":
        return _power(*inputs)
    if op_type == "Mod":
        return _modulo(builder, inputs[0], inputs[1], attrs)
    if op_type in _EXTREMES:
        return _extreme_of_nothing(op_type, inputs, attrs)
    if op_type == "Split":
        return _split_with_empty_parts(inputs, attrs)
    if op_type == "Resize":
        _require_exact_scales(inputs, attrs)
    return None


def _lp_normalization(builder: relax.BlockBuilder, x: Value, attrs: Attrs) -> Value:
    size = op.abs(x) if attrs.get("p", 2) == 1 else op.multiply(x, x)
    norm = op.sum(size, [attrs.get("axis", -1)], keepdims=True)
    norm = builder.emit(norm if attrs.get("p", 2) == 1 else op.sqrt(norm))
    zero = relax.const(0.0, str(x.ty.dtype))
    return op.where(op.equal(norm, zero), op.multiply(x, zero), op.divide(x, norm))


def _cumulative_product(x: Value, axis: Value, attrs: Attrs) -> Value:
    if not isinstance(axis, GenericConst):
        raise NotImplementedError("an axis that is no constant")
    along = int(axis.value.numpy())
    reverse = bool(attrs.get("reverse", 0))
    x = op.flip(x, along) if reverse else x
    result = op.cumprod(x, along, exclusive=bool(attrs.get("exclusive", 0)))
    return op.flip(result, along) if reverse else result


def _is_infinite(x: Value, attrs: Attrs) -> Value | None:
    """TVM's converter looks for both signs, whatever the attributes say."""
    positive, negative = attrs.get("detect_positive", 1), attrs.get("detect_negative", 1)
    if positive and negative:
        return None
    # Neither: no value is greater than infinity.
    wanted = op.equal if positive or negative else op.greater
    return wanted(x, relax.const(-np.inf if negative else np.inf, str(x.ty.dtype)))


def _power(base: Value, exponent: Value) -> Value | None:
    """ONNX lets the exponent be of another type; the result has the base's."""
    dtypes = str(base.ty.dtype), str(exponent.ty.dtype)
    if dtypes[0] == dtypes[1]:
        return None
    if "float" in dtypes[0]:
        return op.power(base, op.astype(exponent, dtypes[0]))
    return op.astype(op.power(op.astype(base, dtypes[1]), exponent), dtypes[0])


def _modulo(builder: relax.BlockBuilder, x: Value, y: Value, attrs: Attrs) -> Value | None:
    """TVM's x - floor(x / y) * y is no number where x / y or y is infinite."""
    is_float = all("float" in str(getattr(v.ty, "dtype", "")) for v in (x, y))
    if not is_float or attrs.get("fmod", 0):
        return None
    remainder = builder.emit(op.mod(x, y))  # exact, of the sign of x
    zero = relax.const(0.0, str(x.ty.dtype))
    differs = op.logical_xor(op.less(remainder, zero), op.less(y, zero))
    moved = op.logical_and(op.not_equal(remainder, zero), differs)
    return op.where(moved, op.add(remainder, y), remainder)


# The largest of no numbers; TVM has the largest finite number's negative.
_EXTREMES = {"ReduceMax": -np.inf, "ReduceMin": np.inf}


def _extreme_of_nothing(op_type: str, inputs: Sequence[Value], attrs: Attrs) -> Value | None:
    x, axes = inputs[0], attrs.get("axes")
    if len(inputs) > 1 and isinstance(inputs[1], GenericConst):
        axes = inputs[1].value.numpy().tolist()
    if x.ty.shape is None or (not axes and attrs.get("noop_with_empty_axes", 0)):
        return None
    # -1: an extent that the data decide
    shape = [int(e) if isinstance(e, tirx.IntImm) else -1 for e in x.ty.shape]
    reduced = {axis % len(shape) for axis in (axes or range(len(shape)))}
    is_known = "float" in str(x.ty.dtype) and -1 not in shape
    if not is_known or all(shape[axis] for axis in reduced):
        return None
    kept = [1 if i in reduced else extent for i, extent in enumerate(shape)]
    if not attrs.get("keepdims", 1):
        kept = [extent for i, extent in enumerate(shape) if i not in reduced]
    return relax.const(np.full(kept, _EXTREMES[op_type]), str(x.ty.dtype))


def _split_with_empty_parts(inputs: Sequence[Value], attrs: Attrs) -> Value | None:
    """TVM's split wants each of its parts to have an element."""
    sizes = attrs.get("split")
    if len(inputs) > 1 and isinstance(inputs[1], GenericConst):
        sizes = inputs[1].value.numpy().tolist()
    if sizes is None or all(sizes):
        return None
    ends = np.cumsum(sizes).tolist()
    return relax.Tuple(
        [
            op.strided_slice(inputs[0], [attrs.get("axis", 0)], [end - size], [end])
            for size, end in zip(sizes, ends, strict=True)
        ]
    )


def _require_exact_scales(inputs: Sequence[Value], attrs: Attrs) -> None:
    """TVM derives the scales from the sizes; ONNX interpolates with the given ones."""
    scales = inputs[2] if len(inputs) > 2 else None
    if attrs.get("mode", b"nearest") == b"nearest" or not isinstance(scales, GenericConst):
        return
    sizes = scales.value.numpy() * np.array([int(extent) for extent in inputs[0].ty.shape])
    if sizes.size and np.abs(sizes - np.round(sizes)).max() > 1e-3:
        raise NotImplementedError("scales that lead to a fraction of an element")


# Forms that TVM's converters take and get wrong.
_MISREAD: dict[str, Callable[[onnx.NodeProto, Attrs], bool]] = {
    "BatchNormalization": lambda _, attrs: attrs.get("training_mode", 0) != 0,
    # Exporters that write output_padding as well agree with it.
    "ConvTranspose": lambda _, attrs: "output_shape" in attrs and "output_padding" not in attrs,
    "Dropout": lambda node, _: _results(node) > 1,
    "LayerNormalization": lambda node, _: _results(node) > 1,
    "Resize": lambda _, attrs: attrs.get("antialias", 0) != 0,
    "RMSNormalization": lambda _, attrs: attrs.get("axis", -1) != -1,
    "RoiAlign": lambda _, attrs: attrs.get("mode") == b"max",
    "SpaceToDepth": lambda _, attrs: attrs.get("mode") == b"CRD",
}


def is_misread(node: onnx.NodeProto) -> bool:
    """Whether TVM's converter would accept this node and compute something else."""
    if node.op_type not in _MISREAD:
        return False
    attrs = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    return _MISREAD[node.op_type](node, attrs)


def _results(node: onnx.NodeProto) -> int:
    return sum(name != "" for name in node.output)
