"""Models with weights of a few bits, compiled for GPUs: which kernels multiply codes."""

from __future__ import annotations

import copy
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
import torch
import tvm
from coded_products import Case, choices
from emulated import arguments
from kernels import relative_difference
from onnx import TensorProto, helper, numpy_helper

import tvm_tile
from bench.functions import build_functions
from tvm_tile import Options
from tvm_tile.device.detect import resolve_device
from tvm_tile.graph.tensor_format import Integers
from tvm_tile.tile.rules import CODED_WARPGROUP

pytestmark = pytest.mark.bank(8)

DEPTH, COLUMNS, GROUP = 2048, 1024, 64
FLOAT_GROUP = 32
RNG = np.random.default_rng(0)
GPU = torch.cuda.is_available()
OPTIONS = Options(cache=False, low_bit=True)
WIDE = [
    Case(33, 192, 1024, zero="int8"),
    Case(64, 1000, 4096, Integers(4, is_signed=False), group=64, zero="uint8"),
    Case(130, 512, 2048, Integers(8, is_signed=True), group=2048),
    Case(300, 264, 1024, Integers(2, is_signed=False), group=32),
    Case(512, 1024, 1024, scale="float32"),
]


def onnx_model(nodes: list[Any], tensors: list[Any], opset: int) -> onnx.ModelProto:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT16, ("m", DEPTH))
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT16, ("m", COLUMNS))
    graph = helper.make_graph(nodes, "g", [x], [y], tensors)
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=13 if opset > 23 else 11)


