"""Random products of rows in groups, for warps and for warpgroups: their text, run on the CPU."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from emulated import all_built, arguments, guarded, is_intact, launches, workspaces
from joined import joined_function
from kernels import Case, Input, relative_difference
from tvm.relax import op
from warp_emulator import COMPILER, emulate, tensor_maps

from bench.onnx_forms import Draw
from tvm_tile.device import find_device
from tvm_tile.graph.extract import extract
from tvm_tile.schedule import Task
from tvm_tile.schedule.warp_products import schedule_mma
from tvm_tile.schedule.wgmma import schedule_wgmma

pytestmark = pytest.mark.bank(10)

# Few multiprocessors, so that blocks have several tiles.
A100 = replace(find_device("nvidia/a100"), multi_processor_count=3)
H200 = replace(find_device("nvidia/h200"), multi_processor_count=2)
EVERY = 1000
HALF = "float16"
_LEAST_DEPTH = 8  # that rules take


def _layer(x: Any, w: Any, ids: Any, *others: Any, turned: bool, relu: bool) -> Any:
    """Rows times matrices that they choose, plus biases that they choose, times their weights."""
    own = op.take(w, ids, axis=0, mode="clip")
    own = own if turned else op.permute_dims(own, [0, 2, 1])
    y = op.squeeze(op.matmul(op.expand_dims(x, 1), own, out_dtype="float32"), [1])
    if others:
        bias, scale = others
        chosen = op.take(bias, ids, axis=0, mode="clip")
        y = op.multiply(op.add(y, op.astype(chosen, "float32")), scale)
    return op.astype(op.nn.relu(y) if relu else y, HALF)


def drawn(d: Draw, unit: int) -> tuple[Case, np.ndarray]:
    """A layer and its numbers of matrices; sizes of matrices are multiples of ``unit``."""
    groups, rows = d.int(1, 9), d.int(1, 90)
    width, depth = (unit * d.int(1, 144 // unit) for _ in range(2))
    depth = max(depth, _LEAST_DEPTH)
    turned = d.maybe()
    table = (groups, depth, width) if turned else (groups, width, depth)
    inputs = [Input((rows, depth), HALF), Input(table, HALF), Input((rows,), "int64")]
    if d.maybe():
        inputs += [Input((groups, width), HALF), Input((rows, 1), "float32")]
    few = d.choose(groups, groups, 1)
    ids = d.rng.integers(0, few, rows) if d.maybe() else d.rng.integers(-2, groups + 2, rows)
    build = partial(_layer, turned=turned, relu=d.maybe())
    return Case("random", "mma", build, tuple(inputs)), ids.astype("int64")


@pytest.mark.skipif(COMPILER is None, reason="needs g++")
@pytest.mark.parametrize("seed", range(60))
@pytest.mark.parametrize("unit", ["warps", "warpgroups"])
def test_each_row_meets_its_own_matrix(unit: str, seed: int, tmp_path: Path) -> None:
    d = Draw(seed)
    rule, device, least = (schedule_mma, A100, 1) if unit == "warps" else (schedule_wgmma, H200, 8)
    entry, ids = drawn(d, least)
    func = joined_function(entry, device, rule)
    graph = extract(func)
    assert graph is not None
    found = list(rule(Task(func, graph, device), EVERY))
    assert found
    choice = d.choose(*found)()
    assert choice is not None
    (name,) = [str(p.name) for p in func.params if str(p.ty.dtype) == "int64"]
    of = arguments(func, {name: ids})
    memory = {n: guarded(a, is_output=n in of.outputs) for n, a in of.given.items()}
    memory |= {n: guarded(a, is_output=True) for n, a in workspaces(choice).items()}
    arrays = {n: inside for n, (_, inside) in memory.items()}
    maps = tensor_maps(choice.func.script(), arrays)
    late = d.maybe()
    kernels = all_built(choice, device, only_text=True)
    for kernel, shape in zip(kernels, launches(choice), strict=True):
        own = tmp_path / kernel.name
        own.mkdir()
        more = {"maps": maps} if kernel is kernels[-1] else {}
        emulate(kernel, *shape, arrays, own, late=late, backward=not late, **more)
    assert all(is_intact(own) for own, _ in memory.values())
    (output,) = of.outputs
    wanted = of.wanted[output]
    assert relative_difference(arrays[output].reshape(wanted.shape), wanted) < 2e-3
