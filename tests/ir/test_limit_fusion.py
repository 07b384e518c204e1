"""What fusion puts into one function, where values have several users or come in tuples."""

from __future__ import annotations

import torch
import torch.nn.functional as F
import tvm
from tvm import tirx

from tvm_tile.device import find_device
from tvm_tile.frontend import import_model
from tvm_tile.graph.extract import loads_in
from tvm_tile.schedule.s_tir.normalize import inlined
from tvm_tile.schedule.s_tir.steps import child_blocks
from tvm_tile.stages.fusing import fuse

H200 = find_device("nvidia/h200")


def fused(module: torch.nn.Module, *inputs: torch.Tensor) -> tvm.IRModule:
    return fuse(import_model(module.eval(), example_inputs=inputs).mod, H200).mod


class Deformable(torch.nn.Module):
    """Samples at five places that are computed, as in a deformable convolution, and a product."""

    def __init__(self) -> None:
        super().__init__()
        self.offsets = torch.nn.Conv2d(2, 10, 3, padding=1)
        self.product = torch.nn.Conv2d(10, 3, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        grids = self.offsets(x).tanh().view(1, 5, 2, 6, 6).permute(1, 0, 3, 4, 2)
        scaled = (grids * 2 + 0.1).sin() / 3 - 0.5
        samples = [F.grid_sample(x, grid, align_corners=True) for grid in scaled.unbind()]
        return self.product(torch.cat(samples, 1))


def test_no_function_grows_with_the_product_of_its_steps() -> None:
    """Each sample reads its place forty times, that its coordinates six times, and so on."""
    mod = fused(Deformable(), torch.randn(1, 2, 6, 6))
    functions = [func for func in mod.functions.values() if isinstance(func, tirx.PrimFunc)]
    for func in functions:
        sch, form = inlined(func, keep_producers=False)
        assert form is not None
        bodies = [sch.get(block).body for block in child_blocks(sch)]
        assert sum(len(loads_in(body)) for body in bodies) < 400
    assert len(functions) <= 9


class Divided(torch.nn.Module):
    """Each step reads the value before it twice, and once more as a divisor that may be 0."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(8):
            x = torch.div(x, x + 3, rounding_mode="trunc")
        return x


def test_an_integer_divisor_is_written_twice() -> None:
    mod = fused(Divided(), torch.zeros(64, dtype=torch.int32))
    functions = [func for func in mod.functions.values() if isinstance(func, tirx.PrimFunc)]
    assert len(functions) == 2  # 3 ** 8 loads would be too many for one


class Largest(torch.nn.Module):
    """The largest elements of several parts, with their places: each a tuple of two tensors."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        both = [part.topk(2) for part in x.unbind()]
        return torch.cat([values + places for values, places in both], 1)


def test_one_function_takes_of_several_tuples() -> None:
    mod = fused(Largest(), torch.randn(9, 3, 8))
    last = max(
        (func for func in mod.functions.values() if isinstance(func, tirx.PrimFunc)),
        key=lambda func: len(func.params),
    )
    assert len(last.params) == 2 * 9 + 1
