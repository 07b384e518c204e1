"""Parts of a tensor, each written where it belongs by what makes it, be that faster or not."""

from __future__ import annotations

import random
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import pytest
from joined import place_all_parts
from scheduled import relax_module
from tvm import tirx
from tvm.relax import op

import tvm_tile
from tvm_tile import Options
from tvm_tile.passes import sequence
from tvm_tile.passes.weld import place_parts
from tvm_tile.passes.weld.place_parts import parts_of

pytestmark = pytest.mark.bank(4)

torch = pytest.importorskip("torch")
emulated = pytest.mark.skipif(not find_spec("pyopencl"), reason="needs pyopencl")

Step = Callable[["torch.Tensor"], "torch.Tensor"]


class Placed(torch.nn.Module):
    """Values that are made of inputs in several ways, side by side, and something of them all."""

    def __init__(self, makers: list[str], extents: list[int], axis: int, follower: str) -> None:
        super().__init__()
        self.makers, self.axis, self.follower = makers, axis, follower
        self.linears = torch.nn.ModuleList(
            torch.nn.Linear(24, extent if axis == 2 else 40) for extent in extents
        )

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        made = [self.made(*own) for own in zip(self.makers, self.linears, inputs, strict=True)]
        whole = torch.cat(made, self.axis)
        if self.follower == "product":
            return whole @ whole.transpose(1, 2)
        if self.follower == "turned":
            return torch.relu(whole).transpose(1, 2).contiguous()
        return torch.tanh(whole) * 2 if self.follower == "arithmetic" else whole

    def made(self, maker: str, linear: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
        """What is made of an input, ``(n, rows, 24)``."""
        if maker == "product":
            return torch.nn.functional.gelu(linear(x))
        if maker == "rows":
            return torch.softmax(linear.weight.sum() + x @ linear.weight.T, -1)
        if maker == "turned":
            return linear(x).transpose(1, 2).contiguous().exp().transpose(1, 2)
        return (x @ linear.weight.T).detach() * 0 + 1 if maker == "constant" else linear(x)


def drawn(seed: int) -> tuple[Placed, tuple[torch.Tensor, ...]]:
    chance = random.Random(seed)
    count, axis = chance.choice((2, 2, 3)), chance.choice((0, 1, 2))
    extents = [chance.choice((8, 13, 32, 40)) for _ in range(count)]
    makers = [chance.choice(("product", "rows", "turned", "constant", "plain")) for _ in extents]
    follower = chance.choice(("product", "turned", "arithmetic", "nothing"))
    module = Placed(makers, extents, axis, follower).eval()
    generator = torch.Generator().manual_seed(seed)
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.3, generator=generator)
    sizes = [[2, 16, 24] for _ in extents]
    for size, extent in zip(sizes, extents, strict=True):
        if axis < 2:
            size[axis] = extent
    return module, tuple(torch.randn(size, generator=generator) for size in sizes)


