"""PyTorch models that unpack weights of a few bits: kept as codes, right to the last bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.ao.quantization.fx._decomposed  # registers operators
from gptq import gptq_weight
from torch import nn
from torch.nn import functional

import tvm_tile
from tvm_tile import CompiledModel, Open, Options

pytestmark = pytest.mark.bank(4)

DEPTH, COLUMNS, GROUP = 128, 96, 32
OPTIONS = Options(cache=False, low_bit=True)
_CODES = torch.ops.quantized_decomposed


class Weighted(nn.Module):
    """A product with a weight that is computed of buffers; ``self.is_linear`` tells its layout."""

    is_linear = True

    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.dtype = dtype

    def hold(self, **buffers: torch.Tensor) -> None:
        for name, buffer in buffers.items():
            cast = buffer.to(self.dtype) if buffer.is_floating_point() else buffer
            self.register_buffer(name, cast)

    def weight(self) -> torch.Tensor:
        raise NotImplementedError

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight = self.weight()
        return functional.linear(x, weight) if self.is_linear else x @ weight


def words(*shape: int) -> torch.Tensor:
    return torch.randint(-(2**31), 2**31 - 1, shape, dtype=torch.int32)


class Gptq(Weighted):
    """Eight codes of a column in an int32, zero points less one of a row; groups by an index."""

    is_linear = False

    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        super().__init__(dtype)
        self.hold(qweight=words(DEPTH // 8, COLUMNS), qzeros=words(DEPTH // GROUP, COLUMNS // 8))
        self.hold(scales=torch.rand(DEPTH // GROUP, COLUMNS), g_idx=torch.arange(DEPTH) // GROUP)
        self.hold(shifts=torch.arange(0, 32, 4, dtype=torch.int32))

    def weight(self) -> torch.Tensor:
        return gptq_weight(self)


class Awq(Gptq):
    """Eight codes of a row in an int32, in an order of their own."""

    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        super().__init__(dtype)
        self.hold(order=torch.tensor([0, 4, 1, 5, 2, 6, 3, 7]))
        self.qweight = words(DEPTH, COLUMNS // 8)

    def unpacked(self, packed: torch.Tensor) -> torch.Tensor:
        codes = (packed[:, :, None] >> self.shifts[None, None, :]) & 0xF
        return codes[:, :, self.order].reshape(packed.shape[0], -1).to(torch.int8)

    def weight(self) -> torch.Tensor:
        codes, zeros = self.unpacked(self.qweight), self.unpacked(self.qzeros)
        shifted = codes - zeros.repeat_interleave(GROUP, 0)
        return shifted * self.scales.repeat_interleave(GROUP, 0)


class Halves(Weighted):
    """Two codes a byte."""

    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        super().__init__(dtype)
        self.hold(packed=torch.randint(0, 256, (COLUMNS, DEPTH // 2), dtype=torch.uint8))
        self.hold(scales=torch.rand(COLUMNS, DEPTH // GROUP, 1))

    def codes(self) -> torch.Tensor:
        return torch.stack([self.packed % 16, self.packed // 16], -1)

    def weight(self) -> torch.Tensor:
        groups = self.codes().reshape(COLUMNS, DEPTH // GROUP, GROUP).to(self.dtype)
        return ((groups - 8) * self.scales).reshape(COLUMNS, DEPTH)


class SignedHalves(Halves):
    def weight(self) -> torch.Tensor:
        low, high = (self.packed & 0xF).to(torch.int8) - 8, (self.packed >> 4).to(torch.int8) - 8
        groups = torch.stack([low, high], -1).reshape(COLUMNS, DEPTH // GROUP, GROUP)
        return (groups.to(self.dtype) * self.scales).reshape(COLUMNS, DEPTH)


class Built(Halves):
    """The same shifts the other way, as packers do: ``low | high << 4``."""

    def codes(self) -> torch.Tensor:
        swapped = ((self.packed & 0xF) << 4) | (self.packed >> 4)
        return torch.stack([swapped >> 4, swapped & 0xF], -1)


class Table(Weighted):
    """NF4: entries of a table, the high half of a byte first."""

    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        super().__init__(dtype)
        size = COLUMNS * DEPTH
        self.hold(packed=torch.randint(0, 256, (size // 2, 1), dtype=torch.uint8))
        self.hold(table=torch.linspace(-1, 1, 16) ** 3, largest=torch.rand(size // 64, 1))

    def weight(self) -> torch.Tensor:
        high, low = (self.packed >> 4).to(torch.int64), (self.packed & 15).to(torch.int64)
        values = torch.cat([self.table[high], self.table[low]], 1).reshape(-1, 64)
        return (values * self.largest).reshape(COLUMNS, DEPTH)


class Bytes(Weighted):
    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        super().__init__(dtype)
        self.hold(codes=torch.randint(-128, 128, (COLUMNS, DEPTH), dtype=torch.int8))
        self.hold(scales=torch.rand(COLUMNS, 1))

    def weight(self) -> torch.Tensor:
        return self.codes.to(self.dtype) * self.scales


class PerChannel(Bytes):
    def weight(self) -> torch.Tensor:
        scales, zeros = self.scales[:, 0].float(), torch.arange(COLUMNS)
        made = _CODES.dequantize_per_channel(self.codes, scales, zeros, 0, -128, 127, torch.int8)
        return made.to(self.dtype)


class PerTensor(Bytes):
    def weight(self) -> torch.Tensor:
        made = _CODES.dequantize_per_tensor(self.codes, 0.05, 3, -128, 127, torch.int8)
        return made.to(self.dtype)


class PerGroup(Bytes):
    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        super().__init__(dtype)
        groups = (COLUMNS, DEPTH // GROUP)
        self.hold(zeros=torch.randint(-8, 8, groups, dtype=torch.int32), steps=torch.rand(groups))

    def weight(self) -> torch.Tensor:
        given = self.codes, self.steps.float(), self.zeros, -128, 127, torch.int8
        return _CODES.dequantize_per_channel_group(*given, GROUP, self.dtype)


FORMATS = {
    Gptq: "uint4, zero uint8 for each 32 x 1, scale {} for each 32 x 1",
    Awq: "uint4, zero uint8 for each 32 x 1, scale {} for each 32 x 1",
    Halves: "int4, scale {} for each 1 x 32",
    SignedHalves: "int4, scale {} for each 1 x 32",
    Built: "int4, scale {} for each 1 x 32",
    Table: "table of 16 of {}, scale {} for each 1 x 64",
    Bytes: "int8, scale {} for each 1 x 128",
    PerChannel: "int8, zero uint8 for each 1 x 128, scale {} for each 1 x 128",
    PerTensor: "int8, zero uint8 for each 96 x 128, scale float32 for each 96 x 128",
    PerGroup: "int8, zero int8 for each 1 x 32, scale {} for each 1 x 32",
}


def formats(compiled: CompiledModel) -> list[str]:
    return [str(weight.format or weight.reason) for weight in compiled.report.coded]


def compiled(module: nn.Module, *examples: torch.Tensor, **more: Any) -> CompiledModel:
    given: Any = {"device": "emulated", "options": OPTIONS, **more}
    return tvm_tile.compile(module, example_inputs=examples, **given)


@pytest.mark.parametrize("kind", FORMATS, ids=lambda kind: kind.__name__)
def test_weights_are_kept(kind: type[Weighted]) -> None:
    """Of the identity the product is the weight itself."""
    torch.manual_seed(0)
    module = kind()
    identity = torch.eye(DEPTH)
    model = compiled(module, identity)
    assert formats(model) == [FORMATS[kind].replace("{}", "float32")]
    weight = module.weight()
    expected = weight.T if module.is_linear else weight
    np.testing.assert_array_equal(np.asarray(model(identity.numpy())), expected.numpy())


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [(kind, (torch.float16, torch.bfloat16)[n % 2]) for n, kind in enumerate(FORMATS)],
)
def test_weights_of_half_precision_are_kept(kind: type[Weighted], dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    module = kind(dtype)
    model = compiled(module, torch.rand(8, DEPTH).to(dtype), device="nvidia/h100")
    name = str(dtype).removeprefix("torch.")
    assert formats(model) == [FORMATS[kind].replace("{}", name)]
    assert not model.report.fallbacks


class Block(nn.Module):
    """Products side by side, gates, and a weight that two products read."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.ModuleList(SignedHalves() for _ in range(3))
        self.again = Gptq()
        self.norm = nn.LayerNorm(DEPTH)
        self.out = nn.Linear(COLUMNS, DEPTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.norm(x)
        a, b, c = (part(x) for part in self.parts)
        y = self.out(functional.silu(a) * b + c)
        return self.again(x + y) + self.again(y)


@pytest.mark.parametrize("rows", [1, 64])
def test_a_block_of_several_products(rows: int) -> None:
    torch.manual_seed(1)
    block, x = Block().eval(), torch.randn(rows, DEPTH)
    model = compiled(block, x)
    assert len(formats(model)) == 4
    for part in (*block.parts, block.again):
        part.dtype = torch.float64
    expected = block.double()(x.double()).detach()
    largest = 1e-6 * float(expected.abs().max())
    np.testing.assert_allclose(np.asarray(model(x.numpy())), expected, rtol=1e-4, atol=largest)


def test_open_extents() -> None:
    torch.manual_seed(2)
    module, rows = Gptq(), torch.export.Dim("rows", min=1, max=40)
    program = torch.export.export(module, (torch.randn(5, DEPTH),), dynamic_shapes=({0: rows},))
    model = tvm_tile.compile(
        program, "emulated", inputs={"x": (Open(1, 40), DEPTH)}, options=OPTIONS
    )
    assert formats(model) == [FORMATS[Gptq].replace("{}", "float32")]
    for count in (1, 17, 40):
        x = torch.randn(count, DEPTH)
        expected = x.double() @ module.weight().double()
        np.testing.assert_allclose(np.asarray(model(x.numpy())), expected, rtol=1e-4, atol=1e-3)


def test_entries_have_their_codes_in_common() -> None:
    torch.manual_seed(3)
    module = SignedHalves()
    programs = {
        name: torch.export.export(module, (torch.randn(rows, DEPTH),))
        for name, rows in (("prefill", 16), ("step", 1))
    }
    entries = tvm_tile.compile(programs, "emulated", options=OPTIONS)
    constants = [{id(c) for c in entries[name].program.constants} for name in programs]
    assert constants[0] == constants[1]
    x = torch.randn(1, DEPTH)
    expected = x.double() @ module.weight().double().T
    np.testing.assert_allclose(
        np.asarray(entries["step"](x.numpy())), expected, rtol=1e-4, atol=1e-3
    )


def test_verified_kernels() -> None:
    torch.manual_seed(4)
    module, x = Table(), torch.randn(4, DEPTH)
    model = compiled(module, x, options=Options(cache=False, low_bit=True, verify=True))
    assert not model.report.fallbacks
    model.verify()
