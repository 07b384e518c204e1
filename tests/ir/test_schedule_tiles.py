"""The pass: what it schedules, how often, what it leaves alone, and what it reports."""

from __future__ import annotations

from typing import Any

import pytest
import tvm
import tvm_ffi
from kernel_bodies import case
from kernel_cases import CASES
from kernels import offers, prim_functions
from tvm import relax, te, tirx, topi
from tvm.relax import op

from tvm_tile.device import find_device
from tvm_tile.passes import ScheduleTiles, schedule_module, with_blocks_only
from tvm_tile.passes.scheduling.schedule_tiles import PREDICTED
from tvm_tile.schedule import Finder, ranking
from tvm_tile.tile.rules import ELEMENTWISE

H200 = find_device("nvidia/h200")
SCHEDULED = "tirx.is_scheduled"


def function(name: str) -> tirx.PrimFunc:
    entry = next(entry for entry in CASES if entry.name == name)
    return list(prim_functions(entry, H200).values())[-1]


def module(**names: str) -> tvm.IRModule:
    """Functions by symbol, each of a case of the table."""
    return tvm.IRModule({symbol: function(name) for symbol, name in names.items()})


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The functions that reach the rules, one entry a function."""
    seen: list[Any] = []

    def note(task: Any, _: int) -> tuple[()]:
        seen.append(task.func)
        return ()

    monkeypatch.setattr(ranking, "RULES", (Finder(ELEMENTWISE, note), *ranking.RULES))
    return seen


def test_every_function_gets_threads_and_a_report() -> None:
    mod = module(b="mm_NN", a="add_row", c="softmax")
    result, reports = schedule_module(mod, H200)
    assert [r.name for r in reports] == ["a", "b", "c"]
    for report in reports:
        assert report.rule in offers(mod[report.name], H200)
        assert "threadIdx.x" in result[report.name].script()
        assert result[report.name].attrs[SCHEDULED]
        assert (report.fallback, report.grid > 0, report.block > 0) == ("", True, True)
        assert report.traffic > 0
    assert reports[1].operators == "matmul"


def test_the_input_module_is_not_changed() -> None:
    mod = module(a="add_row", b="argmax_last", c="conv3x3")
    before = mod.script()
    schedule_module(mod, H200)
    ScheduleTiles(H200)(mod)
    assert mod.script() == before


def test_the_pass_is_the_function_and_leaves_its_predictions() -> None:
    mod = module(a="add_row", b="mm_primes", c="argmax_last")
    expected, reports = schedule_module(mod, with_blocks_only(H200))
    result = ScheduleTiles(H200)(mod)
    for report in reports:
        func = result[report.name]
        found = (func.attrs or {}).get(PREDICTED)
        assert (found is None) == bool(report.fallback)
        if found is not None:
            assert (found["grid"], found["block"]) == (report.grid, report.block)
            assert (found["rule"], found["seconds"]) == (report.rule, report.seconds)
            func = func.without_attr(PREDICTED)
        assert tvm_ffi.structural_equal(func, expected[report.name])


def test_scheduled_functions_and_relax_functions_are_left_alone(calls: list[Any]) -> None:
    func = function("add_row").with_attr(SCHEDULED, True)
    mod = module(b="mm_primes")
    mod["a"] = func
    result, reports = schedule_module(mod, H200)
    assert result["a"].same_as(func)
    assert [r.name for r in reports] == ["b"]
    again, nothing = schedule_module(result, H200)
    assert nothing == ()
    assert tvm_ffi.structural_equal(again, result)
    assert len(calls) == 1


def test_equal_functions_are_scheduled_once(calls: list[Any]) -> None:
    func = function("mm_primes")
    mod = tvm.IRModule({name: func.with_attr("global_symbol", name) for name in "abc"})
    mod["d"] = function("mm_NN")
    result, reports = schedule_module(mod, H200)
    assert len(calls) == 2
    assert [r.name for r in reports] == ["a", "b", "c", "d"]
    assert len({(r.rule, r.tile) for r in reports[:3]}) == 1
    assert [str(result[name].attrs["global_symbol"]) for name in "abc"] == ["a", "b", "c"]
    bodies = [result[name].without_attr("global_symbol") for name in "abc"]
    assert all(tvm_ffi.structural_equal(bodies[0], body) for body in bodies)


def test_calls_are_those_of_the_program() -> None:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((64, 64), "float32"))
    with builder.function("main", [x]):
        y = builder.emit_te(topi.tanh, builder.emit_te(topi.tanh, x))
        builder.emit_func_output(builder.emit_te(topi.exp, y))
    _, reports = schedule_module(builder.get(), H200)
    assert {report.name: report.calls for report in reports} == {"tanh": 2, "exp": 1}


def test_what_no_rule_takes_goes_to_dlight_and_the_report_says_why() -> None:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((5, 33), "float32"))
    with builder.function("main", [x]):  # TVM's own argmax reduces pairs
        found = builder.emit_te(topi.argmax, x, -1, primfunc_name_hint="a")
        builder.emit_func_output(found)
    result, (report,) = schedule_module(builder.get(), H200)
    assert report.rule == "dlight"
    assert report.fallback == "its loops are not plain tensor blocks"
    assert "threadIdx.x" in result["a"].script()


def test_a_refused_function_goes_to_dlight_for_the_given_reason(calls: list[Any]) -> None:
    mod = module(a="mm_NN", b="mm_primes")
    _, (first, second) = schedule_module(mod, H200, refused={"a": "it did not build"})
    assert (first.rule, first.fallback) == ("dlight", "it did not build")
    assert second.rule in offers(mod["b"], H200)
    assert second.fallback == ""
    assert len(calls) == 1


def test_refusing_one_of_two_equal_functions() -> None:
    func = function("mm_primes")
    mod = tvm.IRModule(dict.fromkeys("ab", func))
    result, reports = schedule_module(mod, H200, refused={"b": "it did not build"})
    assert {r.name: r.rule for r in reports}["b"] == "dlight"
    assert result["b"].attrs[SCHEDULED]


@pytest.mark.parametrize("error", [RuntimeError, ValueError, tvm.error.InternalError])
def test_a_rule_that_trips_does_not_fail_the_module(
    monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    def trip(*_: Any) -> None:
        raise error("not written for this")

    mod = module(a="add_row")
    monkeypatch.setattr(ranking, "RULES", (Finder(ELEMENTWISE, trip), *ranking.RULES))
    _, (report,) = schedule_module(mod, H200)
    assert report.rule == "elementwise"
    monkeypatch.setattr(ranking, "RULES", (Finder(ELEMENTWISE, trip),))
    _, (report,) = schedule_module(mod, H200)
    assert (report.rule, report.fallback) == ("dlight", "no rule takes it")


def test_an_empty_module() -> None:
    result, reports = schedule_module(tvm.IRModule(), H200)
    assert (len(result.functions), reports) == (0, ())


def test_extern_functions_are_no_task_for_rules(calls: list[Any]) -> None:
    def call(inputs: Any, outputs: Any) -> Any:
        return tvm.tirx.call_packed("nothing", inputs[0], outputs[0])

    a = te.placeholder((4,), name="A")
    func = te.create_prim_func([a, te.extern((4,), [a], call)])
    _, (report,) = schedule_module(tvm.IRModule({"a": func}), H200)
    # What it reads and writes at least: four floats each.
    assert (report.fallback != "", report.traffic, calls) == (True, 32.0, [])


def test_two_functions_of_a_model_are_named_as_in_the_module() -> None:
    entry = case("", "", lambda x: op.nn.softmax(op.exp(x), -1), (3, 33))
    functions = prim_functions(entry, H200)
    _, reports = schedule_module(tvm.IRModule(functions), H200)
    assert [r.name for r in reports] == sorted(functions)
