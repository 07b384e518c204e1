"""Constants, roundings and results are those of their element types, as PyTorch has them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402

import tvm_tile  # noqa: E402
from tvm_tile.errors import UnsupportedOperatorError  # noqa: E402

WIDE = torch.float64
LONG = 9007199254740993  # an int64 that float64 lacks


class Together(torch.nn.Module):
    """Several functions of the same tensors as one model."""

    def __init__(self, functions: Sequence[Callable[..., Any]]) -> None:
        super().__init__()
        self._functions = functions

    def forward(self, *tensors: Any) -> Any:
        return tuple(function(*tensors) for function in self._functions)


def check(functions: Sequence[Callable[..., Any]], *tensors: Any, units: int = 0) -> None:
    """Each result is PyTorch's, but for so many units in the last place."""
    model = Together(functions)
    found = tvm_tile.compile(torch.export.export(model, tensors), device="emulated")(*tensors)
    for i, (output, wanted) in enumerate(zip(found, model(*tensors), strict=True)):
        given = as_tensor(output)
        assert (given.dtype, given.shape) == (wanted.dtype, wanted.shape), i
        relative = units * torch.finfo(wanted.dtype).eps if wanted.is_floating_point() else 0
        torch.testing.assert_close(
            given,
            wanted,
            rtol=relative,
            atol=0,
            equal_nan=True,
            msg=lambda text, i=i: f"{i}: {text}",
        )


def as_tensor(output: Any) -> Any:
    if isinstance(output, np.ndarray) and output.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(output.astype("float32")).bfloat16()
    return torch.as_tensor(output)


def test_numbers_of_float64_and_int64() -> None:
    numbers: list[Callable[..., Any]] = [
        lambda x: torch.full((1,), 0.1, dtype=WIDE) + x,
        lambda x: torch.full((1,), 1e300, dtype=WIDE) + x,
        lambda x: torch.full_like(x, 0.1),
        lambda x: torch.linspace(0.1, 1, 7, dtype=WIDE) + x,
        lambda x: torch.arange(0.1, 3, 0.3, dtype=WIDE) + x,
        lambda x: torch.where(x > 1, x, 0.1),
        lambda x: (x + 5).clamp(max=0.1),
        lambda x: F.pad(x, (1, 1), value=0.1),
        lambda x: (x + 1700000000.5) - 1700000001.25,
        lambda x: x + 1.7976931348623157e308,
        lambda x: x + 5e-324,
        lambda x: x + 1e-20,
        lambda x: torch.full((1,), 16777217.0, dtype=torch.int64) + x.long(),
        lambda x: torch.full((1,), LONG) + x.long(),
        lambda x: torch.where(x.long() > 1, x.long(), LONG),
        lambda x: torch.arange(LONG, LONG + 3) + x.long(),
        lambda x: torch.arange(16777217.5, 16777222, 1, dtype=torch.int64) + x.long(),
    ]
    check(numbers, torch.zeros(1, dtype=WIDE), units=1)


def test_functions_of_float64() -> None:
    functions: list[Callable[..., Any]] = [
        F.gelu,
        F.hardswish,
        F.selu,
        torch.log2,
        torch.log10,
        lambda x: torch.sin(x * 3.141592653589793 / 2),
        lambda x: torch.linalg.vector_norm(x, 3.3),
        lambda x: x**1.1,
    ]
    check(functions, torch.tensor([0.3, 0.5, 1.7], dtype=WIDE), units=8)


def test_numbers_that_half_precision_lacks() -> None:
    x, y = torch.linspace(-3, 7, 300).bfloat16(), torch.linspace(0.1, 200, 300).bfloat16()
    found = tvm_tile.compile(
        Together(
            [lambda a, b: torch.add(a, b, alpha=1.7), lambda a, b: torch.sub(a, b, alpha=1.7)]
        ),
        device="emulated",
        example_inputs=(x, y),
    )(x, y)
    for output, sign in zip(found, (1, -1), strict=True):
        assert torch.equal(as_tensor(output), (x.float() + sign * 1.7 * y.float()).bfloat16())


