"""Quantized ONNX models: products of their codes, beside float64 and ONNX Runtime."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from tvm import relax

import tvm_tile
from tvm_tile import Options
from tvm_tile.frontend import import_model

pytestmark = pytest.mark.bank(6)

RNG = np.random.default_rng(0)
OPTIONS = Options(cache=False)
PRODUCTS = ("relax.matmul", "relax.nn.conv1d", "relax.nn.conv2d", "relax.nn.conv3d")


@pytest.fixture(autouse=True)
def same_numbers() -> None:
    """Each test draws the same ones."""
    global RNG
    RNG = np.random.default_rng(0)


def drawn(dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    bounds = np.iinfo(dtype)
    return RNG.integers(bounds.min, bounds.max + 1, shape).astype(dtype)


@dataclass(frozen=True, slots=True)
class Operand:
    """How one is kept: its codes' type, its zero point, if any, and the axis of its scales."""

    dtype: str
    zero: int | None = None
    axis: int | None = None

    def constants(self, name: str, shape: tuple[int, ...]) -> dict[str, np.ndarray]:
        extents = () if self.axis is None else (shape[self.axis],)
        scale = (0.01 + 0.02 * RNG.random(extents)).astype(np.float32)
        found = {f"{name}_scale": scale}
        if self.zero is not None:
            found[f"{name}_zero"] = np.full(extents, self.zero, self.dtype)
        return found

    def decode(self, name: str, constants: dict[str, np.ndarray]) -> Any:
        names = [own for own in constants if own.startswith(f"{name}_")]
        axis = {} if self.axis is None else {"axis": self.axis}
        return helper.make_node("DequantizeLinear", [f"{name}_codes", *names], [name], **axis)


def static(
    left: Operand,
    right: Operand,
    product: dict[str, Any],
    shapes: tuple[tuple[int, ...], ...],
    *,
    is_chained: bool = False,
) -> onnx.ModelProto:
    """Quantize x, decode it, multiply it with a decoded weight, and perhaps quantize the result."""
    given, known, returned = shapes
    x_constants = left.constants("x", given)
    w_constants = right.constants("w", known)
    w_codes = drawn(right.dtype, known)
    constants = {**x_constants, "w_codes": w_codes, **w_constants}
    nodes = [
        helper.make_node("QuantizeLinear", ["input", *x_constants], ["x_codes"]),
        left.decode("x", x_constants),
        right.decode("w", w_constants),
        helper.make_node(inputs=["x", "w"], outputs=["product"], **product),
    ]
    if is_chained:
        constants |= {"y_scale": np.float32(0.7), "y_zero": np.uint8(100)}
        nodes.append(helper.make_node("Relu", ["product"], ["positive"]))
        nodes.append(
            helper.make_node("QuantizeLinear", ["positive", "y_scale", "y_zero"], ["output"])
        )
    else:
        nodes.append(helper.make_node("Relu", ["product"], ["output"]))
    kind = TensorProto.UINT8 if is_chained else TensorProto.FLOAT
    return graph_of(nodes, constants, given, (returned, kind))


