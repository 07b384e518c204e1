"""Models of open extents compute what PyTorch does, wherever they are called."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from open_cases import CASES, Case, drawn, module

import tvm_tile
from tvm_tile.errors import DynamicShapeError

pytestmark = pytest.mark.bank(20)


def compiled(case: Case) -> Any:
    whole = {name: one.high for name, one in case.ranges.items()}
    return tvm_tile.compile(
        module(case),
        "emulated",
        inputs=case.shapes,
        example_inputs=tuple(drawn(case, whole, 0).values()),
    )


def points(case: Case) -> list[dict[str, int]]:
    """The ends of each range, the last but one and a value or two amid it, in any combination."""
    columns = []
    for one in case.ranges.values():
        values = range(one.low, one.high + 1, one.step)
        picked = values[0], values[-1], values[-2], values[len(values) // 2], values[1]
        columns.append(tuple(dict.fromkeys(picked)))
    return [dict(zip(case.ranges, point, strict=True)) for point in itertools.product(*columns)]


def outputs(made: Any) -> tuple[torch.Tensor, ...]:
    return (made,) if isinstance(made, torch.Tensor) else tuple(made)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_open_extents_compute_what_torch_does(case: Case) -> None:
    if case.refused:
        with pytest.raises(DynamicShapeError):
            compiled(case)
        return
    model, reference = compiled(case), module(case)
    whole = {name: one.high for name, one in case.ranges.items()}
    strange = [nothing(x) for x in drawn(case, whole, 9).values()]
    for number, values in enumerate(points(case)):
        model(*strange)  # so that NaN lie beyond what the next call has
        given = drawn(case, values, number).values()
        found, wanted = outputs(model(*given)), outputs(reference(*given))
        assert [tuple(own.shape) for own in found] == [tuple(own.shape) for own in wanted], values
        for own, theirs in zip(found, wanted, strict=True):
            same = torch.allclose(own.double(), theirs.double(), rtol=1e-4, atol=1e-4)
            assert same, (values, own, theirs)


def nothing(tensor: torch.Tensor) -> torch.Tensor:
    """NaN where there may be."""
    return torch.full_like(tensor, torch.nan) if tensor.is_floating_point() else tensor
