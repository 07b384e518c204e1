"""Quantized PyTorch models, as pt2e and dynamic quantization write them, beside PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.ao.quantization.fx._decomposed  # registers operators
from torch import Tensor, nn
from torch.nn import functional
from tvm import relax

import tvm_tile
from tvm_tile import Options
from tvm_tile.errors import BuildError
from tvm_tile.frontend import import_model

pytestmark = pytest.mark.bank(4)

CODES = torch.ops.quantized_decomposed
BYTE, SIGNED = (0, 255, torch.uint8), (-128, 127, torch.int8)
OPTIONS = Options(cache=False)
PRODUCTS = ("relax.matmul", "relax.nn.conv2d")


def coded(x: Tensor, scale: float, zero: int, bounds: Any) -> Tensor:
    """A tensor rounded to codes, and back."""
    codes = CODES.quantize_per_tensor(x, scale, zero, *bounds)
    return CODES.dequantize_per_tensor(codes, scale, zero, *bounds)


class Weight(nn.Module):
    """Codes of a layer's weight, with a scale for each of its rows."""

    def __init__(self, *shape: int) -> None:
        super().__init__()
        self.register_buffer("codes", torch.randint(-127, 128, shape, dtype=torch.int8))
        self.register_buffer("scales", (torch.rand(shape[0]) + 0.5) / 127)
        self.register_buffer("zeros", torch.zeros(shape[0], dtype=torch.int64))

    def forward(self) -> Tensor:
        return CODES.dequantize_per_channel(self.codes, self.scales, self.zeros, 0, *SIGNED)


class Layers(nn.Module):
    """Static quantization: a perceptron."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Weight(48, 32), Weight(10, 48)
        self.bias = nn.Parameter(torch.randn(48))

    def forward(self, x: Tensor) -> Tensor:
        x = functional.linear(coded(x, 0.02, 131, BYTE), self.first(), self.bias)
        return functional.linear(coded(x.relu(), 0.05, -128, SIGNED), self.second())


class Convolutions(nn.Module):
    """Static quantization: convolutions, a residual, a pool and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.second, self.head = Weight(16, 3, 3, 3), Weight(16, 16, 3, 3), Weight(4, 16)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.conv2d(coded(x, 0.02, 120, BYTE), self.stem(), padding=1, stride=2)
        x = coded(x.relu(), 0.03, 0, BYTE)
        y = coded(functional.conv2d(x, self.second(), padding=1), 0.1, 7, SIGNED)
        y = coded(coded(x + y, 0.0713, 5, SIGNED).mean((2, 3)), 0.05, 3, SIGNED)
        return functional.linear(y, self.head())


class Dynamic(nn.Module):
    """Dynamic quantization: scale and zero point of the whole tensor, found at run time."""

    def __init__(self, is_symmetric: bool) -> None:
        super().__init__()
        self.weight, self.is_symmetric = Weight(24, 32), is_symmetric

    def forward(self, x: Tensor) -> Tensor:
        choose = CODES.choose_qparams_symmetric if self.is_symmetric else CODES.choose_qparams
        scale, zero = choose.tensor(x, -128, 127, 1e-6, torch.int8)
        codes = CODES.quantize_per_tensor.tensor(x, scale, zero, *SIGNED)
        wide = CODES.dequantize_per_tensor.tensor(codes, scale, zero, *SIGNED)
        return functional.linear(wide, self.weight())


class Tokens(nn.Module):
    """Dynamic quantization of each row."""

    def __init__(self, is_symmetric: bool) -> None:
        super().__init__()
        self.weight, self.is_symmetric = Weight(24, 32), is_symmetric

    def forward(self, x: Tensor) -> Tensor:
        if self.is_symmetric:
            scales, zeros = CODES.choose_qparams_per_token(x, torch.int8)
        else:
            scales, zeros = CODES.choose_qparams_per_token_asymmetric(x, torch.int8)
        codes = CODES.quantize_per_token(x, scales, zeros, *SIGNED)
        wide = CODES.dequantize_per_token(codes, scales, zeros, *SIGNED, torch.float32)
        return functional.linear(wide, self.weight())