def forced(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Let functions that have parts seem dear; the result fills with the parts that are placed."""
    found: list[int] = []

    writes = place_parts._PartFinder._writes

    def counted(*args: Any) -> Any:
        groups = writes(*args)
        found.extend(len(group.members) for group in groups)
        return groups

    place_all_parts(monkeypatch)
    monkeypatch.setattr(place_parts._PartFinder, "_writes", counted)
    return found


@emulated
@pytest.mark.parametrize("seed", range(24))
def test_random_parts(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    placed = forced(monkeypatch)
    module, inputs = drawn(seed)
    options = Options(cache=False)
    model = tvm_tile.compile(module, "emulated", example_inputs=inputs, options=options)
    expected = module.double()(*(value.double() for value in inputs))
    for _ in range(2):  # memory is used again
        found = torch.as_tensor(model(*inputs))
        torch.testing.assert_close(found.double(), expected, rtol=2e-4, atol=2e-4)
    assert all(count >= 1 for count in placed)


@emulated
def test_rows_write_their_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """As one kernel with what is made of it."""
    placed = forced(monkeypatch)
    module = Placed(["product", "rows"], [32, 40], 2, "arithmetic").eval()
    inputs = tuple(torch.randn(2, 16, 24) for _ in range(2))
    options = Options(cache=False)
    model = tvm_tile.compile(module, "emulated", example_inputs=inputs, options=options)
    assert placed == [1, 2]
    expected = module.double()(*(value.double() for value in inputs))
    found = torch.as_tensor(model(*inputs)).double()
    torch.testing.assert_close(found, expected, rtol=2e-4, atol=2e-4)


@emulated
def test_views_that_others_take_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Angles are reshaped for what makes a part, and for something else."""
    placed = forced(monkeypatch)

    class Shared(torch.nn.Module):
        def forward(
            self, x: torch.Tensor, y: torch.Tensor, angles: torch.Tensor
        ) -> tuple[torch.Tensor, ...]:
            seen = angles.reshape(1, 16, 40)
            made = [torch.softmax(x * seen, -1) * seen, torch.softmax(y * seen, -1) * seen]
            return torch.cat(made, 0), torch.softmax(seen, 1), seen * 2

    inputs = (torch.randn(2, 16, 40), torch.randn(3, 16, 40), torch.randn(640))
    options = Options(cache=False)
    model = tvm_tile.compile(Shared(), "emulated", example_inputs=inputs, options=options)
    assert max(placed) >= 2
    expected = Shared()(*(value.double() for value in inputs))
    for own, other in zip(model(*inputs), expected, strict=True):
        torch.testing.assert_close(torch.as_tensor(own).double(), other, rtol=1e-4, atol=1e-5)


def test_rotated_norms_of_two_streams_are_written_side_by_side() -> None:
    """As in diffusion transformers: of text and of images, for one attention."""

    class Streams(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.text, self.image = (torch.nn.Linear(1024, 1024) for _ in range(2))
            self.weights = torch.nn.ParameterList(torch.nn.Parameter(torch.ones(64)) for _ in "ab")

        def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
            text, image, cos, sin = inputs
            made = []
            layers = zip((self.text(text), self.image(image)), self.weights, strict=True)
            for value, weight in layers:
                heads = value.unflatten(-1, (16, 64))
                wide = heads.float()
                square = wide.pow(2).mean(-1, keepdim=True)
                made.append((wide * torch.rsqrt(square + 1e-6) * weight).to(value.dtype))
            whole = torch.cat(made, 1)
            a, b = whole.chunk(2, -1)
            other = torch.cat([-b, a], -1)
            rotated = whole.float() * cos[:, None] + other.float() * sin[:, None]
            return rotated.to(whole.dtype).transpose(1, 2).contiguous()

    inputs = (
        torch.zeros(1, 512, 1024, dtype=torch.bfloat16),
        torch.zeros(1, 3584, 1024, dtype=torch.bfloat16),
        *(torch.zeros(4096, 64) for _ in range(2)),
    )
    options = Options(cache=False)
    module = Streams().bfloat16().eval()
    model = tvm_tile.compile(module, "nvidia/h200", example_inputs=inputs, options=options)
    rules = sorted(kernel.rule for kernel in model.report.kernels if kernel.seconds > 1.5e-6)
    assert rules == ["rows", "rows", "wgmma", "wgmma"]


def whole(body: Any, *shapes: tuple[int, ...]) -> tirx.PrimFunc:
    """The only function that is left of operators behind stock fusion."""
    passes = [*sequence.operator_loops(), *sequence.stock_fusion()]
    mod = sequence.run_passes(passes, relax_module(body, shapes), keeps_names=False)
    (func,) = (func for func in mod.functions.values() if isinstance(func, tirx.PrimFunc))
    return func


def test_parts_are_found_where_tensors_change() -> None:
    def joined(*values: Any) -> Any:
        return op.nn.relu(op.permute_dims(op.concat([op.exp(values[0]), *values[1:]], 1), [1, 0]))

    parts = parts_of(whole(joined, (6, 4), (6, 1), (6, 9)))
    assert [part.taken for part in parts] == [(0,), (1,), (2,)]
    assert [int(part.func.params[0].ty.shape[1]) for part in parts] == [4, 1, 9]
    assert all([int(n) for n in part.func.params[-1].ty.shape] == [14, 6] for part in parts)


@pytest.mark.parametrize(
    "body",
    [
        lambda x: op.nn.pad(x, (1, 0, 0, 2)),
        lambda x: op.nn.relu(op.tril(x)),
        lambda x: op.flip(x, 1),
        lambda x: op.roll(x, 2, 1) if hasattr(op, "roll") else op.exp(x),
    ],
    ids=["padded", "triangle", "backwards", "rolled"],
)
def test_one_tensor_is_not_taken_apart(body: Any) -> None:
    parts = parts_of(whole(body, (6, 8)))
    assert all(part.taken == (0,) for part in parts)