def dequantized() -> onnx.ModelProto:
    """int4 by blocks of the depth, multiplied as it lies."""
    codes = RNG.integers(0, 256, DEPTH * COLUMNS // 2, dtype=np.uint8).tobytes()
    q = helper.make_tensor("q", TensorProto.INT4, (DEPTH, COLUMNS), codes, raw=True)
    scales = RNG.uniform(0.01, 0.03, (DEPTH // GROUP, COLUMNS)).astype(np.float16)
    nodes = [
        helper.make_node("DequantizeLinear", ["q", "s"], ["w"], axis=0, block_size=GROUP),
        helper.make_node("MatMul", ["x", "w"], ["y"]),
    ]
    return onnx_model(nodes, [q, numpy_helper.from_array(scales, "s")], 21)


def by_blocks() -> onnx.ModelProto:
    """MatMulNBits with zero points."""
    blocks = DEPTH // GROUP
    arrays = {
        "q": RNG.integers(0, 256, (COLUMNS, blocks, GROUP // 2), dtype=np.uint8),
        "s": RNG.uniform(0.01, 0.03, COLUMNS * blocks).astype(np.float16),
        "z": RNG.integers(0, 256, COLUMNS * (blocks // 2), dtype=np.uint8),
    }
    node = helper.make_node(
        "MatMulNBits", ["x", *arrays], ["y"], domain="com.microsoft",
        K=DEPTH, N=COLUMNS, bits=4, block_size=GROUP,
    )  # fmt: skip
    return onnx_model([node], [numpy_helper.from_array(a, n) for n, a in arrays.items()], 21)


def floats(kind: Any, *, has_powers: bool = False) -> onnx.ModelProto:
    """Floats of a few bits by blocks of the depth: all that are smaller than 8.

    Scales are float16 or, as those of MX formats, powers of two, a byte each.
    """
    every = np.arange(256).astype(np.uint8).view(ml_dtypes.float8_e5m2).astype(np.float32)
    drawn = RNG.choice(every[np.abs(every) < 8], (DEPTH, COLUMNS)).astype(kind)
    shape = (DEPTH // FLOAT_GROUP, COLUMNS)
    scales = RNG.uniform(0.01, 0.03, shape).astype(np.float16)
    if has_powers:
        scales = np.exp2(RNG.integers(-30, -3, shape)).astype(ml_dtypes.float8_e8m0fnu)
    types = {"block_size": FLOAT_GROUP, "output_dtype": TensorProto.FLOAT16}
    nodes = [
        helper.make_node("DequantizeLinear", ["q", "s"], ["w"], axis=0, **types),
        helper.make_node("MatMul", ["x", "w"], ["y"]),
    ]
    tensors = [numpy_helper.from_array(a, n) for a, n in ((drawn, "q"), (scales, "s"))]
    return onnx_model(nodes, tensors, 25 if has_powers else 23)


class Table(torch.nn.Module):
    """Entries of a table of 4 or 16 numbers by groups, and perhaps a scale of all."""

    def __init__(self, bits: int, dtype: torch.dtype, *, is_wide: bool = False) -> None:
        super().__init__()
        steps = torch.float32 if is_wide else dtype
        codes = RNG.integers(0, 1 << bits, (COLUMNS, DEPTH)).astype(np.int32)
        self.register_buffer("codes", torch.from_numpy(codes))
        self.register_buffer("entries", torch.randn(1 << bits).to(dtype))
        self.register_buffer("scales", torch.rand(COLUMNS, DEPTH // GROUP, 1).to(steps))
        self.register_buffer("whole", torch.rand(()).to(steps) if is_wide else None)
        self.dtype = dtype

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(torch.nn.functional.linear(x, self.weight().to(x.dtype)))

    def weight(self) -> torch.Tensor:
        numbers = self.entries[self.codes].to(self.scales.dtype)
        scaled = (numbers.reshape(COLUMNS, -1, GROUP) * self.scales).flatten(1)
        return scaled if self.whole is None else scaled * self.whole


class Linear(torch.nn.Module):
    """int8 by rows, as weight-only quantization of PyTorch's linear layers."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        codes = RNG.integers(-128, 128, (COLUMNS, DEPTH), dtype=np.int8)
        self.register_buffer("codes", torch.from_numpy(codes))
        self.register_buffer("scales", torch.rand(COLUMNS, 1).to(dtype))
        self.dtype = dtype

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(torch.nn.functional.linear(x, self.weight()))

    def weight(self) -> torch.Tensor:
        return self.codes.to(self.dtype) * self.scales


def rules(model: Any, rows: int, device: str = "nvidia/h200") -> list[str]:
    """Those of a model's kernels, compiled for so many rows."""
    if isinstance(model, torch.nn.Module):
        example = torch.zeros(rows, DEPTH, dtype=model.dtype)
        compiled = tvm_tile.compile(model, device, example_inputs=(example,), options=OPTIONS)
    else:
        inputs = {"x": (rows, DEPTH)}
        compiled = tvm_tile.compile(model, device, inputs=inputs, options=OPTIONS)
    assert not compiled.report.fallbacks
    return [kernel.rule for kernel in compiled.report.kernels]


MODELS = {
    "dequantized": dequantized(),
    "blocks": by_blocks(),
    "e2m1": floats(ml_dtypes.float4_e2m1fn),
    "mx": floats(ml_dtypes.float4_e2m1fn, has_powers=True),
    "e5m2": floats(ml_dtypes.float8_e5m2),
    "e4m3": floats(ml_dtypes.float8_e4m3fn),
    "linear": Linear(torch.float16),
    "bfloat16": Linear(torch.bfloat16),
    "table of 16": Table(4, torch.float16),
    "table of 4": Table(2, torch.bfloat16),
    "two scales": Table(4, torch.bfloat16, is_wide=True),
}


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
@pytest.mark.parametrize("rows", [1, 4, 16])
def test_few_rows_are_multiplied_with_codes(model: Any, rows: int) -> None:
    assert rules(model, rows) == ["coded"]


class Normed(Linear):
    """Such a layer behind a norm of its rows."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__(dtype)
        self.norm = torch.nn.RMSNorm(DEPTH, dtype=dtype)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(self.norm(x))


def test_blocks_make_the_norm_of_few_rows_themselves() -> None:
    assert rules(Normed(torch.float16), 1) == ["coded"]


INTEGERS = ("dequantized", "blocks", "linear")


@pytest.mark.parametrize("name", INTEGERS)
@pytest.mark.parametrize("rows", [33, 64, 128])
def test_many_rows_are_multiplied_with_integers_as_they_are_decoded(name: str, rows: int) -> None:
    assert rules(MODELS[name], rows) == ["coded_warpgroup"]


@pytest.mark.parametrize("name", [name for name in MODELS if name not in INTEGERS])
def test_many_rows_are_multiplied_with_floats_decoded_before(name: str) -> None:
    found = rules(MODELS[name], 256)
    assert not {"coded", "coded_warpgroup"} & set(found)
    assert {"wgmma", "mma"} & set(found)


@pytest.mark.parametrize("name", INTEGERS)
def test_without_warpgroups_many_rows_are_multiplied_with_decoded_weights(name: str) -> None:
    found = rules(MODELS[name], 256, "nvidia/a100")
    assert not {"coded", "coded_warpgroup"} & set(found)


def weight_of(model: Any) -> np.ndarray:
    """(COLUMNS, DEPTH), in double precision, by the definitions."""
    if isinstance(model, torch.nn.Module):
        exact = copy.deepcopy(model).double()  # codes stay integers
        exact.dtype = torch.float64
        return exact.weight().numpy()
    arrays = {t.name: t for t in model.graph.initializer}
    scales = numpy_helper.to_array(arrays["s"]).astype(np.float64)
    if arrays["q"].data_type not in (TensorProto.INT4, TensorProto.UINT8):
        numbers = numpy_helper.to_array(arrays["q"]).astype(np.float64)
        return (numbers * np.repeat(scales, FLOAT_GROUP, 0)).T
    packed = np.frombuffer(arrays["q"].raw_data, np.uint8)
    codes = np.stack([packed & 15, packed >> 4], -1).astype(np.float64)
    if "z" not in arrays:
        signed = np.where(codes > 7, codes - 16, codes).reshape(DEPTH, COLUMNS)
        return (signed * np.repeat(scales, GROUP, 0)).T
    blocks = DEPTH // GROUP
    zeros = numpy_helper.to_array(arrays["z"])
    zeros = np.stack([zeros & 15, zeros >> 4], -1).reshape(COLUMNS, blocks, 1)
    values = (codes.reshape(COLUMNS, blocks, GROUP) - zeros) * scales.reshape(COLUMNS, blocks, 1)
    return values.reshape(COLUMNS, DEPTH)


@pytest.mark.cuda
@pytest.mark.skipif(not GPU, reason="needs an NVIDIA GPU")
@pytest.mark.parametrize("rows", [1, 2, 7, 8, 9, 16, 17, 31, 32, 33, 64, 128, 200, 512, 4096])
@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_products_with_codes_are_right_on_the_gpu(model: Any, rows: int) -> None:
    is_bfloat16 = isinstance(model, torch.nn.Module) and model.dtype == torch.bfloat16
    dtype = torch.bfloat16 if is_bfloat16 else torch.float16
    x = torch.randn(rows, DEPTH).to(dtype)
    given = {"example_inputs": (x,)} if isinstance(model, torch.nn.Module) else {
        "inputs": {"x": (rows, DEPTH)}
    }  # fmt: skip
    compiled = tvm_tile.compile(model, options=OPTIONS, **given)
    poison = [torch.full((rows, COLUMNS), float("nan"), device="cuda", dtype=dtype) for _ in "ab"]
    torch.cuda.synchronize()
    del poison
    wanted = x.double().numpy() @ weight_of(model).T
    if isinstance(model, torch.nn.Module):
        wanted = np.maximum(wanted, 0)
    for _ in range(3):
        found = compiled(x.cuda()).double().cpu().numpy()
        error = np.linalg.norm(found - wanted) / np.linalg.norm(wanted)
        assert error < (8e-3 if is_bfloat16 else 1e-3), error


@pytest.mark.cuda
@pytest.mark.skipif(not GPU, reason="needs an NVIDIA GPU")
@pytest.mark.parametrize("case", WIDE, ids=str)
def test_tiles_of_warpgroups_are_right_on_the_gpu(case: Case) -> None:
    """The fastest tiles, and some of all others: clusters, ragged rows and vectors."""
    device = resolve_device("auto")
    func, found = choices(case, device)
    own = [choice for choice in found if choice.rule == CODED_WARPGROUP]
    if not own:
        pytest.skip("no warpgroup instructions")
    of = arguments(func)
    for choice in [*own[:2], *own[2 :: max(1, len(own) // 6)]]:
        item = choice()
        assert item is not None
        marked = item.func.with_attr("tirx.is_scheduled", True)
        kernel = build_functions({"joined": marked}, device)["joined"]
        given = {n: torch.from_numpy(a).cuda() for n, a in of.given.items()}
        for name in of.outputs:
            given[name].fill_(float("nan"))
        kernel(*(tvm.runtime.from_dlpack(tensor) for tensor in given.values()))
        torch.cuda.synchronize()
        for name in of.outputs:
            error = relative_difference(given[name].cpu().numpy(), of.wanted[name])
            assert error < 4e-3, choice.tile
