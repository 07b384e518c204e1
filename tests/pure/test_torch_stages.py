"""Stages of a graph: what is compiled together, and what PyTorch runs in between."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tvm_tile.torch.stages import GraphStep, stages


def compiled(*needs: int) -> GraphStep:
    return GraphStep(needs, True)


def eager(*needs: int) -> GraphStep:
    return GraphStep(needs, False)


def source(*needs: int) -> GraphStep:
    return GraphStep(needs, True, is_source=True)


def test_what_can_be_compiled_is_one_stage() -> None:
    assert stages([compiled(), compiled(0), compiled(), compiled(1, 2)]) == (1, 1, 1, 1)


def test_an_operator_of_pytorchs_parts_what_is_before_it_from_what_is_behind_it() -> None:
    assert stages([compiled(), eager(0), compiled(1), compiled(0)]) == (1, 2, 3, 1)


def test_pytorch_begins_where_nothing_compiled_is_needed() -> None:
    assert stages([eager(), eager(0), compiled(1)]) == (0, 0, 1)


def test_unrelated_steps_share_a_stage() -> None:
    assert stages([compiled(), compiled(), eager(0), eager(1)]) == (1, 1, 2, 2)


def test_a_constant_is_made_by_the_first_that_takes_it() -> None:
    steps = [source(), compiled(), eager(1), compiled(0, 2)]
    assert stages(steps) == (3, 1, 2, 3)
    assert stages([source(), compiled(), eager(0, 1)]) == (2, 1, 2)


def test_a_constant_of_a_constant_is_made_with_it() -> None:
    assert stages([source(), source(0), compiled(1)]) == (1, 1, 1)


def test_a_constant_that_nobody_takes_is_pytorchs() -> None:
    assert stages([source(), compiled()]) == (0, 1)


@st.composite
def graphs(draw: st.DrawFn) -> list[GraphStep]:
    steps: list[GraphStep] = []
    for position in range(draw(st.integers(0, 12))):
        needs = draw(st.lists(st.integers(0, position - 1), unique=True)) if position else []
        is_source = all(steps[need].is_source for need in needs) and draw(st.booleans())
        steps.append(GraphStep(tuple(sorted(needs)), is_source or draw(st.booleans()), is_source))
    return steps


@given(graphs())
def test_stages_run_in_an_order_that_serves_all(steps: list[GraphStep]) -> None:
    found = stages(steps)
    for step, stage in zip(steps, found, strict=True):
        assert all(found[need] <= stage for need in step.needs)
        if not step.is_source:
            assert stage % 2 == step.is_compiled


@given(graphs())
def test_no_step_waits_longer_than_it_must(steps: list[GraphStep]) -> None:
    found = stages(steps)
    for step, stage in zip(steps, found, strict=True):
        if not step.is_source:
            waited = [found[need] for need in step.needs if not steps[need].is_source]
            assert stage <= max(waited, default=0) + 1
