"""Functions that no rule takes, or whose kernels do not build, still run, and rightly."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tvm
from scheduled import relax_module
from tvm import relax, te
from tvm.relax import op
from written_by_hand import running_maximum

import tvm_tile
from tvm_tile import pipeline
from tvm_tile.build import Builder
from tvm_tile.device import find_device
from tvm_tile.errors import BuildError
from tvm_tile.passes import is_joined, schedule_module
from tvm_tile.passes.scheduling.plan_function import Planned, Request
from tvm_tile.schedule.statements import find_obstacle, schedule_statements

H200 = find_device("nvidia/h200")
EMULATED = find_device("emulated")
X = np.random.default_rng(0).normal(size=(5, 7)).astype("float32")


def calling(func: Any) -> tvm.IRModule:
    """A Relax module whose main returns ``func`` of a (5, 7) tensor."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((5, 7), "float32"))
    with builder.function("main", [x]):
        var = builder.add_func(func, "func")
        ty = relax.TensorType((5, 7), "float32")
        builder.emit_func_output(builder.emit(relax.call_tir(var, (x,), ty)))
    return builder.get()


def test_loops_written_by_hand_run_in_one_thread_each_between_parallel_kernels() -> None:
    model = tvm_tile.compile(calling(running_maximum), "emulated")
    assert np.array_equal(model(X), np.maximum.accumulate(2 * X, axis=1))
    (kernel,) = model.report.kernels
    assert (kernel.rule, kernel.fallback) == ("statements", "it has loops written by hand")


def test_cuda_takes_what_the_last_resort_writes() -> None:
    mod, _ = schedule_module(tvm.IRModule({"f": running_maximum}), H200)
    assert Builder(H200).find_failures(mod) == {}


