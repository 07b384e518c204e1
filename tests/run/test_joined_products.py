"""Models whose products of one value are one, beside float64 PyTorch; halves on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
import tvm
from cpu_build import run
from tvm import relax

import tvm_tile
from tvm_tile.frontend import import_model
from tvm_tile.frontend.imported import describe
from tvm_tile.passes import JoinProducts
from tvm_tile.tile.weld.side_by_side import Cost

torch = pytest.importorskip("torch")
nn, functional = torch.nn, torch.nn.functional
pytestmark = [
    pytest.mark.bank(6),
    pytest.mark.skipif(not find_spec("pyopencl"), reason="needs pyopencl"),
]

WIDTH, TOKENS = 32, 12
MATMUL, PERMUTE = (tvm.ir.Op.get(f"relax.{name}") for name in ("matmul", "permute_dims"))


class Attention(nn.Module):
    """With fewer heads of keys than of queries, rotated positions, and keys that are an output."""

    def __init__(self, heads: int, groups: int, *, bias: tuple[bool, ...], rotated: bool) -> None:
        super().__init__()
        self.heads, self.groups, self.depth = heads, groups, WIDTH // heads
        self.rotated = rotated
        columns = (WIDTH, groups * self.depth, groups * self.depth)
        self.parts = nn.ModuleList(
            nn.Linear(WIDTH, own, bias=with_bias)
            for own, with_bias in zip(columns, bias, strict=True)
        )
        self.last = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        batch, tokens, _ = x.shape
        q, k, v = (
            part(x).view(batch, tokens, -1, self.depth).transpose(1, 2) for part in self.parts
        )
        if self.rotated:
            q, k = (torch.cat([-t.chunk(2, -1)[1], t.chunk(2, -1)[0]], -1) + t for t in (q, k))
        every = self.heads // self.groups
        keys, values = (t.repeat_interleave(every, 1) for t in (k, v))
        own = functional.scaled_dot_product_attention(q, keys, values)
        return x + self.last(own.transpose(1, 2).reshape(batch, tokens, WIDTH)), k


class Gated(nn.Module):
    """Llama's feed-forward network."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.up = (nn.Linear(WIDTH, 48, bias=False) for _ in range(2))
        self.down = nn.Linear(48, WIDTH, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(functional.silu(self.gate(x)) * self.up(x))


class Widths(nn.Module):
    """Results of several widths: as they are, as outputs, and behind different operators."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.ModuleList(nn.Linear(WIDTH, n, bias=n > 3) for n in (1, 3, 8, 40))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        one, three, eight, many = (part(x) for part in self.parts)
        return one, three.sigmoid() * one, eight, eight.exp(), many.relu()


class Stacked(nn.Module):
    """Matrices of weights for each of a batch, which stay apart, and one for all."""

    def __init__(self) -> None:
        super().__init__()
        self.each = nn.Parameter(torch.randn(2, WIDTH, 8))
        self.other = nn.Parameter(torch.randn(2, WIDTH, 8))
        self.first, self.second = nn.Linear(WIDTH, 8), nn.Linear(WIDTH, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.each - x @ self.other + self.first(x) * self.second(x)


MODELS: dict[str, tuple[Callable[[], nn.Module], int]] = {
    "bert": (lambda: Attention(4, 4, bias=(True, True, True), rotated=False), 1),
    "llama": (lambda: Attention(4, 2, bias=(False, False, False), rotated=True), 1),
    "whisper": (lambda: Attention(4, 4, bias=(True, False, True), rotated=False), 1),
    "gated": (Gated, 2),
    "widths": (Widths, 1),
    "stacked": (Stacked, 3),
}


def fewest(mod: tvm.IRModule) -> Cost:
    """As if each product took a second and all else nothing."""
    return Cost(float(products(mod)), 0)


def products(mod: tvm.IRModule) -> int:
    """Products with constants, transposed or not."""
    made = relax.analysis.get_var2val(mod["main"])

    def is_constant(operand: Any) -> bool:
        value = made.get(operand)
        is_transposed = isinstance(value, relax.Call) and value.op == PERMUTE
        return isinstance(value.args[0] if is_transposed else operand, tvm.ir.Constant)

    calls = [value for value in made.values() if isinstance(value, relax.Call)]
    return sum(call.op == MATMUL and is_constant(call.args[1]) for call in calls)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("name", MODELS)
def test_a_model_whose_products_are_one(name: str, dtype: str) -> None:
    make, count = MODELS[name]
    torch.manual_seed(0)
    model = make().to(getattr(torch, dtype)).eval()
    x = torch.randn(2, TOKENS, WIDTH).to(getattr(torch, dtype))
    imported = import_model(model, example_inputs=(x,))
    passes = [relax.transform.ConvertToDataflow(), JoinProducts(fewest)]
    joined = tvm.transform.Sequential(passes)(imported.mod)
    has_last = name in ("bert", "llama", "whisper")
    assert products(joined) == count + has_last
    assert products(joined) < products(imported.mod)
    with torch.no_grad():
        wanted = _tensors(model.double()(x.double()))
    limit = 1e-5 if dtype == "float32" else 2e-2
    for one, other in zip(_run(joined, x.numpy()), wanted, strict=True):
        np.testing.assert_allclose(np.asarray(one, np.float64), other, atol=limit, rtol=limit)


def _run(mod: tvm.IRModule, x: np.ndarray) -> list[np.ndarray]:
    """On the emulated device, or what that has no kernels for, halves, by TVM's CPU build."""
    if x.dtype == np.float16:
        return run(describe(mod), x)
    compiled = tvm_tile.compile(mod, "emulated", options=tvm_tile.Options(cache=False))
    assert not compiled.report.fallbacks
    return _tensors(compiled(x))


def _tensors(values: Any) -> list[np.ndarray]:
    several = values if isinstance(values, tuple | list) else [values]
    return [np.asarray(value) for value in several]


def test_the_compiler_joins_products_by_itself() -> None:
    model = Widths().eval()
    x = torch.randn(2, TOKENS, WIDTH)
    options = tvm_tile.Options(cache=False)
    compiled = tvm_tile.compile(model, "emulated", example_inputs=(x,), options=options)
    assert "matmul_1 + matmul_3" in compiled.explain("all")
    with torch.no_grad():
        wanted = model.double()(x.double())
    for one, other in zip(compiled(x.numpy()), wanted, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5, rtol=1e-5)
