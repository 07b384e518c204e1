"""SliceSplits: parts of tensors as slices, whatever the sections."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import tvm
from cpu_build import CPU
from normal_forms import behind, operators
from scheduled import relax_module
from tvm import relax, tirx
from tvm.relax import op

import tvm_tile
from tvm_tile.passes.operators.slice_splits import SliceSplits


def sliced(mod: Any) -> Any:
    return behind(SliceSplits(), mod)


def parts(mod: Any, x: np.ndarray) -> list[np.ndarray]:
    built = tvm.compile(mod, CPU)
    found = relax.VirtualMachine(built, tvm.cpu())["main"](tvm.runtime.tensor(x))
    return [part.numpy() for part in found]


def _drawn(rng: random.Random) -> tuple[tuple[int, ...], Any, int]:
    """A shape, sections and an axis; parts may be empty, and ends beyond the last element."""
    shape = tuple(rng.randint(1, 7) for _ in range(rng.randint(1, 4)))
    axis = rng.randrange(-len(shape), len(shape))
    extent = shape[axis]
    if extent > 1 and rng.random() < 0.4:
        return shape, rng.choice([n for n in range(2, extent + 1) if extent % n == 0]), axis
    count = rng.randint(1, 4)
    return shape, sorted(rng.randint(0, extent + 2) for _ in range(count)), axis


@pytest.mark.parametrize("seed", range(24))
def test_parts_are_numpys(seed: int) -> None:
    shape, sections, axis = _drawn(random.Random(seed))
    x = np.random.default_rng(seed).standard_normal(shape).astype("float32")
    after = sliced(relax_module(lambda x: op.split(x, sections, axis), (shape,)))
    assert "relax.split" not in operators(after)
    wanted = np.split(x, sections, axis)
    got = parts(after, x)
    assert [part.shape for part in got] == [part.shape for part in wanted]
    assert all(np.array_equal(a, b) for a, b in zip(got, wanted, strict=True))


def test_parts_that_do_not_divide_are_as_tvms() -> None:
    """The last one is shorter."""
    x = np.arange(7, dtype="float32")
    after = sliced(relax_module(lambda x: op.split(x, 3, 0), (x.shape,)))
    assert [part.tolist() for part in parts(after, x)] == [[0, 1, 2], [3, 4, 5], [6]]


def test_parts_nobody_reads_are_not_made() -> None:
    def body(x: Any) -> Any:
        found = op.split(x, [2, 5], 1)
        return op.add(relax.TupleGetItem(found, 0), relax.TupleGetItem(found, 0))

    after = sliced(relax_module(body, ((3, 9),)))
    assert operators(after) == ["relax.strided_slice", "relax.add"]


@pytest.mark.parametrize("sections", [[-2], [3, 1]], ids=["negative", "backwards"])
def test_what_tvm_refuses_stays_or_is_as_typed(sections: list[int]) -> None:
    mod = relax_module(lambda x: op.split(x, sections, 0), ((5,),))
    after = sliced(mod)
    if "relax.split" in operators(after):
        return
    fields = mod["main"].ret_ty.fields
    got = parts(after, np.arange(5, dtype="float32"))
    assert [part.shape for part in got] == [tuple(map(int, f.shape)) for f in fields]


def test_an_open_extent_is_left_alone() -> None:
    x = relax.Var("x", relax.TensorType((4, tirx.Var("n", "int64")), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(op.split(x, 2, 1)))
    assert operators(sliced(builder.get())) == ["relax.split"]
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(op.split(x, 2, 0)))
    assert operators(sliced(builder.get())) == ["relax.strided_slice"] * 2


def test_readers_take_their_part_in_place() -> None:
    """No kernel copies parts: a gated unit is one kernel, and one output of another is its own."""
    import torch

    class Gated(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            a, b, c = x.split([4, 4, 2], -1)
            return a * torch.sigmoid(b), c + 1.0

    x = torch.randn(3, 10)
    compiled = tvm_tile.compile(torch.export.export(Gated(), (x,)), device="emulated")
    assert len(compiled.report.kernels) == 2
    for got, wanted in zip(compiled(x.numpy()), Gated()(x), strict=True):
        np.testing.assert_allclose(got, wanted.numpy(), rtol=1e-6)
