"""Linear layers rounded to codes: by the definition in NumPy, and the same when compiled."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import tvm_tile
from tvm_tile import ModelError, OptionError, Options
from tvm_tile.torch.codebooks import NF4
from tvm_tile.torch.coded_linear import CodedLinear

pytestmark = pytest.mark.bank(8)

GROUP = 32
OPTIONS = Options(cache=False, low_bit=True)
KINDS = [
    *((f"int{bits}", is_symmetric) for bits in (2, 4, 8) for is_symmetric in (True, False)),
    ("nf4", True),
]


def linear(depth: int, columns: int, dtype: torch.dtype = torch.float32) -> nn.Linear:
    """A layer with groups of many magnitudes, one of them of zeros, one all positive."""
    layer = nn.Linear(depth, columns)
    with torch.no_grad():
        layer.weight *= torch.exp2(torch.randint(-6, 6, (columns, 1)))
        layer.weight[0, :GROUP] = 0
        layer.weight[1, :GROUP] = layer.weight[1, :GROUP].abs() + 0.5
    return layer.to(dtype).eval()


def layers(module: nn.Module) -> dict[str, CodedLinear]:
    return {name: own for name, own in module.named_modules() if isinstance(own, CodedLinear)}


def held(module: nn.Module) -> CodedLinear:
    assert isinstance(module, CodedLinear)
    return module


def unpacked(packed: np.ndarray, bits: int) -> np.ndarray:
    """Codes of bytes, the lowest bits first."""
    parts = [packed >> place & ((1 << bits) - 1) for place in range(0, 8, bits)]
    return np.stack(parts, -1).reshape(*packed.shape[:-1], -1)


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_symmetric_codes_are_those_of_the_definition(bits: int) -> None:
    torch.manual_seed(bits)
    layer = linear(4 * GROUP, 24)
    matrix = held(tvm_tile.quantize(layer, f"int{bits}", group=GROUP)).matrix
    groups = layer.weight.detach().numpy().reshape(24, 4, GROUP)
    most = 2 ** (bits - 1) - 1
    scales = np.abs(groups).max(-1, keepdims=True) / np.float32(most)
    np.testing.assert_array_equal(matrix.scales.numpy(), scales)
    codes = np.round(groups / np.where(scales == 0, np.float32(1), scales))
    assert np.abs(codes).max() == most
    own = unpacked(matrix.packed.numpy(), bits).astype(int) - (most + 1)
    np.testing.assert_array_equal(own, codes)
    np.testing.assert_array_equal(matrix().numpy().reshape(groups.shape), codes * scales)
    assert matrix.zeros is None


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_zero_points_are_those_of_the_definition(bits: int) -> None:
    torch.manual_seed(bits)
    layer = linear(4 * GROUP, 24)
    matrix = held(tvm_tile.quantize(layer, f"int{bits}", group=GROUP, symmetric=False)).matrix
    groups = layer.weight.detach().numpy().reshape(24, 4, GROUP)
    low = np.minimum(groups.min(-1, keepdims=True), 0)
    high = np.maximum(groups.max(-1, keepdims=True), 0)
    most = 2**bits - 1
    scales = (high - low) / np.float32(most)
    divisors = np.where(scales == 0, np.float32(1), scales)
    zeros = np.round(-low / divisors)
    codes = np.clip(np.round(groups / divisors) + zeros, 0, most)
    assert matrix.zeros is not None
    np.testing.assert_array_equal(matrix.scales.numpy(), scales)
    np.testing.assert_array_equal(matrix.zeros.numpy(), zeros)
    np.testing.assert_array_equal(unpacked(matrix.packed.numpy(), bits), codes)
    np.testing.assert_array_equal(matrix().numpy().reshape(groups.shape), (codes - zeros) * scales)


def test_nf4_takes_the_nearest_entry() -> None:
    torch.manual_seed(0)
    layer = linear(4 * GROUP, 24)
    matrix = held(tvm_tile.quantize(layer, "nf4", group=GROUP)).matrix
    groups = layer.weight.detach().double().numpy().reshape(24, 4, GROUP)
    scales = np.abs(groups).max(-1, keepdims=True)
    np.testing.assert_array_equal(matrix.scales.numpy(), scales)
    distances = np.abs(groups[..., None] - np.float32(NF4.entries) * scales[..., None])
    own = np.abs(matrix().double().numpy().reshape(groups.shape) - groups)
    np.testing.assert_allclose(own, distances.min(-1), atol=1e-6 * scales.max())


@settings(max_examples=60, deadline=None)
@given(
    kind=st.sampled_from(KINDS[:-1]),
    dtype=st.sampled_from([torch.float16, torch.bfloat16, torch.float32]),
    group=st.sampled_from([4, 8, 32, 96]),
    exponent=st.integers(-8, 8),
    shift=st.floats(-2, 2),
    seed=st.integers(0, 1 << 20),
)
def test_weights_are_off_by_half_a_step(
    kind: tuple[str, bool], dtype: torch.dtype, group: int, exponent: int, shift: float, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    layer = nn.Linear(96, 8, dtype=dtype)
    drawn = (torch.randn(8, 96, generator=generator) + shift) * 2.0**exponent
    layer.weight.data = drawn.to(dtype)
    codes, is_symmetric = kind
    matrix = held(tvm_tile.quantize(layer, codes, group=group, symmetric=is_symmetric)).matrix
    weight = layer.weight.detach().double().reshape(8, -1, group)
    off = (matrix().double().reshape(weight.shape) - weight).abs()
    # A scale is rounded, which counts as often as there are steps, and so is what is decoded.
    rounding = torch.finfo(dtype).eps
    steps = 0.5 + rounding * 2 ** int(codes[3:])
    assert (off <= steps * matrix.scales.double() + rounding * weight.abs()).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(("codes", "is_symmetric"), KINDS)
def test_weights_too_small_for_their_scales(
    codes: str, is_symmetric: bool, dtype: torch.dtype
) -> None:
    """Steps below the smallest normal number are not told apart; nothing is infinite or NaN."""
    for size in (1e-7, 1e-6, 1e-38, 1e-40):
        layer = nn.Linear(GROUP, 4, dtype=dtype)
        layer.weight.data = (torch.randn(4, GROUP) * size).to(dtype)
        made = tvm_tile.quantize(layer, codes, group=GROUP, symmetric=is_symmetric)
        off = held(made).weight.double() - layer.weight.double()
        assert (off.abs() <= 2 * layer.weight.double().abs().max()).all()


class Model(nn.Module):
    """Layers of all sorts: tied ones, one with no bias, one of a depth of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.again = nn.Linear(128, 128), nn.Linear(128, 128)
        self.again.weight = self.first.weight
        self.shared = self.first
        self.plain = nn.Linear(128, 192, bias=False)
        self.odd = nn.Linear(192, 20)
        self.last = nn.Linear(20, 7)
        self.beside = [self.plain]

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.first(x)) + torch.tanh(self.again(x))
        return self.last(self.odd(self.beside[0](self.shared(x))))


