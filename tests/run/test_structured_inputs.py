"""Arguments of a module that hold tensors: mappings, sequences, dataclasses, one in the other."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn
from transformers.modeling_outputs import BaseModelOutput

import tvm_tile
from tvm_tile.errors import InputError

pytestmark = pytest.mark.skipif(not find_spec("pyopencl"), reason="needs pyopencl")


@dataclass
class Pair:
    first: Tensor
    second: Tensor


torch.export.register_dataclass(Pair, serialized_type_name="Pair")


class Range(NamedTuple):
    low: Tensor
    high: Tensor


class Structured(nn.Module):
    """Tells every input from every other."""

    def forward(
        self, batch: Any, x: Tensor, items: Any, span: Range, pair: Pair, *, states: Any
    ) -> Tensor:
        y = batch["ids"] - batch["masks"][0] * batch["masks"][1] + x * 2
        y = torch.maximum(y * items[0], span.low) - span.high * pair.first / pair.second
        return y + states.last_hidden_state * 3


def arguments(seed: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
    generator = torch.Generator().manual_seed(seed)
    t = [torch.rand(3, generator=generator) + 1 for _ in range(10)]
    batch = OrderedDict(masks=(t[0], t[1]), ids=t[2])
    states = BaseModelOutput(last_hidden_state=t[9])
    given = (batch, t[3], [t[4]], Range(t[5], t[6]), Pair(t[7], t[8]))
    return given, {"states": states}


@pytest.fixture(scope="module")
def model() -> tvm_tile.CompiledModel:
    args, kwargs = arguments(0)
    named = dict(zip(("batch", "x", "items", "span", "pair"), args, strict=True), **kwargs)
    return tvm_tile.compile(Structured(), "emulated", example_inputs=named)


def test_arguments_are_those_of_the_module(model: tvm_tile.CompiledModel, tmp_path: Path) -> None:
    args, kwargs = arguments(1)
    expected = Structured()(*args, **kwargs)
    model.save(tmp_path / "model.tile")
    for one in (model, tvm_tile.load(tmp_path / "model.tile")):
        torch.testing.assert_close(one(*args, **kwargs), expected)
        turned = dict(reversed(args[0].items())), *args[1:]  # keys in another order
        torch.testing.assert_close(one(*turned, **kwargs), expected)
        flat = (*args[0]["masks"], args[0]["ids"], args[1], *args[2], *args[3])
        flat = (*flat, args[4].first, args[4].second, kwargs["states"].last_hidden_state)
        torch.testing.assert_close(one(*flat), expected)


def test_what_is_lacking_or_too_much_is_refused(model: tvm_tile.CompiledModel) -> None:
    (batch, *others), kwargs = arguments(1)
    with pytest.raises(InputError, match="not found: batch_ids"):
        model({"masks": batch["masks"]}, *others, **kwargs)
    with pytest.raises(InputError, match="11 in batch, x"):
        model({**batch, "more": others[0]}, *others, **kwargs)
    with pytest.raises(InputError, match="not found: states_last_hidden_state"):
        model(batch, *others)
