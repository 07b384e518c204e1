"""Kernels that write a part of a tensor, without a GPU: their text, run on the CPU."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from emulated import arguments, emulated_error
from joined import place_all_parts
from tvm import tirx

import tvm_tile
from tvm_tile import Options, find_device
from tvm_tile.graph.extract import extract
from tvm_tile.passes.weld import place_parts
from tvm_tile.schedule import Task, candidates
from tvm_tile.tile.rules import JOINING

A100 = find_device("nvidia/a100")


class Stream(torch.nn.Module):
    """Attention and a product with what is made of it, side by side."""

    def forward(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, x: torch.Tensor, y: torch.Tensor
    ) -> torch.Tensor:
        heads = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        return torch.cat([heads, F.gelu(x @ y, approximate="tanh")], -1)


class Streams(torch.nn.Module):
    """Heads of products of text and of images, one behind the other."""

    def forward(
        self, x: torch.Tensor, y: torch.Tensor, w: torch.Tensor, u: torch.Tensor
    ) -> torch.Tensor:
        both = torch.cat([(own @ w + u).unflatten(-1, (3, 64)) for own in (x, y)], 1)
        return both.transpose(1, 2).contiguous()


def halves(*shapes: tuple[int, ...]) -> tuple[torch.Tensor, ...]:
    return tuple(torch.zeros(shape, dtype=torch.float16) for shape in shapes)


MODELS: dict[str, tuple[torch.nn.Module, tuple[torch.Tensor, ...], set[str]]] = {
    "side by side": (
        Stream(),
        halves(*[(1, 2, 300, 64)] * 3, (1, 300, 128), (128, 200)),
        {"attention", "mma"},
    ),
    "behind each other": (
        Streams(),
        halves((1, 130, 128), (1, 300, 128), (128, 192), (192,)),
        {"mma"},
    ),
}


def joined_parts(
    module: torch.nn.Module, inputs: tuple[torch.Tensor, ...], monkeypatch: pytest.MonkeyPatch
) -> list[tirx.PrimFunc]:
    """The unscheduled functions that make a part and write it, whether or not that is faster."""
    found: list[tirx.PrimFunc] = []

    writes = place_parts._PartFinder._writes

    def noted(finder: Any, *args: Any) -> Any:
        groups = writes(finder, *args)
        found.extend(group.func(finder.mod) for group in groups if len(group.members) > 1)
        return groups

    place_all_parts(monkeypatch)
    monkeypatch.setattr(place_parts._PartFinder, "_writes", noted)
    tvm_tile.compile(module, A100, example_inputs=inputs, options=Options(cache=False))
    return found


@pytest.mark.parametrize("name", MODELS)
def test_parts_are_written_and_nothing_else(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What others write stays as it was."""
    module, inputs, rules = MODELS[name]
    asked = set[str]()
    for number, func in enumerate(joined_parts(module, inputs, monkeypatch)):
        of = arguments(func)
        of = replace(of, in_place=of.outputs)
        for rule in JOINING:
            for item in candidates(Task(func, extract(func), A100), 1, (rule,)):
                folder = tmp_path / f"{rule.name}{number}"
                folder.mkdir()
                assert emulated_error(item, of, A100, folder, late=True) <= 2e-3
                asked.add(rule.name)
    assert asked == rules


@pytest.mark.parametrize(
    ("first", "columns", "is_one"), [(16, 72, True), (12, 72, False), (16, 68, False)]
)
def test_rows_at_odd_places_are_written_apart(
    first: int, columns: int, is_one: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Products store vectors of neighbours, which lie at multiples of their length."""

    class Beside(torch.nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
            return torch.cat([x, torch.relu(y @ w)], -1)

    inputs = halves((1, 300, first), (1, 300, 128), (128, columns))
    assert len(joined_parts(Beside(), inputs, monkeypatch)) == is_one
