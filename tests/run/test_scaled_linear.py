"""Linear layers that multiply 8-bit floats: by the definition in float64, and compiled."""

from __future__ import annotations

import logging

import numpy as np
import pytest
import torch
from torch import nn

import tvm_tile
from tvm_tile import OptionError, Options
from tvm_tile.torch.scaled_linear import ScaledLinear

LARGEST = 448.0


def rounded(values: np.ndarray) -> np.ndarray:
    """The nearest numbers of e4m3, of three bits behind the point and exponents from -6 on."""
    _, exponents = np.frexp(values)
    steps = np.exp2(np.maximum(exponents - 1, -6) - 3.0)
    return np.round(values / steps) * steps


def numbers_of(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """8-bit floats of rows, and their scales, which are computed in float32."""
    largest = np.abs(rows).max(axis=-1, keepdims=True).astype(np.float32)
    scales = np.maximum(largest, np.float32(1e-12)) / np.float32(LARGEST)
    held = (rows.astype(np.float32) / scales).clip(-LARGEST, LARGEST)
    return rounded(held.astype(np.float64)), scales.astype(np.float64)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("has_bias", [True, False])
def test_products_are_those_of_the_definition(dtype: torch.dtype, has_bias: bool) -> None:
    torch.manual_seed(1)
    layer = nn.Linear(64, 48, bias=has_bias).to(dtype)
    with torch.no_grad():
        layer.weight *= torch.exp2(torch.randint(-6, 6, (48, 1)))
        layer.weight[3] = 0
    x = (torch.randn(5, 7, 64) * torch.exp2(torch.randint(-9, 9, (5, 7, 1)))).to(dtype)
    x[2, 3] = 0
    found = tvm_tile.quantize(layer, "fp8")
    assert isinstance(found, ScaledLinear)
    with torch.no_grad():
        y = found(x).double().numpy()
    weights, columns = numbers_of(layer.weight.detach().double().numpy())
    rows, scales = numbers_of(x.double().numpy())
    wanted = rows @ weights.T * scales * columns.T
    lost = np.abs(wanted) * 2.0**-8  # bfloat16's rounding
    if layer.bias is not None:
        wanted = wanted + layer.bias.detach().double().numpy()
        lost = lost + np.abs(wanted) * torch.finfo(dtype).eps
    assert y.shape == (5, 7, 48)
    assert np.all(np.abs(y - wanted) <= lost + 1e-6 * np.abs(wanted).max(axis=-1, keepdims=True))


def test_results_are_near_those_of_numbers() -> None:
    torch.manual_seed(2)
    model = nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 128)).bfloat16()
    x = torch.randn(33, 256, dtype=torch.bfloat16)
    with torch.no_grad():
        found, wanted = tvm_tile.quantize(model, "fp8")(x), model(x)
    assert float((found - wanted).norm() / wanted.norm()) < 0.06


@pytest.mark.parametrize("rows", [1, 16, 512])
def test_weights_stay_of_8_bits_and_matrix_units_multiply_them(rows: int) -> None:
    layer = tvm_tile.quantize(nn.Linear(1024, 2048).bfloat16(), "fp8")
    x = torch.zeros(rows, 1024, dtype=torch.bfloat16)
    options = Options(cache=False)
    model = tvm_tile.compile(layer, "nvidia/h200", example_inputs=(x,), options=options)
    rules = {kernel.rule for kernel in model.report.kernels}
    assert not any(kernel.fallback for kernel in model.report.kernels)
    assert "wgmma" in rules or rows == 1
    assert model.report.traffic < 1024 * 2048 + 20 * rows * (1024 + 2048)


@pytest.mark.parametrize("device", ["nvidia/a100", "amd/mi300x"])
def test_units_of_halves_multiply_where_there_are_no_others(device: str) -> None:
    layer = tvm_tile.quantize(nn.Linear(1024, 2048).bfloat16(), "fp8")
    x = torch.zeros(512, 1024, dtype=torch.bfloat16)
    options = Options(cache=False)
    model = tvm_tile.compile(layer, device, example_inputs=(x,), options=options)
    assert {kernel.rule for kernel in model.report.kernels} & {"mma", "matrix_cores"}
    assert not any(kernel.fallback for kernel in model.report.kernels)


def test_layers_that_share_a_weight_share_its_numbers() -> None:
    one, other = nn.Linear(32, 32), nn.Linear(32, 32)
    other.weight = one.weight
    found = tvm_tile.quantize(nn.Sequential(one, other), "fp8")
    assert found[0].numbers is found[1].numbers


def test_layers_of_other_extents_stay(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        found = tvm_tile.quantize(nn.Sequential(nn.Linear(32, 16), nn.Linear(16, 24)), "fp8")
    assert [type(layer) for layer in found] == [ScaledLinear, nn.Linear]
    assert "its weight is (24, 16)" in caplog.text


@pytest.mark.parametrize("given", [{"group": 64}, {"symmetric": False}], ids=str)
def test_groups_are_refused(given: dict[str, int]) -> None:
    with pytest.raises(OptionError, match="a scale for each row"):
        tvm_tile.quantize(nn.Linear(32, 32), "fp8", **given)