@pytest.mark.parametrize(("codes", "is_symmetric"), KINDS)
def test_compiled_modules_are_the_ones_in_pytorch(codes: str, is_symmetric: bool) -> None:
    torch.manual_seed(1)
    made = tvm_tile.quantize(Model().eval(), codes, group=GROUP, symmetric=is_symmetric)
    x = torch.randn(5, 128)
    compiled = tvm_tile.compile(made, "emulated", example_inputs=(x,), options=OPTIONS)
    # The last is below 16 KiB, and folded.
    bits = 4 if codes == "nf4" else int(codes[3:])
    kept = [weight.format for weight in compiled.report.coded]
    assert [form is not None and form.code.bits for form in kept] == [bits] * len(kept)
    assert [weight.shape for weight in compiled.report.coded] == [(128, 128), (192, 128)]
    with torch.no_grad():
        expected = copy.deepcopy(made).double()(x.double())
        close = {"rtol": 1e-4, "atol": 1e-4 * float(expected.abs().max())}
        np.testing.assert_allclose(np.asarray(compiled(x.numpy())), made(x), **close)
    np.testing.assert_allclose(np.asarray(compiled(x.numpy())), expected, **close)


@pytest.mark.parametrize(
    ("codes", "group", "dtype", "few_rows", "many_rows"),
    [
        ("int2", 64, torch.float16, True, True),
        ("int4", 32, torch.float16, True, True),
        ("int4", 96, torch.bfloat16, True, True),
        ("int8", 16, torch.float16, True, False),
        # For many rows a step has 32 codes, whatever their bits.
        ("int2", 32, torch.float16, True, True),
        ("int4", 16, torch.float16, True, False),
        ("int8", 8, torch.float16, True, False),
        ("int4", 4, torch.float16, False, False),
        ("int8", 32, torch.bfloat16, True, False),
        ("nf4", 32, torch.float16, True, False),
    ],
)
def test_which_codes_are_multiplied_on_nvidia(
    codes: str, group: int, dtype: torch.dtype, *, few_rows: bool, many_rows: bool
) -> None:
    """What docs/few_bits.md says of it; the others are decoded ahead of the product."""
    made = tvm_tile.quantize(nn.Linear(1536, 1024, dtype=dtype), codes, group=group)
    for rows, expected in ((1, few_rows), (33, many_rows)):
        x = torch.zeros(rows, 1536, dtype=dtype)
        compiled = tvm_tile.compile(made, "nvidia/h100", example_inputs=(x,), options=OPTIONS)
        rules = [kernel.rule for kernel in compiled.report.kernels]
        kernel = "coded" if rows == 1 else "coded_warpgroup"
        assert (rules == [kernel]) == expected, (rows, rules)
        assert not compiled.report.fallbacks


