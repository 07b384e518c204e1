"""Files that ONNX Runtime's optimizer and quantizer write: compiled, beside ONNX Runtime."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import microsoft_cases as cases
import numpy as np
import onnx
import pytest
from microsoft_cases import real
from onnx import TensorProto, helper, numpy_helper

import tvm_tile
from bench.onnx_forms import Form
from bench.onnx_forms.microsoft_form import DOMAIN
from bench.onnx_random import difference, onnxruntime_outputs
from tvm_tile import Options
from tvm_tile.errors import UnsupportedOperatorError

onnxruntime = pytest.importorskip("onnxruntime")

OPTIONS = Options(cache=False)
LEVELS = onnxruntime.GraphOptimizationLevel
BATCH, LENGTH, HEADS, SIZE = 2, 6, 2, 16
WIDTH = HEADS * SIZE


class Writer:
    """A graph in the making, in the words of exporters."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.weights: list[Any] = []

    def __call__(
        self, op_type: str, *operands: Any, domain: str = "", results: int = 1, **attrs: Any
    ) -> Any:
        names = []
        for operand in operands:
            if not isinstance(operand, str):
                name = f"w{len(self.weights)}"
                self.weights.append(numpy_helper.from_array(np.asarray(operand), name))
                operand = name
            names.append(operand)
        made = [f"t{len(self.nodes)}.{number}" for number in range(results)]
        self.nodes.append(helper.make_node(op_type, names, made, domain=domain, **attrs))
        return made[0] if results == 1 else made

    def model(
        self, inputs: dict[str, tuple[str, tuple[int, ...]]], *outputs: str
    ) -> onnx.ModelProto:
        given = [
            helper.make_tensor_value_info(
                name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape
            )
            for name, (dtype, shape) in inputs.items()
        ]
        made = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
        graph = helper.make_graph(self.nodes, "g", given, made, self.weights)
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid(DOMAIN, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def encoder() -> onnx.ModelProto:
    """A layer of an encoder, as it is before anything is fused."""
    w = Writer()
    x = "x"

    def linear(y: str, depth: int, width: int) -> str:
        return str(w("Add", w("MatMul", y, real(depth, width) / depth**0.5), real(width)))

    def heads(y: str, order: Sequence[int]) -> str:
        shape = np.array([0, 0, HEADS, SIZE])
        return str(w("Transpose", w("Reshape", linear(y, WIDTH, WIDTH), shape), perm=order))

    q, k, v = heads(x, [0, 2, 1, 3]), heads(x, [0, 2, 3, 1]), heads(x, [0, 2, 1, 3])
    scores = w("Div", w("MatMul", q, k), np.float32(SIZE**0.5))
    mixed = w("MatMul", w("Softmax", scores, axis=-1), v)
    y = w("Reshape", w("Transpose", mixed, perm=[0, 2, 1, 3]), np.array([0, 0, WIDTH]))
    y = w("LayerNormalization", w("Add", linear(y, WIDTH, WIDTH), x), real(WIDTH), real(WIDTH))
    z = linear(y, WIDTH, 2 * WIDTH)
    erf = w("Add", w("Erf", w("Div", z, np.float32(2**0.5))), np.float32(1))
    z = linear(w("Mul", w("Mul", z, erf), np.float32(0.5)), 2 * WIDTH, WIDTH)
    z = w("LayerNormalization", w("Add", z, y), real(WIDTH), real(WIDTH))
    return w.model({"x": ("float32", (BATCH, LENGTH, WIDTH))}, z)


def network() -> onnx.ModelProto:
    """Convolutions, a residual connection, branches that are joined, pools, and a classifier."""
    w = Writer()
    x = w("Relu", w("Conv", "x", real(8, 3, 3, 3), real(8), pads=[1, 1, 1, 1]))
    y = w("LeakyRelu", w("Conv", x, real(8, 8, 3, 3) / 8, real(8), pads=[1, 1, 1, 1]), alpha=0.1)
    x = w("Relu", w("Add", x, y))
    y = w("Conv", x, real(8, 4, 3, 3) / 8, real(8), group=2, strides=[2, 2])
    x = w("Concat", w("Mul", y, w("Sigmoid", y)), y, axis=1)
    x = w("AveragePool", x, kernel_shape=[2, 2])
    x = w("Flatten", w("GlobalAveragePool", x))
    x = w("Softmax", w("Gemm", x, real(10, 16) / 4, real(10), transB=1), axis=-1)
    return w.model({"x": ("float32", (BATCH, 3, 12, 12))}, x)


def decoder(past: int) -> tuple[onnx.ModelProto, list[np.ndarray]]:
    """A step, or the prompt, of a decoder whose weights have 4 bits, as generators write it.

    Returns:
        The model and its inputs.
    """
    w, groups, total = Writer(), 1, past + LENGTH if not past else past + 1
    steps = total - past
    seen = w("Cast", w("Sub", w("ReduceSum", "mask", np.array([1])), np.array([1])), to=6)
    count = w("Cast", w("Gather", w("Shape", "mask"), np.array(1)), to=6)
    turns = np.arange(32)[:, None] * 0.7 ** np.arange(SIZE // 2)

    def few_bits(x: str, depth: int, width: int) -> str:
        codes = cases.byte(width, depth // 16, 8)
        scales = (0.02 * np.abs(real(width * depth // 16)) / depth**0.5).astype("float32")
        return str(
            w("MatMulNBits", x, codes, scales, domain=DOMAIN, K=depth, N=width, block_size=16)
        )

    x, normal = "x", w("SimplifiedLayerNormalization", "x", real(WIDTH), axis=-1, epsilon=1e-5)
    outputs = []
    for layer in range(2):
        old = [f"key{layer}", f"value{layer}"] if past else ["", ""]
        parts = [few_bits(normal, WIDTH, n * SIZE) for n in (HEADS, groups, groups)]
        angles = [f(turns).astype("float32") for f in (np.cos, np.sin)]
        y, *caches = w(
            "GroupQueryAttention", *parts, *old, seen, count, *angles, domain=DOMAIN, results=3,
            num_heads=HEADS, kv_num_heads=groups, do_rotary=1,
        )  # fmt: skip
        outputs += caches
        for wide in (0, 1):
            if wide:
                gate = few_bits(normal, WIDTH, 2 * WIDTH)
                gate = w("QuickGelu", gate, domain=DOMAIN, alpha=1.0)
                y = w("Mul", gate, few_bits(normal, WIDTH, 2 * WIDTH))
            y = few_bits(y, (2 if wide else 1) * WIDTH, WIDTH)
            norm = {"domain": DOMAIN, "results": 4, "epsilon": 1e-5}
            normal, _, _, x = w("SkipSimplifiedLayerNormalization", x, y, real(WIDTH), **norm)
    for node in w.nodes:  # left out, as optional outputs are
        if node.op_type == "SkipSimplifiedLayerNormalization":
            node.output[1:3] = ["", ""]
    shapes: dict[str, tuple[str, tuple[int, ...]]] = {
        "x": ("float32", (BATCH, steps, WIDTH)), "mask": ("int64", (BATCH, total)),
    }  # fmt: skip
    mask = np.ones((BATCH, total), "int64")
    arrays = [real(BATCH, steps, WIDTH), mask]
    if past:
        mask[1, -1] = 0  # a shorter sequence
        for layer in range(2):
            for name in ("key", "value"):
                shapes[f"{name}{layer}"] = ("float32", (BATCH, groups, past, SIZE))
                arrays.append(real(BATCH, groups, past, SIZE))
    return w.model(shapes, normal, *outputs), arrays


def compiled(
    model: onnx.ModelProto | Path, arrays: Sequence[np.ndarray], options: Options = OPTIONS
) -> list[np.ndarray]:
    outputs = tvm_tile.compile(model, "emulated", options=options)(*arrays)
    return [np.asarray(each) for each in (outputs if isinstance(outputs, tuple) else (outputs,))]


def saved(model: onnx.ModelProto | Path, path: Path, level: Any) -> Path:
    """What ONNX Runtime writes after it optimized a model."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level, options.log_severity_level = level, 4
    options.optimized_model_filepath = str(path)
    given = str(model) if isinstance(model, Path) else model.SerializeToString()
    onnxruntime.InferenceSession(given, options, providers=["CPUExecutionProvider"])
    return path


def domains(path: Path) -> set[str]:
    return {f"{node.domain}::{node.op_type}" for node in onnx.load(path).graph.node}


X = {"encoder": real(BATCH, LENGTH, WIDTH), "network": real(BATCH, 3, 12, 12)}
MODELS = {"encoder": encoder, "network": network}


@pytest.mark.parametrize("name", MODELS)
def test_optimized_models(name: str, tmp_path: Path) -> None:
    model = MODELS[name]()
    path = saved(model, tmp_path / "optimized.onnx", LEVELS.ORT_ENABLE_EXTENDED)
    expected = {"encoder": "SkipLayerNormalization", "network": "FusedConv"}[name]
    assert f"{DOMAIN}::{expected}" in domains(path)
    (found,) = compiled(path, [X[name]])
    (wanted,) = onnxruntime_outputs(model, [X[name]])
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


def test_layouts_of_a_processor_are_refused(tmp_path: Path) -> None:
    path = saved(network(), tmp_path / "all.onnx", LEVELS.ORT_ENABLE_ALL)
    if not any(".nchwc" in name for name in domains(path)):
        pytest.skip("this processor has no such layout")
    with pytest.raises(UnsupportedOperatorError, match="ORT_ENABLE_EXTENDED"):
        tvm_tile.compile(path, "emulated", options=OPTIONS)


class Inputs:
    """What the quantizer measures ranges with."""

    def __init__(self, array: np.ndarray) -> None:
        self.waiting: Iterator[dict[str, np.ndarray]] = iter([{"x": array}])

    def get_next(self) -> dict[str, np.ndarray] | None:
        return next(self.waiting, None)


def quantized(name: str, how: str, folder: Path) -> Path:
    """What ONNX Runtime's quantizer writes."""
    from onnxruntime import quantization

    source, path = folder / "model.onnx", folder / f"{how}.onnx"
    onnx.save(MODELS[name](), source)
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if how == "dynamic":
                quantization.quantize_dynamic(source, path)
            else:
                form = getattr(quantization.QuantFormat, how)
                reader: Any = Inputs(X[name])
                quantization.quantize_static(source, path, reader, quant_format=form)
    finally:
        logging.disable(logging.NOTSET)
    return path


@pytest.mark.parametrize("is_optimized", [False, True])
@pytest.mark.parametrize("how", ["dynamic", "QOperator", "QDQ"])
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.bank(3)
def test_quantized_models(name: str, how: str, is_optimized: bool, tmp_path: Path) -> None:
    path = quantized(name, how, tmp_path)
    (wanted,) = onnxruntime_outputs(onnx.load(path), [X[name]])
    if is_optimized:
        path = saved(path, tmp_path / "optimized.onnx", LEVELS.ORT_ENABLE_EXTENDED)
    (found,) = compiled(path, [X[name]])
    # Numbers between two codes may become either, in every layer.
    step = 0.04 if how != "dynamic" or name == "network" else 0.02
    np.testing.assert_allclose(found, wanted, rtol=0, atol=step * np.abs(wanted).max())


@pytest.mark.parametrize("past", [0, 4])
@pytest.mark.parametrize("low_bit", [False, True])
def test_decoders_of_few_bits(past: int, low_bit: bool) -> None:
    model, arrays = decoder(past)
    wanted = onnxruntime_outputs(model, arrays)
    found = compiled(model, arrays, Options(cache=False, low_bit=low_bit))
    assert len(found) == len(wanted) == 5
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-4 * np.abs(other).max())


EMULATED = (
    cases.ATTENTION[3],
    cases.ATTENTION[8],
    cases.GROUPED[3],
    cases.GROUPED[5],
    cases.CODES[4],
)


@pytest.mark.parametrize("form", EMULATED, ids=str)
def test_operators_on_a_device(form: Form) -> None:
    wanted = onnxruntime_outputs(form.model(), form.arguments())
    assert difference(form, compiled(form.model(), form.arguments()), wanted) == ""
