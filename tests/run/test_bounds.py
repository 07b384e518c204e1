"""Kernels that went beyond a bound, as a whole compiled model tells of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
import tvm
from fake_graphs import emulated_with_graphs, fake_graphs
from torch_control_cases import CASES, exported, in_float64
from tvm import relax

import tvm_tile
from bench.suites.networks.recursive_autoencoder import RecursiveAutoencoder
from bench.suites.networks.recursive_module import recursive_module
from tvm_tile import Options
from tvm_tile.device import Device
from tvm_tile.errors import BoundError, OptionError, RunError
from tvm_tile.passes.lower.check_ends import ended
from tvm_tile.plan.rprogram import Bounds, Control, Stop
from tvm_tile.registered import REQUIRE_ENDED
from tvm_tile.stages.forced import Forced

X = np.linspace(-1, 1, 64, dtype="float32").reshape(8, 8)
MANY = Bounds(7, 3)


def stopping() -> tvm.IRModule:
    """A model whose input says whether a "kernel" of it has stopped; many values follow it."""
    builder = relax.BlockBuilder()
    stopped = relax.Var("stopped", relax.TensorType((1,), "int32"))
    x = relax.Var("x", relax.TensorType((8, 8), "float32"))
    with builder.function("main", [stopped, x]):
        with builder.dataflow():
            own = builder.emit(relax.op.add(stopped, relax.const(np.zeros(1, "int32"))))
            first = builder.emit(relax.op.nn.softmax(x))
            second = builder.emit(relax.op.cumsum(x, axis=0))
            both = builder.emit(ended(own, "loop", MANY, [first, second]))
            a, b = (builder.emit(relax.TupleGetItem(both, n)) for n in range(2))
            c = builder.emit(relax.op.nn.softmax(relax.op.matmul(x, b)))
            d = builder.emit(relax.op.nn.softmax(relax.op.matmul(c, x)))
            made = builder.emit_output(relax.op.add(relax.op.matmul(a, d), b))
        builder.emit_func_output(made)
    return builder.get()


def expected(x: np.ndarray) -> np.ndarray:
    def softmax(y: np.ndarray) -> np.ndarray:
        powers = np.exp(y - y.max(-1, keepdims=True))
        return powers / powers.sum(-1, keepdims=True)

    b = np.cumsum(x, axis=0)
    return softmax(x) @ softmax(softmax(x @ b) @ x) + b


def check(model: tvm_tile.CompiledModel) -> None:
    """Every other call raises an error; what is between is right."""
    for turn, reason in enumerate([Stop.ENDED, Stop.ITERATIONS, Stop.ENDED, Stop.DEPTH]):
        word, x = np.array([reason], "int32"), X + turn
        if reason != Stop.ENDED:
            with pytest.raises(BoundError) as raised:
                model(word, x)
            is_loop = reason == Stop.ITERATIONS
            wanted = ("7 iterations", "iterations") if is_loop else ("3 calls", "depth")
            assert wanted[0] in raised.value.requirement
            assert "loop" in raised.value.current
            assert f"Bounds({wanted[1]}=" in raised.value.remedy
            continue
        np.testing.assert_allclose(model(word, x), expected(x), rtol=1e-4, atol=1e-4)


def compiled(device: str | Device) -> tvm_tile.CompiledModel:
    return tvm_tile.compile(stopping(), device, options=Options(cache=False))


def test_an_error_leaves_a_call_and_the_next_one_is_right(tmp_path: Path) -> None:
    model = compiled("emulated")
    check(model)
    model.save(tmp_path / "model.tvmtile")
    check(tvm_tile.load(tmp_path / "model.tvmtile"))
    assert issubclass(BoundError, RunError)


def test_the_error_leaves_a_call_on_torchs_tensors() -> None:
    import torch

    model = compiled("emulated")
    with pytest.raises(BoundError):
        model.call_torch([torch.ones(1, dtype=torch.int32), torch.ones(8, 8)])


def test_no_graph_takes_the_question_in() -> None:
    with fake_graphs() as graphs:
        check(compiled(emulated_with_graphs()))
    assert len(graphs.captured) == 2


@pytest.mark.parametrize("most", [0, -1, 2.5, True, 2**31 - 1])
def test_bounds_that_no_kernel_counts_to_are_refused(most: Any) -> None:
    with pytest.raises(OptionError, match="iterations must"):
        Bounds(iterations=most)
    with pytest.raises(OptionError, match="depth must"):
        Bounds(depth=most)


def test_a_model_with_such_a_kernel_is_compiled_and_saved(tmp_path: Path) -> None:
    """Behind all stages a call asks for what the kernel has left."""
    make, inputs = CASES["while"]
    for control, asks in (("kernel", True), ("host", False)):
        options = Forced(cache=False, control=cast(Control, control))
        program = exported(make().eval(), inputs(1))
        model = tvm_tile.compile(program, "nvidia/h200", options=options)
        assert bool(model.report.plans) == asks
        model.save(tmp_path / control)
        for one in (model, tvm_tile.load(tmp_path / control)):
            assert (REQUIRE_ENDED.encode() in one.program.vm) == asks
            assert one.report == model.report
            assert all(plan.program is not None for plan in one.report.plans)


@pytest.mark.cuda
@pytest.mark.skipif(not tvm.cuda(0).exist, reason="needs an NVIDIA GPU")
def test_loops_on_a_gpu_end_at_their_bound() -> None:
    """Three iterations are right, four are an error, and the call behind it is right again."""
    make, draw = CASES["while"]
    module = make().eval()
    options = Forced(control="kernel", bounds=Bounds(3), cache=False)
    model = tvm_tile.compile(exported(module, draw(1)), "auto", options=options)
    assert model.report.plans, model.explain("all")
    x = draw(1)[1]
    for limit in (3, 4, 2, 1000, 3):
        given = torch.tensor(limit), x
        if limit > 3:
            with pytest.raises(BoundError, match=r"Bounds\(iterations"):
                model(*(value.cuda() for value in given))
            continue
        found = model(*(value.cuda() for value in given))
        for one, wanted in zip(found, in_float64(module, given), strict=True):
            torch.testing.assert_close(one.cpu(), wanted, rtol=1e-4, atol=1e-4, check_dtype=False)


@pytest.mark.cuda
@pytest.mark.skipif(not tvm.cuda(0).exist, reason="needs an NVIDIA GPU")
def test_recursion_on_a_gpu_ends_at_its_bound() -> None:
    torch.manual_seed(0)
    network = RecursiveAutoencoder(31, 64).eval()
    x = torch.randn(31, 64)
    shallow, deep = (
        tvm_tile.compile(
            recursive_module(network),
            "auto",
            options=Forced(control="kernel", bounds=Bounds(depth=depth), cache=False),
        )
        for depth in (2, 31)
    )
    assert shallow.report.plans, shallow.explain("all")
    for _ in range(2):
        with pytest.raises(BoundError, match=r"Bounds\(depth"):
            shallow(x.cuda())
        with torch.no_grad():
            wanted = network(x)
        torch.testing.assert_close(deep(x.cuda()).cpu(), wanted, rtol=1e-4, atol=1e-4)
