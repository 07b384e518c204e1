"""Models whose weights arrive as codes, compiled without any option: what stays codes, and why."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest
import torch
import tvm
from gptq import gptq_weight
from onnx import TensorProto, helper, numpy_helper
from torch import nn

import tvm_tile
from tvm_tile import CompiledModel, Options, find_device
from tvm_tile.device.device import MemoryLevel
from tvm_tile.frontend import from_exported_program, from_onnx, import_model
from tvm_tile.passes import ChooseCodes
from tvm_tile.report.coded_weights import CodedWeight

DEPTH, COLUMNS, GROUP = 1024, 768, 128
RNG = np.random.default_rng(7)


class Gptq(nn.Module):
    """Eight codes of a column in an int32, zero points of a row; groups by an index."""

    def __init__(self, dtype: torch.dtype, depth: int = DEPTH) -> None:
        super().__init__()
        self.dtype = dtype
        words = -(2**31), 2**31 - 1
        self.register_buffer("qweight", torch.randint(*words, (depth // 8, COLUMNS)).int())
        self.register_buffer("qzeros", torch.randint(*words, (depth // GROUP, COLUMNS // 8)).int())
        self.register_buffer("scales", torch.rand(depth // GROUP, COLUMNS, dtype=dtype) / 16)
        self.register_buffer("g_idx", torch.arange(depth) // GROUP)
        self.register_buffer("shifts", torch.arange(0, 32, 4, dtype=torch.int32))

    def weight(self) -> torch.Tensor:
        return gptq_weight(self)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.weight()


def gptq(rows: int, device: str, dtype: torch.dtype = torch.float16, **how: Any) -> CompiledModel:
    torch.manual_seed(0)
    example = torch.zeros(rows, DEPTH, dtype=dtype)
    options = Options(cache=False, **how)
    return tvm_tile.compile(Gptq(dtype), device, example_inputs=(example,), options=options)


def few_bits(rows: int) -> onnx.ModelProto:
    """A model of MatMulNBits in halves."""
    sizes = {"N": COLUMNS, "K": DEPTH, "bits": 4, "block_size": GROUP}
    blocks = DEPTH // GROUP
    codes = RNG.integers(0, 256, (COLUMNS, blocks, GROUP // 2)).astype(np.uint8)
    scales = RNG.random(COLUMNS * blocks).astype(np.float16)
    constants = {"codes": codes, "scales": scales}
    node = helper.make_node(
        "MatMulNBits", ["x", *constants], ["y"], domain="com.microsoft", **sizes
    )
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT16, (rows, DEPTH))
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT16, (rows, COLUMNS))
    initializers = [numpy_helper.from_array(a, name) for name, a in constants.items()]
    graph = helper.make_graph([node], "few_bits", [x], [y], initializers)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def constants(model: CompiledModel) -> list[bytes]:
    return sorted(bytes(constant.data) for constant in model.program.constants)


@pytest.mark.parametrize("device", ["nvidia/h100", "nvidia/a100"])
def test_a_row_is_multiplied_with_codes(device: str) -> None:
    model = gptq(1, device)
    assert [kernel.rule for kernel in model.report.kernels] == ["coded"]
    (weight,) = model.report.coded
    assert str(weight.format).startswith("uint4, zero ")
    told = model.explain("memory")
    assert "kept as codes: 1 of 1 matrix of weights" in told
    assert "us from codes" in told
    assert constants(model) == constants(gptq(1, device, low_bit=True))


def test_a_row_of_onnx_runtime_is_multiplied_with_codes() -> None:
    model = tvm_tile.compile(few_bits(1), "nvidia/h100", options=Options(cache=False))
    assert [kernel.rule for kernel in model.report.kernels] == ["coded"]
    assert "kept as codes: 1 of 1 matrix of weights" in model.explain("memory")


def test_many_rows_are_multiplied_with_numbers_where_that_is_faster() -> None:
    """The very kernels, and bits, that the option asks for."""
    model, wanted = gptq(2048, "nvidia/a100"), gptq(2048, "nvidia/a100", low_bit=False)
    assert "kept as codes: none of 1 matrix of weights" in model.explain("memory")
    assert "folded, its products take" in model.explain("memory")
    assert "folded, as low_bit=False says" in wanted.explain("memory")
    assert constants(model) == constants(wanted)
    assert model.report.kernels == wanted.report.kernels
    torch.manual_seed(0)
    assert Gptq(torch.float16).weight().numpy().tobytes() in constants(model)


@pytest.mark.parametrize("low_bit", ["auto", True, False])
@pytest.mark.parametrize("rows", [1, 7])
def test_results_are_those_of_the_model(rows: int, low_bit: Any) -> None:
    model = gptq(rows, "emulated", torch.float32, low_bit=low_bit)
    torch.manual_seed(0)
    weight = Gptq(torch.float32).weight().double().numpy()
    for _ in range(3):
        x = RNG.standard_normal((rows, DEPTH)).astype(np.float32)
        wanted = x.astype(np.float64) @ weight
        least = 1e-6 * float(np.abs(wanted).max())
        np.testing.assert_allclose(np.asarray(model(x)), wanted, rtol=1e-5, atol=least)


def test_codes_stay_where_memory_would_not_hold_the_numbers() -> None:
    device = find_device("nvidia/a100")
    small = tuple(
        replace(own, capacity=DEPTH * COLUMNS) if own.level is MemoryLevel.GLOBAL else own
        for own in device.memories
    )
    mod = import_model(Gptq(torch.float16), example_inputs=(torch.zeros(9, DEPTH).half(),)).mod
    found: list[CodedWeight] = []
    for one in (device, replace(device, memories=small)):
        ChooseCodes(one, "auto", lambda _: None, found.append)(mod)
    assert [weight.format is not None for weight in found] == [False, True]
    assert found[1].reason.startswith("folded there would be")


def test_plain_relax_has_numbers() -> None:
    """Pipelines of others know no codes."""
    program = torch.export.export(Gptq(torch.float32), (torch.zeros(3, DEPTH),))
    mod = from_exported_program(program)
    assert not [f for f in mod.functions.values() if isinstance(f, tvm.tirx.PrimFunc)]
    found = from_onnx(few_bits(3))
    assert not [f for f in found.functions.values() if isinstance(f, tvm.tirx.PrimFunc)]


@pytest.mark.parametrize("low_bit", ["auto", True, False])
@pytest.mark.parametrize("kind", ["INT4", "UINT4", "INT8"])
def test_codes_behind_rounded_activations_are_multiplied_as_integers(
    kind: str, low_bit: Any
) -> None:
    low, high = {"INT4": (-8, 8), "UINT4": (0, 16), "INT8": (-128, 128)}[kind]
    codes = RNG.integers(low, high, (64, 96))
    scales, step = RNG.random(96).astype(np.float32), np.float32(0.05)
    constants = {"scales": scales, "step": step, "zero": np.uint8(128)}
    nodes = [
        helper.make_node("DequantizeLinear", ["codes", "scales"], ["w"], axis=1),
        helper.make_node("QuantizeLinear", ["x", "step", "zero"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "step", "zero"], ["rounded"]),
        helper.make_node("MatMul", ["rounded", "w"], ["y"]),
    ]
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, (5, extent))
        for name, extent in (("x", 64), ("y", 96))
    ]
    tensors = [numpy_helper.from_array(np.asarray(a), name) for name, a in constants.items()]
    data_type = getattr(TensorProto, kind)
    tensors.append(helper.make_tensor("codes", data_type, codes.shape, codes.flatten().tolist()))
    graph = helper.make_graph(nodes, "rounded", ends[:1], ends[1:], tensors)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    model = tvm_tile.compile(proto, "emulated", options=Options(cache=False, low_bit=low_bit))
    assert model.report.coded == ()
    x = RNG.standard_normal((5, 64)).astype(np.float32)
    rounded = (np.clip(np.round(x / step) + 128, 0, 255) - 128).astype(np.float64) * float(step)
    wanted = rounded @ (codes * scales.astype(np.float64))
    np.testing.assert_allclose(np.asarray(model(x)), wanted, rtol=1e-5, atol=1e-5)
