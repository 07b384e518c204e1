"""Forms of ONNX's operators, drawn at random and those that were wrong once, by value.

Run through TVM's CPU build of what the front door makes, and compared with ONNX Runtime or ONNX's
own reference evaluator. ``python -m bench.onnx_random`` draws without end.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import onnx
import pytest

from bench.node_cases import run_imported
from bench.onnx_forms import Form, form, random_form
from bench.onnx_random import difference, references
from tvm_tile.frontend import import_model

pytestmark = pytest.mark.bank(4)

_RNG = np.random.default_rng(0)


def floats(*shape: int) -> np.ndarray:
    return _RNG.normal(size=shape).astype("float32")


def infinite(*shape: int) -> np.ndarray:
    """One infinite element in the middle."""
    array = floats(*shape)
    array.ravel()[array.size // 2 + 3] = np.inf
    return array


def check(case: Form) -> None:
    pytest.importorskip("onnxruntime")
    model = case.model()
    wanted = references(case, model)
    assert wanted, f"no reference takes {case}"
    outputs = run_imported(model, case.arguments())
    differences = [difference(case, outputs, reference) for reference in wanted]
    assert "" in differences, f"{case}: {differences[0]}"


def resize(scales: list[float], extents: list[int] = [4, 5], **attrs: Any) -> Form:  # noqa: B006
    wanted = np.array([1, 1, *scales], "float32")
    return form("Resize", floats(1, 2, *extents), None, wanted, constants=(2,), **attrs)


_BOXES = np.array([[0, 0, 6, 5], [2, 1, 7, 7]], "float32")
_NUMBERS = np.array([1, 0])

# Each of these was wrong, refused, or ended in an error that was not ours.
FORMS = {
    "a slice that ends before it starts": form(
        "Slice", floats(4, 3), np.array([5, 0]), np.array([-8, 2]), constants=(1, 2)
    ),
    "one-hot of float32": form(
        "OneHot", np.array([0, 2, -1, 7]), np.array(3), floats(2), constants=(1,)
    ),
    "scatter into a part": form(
        "ScatterElements", floats(4, 6, 3), np.array([[[0], [2], [1]]]), floats(1, 3, 1), axis=2
    ),
    "boxes that are scaled, then moved": form(
        "RoiAlign", floats(2, 2, 4, 4), _BOXES, _NUMBERS, output_height=2, output_width=3,
        sampling_ratio=2, spatial_scale=0.5,
    ),
    "the largest weighted element": form(
        "RoiAlign", floats(2, 2, 8, 8), _BOXES, _NUMBERS, output_height=2, output_width=2,
        sampling_ratio=2, mode="max",
    ),
    "a transposed convolution's size": form(
        "ConvTranspose", floats(1, 2, 3, 3), floats(2, 2, 3, 3), strides=[3, 2],
        output_shape=[10, 8], output_padding=[1, 1],
    ),
    "nearest, a scale that is no quotient of sizes": resize([0.6, 1.5], [7, 6]),
    "linear, a scale that is no quotient of sizes": resize([2.3, 0.6], mode="linear"),
    "antialiasing of an infinite element": form(
        "Resize", infinite(1, 1, 9, 8), None, np.array([1, 1, 0.4, 0.3], "float32"),
        constants=(2,), mode="linear", antialias=1, opset=19,
    ),
    "half precision": form(
        "Resize", floats(1, 2, 4, 5).astype("float16"), None,
        np.array([1, 1, 1.5, 2], "float32"), constants=(2,), mode="cubic", tolerance=4e-3,
    ),
    "integers that float32 lacks are copied": form(
        "Resize", np.arange(6).reshape(1, 1, 2, 3).astype("int32") + (1 << 24), None,
        np.array([1, 1, 2, 1.5], "float32"), constants=(2,),
    ),
    "reflections of one element": form(
        "GridSample", floats(1, 1, 1, 3), 2 * floats(1, 4, 4, 2), padding_mode="reflection",
        align_corners=1,
    ),
    "antialiasing": resize([0.5, 0.6], [8, 9], mode="cubic", antialias=1, exclude_outside=1),
    "a symmetric frame": resize(
        [1.5, 0.7], mode="linear", coordinate_transformation_mode="half_pixel_symmetric"
    ),
    "no axes, but an absolute value": form(
        "ReduceL1", -np.abs(floats(3, 2)), np.zeros(0, "int64"), constants=(1,), opset=18,
        noop_with_empty_axes=1,
    ),
    "no axes at all, but an absolute value": form(
        "ReduceL2", -np.abs(floats(3, 2)), opset=18, noop_with_empty_axes=1
    ),
    "a power of integers": form("Pow", np.array([3, -2]), np.array([4, 3])),
    "axes in no order": form(
        "CenterCropPad", floats(4, 5, 5, 3), np.array([2, 5, 7, 2]), constants=(1,),
        axes=[0, 2, -3, -1],
    ),
    "statistics of the batch": form(
        "BatchNormalization", floats(3, 2, 4), *(np.abs(floats(2)) for _ in range(4)), results=3,
        training_mode=1, opset=15,
    ),
    "a mask of dropout": form("Dropout", floats(3), results=2),
    "places of maxima": form(
        "MaxPool", floats(1, 2, 7, 6), results=2, kernel_shape=[3, 2], strides=[2, 2],
        pads=[1, 0, 1, 1], dilations=[1, 2], storage_order=1,
    ),
    "blocks of scales": form(
        "QuantizeLinear", floats(2, 6), np.abs(floats(2, 3)), np.full((2, 3), 7, "int8"),
        axis=1, block_size=2,
    ),
    "a quantized product": form(
        "QLinearMatMul",
        *(np.full((3, 4), 90, "uint8"), np.float32(0.1), np.uint8(3)),
        *(np.arange(8, dtype="uint8").reshape(4, 2), np.float32(0.2), np.uint8(1)),
        *(np.float32(0.7), np.uint8(9)),
    ),
    "samples that end early": form(
        "LSTM", floats(4, 3, 2), floats(2, 8, 2), floats(2, 8, 2), None,
        np.array([4, 0, 2], "int32"), direction="bidirectional", hidden_size=2, results=3,
        tolerance=1e-4,
    ),
    "windows that begin inside and end outside": form(
        "LpPool", floats(1, 1, 4, 5), kernel_shape=[1, 2], strides=[2, 2], auto_pad="VALID",
        ceil_mode=1, p=3, tolerance=1e-4,
    ),
    "a wrap around what is left": form(
        "Pad", floats(5, 6), np.array([2, -1, -2, 3]), constants=(1,), mode="wrap"
    ),
    "a threshold of infinities": form(
        "ThresholdedRelu", np.array([-np.inf, np.inf, np.nan, 2, -1], "float32")
    ),
    "a logarithm of infinite sums": form(
        "ReduceLogSumExp", np.array([[np.inf, 1], [-np.inf, -np.inf], [3e38, 3e38]], "float32"),
        np.array([1]), constants=(1,), keepdims=0,
    ),
    "a real inverse transform": form(
        "DFT", floats(2, 5, 2), None, np.array(1), constants=(2,), opset=20, inverse=1
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FORMS)
def test_a_form_that_was_wrong(name: str) -> None:
    check(FORMS[name])


@pytest.mark.parametrize("start", range(0, 60, 15))
def test_random_forms(start: int) -> None:
    for seed in range(start, start + 15):
        check(random_form(seed))


@pytest.mark.parametrize(
    ("base", "exponent"),
    [
        (np.array([3, -7, 5, 0]), np.array([37, 21, 0, 0])),  # that no double holds
        (np.array([3, -1, 7], "int32"), np.array([19, 2**20 + 1, 2])),
        (np.array([2, 1, -3], "int64"), np.array([62, 127, 39], "int32")),
    ],
)
def test_powers_of_integers_are_exact(base: np.ndarray, exponent: np.ndarray) -> None:
    """ONNX Runtime's are not."""
    case = form("Pow", base, exponent)
    (found,) = run_imported(case.model(), case.arguments())
    np.testing.assert_array_equal(found, base ** exponent.astype(base.dtype))


def test_what_constants_decide_is_folded_to_the_same() -> None:
    for seed in range(100, 130):
        case = random_form(seed)
        check(dataclasses.replace(case, constants=frozenset(range(len(case.inputs)))))


def test_a_weight_that_is_an_input_as_well_and_folds_is_no_input() -> None:
    """Before IR version 4 each weight was listed among the inputs, too."""
    nodes = [
        onnx.helper.make_node("ConstantOfShape", ["extents"], ["zeros"]),
        onnx.helper.make_node("Add", ["x", "zeros"], ["y"]),
    ]
    x, y = (onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [3]) for n in "xy")
    extents = onnx.helper.make_tensor_value_info("extents", onnx.TensorProto.INT64, [1])
    weight = onnx.helper.make_tensor("extents", onnx.TensorProto.INT64, [1], [3])
    graph = onnx.helper.make_graph(nodes, "old", [x, extents], [y], [weight])
    opset = [onnx.helper.make_opsetid("", 9)]
    imported = import_model(onnx.helper.make_model(graph, ir_version=3, opset_imports=opset))
    assert [signature.name for signature in imported.inputs] == ["x"]
