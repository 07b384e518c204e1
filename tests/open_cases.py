"""Models that are hard where extents are open, beside what PyTorch makes of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

from tvm_tile import Open

N = Open(1, 13, name="n")
B = Open(1, 4, name="b")
EVEN = Open(4, 16, name="n", step=4)
Shapes = Mapping[str, tuple[int | Open, ...]]


@dataclass(frozen=True, slots=True)
class Case:
    """A model of tensors, some of whose extents are open.

    Attributes:
        name: of the case.
        compute: the model; it is given its inputs.
        shapes: name of an input -> its extents; one called ``i`` has integers.
        refused: whether it is refused by a DynamicShapeError.
    """

    name: str
    compute: Callable[..., Any]
    shapes: Shapes
    refused: bool = False

    @property
    def ranges(self) -> dict[str, Open]:
        """The open extents by their names."""
        extents = [e for shape in self.shapes.values() for e in shape if isinstance(e, Open)]
        return {extent.name: extent for extent in extents}


def module(case: Case) -> torch.nn.Module:
    """The model, whose arguments are called as its inputs are."""
    names = ", ".join(case.shapes)
    known: dict[str, Any] = {"torch": torch, "compute": case.compute}
    exec(
        "class Model(torch.nn.Module):\n"
        f"    def forward(self, {names}):\n"
        f"        return compute({names})",
        known,
    )
    made: torch.nn.Module = known["Model"]().eval()
    return made


def drawn(case: Case, values: Mapping[str, int], seed: int) -> dict[str, torch.Tensor]:
    """Inputs of a call, in float32; integers are below each extent that may be."""
    generator = torch.Generator().manual_seed(seed)
    made = {}
    for name, shape in case.shapes.items():
        extents = [values[e.name] if isinstance(e, Open) else e for e in shape]
        if name.startswith("i"):
            below = min(values.values())
            made[name] = torch.randint(below, extents, generator=generator)
        else:
            made[name] = torch.randn(extents, generator=generator)
    return made


_WEIGHTS = torch.Generator().manual_seed(0)


def weight(*shape: int) -> torch.Tensor:
    """A constant of a model."""
    return torch.randn(shape, generator=_WEIGHTS) * 0.3


W8, W5, W3 = weight(8, 8), weight(5, 3, 3, 3), weight(4, 6, 3)
C3, TABLE, SINKS = weight(3), weight(20, 8), weight(1)
ROWS: Shapes = {"x": (3, N)}
COLUMNS: Shapes = {"x": (3, N, 8)}
TWO: Shapes = {"x": (B, N, 8)}
IMAGE: Shapes = {"x": (2, 3, EVEN, EVEN)}


def causal(x: torch.Tensor) -> torch.Tensor:
    return F.scaled_dot_product_attention(x, x * 0.5, x + 1, is_causal=True)


def heads(x: torch.Tensor) -> torch.Tensor:
    """Attention of two heads behind a projection, as in a transformer."""
    b, n, _ = x.shape
    q = (x @ W8).reshape(b, n, 2, 4).transpose(1, 2)
    scores = torch.softmax(q @ q.transpose(-1, -2) * 0.5, -1)
    return (scores @ q).transpose(1, 2).reshape(b, n, 8) @ W8


def masked(x: torch.Tensor) -> torch.Tensor:
    """Scores beyond the diagonal are hidden by a mask that the extent makes."""
    n = x.shape[1]
    scores = x @ x.transpose(-1, -2)
    hidden = torch.ones(n, n, dtype=torch.bool).triu(1)
    return torch.softmax(scores.masked_fill(hidden, float("-inf")), -1) @ x


def embedded(i: torch.Tensor) -> torch.Tensor:
    return F.embedding(i, TABLE) + F.embedding(torch.arange(i.shape[1]), TABLE)


def scattered(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    return torch.zeros_like(x).scatter_add(1, i, x)


CHANNELS: Shapes = {"x": (2, N, 9), "w": (4, N, 3)}
KEYS: Shapes = {"x": (2, N, 8), "y": (2, Open(1, 9, name="m"), 8)}


def crossed(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Attention of as many keys as the caller likes."""
    return torch.softmax(x @ y.transpose(1, 2), -1) @ y


def sunk(x: torch.Tensor) -> torch.Tensor:
    """Attention with a sink beside as many keys as there are."""
    both = torch.cat([x @ x.transpose(1, 2), SINKS.expand(*x.shape[:2], 1)], -1)
    return torch.softmax(both, -1)[..., :-1] @ x


