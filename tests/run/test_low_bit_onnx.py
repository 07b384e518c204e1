"""ONNX models with weights of a few bits: kept as codes, right to the last bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import tvm_tile
from tvm_tile import CompiledModel, Options
from tvm_tile.errors import UnsupportedOperatorError

pytestmark = pytest.mark.bank(6)

DEPTH, COLUMNS = 96, 64
RNG = np.random.default_rng(0)
DRAWN_FIRST = RNG.bit_generator.state
OPTIONS = Options(cache=False, low_bit=True)
ARRIVING = {
    "int8": np.dtype(np.int8),
    "uint8": np.dtype(np.uint8),
    "int4": np.dtype(ml_dtypes.int4),
    "uint4": np.dtype(ml_dtypes.uint4),
    "int2": np.dtype(ml_dtypes.int2),
    "uint2": np.dtype(ml_dtypes.uint2),
    "e4m3": np.dtype(ml_dtypes.float8_e4m3fn),
    "e5m2": np.dtype(ml_dtypes.float8_e5m2),
    "e4m3fnuz": np.dtype(ml_dtypes.float8_e4m3fnuz),
    "e2m1": np.dtype(ml_dtypes.float4_e2m1fn),
}
KEPT = {"e4m3": "float8 e4m3", "e5m2": "float8 e5m2", "e2m1": "float4 e2m1"}


@pytest.fixture(autouse=True)
def same_numbers() -> None:
    """Each test draws the same ones, whichever ran before it in its process.

    (Which codes are recognised depends on them: int2 less a zero point of -2 is uint2.)
    """
    RNG.bit_generator.state = DRAWN_FIRST


def drawn(kind: str, shape: tuple[int, ...]) -> np.ndarray:
    dtype = ARRIVING[kind]
    if kind.startswith("e"):
        return (2 * RNG.standard_normal(shape)).astype(dtype)
    bits, low = int(kind[-1]), 0 if kind.startswith("u") else -(1 << (int(kind[-1]) - 1))
    return RNG.integers(low, low + (1 << bits), shape).astype(np.int16).astype(dtype)


def model(
    nodes: list[Any], constants: dict[str, np.ndarray], rows: int, dtype: int = TensorProto.FLOAT
) -> onnx.ModelProto:
    x = helper.make_tensor_value_info("x", dtype, (rows, DEPTH))
    y = helper.make_tensor_value_info("y", dtype, (rows, COLUMNS))
    initializers = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "low_bit", [x], [y], initializers)
    is_new = any(array.dtype.name.endswith(("int2", "e8m0fnu")) for array in constants.values())
    opset = helper.make_opsetid("", 25 if is_new else 23)
    opsets = [opset, helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=13 if is_new else 11)


def dequantized(
    kind: str, form: str, *, has_zero: bool = False, rows: int = 3, is_linear: bool = False
) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """A product with a weight that DequantizeLinear makes, and its constants."""
    shape = (COLUMNS, DEPTH) if is_linear else (DEPTH, COLUMNS)
    axis = int(is_linear) if form == "blocks" else int(not is_linear)
    boxes = {"tensor": (), "channel": (COLUMNS,), "blocks": (3, COLUMNS)}[form]
    boxes = boxes[::-1] if is_linear else boxes
    constants = {"codes": drawn(kind, shape), "scale": RNG.random(boxes).astype(np.float32)}
    if has_zero:
        constants["zero"] = drawn(kind, boxes)
    attributes = {"axis": axis, **({"block_size": DEPTH // 3} if form == "blocks" else {})}
    nodes = [helper.make_node("DequantizeLinear", list(constants), ["w"], **attributes)]
    product = {"op_type": "Gemm", "transB": 1} if is_linear else {"op_type": "MatMul"}
    nodes.append(helper.make_node(inputs=["x", "w"], outputs=["y"], **product))
    return model(nodes, constants, rows), constants


def formats(compiled: CompiledModel) -> list[str]:
    return [str(weight.format or weight.reason) for weight in compiled.report.coded]


def kept_bytes(compiled: CompiledModel) -> int:
    return sum(len(constant.data) for constant in compiled.program.constants)


@pytest.mark.parametrize("is_linear", [False, True])
@pytest.mark.parametrize("form", ["tensor", "channel", "blocks"])
@pytest.mark.parametrize("kind", ARRIVING)
def test_dequantized_weights(kind: str, form: str, is_linear: bool) -> None:
    """Of the identity the product is the weight itself."""
    has_zero = not kind.startswith("e")
    proto, _ = dequantized(kind, form, has_zero=has_zero, rows=DEPTH, is_linear=is_linear)
    compiled = tvm_tile.compile(proto, "emulated", options=OPTIONS)
    (found,) = formats(compiled)
    name = KEPT.get(kind, kind)
    assert found.startswith("table of" if kind == "e4m3fnuz" else (name, name.removeprefix("u")))
    assert kept_bytes(compiled) < DEPTH * COLUMNS * 4
    identity = np.eye(DEPTH, dtype=np.float32)
    (expected,) = ReferenceEvaluator(proto).run(None, {"x": identity})
    np.testing.assert_array_equal(np.asarray(compiled(identity)), expected)


@pytest.mark.parametrize("kind", ["e2m1", "e4m3"])
def test_scales_that_are_powers_of_two(kind: str) -> None:
    """OCP's microscaling: blocks of 32 that share an exponent."""
    scale = RNG.integers(120, 132, (3, COLUMNS)).astype(np.uint8).view(ml_dtypes.float8_e8m0fnu)
    constants = {"codes": drawn(kind, (DEPTH, COLUMNS)), "scale": scale}
    form = {"axis": 0, "block_size": 32, "output_dtype": TensorProto.FLOAT}
    nodes = [
        helper.make_node("DequantizeLinear", list(constants), ["w"], **form),
        helper.make_node("MatMul", ["x", "w"], ["y"]),
    ]
    compiled = tvm_tile.compile(model(nodes, constants, DEPTH), "emulated", options=OPTIONS)
    assert formats(compiled) == [f"{KEPT[kind]}, scale float8 e8m0 for each 32 x 1"]
    found = np.asarray(compiled(np.eye(DEPTH, dtype=np.float32)))
    codes, scales = (array.astype(np.float32) for array in constants.values())
    np.testing.assert_array_equal(found, codes * np.repeat(scales, 32, 0))