def test_bfloat16_is_rounded_within_kernels() -> None:
    rounded: list[Callable[..., Any]] = [
        lambda x: x.bfloat16().float(),
        lambda x: x - x.bfloat16().float(),
        lambda x: (x.bfloat16() + 256) - 256,
        lambda x: x.bfloat16().float().argmax(-1),
        lambda x: x > x.bfloat16(),
        lambda x: x.bfloat16() * x.bfloat16() - x.bfloat16(),
        lambda x: (x.bfloat16() * 300).double().bfloat16() + x.bfloat16(),
        lambda x: (x * 1000).int().bfloat16().int(),
        lambda x: torch.where(x > 1, x.bfloat16() + 1, x.bfloat16() - 1).float() - x,
        lambda x: torch.maximum(x.bfloat16() + 1, x.bfloat16() * 3),
        lambda x: x.bfloat16().mean(-1) - x.bfloat16().sum(-1),
    ]
    row = [1.00390625, 1.01171875, 3.4e38, 3.14159, -0.0, 256.7, 1.001]
    check(rounded, torch.tensor([row, [torch.nan, torch.inf, *row[2:]]]))
    model = Together(rounded[:3])
    compiled = torch.compile(model, backend="tvm_tile", options={"device": "emulated"})
    for found, wanted in zip(compiled(x := torch.tensor(row)), model(x), strict=True):
        assert torch.equal(found, wanted)


def test_bytes_gathered_chosen_and_divided() -> None:
    numbers = torch.Generator().manual_seed(0)
    a, b = (
        torch.randint(-4, 5, s, generator=numbers).to(torch.int8) for s in ((5, 5, 10), (5, 10, 6))
    )
    x = torch.arange(-128, 128).to(torch.int8)
    y = torch.where(x == 0, 3, x).flip(0).to(torch.int8)
    check(
        [
            lambda a, b, x, y: torch.bmm(a, b),
            lambda a, b, x, y: torch.bmm(a.to(torch.uint8), b.to(torch.uint8)),
            lambda a, b, x, y: x % y,
            lambda a, b, x, y: torch.div(x, y, rounding_mode="floor"),
            lambda a, b, x, y: torch.fmod(x, y),
            lambda a, b, x, y: x.short() % y.short(),
        ],
        *(a, b, x, y),
    )


def broken_down(z: Any, w: Any, v: Any, rows: Any, row: Any) -> Any:
    """What PyTorch's own decompositions have otherwise than its kernels."""
    by, margin = F.interpolate, F.multilabel_margin_loss
    labels = torch.tensor([[3, 1, -1, 2], [-1, 0, 1, 2], [0, 1, 2, 3]])
    return (
        by(z, scale_factor=(1.3, 1.5), mode="nearest"),
        by(z, scale_factor=(2.3, 1.1), mode="nearest"),
        by(w, scale_factor=1.3, mode="nearest"),
        by(v, scale_factor=(1.3, 1.2, 2.3), mode="nearest"),
        by(z, scale_factor=(1.3, 1.5), mode="nearest-exact"),
        margin(rows, labels, reduction="none"),
        margin(rows, labels),
        margin(row, labels[0], reduction="none"),
        margin(row, labels[0], reduction="sum"),
    )


def test_where_decompositions_of_pytorchs_differ() -> None:
    class Model(torch.nn.Module):
        def forward(self, *tensors: Any) -> Any:
            return broken_down(*tensors)

    shapes = (1, 1, 3, 4), (1, 1, 3), (1, 1, 3, 4, 2), (3, 4), (4,)
    inputs = tuple(torch.rand(shape) for shape in shapes)
    compiled = torch.compile(Model(), backend="tvm_tile", options={"device": "emulated"})
    for found in (
        tvm_tile.compile(Model(), device="emulated", example_inputs=inputs)(*inputs),
        compiled(*inputs),
        compiled(*(t.clone().requires_grad_() for t in inputs)),
    ):
        for output, value in zip(found, Model()(*inputs), strict=True):
            torch.testing.assert_close(torch.as_tensor(output).detach(), value)


def test_functions_of_doubles() -> None:
    """As exact as doubles are, or refused by name."""
    x = torch.cat([torch.linspace(-0.999, 0.999, 201), torch.tensor([1.0, -1.0, 1.5])]).double()
    model = tvm_tile.compile(Together([torch.erfinv]), "emulated", example_inputs=(x,))
    found = as_tensor(model(x))
    torch.testing.assert_close(found, torch.erfinv(x), rtol=1e-12, atol=0, equal_nan=True)
    with pytest.raises(UnsupportedOperatorError, match="a special function in float64"):
        tvm_tile.compile(Together([torch.erfc]), "emulated", example_inputs=(x,))