def test_tied_layers_stay_tied_and_the_original_as_it_was() -> None:
    torch.manual_seed(2)
    model = Model()
    before = copy.deepcopy(model.state_dict())
    made: Any = tvm_tile.quantize(model, group=GROUP)
    assert list(layers(made)) == ["first", "again", "plain", "odd"]
    assert made.shared is made.first
    assert made.beside[0] is made.plain
    assert made.again.matrix is made.first.matrix
    assert made.again.bias is not made.first.bias
    assert torch.equal(made.again.bias, model.again.bias)
    assert made.again.bias is not model.again.bias
    assert made.plain.bias is None
    assert type(made.last) is nn.Linear
    assert made.training
    halves = copy.deepcopy(made).half()
    assert halves.again.matrix is halves.first.matrix
    assert halves.first.weight.dtype == torch.float16
    assert model.state_dict().keys() == before.keys()
    assert all(torch.equal(own, before[name]) for name, own in model.state_dict().items())
    assert list(layers(model)) == []


@pytest.mark.parametrize(("codes", "is_symmetric"), [("int4", True), ("int8", False)])
def test_saved_models_hold_codes(codes: str, is_symmetric: bool, tmp_path: Path) -> None:
    torch.manual_seed(3)
    model = nn.Sequential(*(nn.Linear(1024, 1024) for _ in range(3))).eval()
    made = tvm_tile.quantize(model, codes, group=128, symmetric=is_symmetric)
    x = torch.randn(2, 1024)
    compiled = tvm_tile.compile(made, "emulated", example_inputs=(x,), options=OPTIONS)
    compiled.save(tmp_path / "model")
    size = sum(tensor.nbytes for tensor in made.state_dict().values())
    files = [path for path in (tmp_path, *tmp_path.rglob("*")) if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= 1.1 * size
    loaded = tvm_tile.load(tmp_path / "model")
    np.testing.assert_array_equal(np.asarray(loaded(x)), np.asarray(compiled(x)))


def embedded(model: nn.Module, layer: nn.Linear) -> None:
    model.embedding = nn.Embedding(128, 128)
    layer.weight = model.embedding.weight


def shared_with_a_hook(model: nn.Module, layer: nn.Linear) -> None:
    model.other = nn.Linear(128, 128)
    model.other.weight = layer.weight
    model.other.register_forward_hook(lambda *_: None)


def replaced(_: nn.Module, layer: nn.Linear) -> None:
    layer.forward = lambda x: x  # type: ignore[method-assign]


def filled(value: float) -> Callable[[nn.Module, nn.Linear], None]:
    def fill(_: nn.Module, layer: nn.Linear) -> None:
        layer.weight.data[3, 5] = value

    return fill


STAYING: dict[str, Callable[[nn.Module, nn.Linear], object]] = {
    "have its weight, too": embedded,
    "others than plain": shared_with_a_hook,
    "hooks": lambda _, layer: layer.register_forward_pre_hook(lambda *_: None),
    "it has hooks": replaced,
    "float64": lambda _, layer: layer.double(),
    "not in memory": lambda _, layer: layer.to("meta"),
    "NaN": filled(np.nan),
    "more than half": filled(-np.inf),
    "ParametrizedLinear": lambda _, layer: nn.utils.parametrizations.orthogonal(layer),
}


@pytest.mark.parametrize("reason", STAYING)
def test_layers_that_stay_are_told(reason: str, caplog: pytest.LogCaptureFixture) -> None:
    model = nn.Sequential(nn.Linear(128, 128), nn.Linear(128, 128))
    STAYING[reason](model, model[1])  # type: ignore[arg-type]
    with caplog.at_level(logging.WARNING, "tvm_tile.torch.quantize"):
        made = tvm_tile.quantize(model)
    assert list(layers(made)) == ["0"]
    assert reason in caplog.text
    assert "keep their weights: 1, " in caplog.text


def test_modules_that_look_at_weights() -> None:
    """PyTorch's fast path hands its layers' weights to one function, and attention its last."""
    torch.manual_seed(4)
    layer = nn.TransformerEncoderLayer(128, 4, 256, batch_first=True).eval()
    made = tvm_tile.quantize(layer, "int8", group=GROUP)
    assert list(layers(made)) == ["linear1", "linear2"]
    x = torch.randn(2, 6, 128)
    with torch.no_grad():
        fast = made(x)
    torch.testing.assert_close(fast, made(x), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(fast, layer(x), rtol=0.1, atol=0.05)


def test_gradients_are_those_of_all_else() -> None:
    made: Any = tvm_tile.quantize(nn.Linear(128, 64), "int8")
    x = torch.randn(3, 128, requires_grad=True)
    made(x).sum().backward()
    torch.testing.assert_close(x.grad, made.weight.sum(0).expand(3, -1))
    assert torch.equal(made.bias.grad, torch.full((64,), 3.0))


@pytest.mark.parametrize(
    ("error", "told", "arguments"),
    [
        (OptionError, "codes must be one of fp8, int2, int4, int8, nf4", {"codes": "int3"}),
        (OptionError, "codes must be one of", {"codes": 4}),
        (OptionError, "whole number", {"group": 0}),
        (OptionError, "whole number", {"group": 2.0}),
        (OptionError, "a multiple of 4, whole bytes of int2", {"codes": "int2", "group": 6}),
        (OptionError, r"0, its weight is \(64, 128\)", {"group": 96}),
        (OptionError, "nf4 has no zero points", {"codes": "nf4", "symmetric": False}),
        (OptionError, "symmetric must be True or False", {"symmetric": "no"}),
        (ModelError, "a module to quantize has nn.Linear layers", {"module": nn.Conv2d(3, 4, 1)}),
        (ModelError, "takes a torch.nn.Module", {"module": torch.relu}),
    ],
)
def test_what_cannot_be_is_refused(
    error: type[Exception], told: str, arguments: dict[str, Any]
) -> None:
    whole = {"module": nn.Sequential(nn.Linear(128, 64)), **arguments}
    with pytest.raises(error, match=told):
        tvm_tile.quantize(**whole)
