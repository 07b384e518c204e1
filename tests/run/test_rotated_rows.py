"""Rows whose elements are made of others than their own: norms of heads, rotations behind them."""

from __future__ import annotations

import random
from importlib.util import find_spec

import pytest

import tvm_tile
from tvm_tile import Options
from tvm_tile.build.cubin import resources_of
from tvm_tile.tile.rows.held_rows import exchanges

pytestmark = pytest.mark.bank(4)

torch = pytest.importorskip("torch")
emulated = pytest.mark.skipif(not find_spec("pyopencl"), reason="needs pyopencl")


class Rotated(torch.nn.Module):
    """RMS norm of each head, and its rotation: of neighbours, of halves, or of quarters."""

    def __init__(self, heads: int, size: int, style: str, *, turned: bool) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(size)
        self.weight = torch.nn.Parameter(torch.randn(size, generator=generator))
        self.heads, self.style, self.turned = heads, style, turned

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        heads = x.reshape(*x.shape[:2], self.heads, -1)
        wide = heads.to(self.sum_dtype)
        mean = wide.pow(2).mean(-1, keepdim=True)
        normal = (wide * torch.rsqrt(mean + 1e-6) * self.weight).to(x.dtype)
        if self.style == "neighbours":
            a, b = normal.reshape(*normal.shape[:-1], -1, 2).unbind(-1)
            other = torch.stack([-b, a], -1).flatten(3)
        elif self.style == "halves":
            a, b = normal.chunk(2, -1)
            other = torch.cat([-b, a], -1)
        else:
            a, b, c, d = normal.chunk(4, -1)
            other = torch.cat([-b, a, d, c], -1)
        places = (None, slice(None), None)
        made = (normal.float() * cos[places] + other.float() * sin[places]).to(x.dtype)
        return made.transpose(1, 2).contiguous() if self.turned else made

    @property
    def sum_dtype(self) -> torch.dtype:
        """The type that squares are added up in."""
        return torch.float32 if self.weight.dtype != torch.float64 else torch.float64


def drawn(seed: int) -> tuple[Rotated, tuple[torch.Tensor, ...]]:
    chance = random.Random(seed)
    heads, size = chance.choice((1, 2, 3, 8)), chance.choice((8, 12, 32, 40, 64, 96, 128, 256))
    style = chance.choice(("neighbours", "halves", "quarters"))
    module = Rotated(heads, size, style, turned=chance.random() < 0.6)
    length = chance.choice((1, 5, 48, 77))
    generator = torch.Generator().manual_seed(seed)
    shapes = ((chance.choice((1, 2)), length, heads * size), (length, size), (length, size))
    return module.eval(), tuple(torch.randn(shape, generator=generator) for shape in shapes)


@emulated
@pytest.mark.parametrize("seed", range(24))
def test_random_rotations(seed: int) -> None:
    module, inputs = drawn(seed)
    options = Options(cache=False)
    model = tvm_tile.compile(module, "emulated", example_inputs=inputs, options=options)
    expected = module.double()(*(value.double() for value in inputs))
    found = torch.as_tensor(model(*inputs))
    torch.testing.assert_close(found.double(), expected.double(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("style", ["neighbours", "halves"])
@pytest.mark.parametrize("turned", [False, True])
def test_norm_and_rotation_are_one_kernel(style: str, turned: bool) -> None:
    """Of what a product has made, for attention: each element is read once, and written once."""
    module = Rotated(24, 128, style, turned=turned).bfloat16().eval()
    inputs = (
        torch.zeros(1, 4096, 24 * 128, dtype=torch.bfloat16),
        *(torch.zeros(4096, 128) for _ in range(2)),
    )
    options = Options(cache=False)
    model = tvm_tile.compile(module, "nvidia/h200", example_inputs=inputs, options=options)
    (kernel,) = model.report.kernels
    assert kernel.rule == "rows"
    assert "each holds" in kernel.tile
    (built,) = model.program.kernels
    assert built.binary is not None
    assert resources_of(built.binary).stack == 0  # all elements have registers


def test_elements_are_exchanged_where_one_thread_holds_both() -> None:
    neighbours = frozenset((place, place ^ 1) for place in range(128))
    assert exchanges(neighbours, 8, 8) == {1: 1, -1: -1}
    assert exchanges(neighbours, 32, 1) is None
    halves = frozenset((place, (place + 64) % 128) for place in range(128))
    assert exchanges(halves, 8, 8) == {64: 8, -64: -8}
    assert exchanges(halves, 4, 8) == {64: 16, -64: -16}
    assert exchanges(halves, 16, 8) is None  # neighbours hold the other half
    assert exchanges(frozenset(), 16, 8) == {}
