"""Weights of a model that is larger than the second-level cache come from memory."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tvm import relax, tirx
from tvm.relax import op

from tvm_tile.device import Device, find_device
from tvm_tile.graph.extract import extract
from tvm_tile.schedule import Task, candidates
from tvm_tile.schedule.scene import STREAMED, scene_of
from tvm_tile.stages.fusing import fuse
from tvm_tile.tile.time import AMID

H200 = find_device("nvidia/h200")
SMALL = replace(H200, l2_capacity=1 << 16)  # less than the weights below


def product(device: Device) -> tirx.PrimFunc:
    """The function of a product with weights of 256 KiB, and of what follows it."""
    weights = np.zeros((256, 256), "float32")
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((2, 256), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            made = builder.emit(op.matmul(x, relax.const(weights)))
            result = builder.emit_output(op.nn.relu(made))
        builder.emit_func_output(result)
    (func,) = (f for f in fuse(builder.get(), device).mod.functions.values() if is_kernel(f))
    return func


def is_kernel(func: object) -> bool:
    """Whether it is a function of loops."""
    return isinstance(func, tirx.PrimFunc)


def task(func: tirx.PrimFunc) -> Task:
    graph = extract(func)
    assert graph is not None
    return Task(func, graph, SMALL)


def test_what_fits_the_cache_is_found_there() -> None:
    func = product(H200)
    assert STREAMED not in (func.attrs or {})
    assert task(func).scene == AMID


def test_weights_of_a_larger_model_come_from_memory() -> None:
    func = product(SMALL)
    assert [int(place) for place in func.attrs[STREAMED]] == [1]
    # All but the vectors, and what is written.
    assert task(func).scene.cached == pytest.approx(1 - 256 / (256 + 2), abs=1e-3)


def test_that_takes_longer() -> None:
    func = product(SMALL)
    (streamed,) = candidates(task(func), 1)
    (cached,) = candidates(task(func.without_attr(STREAMED)), 1)
    assert streamed.seconds > cached.seconds


def test_a_place_that_is_gone_is_none_of_the_functions() -> None:
    func = product(SMALL).with_attr(STREAMED, [1, 7])
    graph = extract(func)
    assert graph is not None
    assert scene_of(func, graph) == task(product(SMALL)).scene
