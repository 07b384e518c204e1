"""Functions joined for AMD's matrix cores: one kernel, which computes what the functions did."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from emulated import arguments, emulated_error
from joined import only
from scheduled import relax_module
from tvm import relax, tirx
from tvm.relax import op
from warp_emulator import COMPILER

import tvm_tile
from tvm_tile.device import Device
from tvm_tile.device.rocm import MI250X, MI300X, RX7900XTX
from tvm_tile.graph.extract import extract
from tvm_tile.schedule import Task
from tvm_tile.schedule.rule import as_written
from tvm_tile.schedule.warp_products import schedule_matrix_cores
from tvm_tile.stages.fusing import fuse
from tvm_tile.tile.rules import MATRIX_CORES

pytestmark = pytest.mark.bank(6)

Body = Callable[..., Any]
DEVICES = (MI300X, MI250X, RX7900XTX)
PLACES, HEADS, HEAD = 20, 3, 36
WIDTH = HEADS * HEAD
TOKENS = (2, PLACES, WIDTH)
LIMIT = 1e-3  # of float16's outputs


def product(x: Any, w: Any) -> Any:
    return op.astype(op.matmul(x, w, out_dtype="float32"), "float16")


def by_heads(x: Any, w: Any, bias: Any) -> Any:
    """Stored head by head, behind a bias: quads of neighbours, each elsewhere."""
    y = op.reshape(op.add(product(x, w), bias), (2, PLACES, HEADS, HEAD))
    return op.permute_dims(y, [0, 2, 1, 3])


def of_a_slice(x: Any, w: Any) -> Any:
    """Reads a part of what it is given, which begins amid a row."""
    return product(op.strided_slice(x, [2], [WIDTH], [2 * WIDTH]), w)


def rolled(x: Any, w: Any) -> Any:
    """Windows of rows are put where they belong, as in a shifted window transformer."""
    y = op.reshape(product(x, w), (2, 2, 2, PLACES // 4, WIDTH))
    return op.nn.relu(op.reshape(op.permute_dims(y, [0, 1, 3, 2, 4]), TOKENS))


JOINED = {
    by_heads: (TOKENS, (WIDTH, WIDTH), (WIDTH,)),
    of_a_slice: ((2, PLACES, 3 * WIDTH), (WIDTH, WIDTH)),
    rolled: (TOKENS, (WIDTH, WIDTH)),
}


def joined(body: Body, device: Device) -> tirx.PrimFunc:
    """The only function that is left."""
    first = only(schedule_matrix_cores, device)
    fused = fuse(relax_module(body, JOINED[body], "float16"), device, first=first)
    (decision,) = [own for own in fused.decisions if not own.reason]
    assert (decision.rule, len(decision.functions) > 1) == ("matrix_cores", True)
    (func,) = [func for func in fused.mod.functions.values() if isinstance(func, tirx.PrimFunc)]
    return func.without_attr("global_symbol")


@pytest.mark.skipif(COMPILER is None, reason="needs g++")
@pytest.mark.parametrize("device", DEVICES, ids=lambda device: device.name)
@pytest.mark.parametrize("body", JOINED, ids=lambda body: body.__name__)
def test_one_kernel_computes_what_they_did(body: Body, device: Device, tmp_path: Path) -> None:
    func = joined(body, device)
    graph = extract(func)
    assert graph is not None
    choices = schedule_matrix_cores(Task(func, graph, device), 10_000)
    # On each device another tile: the first, the last, and one whose sums are in parts.
    number = (DEVICES.index(device) + list(JOINED).index(body)) % 3
    choice = choices[-1 if number == 1 else 0]
    assert isinstance(choice.write, partial)
    _, write, tile = choice.write.args
    if number == 2:
        tile = replace(tile, parts=2, grid=2 * tile.grid)
    written = as_written(write(tile), MATRIX_CORES, tile)
    error = emulated_error(written, arguments(func), device, tmp_path, late=bool(number % 2))
    assert error <= LIMIT, written.tile


@pytest.mark.parametrize("device", DEVICES, ids=lambda device: device.name)
def test_a_layer_of_attention_has_no_kernels_that_only_move(device: Device) -> None:
    def layer(x: Any, w: Any, out: Any) -> Any:
        whole = product(x, w)
        parts = [op.strided_slice(whole, [2], [i * WIDTH], [(i + 1) * WIDTH]) for i in range(3)]
        q, k, v = (
            op.permute_dims(op.reshape(y, (2, PLACES, HEADS, HEAD)), [0, 2, 1, 3]) for y in parts
        )
        scores = op.matmul(q, op.permute_dims(k, [0, 1, 3, 2]), out_dtype="float32")
        scores = op.multiply(scores, relax.const(np.float32(0.25)))
        heads = product(op.astype(op.nn.softmax(scores, -1), "float16"), v)
        return product(op.reshape(op.permute_dims(heads, [0, 2, 1, 3]), TOKENS), out)

    mod = relax_module(layer, (TOKENS, (WIDTH, 3 * WIDTH), (WIDTH, WIDTH)), "float16")
    model = tvm_tile.compile(mod, device, options=tvm_tile.Options(cache=False))
    rules = [kernel.rule for kernel in model.report.kernels]
    assert len(rules) == 3
    assert rules.count("warp_attention") == 1
    assert set(rules) <= {"warp_attention", "matrix_cores", "contraction", "row", "column"}