class IntegerProduct(nn.Module):
    """Codes by rows, a product of them, and scales behind it."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = Weight(24, 32)

    def forward(self, x: Tensor) -> Tensor:
        scales = x.abs().amax(-1, keepdim=True).clamp(min=1e-5) / 127
        codes = torch.clamp(torch.round(x / scales), -128, 127).to(torch.int8)
        return torch._int_mm(codes, self.weight.codes.t()) * scales * self.weight.scales


def factors(module: nn.Module, x: Tensor) -> set[str]:
    """Element types that the products of a module read."""
    found: set[str] = set()

    def visit(value: Any) -> None:
        if isinstance(value, relax.Call) and getattr(value.op, "name", "") in PRODUCTS:
            found.update(str(operand.ty.dtype) for operand in value.args)

    mod = import_model(module, example_inputs=(x,)).mod
    relax.analysis.post_order_visit(mod["main"], visit)
    return found


@pytest.mark.parametrize(
    "module",
    [
        Layers,
        Convolutions,
        *(lambda kind=kind, sym=sym: kind(sym) for kind in (Dynamic, Tokens) for sym in (0, 1)),
        IntegerProduct,
    ],
)
def test_products_are_of_codes(module: Any) -> None:
    torch.manual_seed(0)
    model = module().eval()
    x = torch.randn(2, 3, 9, 8) if isinstance(model, Convolutions) else torch.randn(20, 32)
    assert factors(model, x) <= {"int8", "uint8"}
    with torch.no_grad():
        expected = model(x).numpy()
    compiled = tvm_tile.compile(model, "emulated", example_inputs=(x,), options=OPTIONS)
    found = np.asarray(compiled(x.numpy()))
    # A number between two codes may become the other one.
    step = 0.02 * np.abs(expected).max()
    assert np.abs(found - expected).max() < step
    assert np.mean(np.abs(found - expected) > 1e-5 * np.abs(expected).max()) < 0.1


def test_half_precision_keeps_products_that_its_units_multiply() -> None:
    """On an H100 they are products of codes, on an A100 of halves, which its kernels multiply."""
    torch.manual_seed(0)

    class Halves(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = Weight(512, 1024)

        def forward(self, x: Tensor) -> Tensor:
            return functional.linear(coded(x, 0.02, 0, SIGNED).half(), self.weight().half())

    x = torch.randn(512, 1024)
    for device in ("nvidia/h100", "nvidia/a100"):
        compiled = tvm_tile.compile(Halves(), device, example_inputs=(x,), options=OPTIONS)
        assert {kernel.rule for kernel in compiled.report.kernels} & {"wgmma", "mma"}


class Scaled(nn.Module):
    """A linear layer of 8-bit floats, each row of both operands with a scale."""

    def __init__(self, rows: int, depth: int) -> None:
        super().__init__()
        self.register_buffer("codes", torch.randn(rows, depth).to(torch.float8_e4m3fn))
        self.register_buffer("scales", torch.rand(1, rows))

    def forward(self, x: Tensor) -> Tensor:
        scales = x.abs().amax(-1, keepdim=True).float().clamp(min=1e-6) / 448
        codes = (x.float() / scales).clamp(-448, 448).to(torch.float8_e4m3fn)
        return torch._scaled_mm(
            codes, self.codes.t(), scale_a=scales, scale_b=self.scales, out_dtype=torch.bfloat16
        )


def test_products_of_8_bit_floats_are_those_of_warpgroups() -> None:
    torch.manual_seed(0)
    model, x = Scaled(256, 512), torch.randn(128, 512).bfloat16()
    compiled = tvm_tile.compile(model, "nvidia/h100", example_inputs=(x,), options=OPTIONS)
    assert "wgmma" in {kernel.rule for kernel in compiled.report.kernels}
    with pytest.raises(BuildError, match="8-bit floats"):
        tvm_tile.compile(model, "emulated", example_inputs=(x,), options=OPTIONS)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
def test_products_of_8_bit_floats_are_right() -> None:
    torch.manual_seed(0)
    model, x = Scaled(256, 512), torch.randn(128, 512).bfloat16()
    compiled = tvm_tile.compile(model, "auto", example_inputs=(x,), options=OPTIONS)
    scales = x.abs().amax(-1, keepdim=True).float().clamp(min=1e-6) / 448
    codes = (x.float() / scales).to(torch.float8_e4m3fn).double()
    expected = (codes * scales) @ (model.codes.double() * model.scales.T).T
    found = torch.as_tensor(compiled(x.cuda())).double().cpu()
    assert (found - expected).abs().max() < 0.01 * expected.abs().max()


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
def test_rounding_to_8_bit_floats_is_pytorchs() -> None:
    class Rounded(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.to(torch.float8_e4m3fn).float()

    x = torch.cat([torch.linspace(-600, 600, 4001), torch.tensor([464.0, 464.1, torch.inf])])
    compiled = tvm_tile.compile(Rounded(), "auto", example_inputs=(x,), options=OPTIONS)
    found = torch.as_tensor(compiled(x.cuda())).cpu()
    assert torch.equal(found.nan_to_num(9e9), Rounded()(x).nan_to_num(9e9))