@pytest.mark.parametrize("has_zero", [False, True])
@pytest.mark.parametrize("form", ["channel", "blocks"])
def test_products_are_those_of_the_definition(form: str, has_zero: bool) -> None:
    proto, constants = dequantized("uint4", form, has_zero=has_zero)
    compiled = tvm_tile.compile(proto, "emulated", options=OPTIONS)
    wide = {name: array.astype(np.float64) for name, array in constants.items()}
    scale, zero = wide["scale"], wide.get("zero", np.zeros(1))
    if form == "blocks":
        scale, zero = (np.repeat(a, DEPTH // 3, 0) if a.size > 1 else a for a in (scale, zero))
    x = RNG.standard_normal((3, DEPTH)).astype(np.float32)
    expected = x.astype(np.float64) @ ((wide["codes"] - zero) * scale)
    np.testing.assert_allclose(np.asarray(compiled(x)), expected, rtol=1e-5, atol=1e-4)


def test_saved_models_have_codes(tmp_path: Path) -> None:
    proto, _ = dequantized("int4", "blocks")
    x = RNG.standard_normal((3, DEPTH)).astype(np.float32)
    kept = tvm_tile.compile(proto, "emulated", options=OPTIONS)
    folded = tvm_tile.compile(proto, "emulated", options=Options(cache=False))
    sizes = []
    for name, compiled in (("kept", kept), ("folded", folded)):
        compiled.save(tmp_path / name)
        loaded = tvm_tile.load(tmp_path / name)
        np.testing.assert_array_equal(np.asarray(loaded(x)), np.asarray(compiled(x)))
        assert loaded.report.coded == compiled.report.coded
        sizes.append(kept_bytes(loaded))
    assert sizes[0] < sizes[1] / 4
    assert "kept as codes: 1 of 1 matrix of weights" in kept.explain("all")
    assert "kept as codes: none of 1 matrix of weights" in folded.explain("all")


def packed(codes: np.ndarray, bits: int) -> np.ndarray:
    """Codes of 4 or 8 bits in rows of bytes, as ONNX Runtime has them."""
    if bits == 8:
        return codes
    even = np.pad(codes, [(0, 0), (0, codes.shape[1] % 2)])
    return (even[:, ::2] | even[:, 1::2] << 4).astype(np.uint8)


def few_bits(
    bits: int, side: int, zeros: str, rows: int, attributes: dict[str, int] | None = None
) -> tuple[onnx.ModelProto, np.ndarray]:
    """A model of MatMulNBits, and its weight by the definition, of float64."""
    blocks = -(-DEPTH // side)
    codes = RNG.integers(0, 1 << bits, (COLUMNS, blocks * side)).astype(np.uint8)
    scales = RNG.random((COLUMNS, blocks)).astype(np.float32)
    constants = {
        "codes": packed(codes, bits).reshape(COLUMNS, blocks, side * bits // 8),
        "scales": scales if zeros == "float" else scales.ravel(),
    }
    zero = np.full((COLUMNS, blocks), 1 << (bits - 1), np.float32)
    if zeros != "none":
        zero = RNG.integers(0, 1 << bits, (COLUMNS, blocks)).astype(np.float32)
        whole = packed(zero.astype(np.uint8), bits)
        constants["zeros"] = zero if zeros == "float" else whole.ravel()
    wide = (np.repeat(a, side, 1).astype(np.float64) for a in (zero, scales))
    weight = (codes.astype(np.float64) - next(wide)) * next(wide)
    sizes = {"N": COLUMNS, "K": DEPTH, "bits": bits, "block_size": side, **(attributes or {})}
    names = ["x", *constants]
    node = helper.make_node("MatMulNBits", names, ["y"], domain="com.microsoft", **sizes)
    return model([node], constants, rows), weight[:, :DEPTH].T


@pytest.mark.parametrize("zeros", ["none", "bytes", "float"])
@pytest.mark.parametrize(("bits", "side"), [(4, 16), (4, 32), (4, 128), (8, 64), (8, 256)])
def test_products_of_onnx_runtime(bits: int, side: int, zeros: str) -> None:
    proto, weight = few_bits(bits, side, zeros, DEPTH)
    compiled = tvm_tile.compile(proto, "emulated", options=OPTIONS)
    assert formats(compiled)[0].startswith(("int" if zeros == "none" else "uint") + str(bits))
    folded = tvm_tile.compile(proto, "emulated", options=Options(cache=False))
    identity = np.eye(DEPTH, dtype=np.float32)
    found = np.asarray(compiled(identity))
    np.testing.assert_array_equal(found, np.asarray(folded(identity)))
    np.testing.assert_array_equal(found, weight.astype(np.float32))


@pytest.mark.parametrize(("bits", "zeros"), [(4, "none"), (4, "bytes"), (8, "bytes")])
def test_onnx_runtime_computes_the_same(bits: int, zeros: str) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    proto, _ = few_bits(bits, 32, zeros, 5)
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    x = RNG.standard_normal((5, DEPTH)).astype(np.float32)
    (expected,) = session.run(None, {"x": x})
    compiled = tvm_tile.compile(proto, "emulated", options=OPTIONS)
    np.testing.assert_allclose(np.asarray(compiled(x)), expected, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(("bits", "zeros"), [(4, "none"), (4, "bytes"), (8, "float")])
def test_codes_that_are_inputs_are_unpacked_on_the_device(bits: int, zeros: str) -> None:
    proto, weight = few_bits(bits, 32, zeros, 4)
    arrays = [numpy_helper.to_array(tensor) for tensor in proto.graph.initializer]
    for tensor in proto.graph.initializer:
        given = helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
        proto.graph.input.append(given)
    del proto.graph.initializer[:]
    compiled = tvm_tile.compile(proto, "emulated", options=OPTIONS)
    assert formats(compiled) == []
    x = RNG.standard_normal((4, DEPTH)).astype(np.float32)
    expected = x.astype(np.float64) @ weight
    largest = 1e-6 * float(np.abs(expected).max())
    np.testing.assert_allclose(np.asarray(compiled(x, *arrays)), expected, rtol=1e-5, atol=largest)


def test_forms_of_the_product_that_are_refused() -> None:
    proto, _ = few_bits(4, 32, "none", 3, {"bits": 3})
    with pytest.raises(UnsupportedOperatorError, match="codes of 3 bits"):
        tvm_tile.compile(proto, "emulated", options=OPTIONS)
    proto, _ = few_bits(4, 32, "bytes", 3)
    order = numpy_helper.from_array(np.arange(DEPTH, dtype=np.int32) // 32, "order")
    proto.graph.initializer.append(order)
    proto.graph.node[0].input.append("order")
    with pytest.raises(UnsupportedOperatorError, match="g_idx"):
        tvm_tile.compile(proto, "emulated", options=OPTIONS)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_half_precision_builds_for_nvidia(dtype: type) -> None:
    code = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    columns = 2 * COLUMNS
    constants = {"codes": drawn("uint4", (DEPTH, columns))}
    constants["scale"] = RNG.random((3, columns)).astype(dtype)
    constants["zero"] = drawn("uint4", (3, columns))
    nodes = [
        helper.make_node("DequantizeLinear", list(constants), ["w"], axis=0, block_size=32),
        helper.make_node("MatMul", ["x", "w"], ["y"]),
    ]
    proto = model(nodes, constants, 64, code)
    proto.graph.output[0].type.tensor_type.shape.dim[1].dim_value = columns
    compiled = tvm_tile.compile(proto, "nvidia/h100", options=OPTIONS)
    name = np.dtype(dtype).name
    assert formats(compiled) == [f"uint4, zero uint8 for each 32 x 1, scale {name} for each 32 x 1"]
    assert not compiled.report.fallbacks


def test_what_others_read_is_folded() -> None:
    proto, _ = dequantized("int4", "blocks")
    proto.graph.output.append(helper.make_tensor_value_info("w", 1, (DEPTH, COLUMNS)))
    compiled = tvm_tile.compile(proto, "emulated", options=OPTIONS)
    assert formats(compiled) == []
    x = RNG.standard_normal((3, DEPTH)).astype(np.float32)
    outputs = ReferenceEvaluator(proto).run(None, {"x": x})
    for found, expected in zip(compiled(x), outputs, strict=True):
        np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-5, atol=1e-4)
