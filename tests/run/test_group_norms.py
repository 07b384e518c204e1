"""Group norms are one kernel, with the element-wise operators around them, unless few are long."""

from __future__ import annotations

import random
from collections.abc import Callable
from importlib.util import find_spec

import pytest
from tvm import relax

import tvm_tile
from tvm_tile.passes.weld import split_rows

pytestmark = pytest.mark.bank(6)

torch = pytest.importorskip("torch")
emulated = pytest.mark.skipif(not find_spec("pyopencl"), reason="needs pyopencl")

Follower = Callable[["torch.Tensor"], "torch.Tensor"]
DEVICES = ("nvidia/h200", "amd/mi300x")


class Normalized(torch.nn.Module):
    """Something behind a group norm of random weights."""

    def __init__(self, groups: int, channels: int, follower: Follower, *, affine: bool) -> None:
        super().__init__()
        self.norm = torch.nn.GroupNorm(groups, channels, affine=affine)
        self.follower = follower
        generator = torch.Generator().manual_seed(channels)
        for parameter in self.parameters():
            torch.nn.init.normal_(parameter, generator=generator)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.follower(self.norm(x))


FOLLOWERS: dict[str, Follower] = {
    "nothing": lambda y: y,
    "silu": torch.nn.functional.silu,
    "gelu": torch.nn.functional.gelu,
    "residual": lambda y: torch.relu(y) + y,
    "double": lambda y: torch.nn.functional.silu(y).double(),
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_what_follows_is_in_its_kernel(device: str, dtype: torch.dtype) -> None:
    other = torch.float16 if dtype == torch.float32 else torch.float32
    followers = (FOLLOWERS["nothing"], FOLLOWERS["silu"], lambda y: torch.sigmoid(y).to(other))
    x = torch.zeros((2, 64, 14, 14), dtype=dtype)
    for follower in followers:
        module = Normalized(8, 64, follower, affine=True).to(dtype)
        (kernel,) = tvm_tile.compile(module, device, example_inputs=(x,)).report.kernels
        assert kernel.rule == "rows"
        # Four elements of 196 places: of a line of 14 they would be two.
        assert "vectors of 4" in kernel.tile


def test_between_convolutions_whose_layout_was_changed() -> None:
    """As in a U-Net, whose channels are the last axis where matrix units multiply them."""
    torch.manual_seed(0)
    norm = Normalized(32, 64, FOLLOWERS["silu"], affine=True)
    convolutions = (torch.nn.Conv2d(64, 64, 3, padding=1) for _ in range(2))
    module = torch.nn.Sequential(next(convolutions), norm, next(convolutions)).half()
    x = torch.zeros((2, 64, 16, 16), dtype=torch.float16)
    model = tvm_tile.compile(module, "nvidia/h200", example_inputs=(x,))
    assert model.report.fallbacks == ()


def test_few_long_groups_are_summed_by_all_blocks() -> None:
    """As in a decoder of images: a block for each group would leave most of the device idle."""
    torch.manual_seed(0)
    norm = Normalized(32, 128, FOLLOWERS["silu"], affine=True)
    convolution = torch.nn.Conv2d(128, 128, 3, padding=1)
    module = torch.nn.Sequential(convolution, norm).half()
    x = torch.zeros((1, 128, 256, 256), dtype=torch.float16)
    kernels = tvm_tile.compile(module, "nvidia/h200", example_inputs=(x,)).report.kernels
    sums = [kernel for kernel in kernels if "sums of each" in kernel.tile]
    assert [kernel.rule for kernel in sums] == ["column", "column"]
    assert "rows" not in {kernel.rule for kernel in kernels}


def drawn(seed: int) -> tuple[int, tuple[int, ...], str, bool]:
    """Groups, shape, follower, and whether there are weights."""
    chance = random.Random(seed)
    groups, each = chance.choice((1, 2, 3, 5, 8)), chance.choice((1, 2, 3, 4, 7))
    rest = [chance.choice((1, 2, 5, 8, 13, 14, 20)) for _ in range(chance.choice((1, 2, 2, 3)))]
    shape = (chance.choice((1, 2, 5)), groups * each, *rest)
    return groups, shape, chance.choice(list(FOLLOWERS)), chance.random() < 0.6


@emulated
@pytest.mark.parametrize("seed", range(6))
def test_random_groups(seed: int) -> None:
    groups, shape, name, affine = drawn(seed)
    module = Normalized(groups, shape[1], FOLLOWERS[name], affine=affine)
    model = tvm_tile.compile(module, "emulated", example_inputs=(torch.zeros(shape),))
    assert len(model.report.kernels) == 1
    x = torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * 3 + 1
    expected = module.double()(x.double())
    found = torch.as_tensor(model(x))
    torch.testing.assert_close(found.double(), expected, rtol=2e-4, atol=2e-4)


@emulated
@pytest.mark.parametrize("seed", range(6))
def test_random_groups_apart(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each sum is a kernel of its own, whether or not that is faster."""
    monkeypatch.setattr(split_rows.Stages, "take_less_than", lambda *_: True)
    groups, shape, name, affine = drawn(seed + 100)
    module = Normalized(groups, shape[1], FOLLOWERS[name], affine=affine)
    model = tvm_tile.compile(module, "emulated", example_inputs=(torch.zeros(shape),))
    assert len(model.report.kernels) > 1
    x = torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * 3 + 1
    expected = module.double()(x.double())
    found = torch.as_tensor(model(x))
    torch.testing.assert_close(found.double(), expected, rtol=2e-4, atol=2e-4)


@emulated
def test_channels_of_another_axis() -> None:
    """Of all axes at once, each a group norm of two groups and an instance norm of one tensor."""
    builder = relax.BlockBuilder()
    names = {"x": [2, 6, 6, 6], "gamma": [6], "beta": [6]}
    x, *weights = [relax.Var(n, relax.TensorType(s, "float32")) for n, s in names.items()]
    rest = {1: [2, 3], 2: [1, 3], 3: [1, 2]}
    with builder.function("main", [x, *weights]):
        groups = [relax.op.nn.group_norm(x, *weights, 2, at, own) for at, own in rest.items()]
        single = [relax.op.nn.instance_norm(x, *weights, at, own) for at, own in rest.items()]
        builder.emit_func_output(relax.Tuple([*map(builder.emit, groups + single)]))
    model = tvm_tile.compile(builder.get(), "emulated")
    assert model.report.fallbacks == ()
    inputs = [
        torch.randn(s, generator=torch.Generator().manual_seed(len(s))) for s in names.values()
    ]
    wide, gamma, beta = (value.double() for value in inputs)
    found = [torch.as_tensor(y).double() for y in model(*inputs)]
    for y, (count, at) in zip(found, [(c, at) for c in (2, 6) for at in rest], strict=True):
        moved = torch.nn.functional.group_norm(wide.movedim(at, 1), count, gamma, beta)
        torch.testing.assert_close(y, moved.movedim(1, at), rtol=2e-4, atol=2e-4)


@emulated
def test_bfloat16_is_rounded_once() -> None:
    module = Normalized(3, 12, FOLLOWERS["nothing"], affine=True).bfloat16()
    x = torch.randn((2, 12, 5, 7), generator=torch.Generator().manual_seed(0)).bfloat16()
    model = tvm_tile.compile(module, "emulated", example_inputs=(x,))
    expected = module.double()(x.double())
    found = torch.as_tensor(model(x))
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found.double(), expected, rtol=2.0**-8, atol=1e-4)


@emulated
def test_no_samples() -> None:
    module = Normalized(2, 6, FOLLOWERS["silu"], affine=True)
    model = tvm_tile.compile(module, "emulated", example_inputs=(torch.zeros((0, 6, 5)),))
    assert tuple(model(torch.zeros((0, 6, 5))).shape) == (0, 6, 5)
