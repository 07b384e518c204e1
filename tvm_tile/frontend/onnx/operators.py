"""ONNX operators, or forms of them, that TVM's importer lacks or gets wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import onnx

from tvm_tile.frontend.onnx import elementwise, indexing, quantized, random, training, windows
from tvm_tile.frontend.onnx.detection import convert_non_max_suppression
from tvm_tile.frontend.onnx.few_bits import convert_bits, convert_matmul_bits
from tvm_tile.frontend.onnx.node import Converter, Node
from tvm_tile.frontend.onnx.recurrent import RECURRENT_OPERATORS, convert_recurrent
from tvm_tile.frontend.onnx.regions import convert_grid_sample, convert_roi_align
from tvm_tile.frontend.onnx.resize import convert_resize
from tvm_tile.frontend.onnx.signal import convert_dft, convert_stft
from tvm_tile.frontend.onnx.splits import convert_split, convert_split_to_sequence
from tvm_tile.frontend.ops.values import Value, shape_of

Attrs = Mapping[str, Any]

_CONVERTERS: dict[str, Converter] = {
    **dict.fromkeys(RECURRENT_OPERATORS, convert_recurrent),
    **dict.fromkeys(("Adagrad", "Adam", "Momentum"), training.convert_optimizer),
    "AffineGrid": windows.convert_affine_grid,
    "ArrayFeatureExtractor": indexing.convert_array_feature_extractor,
    "BatchNormalization": training.convert_batch_norm,
    "Binarizer": elementwise.convert_binarizer,
    "Bernoulli": random.convert_bernoulli,
    "BitCast": elementwise.convert_bit_cast,
    "Celu": elementwise.convert_celu,
    "Col2Im": windows.convert_col2im,
    "ConvInteger": quantized.convert_conv_integer,
    **dict.fromkeys(("CumProd", "CumSum"), elementwise.convert_scan),
    "DFT": convert_dft,
    "DeformConv": windows.convert_deform_conv,
    "DequantizeLinear": quantized.convert_dequantize,
    "Dropout": training.convert_dropout,
    "DynamicQuantizeLinear": quantized.convert_dynamic_quantize,
    "EyeLike": indexing.convert_eye_like,
    "GridSample": convert_grid_sample,
    "IsInf": elementwise.convert_is_infinite,
    "LRN": windows.convert_lrn,
    "LpNormalization": elementwise.convert_lp_normalization,
    "MatMulInteger": quantized.convert_matmul_integer,
    "DequantizeNBits": convert_bits,
    "MatMulNBits": convert_matmul_bits,
    "MaxUnpool": windows.convert_max_unpool,
    "Mod": elementwise.convert_modulo,
    "Multinomial": random.convert_multinomial,
    "NonMaxSuppression": convert_non_max_suppression,
    "OneHot": indexing.convert_one_hot,
    "PRelu": elementwise.convert_prelu,
    "Pow": elementwise.convert_power,
    "QLinearConv": quantized.convert_quantized_conv,
    "QLinearMatMul": quantized.convert_quantized_matmul,
    "QuantizeLinear": quantized.convert_quantize,
    **dict.fromkeys(random.ALWAYS_RANDOM - {"Bernoulli", "Multinomial"}, random.convert_random),
    **dict.fromkeys(elementwise.REDUCTIONS, elementwise.convert_reduction),
    **dict.fromkeys(("Resize", "Upsample"), convert_resize),
    "ReverseSequence": indexing.convert_reverse_sequence,
    "RoiAlign": convert_roi_align,
    "STFT": convert_stft,
    "Scatter": indexing.convert_scatter,
    "Shape": indexing.convert_shape,
    "Sign": elementwise.convert_sign,
    "Slice": indexing.convert_slice,
    "Split": convert_split,
    "SplitToSequence": convert_split_to_sequence,
    "TensorScatter": indexing.convert_tensor_scatter,
}

#: Operators that we convert at least in some form.
ADDED_OPERATORS = frozenset(_CONVERTERS)

#: Domains other than ONNX's own in which an operator is known.
DOMAINS = {
    **dict.fromkeys(("Adagrad", "Adam", "Momentum"), "ai.onnx.preview.training"),
    **dict.fromkeys(("ArrayFeatureExtractor", "Binarizer"), "ai.onnx.ml"),
}

_BOUNDED = frozenset(
    {"Gather", "GatherElements", "GatherND", "ScatterElements", "ScatterND", "Scatter"}
)

# Before opset 13 these are along all axes from the given one on.
_FLATTENING = frozenset({"Softmax", "LogSoftmax", "Hardmax"})

#: TVM's converter of a node.
Stock = Callable[[Node], Value]


def convert_operator(node: Node, stock: Stock) -> Value:
    """Convert a node by our converter, or by TVM's where ours leaves its form to that.

    Args:
        node: the node.
        stock: TVM's converter.

    Returns:
        The result, or a tuple of several.
    """
    if node.op_type in _BOUNDED:
        indexing.require_indices_within(node)
    if node.op_type in _FLATTENING and node.opset < 13:
        shape_of(node.inputs[0])  # TVM's converters guess where it is unknown
    if node.op_type == "ConstantOfShape":
        node = indexing.settle_shape(node, 0)
    if node.op_type == "Reshape" and node.opset >= 5:
        node = indexing.settle_shape(node, 1)
    if node.op_type == "ConvTranspose":
        return stock(windows.settle_conv_transpose(node))
    if node.op_type == "Pad":
        return indexing.convert_wrapping_pad(node, stock)
    if node.op_type == "LpPool":
        return windows.convert_lp_pool(node, stock(node))
    if node.op_type in ("Squeeze", "Unsqueeze"):
        return stock(indexing.settle_axes(node))
    if node.op_type == "Unique":
        return stock(indexing.in_one_row(node))
    if node.op_type == "MaxPool" and node.results > 1:
        return windows.convert_max_pool_with_indices(node, stock(replace(node, results=1)))
    convert = _CONVERTERS.get(node.op_type)
    ours = convert(node) if convert is not None else None
    return stock(node) if ours is None else ours


# Forms that TVM's converters take and get wrong.
_MISREAD: dict[str, Callable[[onnx.NodeProto, Attrs], bool]] = {
    "LayerNormalization": lambda node, _: _results(node) > 1,
    "RMSNormalization": lambda _, attrs: attrs.get("axis", -1) != -1,
    "SpaceToDepth": lambda _, attrs: attrs.get("mode") == b"CRD",
    # Multiplied by a mask, which makes no number of an infinity.
    "ThresholdedRelu": lambda *_: True,
}


def is_misread(node: onnx.NodeProto) -> bool:
    """Whether TVM's converter would accept this node and compute something else."""
    if node.op_type not in _MISREAD:
        return False
    attrs = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    return _MISREAD[node.op_type](node, attrs)


def _results(node: onnx.NodeProto) -> int:
    return sum(name != "" for name in node.output)