def differences(x: torch.Tensor) -> torch.Tensor:
    return (x[:, :, None] - x[:, None, :]).abs().sum(-1)


def cut_off(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Nothing, but where there is one row of the other: then all from the 22nd on but the last."""
    return x[22 : y.shape[0] - 2], y + 1


REDUCTIONS = (
    Case("softmax", lambda x: torch.softmax(x, 1), ROWS),
    Case("log_softmax of columns", lambda x: torch.log_softmax(x, 1), COLUMNS),
    Case("mean", lambda x: x.mean(1), COLUMNS),
    Case("max and argmax", lambda x: torch.max(x, 1), COLUMNS),
    Case("argmin", lambda x: x.argmin(1), ROWS),
    Case("sum of all", lambda x: x.sum(), TWO),
    Case("mean of both", lambda x: x.mean((0, 1)), TWO),
    Case("amin of negatives", lambda x: (x.abs() + 1).amin(1), ROWS),
    Case("product", lambda x: (x * 0.1 + 1).prod(1), ROWS),
    Case("any", lambda x: (x > 1).any(1), COLUMNS),
    Case("variance", lambda x: x.var(1, correction=0), COLUMNS),
    Case("logsumexp", lambda x: x.logsumexp(1), COLUMNS),
    Case("vector norm", lambda x: torch.linalg.vector_norm(x, 2, 1), {"x": (3, EVEN, 8)}),
    # Of one element PyTorch's is another formula, which is exact.
    Case("short vector norm", lambda x: torch.linalg.vector_norm(x, 2, 1), COLUMNS, refused=True),
    Case("layer norm of rows", lambda x: F.layer_norm(x, (8,)), TWO),
    Case("layer norm along it", lambda x: F.layer_norm(x, (x.shape[1],)), ROWS),
    Case("instance norm", lambda x: F.instance_norm(x, eps=1e-3), IMAGE),
    Case("group norm", lambda x: F.group_norm(x, 3, eps=1e-3), IMAGE),
    Case("batch norm", lambda x: F.batch_norm(x, C3, C3.abs() + 1), IMAGE),
    Case("softmax of a join", lambda x: torch.softmax(torch.cat([x, x * 2], 1), 1), ROWS),
    Case("all differences", differences, ROWS),
    Case("a table's first rows", lambda x: x + TABLE[: x.shape[1]], TWO),
    Case("the last row", lambda x: x[:, -1] @ W8, {"x": (2, Open(2, 13, name="n"), 8)}),
    Case("the last row of one", lambda x: x[:, -1] @ W8, COLUMNS, refused=True),
    Case("cumulative sum along it", lambda x: x.cumsum(1), ROWS, refused=True),
    Case("sort along it", lambda x: torch.sort(x, dim=1, stable=True), ROWS, refused=True),
    Case("cumulative sum beside it", lambda x: x.cumsum(2), COLUMNS),
    Case("sort beside it", lambda x: torch.sort(x, dim=2, stable=True), COLUMNS),
    Case("top beside it", lambda x: x.topk(3, 2), COLUMNS),
)

MOVES = (
    Case("flip", lambda x: x.flip(1), COLUMNS),
    Case("roll", lambda x: x.roll(1, 1), {"x": (3, Open(2, 13, name="n"))}),
    Case("join", lambda x: torch.cat([x, x * 2, C3.expand(3, 3)], 1), ROWS),
    Case("join of both", lambda x, y: torch.cat([x, y], 0), {"x": (N, 4), "y": (B, 4)}),
    Case("pad", lambda x: F.pad(x, (2, 3), value=1.5), ROWS),
    Case(
        "pad by reflection",
        lambda x: F.pad(x, (1, 2), mode="reflect"),
        {"x": (3, EVEN)},
        refused=True,
    ),
    Case("stack", lambda x: torch.stack([x, -x], 1), ROWS),
    Case("first and last", lambda x: (x[:, 0], x[:, -1]), COLUMNS, refused=True),
    Case("all but the last", lambda x: x[:, :-1], {"x": (3, Open(2, 13, name="n"))}),
    Case("every second", lambda x: x[:, ::2], {"x": (3, EVEN)}),
    Case("halves", lambda x: x.chunk(2, 1), {"x": (3, EVEN)}),
    Case("cut by another", cut_off, {"x": (Open(2, 33, name="n"),), "y": (B, 3)}, refused=True),
    Case("repeat", lambda x: x.repeat(2, 3, 1), COLUMNS),
    Case("repeat each", lambda x: x.repeat_interleave(2, 1), COLUMNS),
    Case("lower triangle", lambda x: (x @ x.transpose(1, 2)).tril(), COLUMNS),
    Case("embedding", embedded, {"i": (3, N)}),
    Case("gather along it", lambda x, i: x.gather(1, i), {"x": (3, N), "i": (3, N)}),
    Case("rows of it", lambda x, i: x[:, i], {"x": (3, N, 8), "i": (5,)}),
    Case("scatter along it", scattered, {"x": (3, N), "i": (3, N)}),
    Case("one index a call", lambda x: x[torch.arange(x.shape[0]), 0], {"x": (N, 4)}),
    Case("flatten outside", lambda x: x.reshape(-1, 4), TWO),
    Case("flatten across", lambda x: x.reshape(x.shape[0], -1), TWO),
    Case("flatten and back", lambda x: x.flatten(1).reshape(3, -1, 8) + x, COLUMNS),
    Case("elements across it", lambda x: (x @ W8).reshape(x.shape[0], 8, -1), TWO),
    Case("an image as rows", lambda x: x.permute(0, 2, 3, 1).reshape(2, -1, 3), IMAGE),
    Case("transpose", lambda x: x.transpose(1, 2).contiguous(), TWO),
    Case("split up", lambda x: x.reshape(3, -1, 2), {"x": (3, EVEN)}),
    Case("patches", lambda x: x.unfold(1, 4, 4), {"x": (3, EVEN)}),
)

PRODUCTS = (
    Case("rows of a product", lambda x: torch.relu(x @ W8), TWO),
    Case("a sum along it", lambda x: x.transpose(1, 2) @ x, COLUMNS),
    Case("a sum of two", lambda x, y: x @ y, {"x": (3, N), "y": (N, B)}),
    Case("scores", lambda x: torch.softmax(x @ x.transpose(1, 2), -1), TWO),
    Case("attention", lambda x: F.scaled_dot_product_attention(x, x, x), TWO),
    Case("attention to others", crossed, KEYS),
    Case("attention with sinks", sunk, TWO),
    Case("convolution of channels", lambda x, w: F.conv1d(x, w, padding=1), CHANNELS),
    Case("causal attention", causal, TWO),
    Case("heads", heads, TWO),
    Case("mask by the extent", masked, COLUMNS),
    Case("convolution", lambda x: F.conv2d(x, W5, padding=1), IMAGE),
    Case("convolution of stride 2", lambda x: F.conv2d(x, W5, None, 2, 1), IMAGE),
    Case("convolution of rows", lambda x: F.conv1d(x, W3, padding=1), {"x": (B, 6, N)}),
    Case("max pooling", lambda x: F.max_pool2d(x, 2), IMAGE),
    Case("average pooling", lambda x: F.avg_pool2d(x, 3, 2, 1), IMAGE),
    Case("pooling of all", lambda x: F.adaptive_avg_pool2d(x, 1), IMAGE),
    Case("nearest neighbours", lambda x: F.interpolate(x, scale_factor=2.0), IMAGE),
    Case("transposed convolution", lambda x: F.conv_transpose1d(x, W3, stride=2), {"x": (2, 4, N)}),
)

NUMBERS = (
    Case("its number", lambda x: x * x.shape[1], ROWS),
    Case("divided by it", lambda x: x / x.shape[1], COLUMNS),
    Case("a root of it", lambda x: x * x.shape[1] ** -0.5, ROWS, refused=True),
    Case("a product of both", lambda x: x + x.shape[0] * x.shape[1], TWO),
    Case("positions as they are", lambda x: (x, torch.arange(x.shape[1])), ROWS),
    Case("positions alone", lambda x: torch.arange(x.shape[1]) * 2, ROWS),
    Case("an input twice", lambda x: (x, x * 2, x), ROWS),
    Case("nothing", lambda x: x[:0] @ W8, {"x": (3, N, 8)}),
    Case("positions", lambda x: x + torch.arange(x.shape[1]), ROWS),
    Case("ones", lambda x: x + torch.ones(x.shape[1]), ROWS),
    Case("half of it", lambda x: x[:, : x.shape[1] // 2].sum(1), {"x": (3, EVEN)}),
    Case("identity", lambda x: x + torch.eye(x.shape[1]), {"x": (N, N)}),
    Case("remainders", lambda i, j: i % (j.abs() + 1).to(torch.int64), {"i": (3, N), "j": (3, N)}),
    Case("quotients", lambda i: i // (i + 1), {"i": (3, N)}),
    Case("a square", lambda x: x @ x.T + x.flip(0), {"x": (N, N)}),
)

CASES = (*REDUCTIONS, *MOVES, *PRODUCTS, *NUMBERS)
