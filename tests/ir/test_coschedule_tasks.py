"""Groups of calls become persistent kernels, before and after; what has to, stays where it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
import tvm
from persistent_runs import Kernels
from scheduled import relax_module
from tvm import relax
from tvm.relax import op

from tvm_tile.device import Device, find_device
from tvm_tile.errors import PlanError
from tvm_tile.passes.coschedule import coschedule_tasks, merge_calls
from tvm_tile.passes.coschedule.coschedule_tasks import Coscheduled
from tvm_tile.pipeline import Options, _lower
from tvm_tile.plan.coschedule import coschedule
from tvm_tile.plan.execution_plan import Group, ROperator

DEVICE = replace(find_device("nvidia/h200"), multi_processor_count=4)
X = ((8, 16),)


def forced(monkeypatch: pytest.MonkeyPatch, *members: Sequence[str]) -> None:
    """Make groups of operators whose names begin so, in place of those that pay."""

    def partition(
        operators: tuple[ROperator, ...], device: Device, allowed: Sequence[bool]
    ) -> tuple[Group, ...]:
        groups, left = [], set(range(len(operators)))
        for names in members:
            own = tuple(
                n for n, o in enumerate(operators) if o.name.startswith(tuple(names)) and allowed[n]
            )
            plan = coschedule(tuple(operators[n] for n in own), device)
            assert plan is not None
            groups.append(Group(own, plan, 1.0))
            left -= set(own)
        return (*groups, *(Group((n,), None, 1.0, "alone") for n in sorted(left)))

    monkeypatch.setattr(coschedule_tasks, "partition", partition)


def after(
    mod: tvm.IRModule, refused: Mapping[str, str] | None = None
) -> tuple[tvm.IRModule, list[Coscheduled]]:
    made: list[Coscheduled] = []
    result = Kernels(mod, DEVICE).coscheduled(made.append, refused)
    _lower(result.clone(), DEVICE, Options())  # memory is planned, and nothing refuses the module
    return result, made


def calls(mod: tvm.IRModule) -> list[str]:
    """Names of what ``main`` calls, in order, without what makes them unique."""
    found = []
    for block in mod["main"].body.blocks:
        for binding in block.bindings:
            value = binding.value
            if isinstance(value, relax.Call):
                name = str(getattr(value.op, "name", value.op)).removeprefix("relax.")
                called = str(value.args[0].name_hint) if name == "call_tir" else name
                found.append(called.rpartition("_")[0] if name == "call_tir" else name)
    return found


def chain(x: Any) -> Any:
    """Softmax along rows and columns in turns, which nothing fuses."""
    for axis in (0, 1, 0):
        x = op.nn.softmax(x, axis)
    return x


def test_kernels_become_one(monkeypatch: pytest.MonkeyPatch) -> None:
    forced(monkeypatch, ["softmax"])
    mod, (made,) = after(relax_module(chain, X))
    assert calls(mod) == ["zero_3", "coscheduled"]
    assert [o.name.partition("_")[0] for o in made.operators] == ["softmax", "softmax1", "softmax"]


def test_who_is_refused_stays_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    forced(monkeypatch, ["softmax"])
    _, (made,) = after(relax_module(chain, X))
    mod, none = after(relax_module(chain, X), {made.name: "said so"})
    assert calls(mod) == ["softmax", "softmax1", "softmax"]
    assert not none


def test_a_plan_that_would_not_run_rightly_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def turned(*arguments: Any) -> tuple[Group, ...]:
        group, *others = partition(*arguments)
        assert group.plan is not None
        return replace(group, plan=replace(group.plan, steps=group.plan.steps[::-1])), *others

    forced(monkeypatch, ["softmax"])
    partition = coschedule_tasks.partition
    monkeypatch.setattr(coschedule_tasks, "partition", turned)
    with pytest.raises(PlanError, match="written in earlier steps"):
        after(relax_module(chain, X))


def test_a_workspace_of_two_values_in_one_place_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def at_zero(sizes: Sequence[int], *_: Any) -> tuple[tuple[int, ...], int]:
        return (0,) * len(sizes), max(sizes)

    forced(monkeypatch, ["softmax"])
    monkeypatch.setattr(merge_calls, "allocate", at_zero)
    with pytest.raises(PlanError, match="bytes of their own"):
        after(relax_module(chain, X))


def test_a_value_used_inside_and_outside_is_an_output(monkeypatch: pytest.MonkeyPatch) -> None:
    def body(x: Any) -> Any:
        a = op.nn.softmax(x, 0)
        b = op.nn.softmax(a, 1)
        return op.nn.softmax(b, 0), op.matmul(a, op.permute_dims(b))

    forced(monkeypatch, ["softmax"])
    mod, (made,) = after(relax_module(body, X))
    assert calls(mod)[1] == "coscheduled"
    func = mod[made.name]
    # The last softmax leaves the model, the first two are read by the product.
    assert [str(p.name) for p in func.params if str(p.name).startswith("out")] == [
        "out0",
        "out1",
        "out2",
    ]
    assert "matmul" in calls(mod)[2]


def test_a_foreign_node_between_waits_for_what_it_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    def body(x: Any) -> Any:
        other = op.matmul(x, op.permute_dims(x))
        a = op.nn.softmax(x, 0)
        between = op.matmul(a, op.permute_dims(a))
        b = op.nn.softmax(a, 1)
        return other, between, op.nn.softmax(b, 0)

    forced(monkeypatch, ["softmax"])
    mod, _ = after(relax_module(body, X))
    # The first product needs nothing of the group, and was before it.
    assert calls(mod) == ["matmul", "zero_3", "coscheduled", "matmul"]


def test_two_groups_share_one_tensor_of_counters(monkeypatch: pytest.MonkeyPatch) -> None:
    def body(x: Any) -> Any:
        a = op.nn.softmax(op.nn.softmax(x, 0), 1)
        return op.matmul(op.matmul(a, op.permute_dims(a)), a)

    forced(monkeypatch, ["softmax"], ["matmul", "fused"])
    mod, made = after(relax_module(body, X))
    assert len(made) == 2
    found = calls(mod)
    assert found.count("coscheduled") == 2
    assert sum(name.startswith("zero") for name in found) == 1
    (size,) = {
        int(param.ty.shape[0])
        for own in made
        for param in mod[own.name].params
        if str(param.name) == "counters"
    }
    assert size == 4


def test_calls_outside_dataflow_blocks_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    forced(monkeypatch, ["softmax"])
    kernels = Kernels(relax_module(chain, X), DEVICE)
    plain = tvm.transform.Sequential([relax.transform.ToNonDataflow()])(kernels.scheduled)
    made: list[Coscheduled] = []
    result = kernels.coscheduled(made.append, mod=plain)
    assert not made
    tvm.ir.assert_structural_equal(result, plain)


def test_side_effects_end_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    """What prints stands between two blocks, over which no call is moved."""
    forced(monkeypatch, ["softmax"])
    x = relax.Var("x", relax.TensorType((8, 16), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x], pure=False):
        with builder.dataflow():
            a = builder.emit_output(op.nn.softmax(op.nn.softmax(x, 0), 1))
        builder.emit(relax.Call(relax.ExternFunc("test.print"), [a], None, [relax.TupleType([])]))
        with builder.dataflow():
            b = builder.emit_output(op.nn.softmax(op.nn.softmax(a, 0), 1))
        builder.emit_func_output(b)
    made: list[Coscheduled] = []
    result = Kernels(builder.get(), DEVICE).coscheduled(made.append)
    found = calls(result)
    assert len(made) == 2
    group = ["zero_2", "coscheduled"]
    assert found == [*group, 'R.ExternFunc("test.print")', *group]
