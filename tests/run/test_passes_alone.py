"""Each pass of ours between TVM's own, in any order: modules compute what they did, on the CPU."""

from __future__ import annotations

import functools
import inspect
import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
import tvm
from plug_in_models import Bert, Cell, ResNet
from torch import Tensor, nn
from tvm import relax
from tvm.relax import transform

from tvm_tile import find_device, passes
from tvm_tile.frontend import import_model
from tvm_tile.passes import (
    ChannelsLast,
    ChooseCodes,
    DispatchOpenSorts,
    FuseTiles,
    GroupGates,
    InlineConstants,
    JoinProducts,
    JoinWrites,
    ListKeys,
    MarkDependentLaunches,
    MarkReductions,
    MarkSpreads,
    MultiplyPowers,
    NarrowProducts,
    ReadTransposed,
    RepeatMasks,
    SeparateSinks,
    SimplifyPlaces,
    SkipZeros,
    WidenLate,
    fused_cost,
)

pytestmark = pytest.mark.bank(4)

H200 = find_device("nvidia/h200")
LLVM = tvm.target.Target("llvm")

OPERATORS = (
    lambda: ChannelsLast(frozenset({"float16", "float32"})),
    lambda: ChooseCodes(H200, "auto", fused_cost(H200)),
    DispatchOpenSorts,
    lambda: GroupGates(H200),
    lambda: JoinProducts(fused_cost(H200)),
    NarrowProducts,
    lambda: ReadTransposed(frozenset({"float32"})),
    SeparateSinks,
    WidenLate,
)
LOOPS = (
    InlineConstants,
    lambda: ListKeys(H200),
    lambda: MarkDependentLaunches(H200, forced=True),
    MarkReductions,
    MarkSpreads,
    MultiplyPowers,
    RepeatMasks,
    SimplifyPlaces,
    lambda: SkipZeros(H200),
)


class Cells(nn.Module):
    """Two steps of an LSTM."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = Cell(64)

    def forward(self, x: Tensor) -> Tensor:
        h = c = x.new_zeros(1, 64)
        for step in x.unbind(0):
            h, c = self.cell(step, h, c)
        return h


class Masked(nn.Module):
    """A triangle, a sink, a power, channels that are scaled, narrow numbers that are made wide."""

    def forward(self, x: Tensor, image: Tensor) -> Tensor:
        low = torch.full((8, 8), float("-inf")).triu(1)
        sunk = torch.cat([x**2 + low, x[:, :1]], -1)
        scores = torch.softmax(sunk, -1)[:, :-1] @ x.half().float()[:, :8]
        gate = torch.sigmoid(image.mean((2, 3), keepdim=True))
        return scores + (image * gate).sum()


@functools.cache
def case(name: str) -> tuple[Any, tuple[np.ndarray, ...], tuple[np.ndarray, ...]]:
    """A module, inputs, and what TVM's own build computes of them."""
    torch.manual_seed(1)
    models: dict[str, tuple[nn.Module, tuple[Tensor, ...]]] = {
        "resnet": (ResNet(), (torch.randn(1, 3, 16, 16),)),
        "bert": (Bert(), (torch.randint(0, 100, (1, 16)),)),
        "cells": (Cells(), (torch.randn(2, 1, 64),)),
        "masked": (Masked(), (torch.randn(8, 8), torch.randn(1, 4, 6, 6))),
    }
    model, inputs = models[name]
    with torch.no_grad():
        wanted = (model.eval()(*inputs).numpy(),)
    mod = import_model(model, example_inputs=inputs).mod
    return mod, tuple(tensor.numpy() for tensor in inputs), wanted


def check(name: str, stages: Sequence[Any]) -> Any:
    """The module behind ``stages``, of which TVM builds the rest."""
    mod, inputs, wanted = case(name)
    with LLVM:
        after = tvm.transform.Sequential(list(stages))(mod)
    relax.analysis.well_formed(after)
    machine = relax.VirtualMachine(tvm.compile(after, LLVM), tvm.cpu())
    found = machine["main"](*map(tvm.runtime.tensor, inputs))
    found = [found] if hasattr(found, "numpy") else found
    for own, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(own.numpy(), other, rtol=2e-3, atol=2e-4)
    return after


CASES = ("resnet", "bert", "cells", "masked")


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", CASES)
def test_passes_on_operators_in_any_order(name: str, seed: int) -> None:
    chosen = random.Random(seed).sample(OPERATORS, len(OPERATORS) - seed)
    check(name, [make() for make in chosen])


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", CASES)
def test_passes_on_loops_in_any_order(name: str, seed: int) -> None:
    drawn = random.Random(seed)
    fusion = [transform.FuseOps(), transform.FuseTIR()]
    first = [make() for make in drawn.sample(LOOPS, len(LOOPS))]
    again = [make() for make in drawn.sample(LOOPS, 2)]
    legal = [transform.LegalizeOps(), transform.AnnotateTIROpPattern()]
    check(name, [*legal, *first, *fusion, *again, *fusion, FuseTiles(H200), JoinWrites(H200)])


@pytest.mark.parametrize(
    "make", [*OPERATORS, *LOOPS, lambda: FuseTiles(H200), lambda: JoinWrites(H200)]
)
def test_a_pass_leaves_alone_what_it_is_not_about(make: Any) -> None:
    """Calls of others, functions without dataflow, those that are scheduled."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((4,), "float32"))
    with builder.function("main", [x], pure=False):
        note = relax.call_pure_packed("some.function", x, ty_args=x.ty)
        builder.emit_func_output(builder.emit(note))
    mod = builder.get()
    with LLVM:
        tvm.ir.assert_structural_equal(make()(mod), mod)


def test_each_pass_tells_what_is_before_and_after() -> None:
    everything = [getattr(passes, name) for name in passes.__all__]
    found = [c for c in everything if inspect.isclass(c) and issubclass(c, tvm.transform.Pass)]
    assert len(found) >= len(OPERATORS) + len(LOOPS)
    for each in found:
        assert "before:" in (each.__doc__ or ""), each
        assert "after:" in (each.__doc__ or ""), each