def test_what_fails_with_our_schedule_and_with_dlights_is_scheduled_by_statements(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    find_failures = Builder.find_failures
    rounds = []

    def fail_twice(builder: Builder, mod: Any) -> dict[str, BuildError]:
        rounds.append(mod)
        if len(rounds) > 2:
            return find_failures(builder, mod)
        return {
            str(v.name_hint): BuildError("r", f"failure {len(rounds)}", "") for v in mod.functions
        }

    monkeypatch.setattr(pipeline.Builder, "find_failures", fail_twice)
    model = tvm_tile.compile(relax_module(lambda x: op.nn.softmax(x), ((5, 7),)), "emulated")
    (kernel,) = model.report.kernels
    assert (kernel.rule, kernel.fallback) == ("statements", "its kernel did not build: failure 1")
    powers = np.exp(X - X.max(1, keepdims=True))
    np.testing.assert_allclose(model(X), powers / powers.sum(1, keepdims=True), rtol=1e-5)


def test_a_dlight_that_raises_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def trip(*_: Any) -> None:
        raise ValueError("no such loop")

    monkeypatch.setattr("tvm_tile.passes.scheduling.plan_function.apply_dlight", trip)
    monkeypatch.setattr("tvm_tile.schedule.ranking.RULES", ())
    model = tvm_tile.compile(relax_module(lambda x: op.exp(x), ((5, 7),)), "emulated")
    assert model.report.kernels[0].fallback == "no rule takes it; dlight fails: no such loop"
    np.testing.assert_allclose(model(X), np.exp(X), rtol=1e-6)


def test_what_statements_leave_for_the_next_is_memory_of_the_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def trip(*_: Any) -> None:
        raise ValueError("no such loop")

    monkeypatch.setattr("tvm_tile.passes.scheduling.plan_function.apply_dlight", trip)
    monkeypatch.setattr("tvm_tile.schedule.ranking.RULES", ())
    model = tvm_tile.compile(relax_module(lambda x: op.nn.softmax(x), ((50, 70),)), "emulated")
    assert [kernel.rule for kernel in model.report.kernels] == ["statements"]
    assert b"TVMBackendAllocWorkspace" not in model.program.host
    x = np.random.default_rng(0).normal(size=(50, 70)).astype("float32")
    powers = np.exp(x - x.max(1, keepdims=True))
    np.testing.assert_allclose(model(x), powers / powers.sum(1, keepdims=True), rtol=1e-5)


BY_HEAD, TOKENS = (2, 4, 128, 64), (2, 128, 256)


def attention(q: Any, k: Any, v: Any) -> Any:
    """Of half-precision tensors by head, put side by side behind it."""
    q, k, v = (op.astype(x, "float16") for x in (q, k, v))
    scores = op.matmul(q, op.permute_dims(k, [0, 1, 3, 2]), out_dtype="float32")
    weights = op.astype(op.nn.softmax(scores, -1), "float16")
    heads = op.astype(op.matmul(weights, v, out_dtype="float32"), "float16")
    return op.reshape(op.permute_dims(heads, [0, 2, 1, 3]), TOKENS)


def compile_without(monkeypatch: pytest.MonkeyPatch, refuse: Callable[[int], bool]) -> Any:
    """Attention for the H200, of which joined kernels fail to build, in rounds to refuse."""
    find_failures = Builder.find_failures
    rounds: list[set[str]] = []

    def fail(builder: Builder, mod: Any) -> dict[str, BuildError]:
        names = {str(v.name_hint) for v in mod.functions if is_joined(str(v.name_hint))}
        assert all(names.isdisjoint(earlier) for earlier in rounds)
        failures = find_failures(builder, mod)
        if names and refuse(len(rounds)):
            rounds.append(names)
            failures |= {name: BuildError("r", f"failure {len(rounds)}", "") for name in names}
        return failures

    monkeypatch.setattr(pipeline.Builder, "find_failures", fail)
    options = tvm_tile.Options(cache=False)
    mod = relax_module(attention, (BY_HEAD, BY_HEAD, BY_HEAD))
    return tvm_tile.compile(mod, "nvidia/h200", options=options).report


def test_a_joined_kernel_that_does_not_build_is_made_of_fewer_functions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = compile_without(monkeypatch, lambda _: False)
    smaller = compile_without(monkeypatch, lambda number: number == 0)
    assert len(smaller.kernels) > len(whole.kernels)
    assert any(is_joined(kernel.name) for kernel in smaller.kernels)
    assert not smaller.fallbacks
    assert "its kernel did not build: failure 1" in [d.reason for d in smaller.decisions]
    assert "its kernel did not build: failure 1" in str(smaller)


def test_functions_none_of_whose_joined_kernels_build_stay_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    report = compile_without(monkeypatch, lambda _: True)
    assert not report.fallbacks
    assert not any(is_joined(kernel.name) for kernel in report.kernels)


def test_joined_functions_that_no_candidate_writes_are_made_of_fewer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So it is where several candidates are measured: that none builds is known to the plan."""
    make_plan = pipeline._plan

    def writing_nothing_joined(*args: Any) -> Any:
        plan = make_plan(*args)

        def planned(request: Request) -> Planned:
            reason = "none of its 2 candidates builds" if is_joined(request.name) else None
            return plan(replace(request, refused=request.refused or reason))

        return planned

    monkeypatch.setattr(pipeline, "_plan", writing_nothing_joined)
    report = compile_without(monkeypatch, lambda _: False)
    assert not report.fallbacks
    assert not any(is_joined(kernel.name) for kernel in report.kernels)
    assert "none of its 2 candidates builds" in [decision.reason for decision in report.decisions]


def test_buffers_of_one_name() -> None:
    """Rules know a buffer by its name, so two of one name would be one tensor to them."""
    x, y = (te.placeholder((5, 7), "float32", name="same") for _ in range(2))
    func = te.create_prim_func([x, y, te.compute((5, 7), lambda *i: x(*i) - y(*i), name="z")])
    assert len({str(param.name) for param in func.params}) < len(func.params)
    assert find_obstacle(func) == "two of its buffers have one name"


@pytest.mark.parametrize(("shape", "axis"), [((4, 0), 1), ((0, 4), 1), ((0, 4), 0), ((0, 0), 0)])
def test_extents_of_zero(shape: tuple[int, int], axis: int) -> None:
    x, y = (te.placeholder(shape, "float32", name=name) for name in "xy")
    k = te.reduce_axis((0, shape[axis]), "k")
    rest = shape[1 - axis]

    def total(i: Any) -> Any:
        index = (i, k) if axis == 1 else (k, i)
        return te.sum(x[index] + y[index], axis=k)

    func = te.create_prim_func([x, y, te.compute((rest,), total, name="sum")])
    assert find_obstacle(func) == "it has loops over nothing"
    kernels = tvm.IRModule({"sum": schedule_statements(func)})
    assert Builder(EMULATED).find_failures(kernels) == {}
    assert Builder(H200).find_failures(kernels) == {}

    def body(x: Any) -> Any:
        return op.sum(op.multiply(x, x), axis=axis)

    model = tvm_tile.compile(relax_module(body, (shape,)), "emulated")
    assert model(np.zeros(shape, "float32")).tolist() == [0.0] * rest


def test_a_model_may_give_nothing_beside_something() -> None:
    def body(x: Any) -> Any:
        return op.exp(op.strided_slice(x, [0], [2], [2])), op.exp(x)

    model = tvm_tile.compile(relax_module(body, ((5, 7),)), "emulated")
    empty, full = model(X)
    assert empty.shape == (0, 7)
    np.testing.assert_allclose(full, np.exp(X), rtol=1e-6)
