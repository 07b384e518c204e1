"""Rows of attention all of whose scores are minus infinity: zeros, from one kernel."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from emulated import guarded, is_intact
from tvm import tirx
from warp_emulator import COMPILER, emulate, tensor_maps

from tvm_tile.build import Builder, Program
from tvm_tile.device import find_device
from tvm_tile.frontend import import_model
from tvm_tile.graph.extract import extract
from tvm_tile.schedule import Task
from tvm_tile.schedule.chain import schedule_chain
from tvm_tile.stages.fusing import fuse

torch = pytest.importorskip("torch")
from torch._decomp import decomposition_table  # noqa: E402

from tvm_tile.frontend.torch.decompose import decompositions  # noqa: E402

SAFE_SOFTMAX = torch.ops.aten._safe_softmax.default
H200 = find_device("nvidia/h200")
SHAPE = (1, 2, 96, 64)
EMPTY = 5


class Attention(torch.nn.Module):
    def forward(self, q: Any, k: Any, v: Any) -> Any:
        return torch.nn.functional.scaled_dot_product_attention(q, k, v)


def chain_of(program: Any) -> tuple[tirx.PrimFunc, Any]:
    """The function that is two products, and the rule's best choice for it."""
    fused = fuse(import_model(program).mod, H200).mod
    for func in fused.functions.values():
        graph = extract(func) if isinstance(func, tirx.PrimFunc) else None
        found = () if graph is None else schedule_chain(Task(func, graph, H200), 1)
        if found:
            assert isinstance(found[0].write, partial)
            _, write, _ = found[0].write.args
            assert write.args[0].weights.is_safe
            return func, found[0]()
    raise AssertionError("no chain")


@pytest.mark.skipif(COMPILER is None, reason="needs g++")
@pytest.mark.filterwarnings("ignore")  # of PyTorch's own decompositions
@pytest.mark.parametrize("is_broken_down", [False, True])
def test_one_kernel_makes_them_zeros(tmp_path: Path, *, is_broken_down: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.rand(SHAPE, generator=generator).half() for _ in range(3))
    q[0, 1, EMPTY] = -torch.inf
    program = torch.export.export(Attention(), (q, k, v))
    if is_broken_down:  # with PyTorch's own guard, which is one more reduction
        table = {**decompositions(), SAFE_SOFTMAX: decomposition_table[SAFE_SOFTMAX]}
        program = program.run_decompositions(table)
    func, choice = chain_of(program)
    *inputs, output = func.params
    given = [t.numpy() for t in (q, k, v)]
    memory = {
        str(p.name): guarded(array, is_output=False) for p, array in zip(inputs, given, strict=True)
    }
    memory[str(output.name)] = guarded(np.empty(SHAPE, "float16"), is_output=True)
    arrays = {name: inside for name, (_, inside) in memory.items()}
    built = Builder(H200).build_functions({"t": choice.func})["t"]
    assert isinstance(built, Program), str(built)
    (kernel,) = built.kernels
    maps = tensor_maps(choice.func.script(), arrays)
    order = {"late": True, "backward": False}
    emulate(kernel, choice.grid, choice.block, arrays, tmp_path, **order, maps=maps)
    found = arrays[str(output.name)].reshape(SHAPE)
    assert all(is_intact(own) for own, _ in memory.values())
    assert not found[0, 1, EMPTY].any()
    expected = Attention()(q.double(), k.double(), v.double()).numpy()
    np.testing.assert_allclose(found, expected, atol=4e-3)
