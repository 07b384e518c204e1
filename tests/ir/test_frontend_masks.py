"""Masks that models make of indices: constants, however they are written, for all their readers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
import torch
from cpu_build import operators, run
from tvm import tirx

from tvm_tile.device import find_device
from tvm_tile.frontend import import_model
from tvm_tile.graph.extract import extract
from tvm_tile.schedule import Task
from tvm_tile.schedule.chain import schedule_chain
from tvm_tile.stages.fusing import fuse
from tvm_tile.tile.attention.band import Band

H200 = find_device("nvidia/h200")
N = 200  # such that no mask is small
LAYERS = 2
Hide = Callable[[torch.Tensor], torch.Tensor]


def arange_compared(scores: torch.Tensor) -> torch.Tensor:
    place = torch.arange(N)
    return scores.masked_fill(place[None, :] > place[:, None], -torch.inf)


def tril_of_ones(scores: torch.Tensor) -> torch.Tensor:
    return scores.masked_fill(torch.tril(torch.ones(N, N)) == 0, -torch.inf)


def triu_added(scores: torch.Tensor) -> torch.Tensor:
    full = torch.full((N, N), -torch.inf, dtype=scores.dtype)
    return scores + torch.triu(full, diagonal=1)


def lowest_added(scores: torch.Tensor) -> torch.Tensor:
    """As Hugging Face's eager attention did."""
    mask = torch.full((N, N), torch.finfo(scores.dtype).min, dtype=scores.dtype)
    place = torch.arange(N)
    mask.masked_fill_(place < (place + 1).view(N, 1)[:N], 0)
    return scores + mask[None, None]


def window(scores: torch.Tensor) -> torch.Tensor:
    row, key = torch.arange(N)[:, None], torch.arange(N)[None]
    keep = (key <= row) & (key > row - 64)
    return torch.where(keep, scores, torch.full((), -torch.inf, dtype=scores.dtype))


class Attention(torch.nn.Module):
    """Some layers, each of whose masks is the same."""

    def __init__(self, hide: Hide) -> None:
        super().__init__()
        self.hide = hide

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        for _ in range(LAYERS):
            scores = self.hide(torch.matmul(q, k.transpose(-2, -1)) * 0.125)
            q = torch.matmul(torch.softmax(scores, -1), v)
        return q


class Shared(Attention):
    """One mask for all layers."""

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        mask = self.hide(torch.zeros(N, N, dtype=q.dtype))
        for _ in range(LAYERS):
            scores = torch.matmul(q, k.transpose(-2, -1)) * 0.125 + mask
            q = torch.matmul(torch.softmax(scores, -1), v)
        return q


class InOne(torch.nn.Module):
    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        attend = partial(torch.nn.functional.scaled_dot_product_attention, is_causal=True)
        return attend(attend(q, k, v), k, v)


CAUSAL = Band(None, 0)
MODELS = {
    "arange compared": (Attention(arange_compared), CAUSAL),
    "tril of ones": (Attention(tril_of_ones), CAUSAL),
    "triu added": (Attention(triu_added), CAUSAL),
    "lowest added": (Attention(lowest_added), CAUSAL),
    "window": (Attention(window), Band(-63, 0)),
    "arange shared": (Shared(arange_compared), CAUSAL),
    "tril shared": (Shared(tril_of_ones), CAUSAL),
    "window shared": (Shared(window), Band(-63, 0)),
    "in one": (InOne(), CAUSAL),
}


@pytest.mark.parametrize("name", MODELS)
def test_kernels_know_the_band(name: str) -> None:
    model, wanted = MODELS[name]
    given = tuple(torch.randn(1, 2, N, 64).half() for _ in range(3))
    fused = fuse(import_model(model, example_inputs=given).mod, H200).mod
    bands = []
    for func in fused.functions.values():
        graph = extract(func) if isinstance(func, tirx.PrimFunc) else None
        if graph is None:
            continue
        for choice in schedule_chain(Task(func, graph, H200), 1):
            assert isinstance(choice.write, partial)
            _, write, _ = choice.write.args
            bands.append(write.args[0].chain.band)
            assert len(func.params) == 4  # no mask
    assert set(bands) == {wanted}


@pytest.mark.parametrize("name", ["triu added", "window shared"])
def test_what_is_computed_stays(name: str) -> None:
    model, _ = MODELS[name]
    given = tuple(torch.randn(1, 2, N, 16) for _ in range(3))
    imported = import_model(model, example_inputs=given)
    assert "arange" not in operators(imported)
    (got,) = run(imported, *(tensor.numpy() for tensor in given))
    np.testing.assert_allclose(got, model(*given).numpy(), rtol=1e-4, atol=1e-5)
