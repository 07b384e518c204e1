"""Models whose weights torchao quantized: kept as codes, and right against double precision."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import pytest
import torch
from torch import nn

import tvm_tile
from tvm_tile import Options

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of its own use of PyTorch
    quantization = pytest.importorskip("torchao.quantization")
    from torchao.quantization import granularity
    from torchao.utils import unwrap_tensor_subclass

DEPTH, COLUMNS = 2048, 256
OPTIONS = Options(cache=False, low_bit=True)


def integers(bits: int, group: int = 0, *, has_zeros: bool = False) -> Any:
    kind = quantization.MappingType.ASYMMETRIC if has_zeros else quantization.MappingType.SYMMETRIC
    return quantization.IntxWeightOnlyConfig(
        weight_dtype=getattr(torch, f"int{bits}"),
        granularity=granularity.PerGroup(group) if group else granularity.PerAxis(0),
        mapping_type=kind,
    )


CONFIGS = {
    "int8": (quantization.Int8WeightOnlyConfig(), "int8"),
    "float8": (quantization.Float8WeightOnlyConfig(), "float8 e4m3"),
    "rows of int8": (integers(8), "int8"),
    "groups of int4": (integers(4, 64), "int4"),
    "int4 with zeros": (integers(4, 32, has_zeros=True), "int4"),
    "groups of int3": (integers(3, 64), "int3"),
    "rows of int2": (integers(2), "int2"),
}
BY_INT8 = quantization.Int8DynamicActivationIntxWeightConfig(
    weight_dtype=torch.int4, weight_granularity=granularity.PerGroup(32)
)


def quantized(config: Any, dtype: torch.dtype = torch.float32) -> nn.Sequential:
    torch.manual_seed(0)
    linear = nn.Linear(DEPTH, COLUMNS)
    linear.weight.data = torch.randn(COLUMNS, DEPTH) / 32
    model = nn.Sequential(linear, nn.ReLU()).to(dtype).eval()
    quantization.quantize_(model, config)
    return model


def exported(model: nn.Module, x: torch.Tensor) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.export.export(model, (x,))


def wanted(model: nn.Sequential, x: torch.Tensor) -> torch.Tensor:
    """In double precision."""
    weight = model[0].weight.dequantize().double()
    return torch.relu(x.double() @ weight.T + model[0].bias.double())


def error(found: torch.Tensor, expected: torch.Tensor) -> float:
    found, expected = found.double(), expected.detach().double()
    return float((found - expected).norm() / expected.norm())


@pytest.mark.parametrize("is_unwrapped", [False, True], ids=["as it is", "unwrapped"])
@pytest.mark.parametrize(("config", "code"), CONFIGS.values(), ids=CONFIGS)
def test_weights_are_kept_as_codes(config: Any, code: str, is_unwrapped: bool) -> None:
    model, x = quantized(config), torch.randn(3, DEPTH)
    given = unwrap_tensor_subclass(copy.deepcopy(model)) if is_unwrapped else model
    compiled = tvm_tile.compile(exported(given, x), "emulated", options=OPTIONS)
    assert error(torch.from_dlpack(compiled(x)), wanted(model, x)) < 1e-6
    assert code in compiled.explain()
    assert "kept as codes: 1 of 1 matrix" in compiled.explain()


def test_weights_are_folded_unless_asked_for() -> None:
    model, x = quantized(CONFIGS["float8"][0]), torch.randn(3, DEPTH)
    compiled = tvm_tile.compile(exported(model, x), "emulated", options=Options(cache=False))
    assert error(torch.from_dlpack(compiled(x)), wanted(model, x)) < 1e-6


def test_activations_that_are_rounded_to_int8() -> None:
    model, x = quantized(BY_INT8), torch.randn(3, DEPTH)
    compiled = tvm_tile.compile(exported(model, x), "emulated", options=OPTIONS)
    assert error(torch.from_dlpack(compiled(x)), model(x)) < 1e-5
    assert "kept as codes: 1 of 1 matrix" in compiled.explain()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", [name for name in CONFIGS if "int3" not in name])
def test_codes_are_multiplied_on_a_gpu(name: str, dtype: torch.dtype) -> None:
    program = exported(quantized(CONFIGS[name][0], dtype), torch.zeros(2, DEPTH, dtype=dtype))
    compiled = tvm_tile.compile(program, "nvidia/h200", options=OPTIONS)
    assert [kernel.rule for kernel in compiled.report.kernels] == ["coded"]
