"""Infinite inputs of what multiplies and sums: as in PyTorch, where no zero of ours meets them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tvm_tile

torch = pytest.importorskip("torch")
pytest.importorskip("pyopencl")
F = torch.nn.functional


class Lambda(torch.nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Any) -> Any:
        return self.function(*inputs)


def check(function: Callable[..., Any], *inputs: Any) -> None:
    module = Lambda(function).eval()
    model = tvm_tile.compile(module, "emulated", example_inputs=inputs)
    found, expected = (f(*inputs) for f in (model, module))
    for output, wanted in zip(found, expected, strict=True):
        np.testing.assert_allclose(output, wanted, 1e-4, 1e-5)


def random(*shape: int) -> Any:
    return torch.randn(shape, generator=torch.Generator().manual_seed(len(shape)))


def test_transposed_convolutions() -> None:
    x, w = random(2, 4, 5, 6), random(4, 3, 3, 2)
    x[0, 0, 3, 3], x[1, 2, 0, 5], x[1, 0, 0, 0] = torch.inf, -torch.inf, torch.nan

    def results(x: Any, w: Any) -> Any:
        return (
            F.conv_transpose2d(x, w, dilation=2),
            F.conv_transpose2d(x, w, stride=2, padding=1, output_padding=1),
            F.conv_transpose2d(x, w, stride=2, dilation=3, output_padding=2, padding=1),
            F.conv_transpose2d(x, w, stride=(3, 1), dilation=(1, 2), padding=2, groups=2),
            F.conv_transpose1d(x[:, :, 0], w[:, :, 0], stride=2, dilation=2),
            F.conv_transpose3d(x[:, :, None], w[:, :, None], stride=2, dilation=2),
        )

    check(results, x, w)


def test_attention_without_a_finite_score() -> None:
    q, k, v = (random(1, 2, 6, 4).abs() + i for i in range(3))
    q[0, 0, 2], k[0, 1, 0] = -torch.inf, -torch.inf
    mask = torch.ones(6, 6).bool().tril(1)
    mask[3] = False

    def results(q: Any, k: Any, v: Any, mask: Any) -> Any:
        return (
            F.scaled_dot_product_attention(q, k, v),
            F.scaled_dot_product_attention(q, k, v, is_causal=True),
            F.scaled_dot_product_attention(q, k, v, mask),
            torch.ops.aten._safe_softmax(q.where(q < 2, -torch.inf), 1),
        )

    check(results, q, k, v, mask)


def test_cubic_resizing_at_the_border() -> None:
    x = random(1, 2, 5, 6)
    x[0, 0, 0, 0], x[0, 0, 4, 3], x[0, 1, 2, 5] = torch.inf, -torch.inf, torch.inf

    def results(x: Any) -> Any:
        return (
            F.interpolate(x, (9, 11), mode="bicubic"),
            F.interpolate(x, (3, 4), mode="bicubic"),
            F.interpolate(x, (9, 11), mode="bicubic", align_corners=True),
            F.interpolate(x, scale_factor=(2.0, 1.7), mode="bicubic"),
        )

    check(results, x)


def test_indices_from_the_end() -> None:
    def results(x: Any, i: Any) -> Any:
        return torch.take(x, i), x[i % 5], x[:, 0][i.clamp(-5, 4)]

    check(results, random(5, 6), torch.tensor([0, -1, 5, -30, 29]))