def graph_of(
    nodes: list[Any],
    constants: dict[str, np.ndarray],
    given: tuple[int, ...],
    returned: tuple[tuple[int, ...], int],
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "quantized",
        [helper.make_tensor_value_info("input", TensorProto.FLOAT, given)],
        [helper.make_tensor_value_info("output", returned[1], returned[0])],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def factors(proto: onnx.ModelProto) -> set[str]:
    """Element types that the products of a model read."""
    found: set[str] = set()

    def visit(value: Any) -> None:
        if isinstance(value, relax.Call) and getattr(value.op, "name", "") in PRODUCTS:
            found.update(str(operand.ty.dtype) for operand in value.args)

    for func in import_model(proto).mod.functions.values():
        if isinstance(func, relax.Function):
            relax.analysis.post_order_visit(func, visit)
    assert found
    return found


def in_float64(proto: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    """What a model computes of the codes of its input, with all numbers behind them in float64."""
    wide = onnx.ModelProto()
    wide.CopyFrom(proto)
    for tensor in wide.graph.initializer:
        if tensor.data_type == TensorProto.FLOAT and not tensor.name.startswith("y_"):
            array = numpy_helper.to_array(tensor).astype(np.float64)
            tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    for value in (*wide.graph.input, *wide.graph.output):
        if value.type.tensor_type.elem_type == TensorProto.FLOAT:
            value.type.tensor_type.elem_type = TensorProto.DOUBLE
    (found,) = ReferenceEvaluator(wide).run(None, {"input": x.astype(np.float64)})
    return np.asarray(found)


def on_grid(proto: onnx.ModelProto, shape: tuple[int, ...]) -> np.ndarray:
    """An input that is far from the middle between two codes, some of it beyond all of them."""
    constants = {t.name: numpy_helper.to_array(t) for t in proto.graph.initializer}
    steps = RNG.integers(-300, 300, shape) + 0.4 * (RNG.random(shape) - 0.5)
    return (steps * constants["x_scale"]).astype(np.float32)


def check(proto: onnx.ModelProto, shape: tuple[int, ...], narrow: bool = True) -> None:
    assert (factors(proto) <= {"int8", "uint8"}) == narrow
    x = on_grid(proto, shape)
    found = np.asarray(tvm_tile.compile(proto, "emulated", options=OPTIONS)(x))
    expected = in_float64(proto, x)
    if expected.dtype == np.uint8:  # another code only where the number is between two of them
        difference = np.abs(found.astype(int) - expected.astype(int))
        assert difference.max() <= 1
        assert np.mean(difference > 0) < 1e-3
        return
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6 * np.abs(expected).max())


LEFT = [
    Operand("uint8"),
    Operand("uint8", 128),
    Operand("uint8", 77),
    Operand("int8", 0),
    Operand("int8", -128),
    Operand("int8", 19),
]
RIGHT = [Operand("int8", 0), Operand("uint8", 128), Operand("int8", 0, 1), Operand("uint8", 3, 1)]


@pytest.mark.parametrize("right", RIGHT, ids=str)
@pytest.mark.parametrize("left", LEFT, ids=str)
def test_products_of_matrices(left: Operand, right: Operand) -> None:
    shapes = ((2, 9, 40), (40, 24), (2, 9, 24))
    check(
        static(left, right, {"op_type": "MatMul"}, shapes, is_chained=left.zero == 77), (2, 9, 40)
    )


@pytest.mark.parametrize("right", [Operand("int8", 0, 0), Operand("int8", None)], ids=str)
@pytest.mark.parametrize("left", LEFT[1:3], ids=str)
def test_linear_layers(left: Operand, right: Operand) -> None:
    product = {"op_type": "Gemm", "transB": 1, "alpha": 0.5}
    check(static(left, right, product, ((9, 40), (24, 40), (9, 24))), (9, 40))


@pytest.mark.parametrize("form", ["plain", "padded", "grouped", "strided", "line"])
@pytest.mark.parametrize("left", LEFT, ids=str)
def test_convolutions(left: Operand, form: str) -> None:
    product: dict[str, Any] = {"op_type": "Conv"}
    shapes: tuple[tuple[int, ...], ...] = ((2, 8, 9, 7), (12, 8, 3, 3), (2, 12, 9, 7))
    if form == "plain":
        shapes = ((2, 8, 9, 7), (12, 8, 3, 3), (2, 12, 7, 5))
    elif form == "strided":
        product |= {"pads": [1, 0, 2, 1], "strides": [2, 3], "dilations": [2, 1]}
        shapes = (*shapes[:2], (2, 12, 4, 2))
    elif form == "line":
        product["pads"] = [1, 1]
        shapes = ((2, 8, 9), (12, 8, 3), (2, 12, 9))
    else:
        product["pads"] = [1, 1, 1, 1]
    if form == "grouped":
        product["group"] = 4
        shapes = (shapes[0], (12, 2, 3, 3), shapes[2])
    right = Operand("int8", 0, 0) if form != "strided" else Operand("uint8", 128)
    check(static(left, right, product, shapes, is_chained=form == "padded"), shapes[0])


def random_case(seed: int) -> tuple[onnx.ModelProto, tuple[int, ...]]:
    """A static model of random types, zero points, scales, shapes and windows."""
    rng = np.random.default_rng(seed)

    def operand(axis: int, *, is_weight: bool) -> Operand:
        dtype = str(rng.choice(["int8", "uint8"]))
        bounds = np.iinfo(dtype)
        middle = 0 if dtype == "int8" else 128
        zero = int(rng.choice([bounds.min, middle, rng.integers(bounds.min, bounds.max + 1)]))
        return Operand(
            dtype, middle if is_weight and axis == 0 else zero, axis if is_weight else None
        )

    if seed % 2:
        rows, columns, depth = (int(extent) for extent in rng.integers(1, 50, 3))
        shapes: tuple[tuple[int, ...], ...] = ((rows, depth), (depth, columns), (rows, columns))
        left, right = operand(1, is_weight=False), operand(1, is_weight=True)
        return static(left, right, {"op_type": "MatMul"}, shapes, is_chained=seed % 3 == 0), shapes[
            0
        ]
    group, kernel = int(rng.integers(1, 4)), [int(k) for k in rng.integers(1, 4, 2)]
    channels, filters = group * int(rng.integers(1, 7)), group * int(rng.integers(1, 7))
    pads, strides = [[int(v) for v in rng.integers(low, 3, n)] for low, n in ((0, 4), (1, 2))]
    extents = [int(extent) for extent in rng.integers(5, 12, 2)]
    sizes = [(extents[i] + pads[i] + pads[i + 2] - kernel[i]) // strides[i] + 1 for i in range(2)]
    shapes = (
        (2, channels, *extents),
        (filters, channels // group, *kernel),
        (2, filters, *sizes),
    )
    product = {"op_type": "Conv", "pads": pads, "strides": strides, "group": group}
    left, right = operand(0, is_weight=False), operand(0, is_weight=True)
    return static(left, right, product, shapes, is_chained=seed % 3 == 0), shapes[0]


@pytest.mark.parametrize("seed", range(6))
def test_random_products(seed: int) -> None:
    check(*random_case(seed))


def test_scales_that_differ_along_the_sum_are_left_alone() -> None:
    shapes = ((9, 40), (40, 24), (9, 24))
    check(static(LEFT[0], Operand("int8", 0, 0), {"op_type": "MatMul"}, shapes), (9, 40), False)


def test_sums_that_32_bits_do_not_hold_are_left_alone() -> None:
    shapes = ((2, 40_000), (40_000, 3), (2, 3))
    left, right = Operand("uint8", 128), Operand("int8", 0)
    assert factors(static(left, right, {"op_type": "MatMul"}, shapes)) == {"uint8", "int8"}
    shapes = ((2, 80_000), (80_000, 3), (2, 3))
    assert factors(static(left, right, {"op_type": "MatMul"}, shapes)) == {"float32"}


@pytest.mark.parametrize("form", ["MatMulInteger", "ConvInteger", "decoded"])
def test_dynamic(form: str) -> None:
    """The zero point and the scale of x are known at run time only."""
    shape = (2, 8, 9, 7) if form == "ConvInteger" else (9, 40)
    known = (12, 8, 3, 3) if form == "ConvInteger" else (40, 24)
    returned = (2, 12, 7, 5) if form == "ConvInteger" else (9, 24)
    constants = {"w_codes": drawn("int8", known), "w_scale": np.float32(0.02)}
    nodes = [helper.make_node("DynamicQuantizeLinear", ["input"], ["x_codes", "x_scale", "x_zero"])]
    if form == "decoded":
        nodes += [
            helper.make_node("DequantizeLinear", ["x_codes", "x_scale", "x_zero"], ["x"]),
            helper.make_node("DequantizeLinear", ["w_codes", "w_scale"], ["w"]),
            helper.make_node("MatMul", ["x", "w"], ["output"]),
        ]
    else:
        nodes += [
            helper.make_node(form, ["x_codes", "w_codes", "x_zero"], ["sums"]),
            helper.make_node("Cast", ["sums"], ["numbers"], to=TensorProto.FLOAT),
            helper.make_node("Mul", ["x_scale", "w_scale"], ["scale"]),
            helper.make_node("Mul", ["numbers", "scale"], ["output"]),
        ]
    proto = graph_of(nodes, constants, shape, (returned, TensorProto.FLOAT))
    assert factors(proto) <= {"int8", "uint8"}
    x = (RNG.integers(-100, 120, shape) / 16).astype(np.float32)
    found = np.asarray(tvm_tile.compile(proto, "emulated", options=OPTIONS)(x))
    (expected,) = ReferenceEvaluator(proto).run(None, {"input": x})
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize("seed", range(4))
def test_networks_beside_onnx_runtime(seed: int) -> None:
    """Residual blocks as ONNX Runtime quantizes them, but for numbers between two codes."""
    runtime = pytest.importorskip("onnxruntime")
    proto = network(np.random.default_rng(seed))
    assert factors(proto) <= {"int8", "uint8"}
    x = np.random.default_rng(seed).standard_normal((2, 3, 17, 16)).astype(np.float32)
    settings = runtime.SessionOptions()
    settings.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = runtime.InferenceSession(proto.SerializeToString(), settings)
    (expected,) = session.run(None, {"input": x})
    found = np.asarray(tvm_tile.compile(proto, "emulated", options=OPTIONS)(x))
    assert np.abs(found - expected).max() < 0.05 * np.abs(expected).max()
    assert np.abs(found - expected).mean() < 0.005 * np.abs(expected).max()


def network(rng: np.random.Generator) -> onnx.ModelProto:
    """Convolutions, a sum, a pool and a linear layer, each between codes."""
    nodes: list[Any] = []
    constants: dict[str, np.ndarray] = {}

    def coded(name: str, zero: int, dtype: str = "uint8") -> str:
        constants[f"{name}_s"] = np.float32(0.03 + 0.02 * rng.random())
        constants[f"{name}_z"] = np.array(zero, dtype)
        pair = [f"{name}_s", f"{name}_z"]
        nodes.append(helper.make_node("QuantizeLinear", [name, *pair], [f"{name}_q"]))
        nodes.append(helper.make_node("DequantizeLinear", [f"{name}_q", *pair], [f"{name}_d"]))
        return f"{name}_d"

    def weight(name: str, *shape: int) -> str:
        constants[f"{name}_w"] = rng.integers(-127, 128, shape).astype(np.int8)
        scale = (1 + rng.random(shape[0])) / 127 / np.sqrt(np.prod(shape[1:]))
        constants[f"{name}_ws"] = scale.astype(np.float32)
        names = [f"{name}_w", f"{name}_ws"]
        nodes.append(helper.make_node("DequantizeLinear", names, [f"{name}_wd"], axis=0))
        constants[f"{name}_b"] = rng.standard_normal(shape[0]).astype(np.float32)
        return f"{name}_wd"

    def conv(name: str, x: str, *shape: int, zero: int = 0, **how: Any) -> str:
        inputs = [x, weight(name, *shape), f"{name}_b"]
        nodes.append(helper.make_node("Conv", inputs, [f"{name}_c"], **how))
        nodes.append(helper.make_node("Relu" if zero == 0 else "Identity", [f"{name}_c"], [name]))
        return coded(name, zero)

    image = coded("input", 110)
    stem = conv("stem", image, 16, 3, 3, 3, pads=[1] * 4, strides=[2, 2])
    one = conv("one", stem, 16, 16, 1, 1)
    two = conv("two", one, 16, 16, 3, 3, zero=131, pads=[1] * 4)
    nodes.append(helper.make_node("Add", [stem, two], ["added"]))
    added = coded("added", 64)
    last = conv("last", added, 32, 16, 3, 3, pads=[1] * 4)
    nodes.append(helper.make_node("GlobalAveragePool", [last], ["pooled"]))
    nodes.append(helper.make_node("Flatten", [coded("pooled", 0)], ["flat"]))
    inputs = ["flat", weight("head", 10, 32), "head_b"]
    nodes.append(helper.make_node("Gemm", inputs, ["output"], transB=1))
    return graph_of(nodes, constants, (2, 3, 17, 16), ((2, 10), TensorProto.FLOAT))
