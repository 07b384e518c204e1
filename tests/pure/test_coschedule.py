"""Plans of persistent kernels: right for every graph, and short where there is something to win."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from roperators import lstm, nasnet, plain, random_graph
from simulated_plan import simulate

import tvm_tile
from tvm_tile.plan.check_plan import check
from tvm_tile.plan.coschedule import MOST_BODIES, coschedule, kernel_seconds
from tvm_tile.plan.execution_plan import ExecutionPlan, RKernel, ROperator
from tvm_tile.plan.timeline import timeline
from tvm_tile.plan.workspace import Extent, allocate, lifetimes

H200 = tvm_tile.find_device("nvidia/h200")


def planned(operators: tuple[ROperator, ...]) -> ExecutionPlan:
    plan = coschedule(operators, H200)
    assert plan is not None
    return plan


def workspace(
    operators: tuple[ROperator, ...], plan: ExecutionPlan, rng: random.Random
) -> tuple[Extent, ...]:
    lives = lifetimes(operators, plan)
    sizes = [rng.randint(1, 100_000) for _ in lives]
    offsets, _ = allocate(sizes, [life.born for life in lives], [life.dies for life in lives])
    return tuple(
        Extent(life.value, offset, size)
        for life, offset, size in zip(lives, offsets, sizes, strict=True)
    )


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32), count=st.integers(1, 40))
def test_every_plan_can_run(seed: int, count: int) -> None:
    """With barriers and with flags: budgets, order, counters and workspace."""
    rng = random.Random(seed)
    operators = random_graph(rng, count)
    plan = planned(operators)
    for uses_flags in (False, True):
        other = replace(plan, uses_flags=uses_flags)
        extents = workspace(operators, other, rng)
        check(operators, other, H200, extents)
        simulate(operators, other, extents, rng)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32), count=st.integers(1, 40))
def test_the_predicted_time_is_that_of_the_timeline(seed: int, count: int) -> None:
    operators = tuple(
        replace(o, choices=tuple(c for c in o.choices if not c.resident_bytes))
        for o in random_graph(random.Random(seed), count)
    )
    plan = planned(operators)
    last = max(span.end for span in timeline(operators, plan, H200))
    assert plan.seconds == pytest.approx(last + kernel_seconds(H200))


def test_an_lstm_is_a_wavefront_with_its_weights_in_shared_memory() -> None:
    """One cell of every layer at a time, each on vEUs of its own."""
    cells = lstm()
    # Large blocks: one vEU a multiprocessor.
    cells = tuple(
        replace(c, choices=tuple(replace(choice, registers=160) for choice in c.choices))
        for c in cells
    )
    plan = planned(cells)
    assert len(plan.steps) == 109
    assert all(plan.residents)
    assert plan.num_veus == 132
    assert set(plan.bodies(cells)) == {(0, plan.chosen[0], plan.copies[0])}
    assert plan.choice(cells, 0).blocks == 13
    parts = plan.resident_parts(cells)
    assert len({part.veu for part in parts}) == len(parts) == 130
    assert plan.shared_bytes == pytest.approx(161_000 + 4096, rel=0.01)
    for step in plan.steps:
        veus = [p.first_veu + i for p in step.placements for i in range(p.num_veus)]
        assert len(veus) == len(set(veus)) == 13 * len(step.placements)
    check(cells, plan, H200)


def test_weights_that_do_not_fit_are_read_again() -> None:
    cells = lstm(layers=20, length=10)
    plan = planned(cells)
    assert not any(plan.residents)
    check(cells, plan, H200)


def test_weights_that_are_read_once_do_not_stay() -> None:
    cells = tuple(replace(cell, weights=number) for number, cell in enumerate(lstm(2, 5)))
    assert not any(planned(cells).residents)


def test_a_chain_runs_as_fast_as_its_operators_and_a_wide_graph_as_thriftily() -> None:
    """The interplay: alone, the choice that is fastest; among many, the one with the least work."""
    fast, thrifty = plain(128, 2e-6), plain(32, 4e-6)
    chain = tuple(
        ROperator(f"o{n}", (fast, thrifty), (n,), (n + 1,), 3e-6, body=0) for n in range(20)
    )
    assert set(planned(chain).chosen) == {0}
    wide = tuple(replace(o, reads=(0,)) for o in chain)
    plan = planned(wide)
    assert len(plan.steps) == 1
    assert set(plan.chosen) == {1}
    assert plan.seconds < 0.5 * sum(o.alone_seconds for o in wide)


def test_an_operator_with_slack_waits_for_a_step_with_room() -> None:
    """A long one beside a chain of short ones and one long: the two long ones share a step."""
    short, long = plain(20, 1e-6), plain(30, 20e-6)
    chain = [ROperator(f"o{n}", (short,), (n,), (n + 1,), 2e-6) for n in range(6)]
    chain[3] = replace(chain[3], choices=(long,), body=1)
    side = ROperator("side", (long,), (0,), (100,), 21e-6, body=1)
    operators = (side, *chain)
    plan = planned(operators)
    assert len(plan.steps) == 6
    together = [{placement.tasks.operator for placement in step.placements} for step in plan.steps]
    assert {0, 4} in together


def test_many_bodies_are_kept_few() -> None:
    operators = nasnet(kinds=12)
    plan = planned(operators)
    assert 12 <= len(plan.bodies(operators)) <= MOST_BODIES
    assert plan.seconds < 0.3 * sum(o.alone_seconds for o in operators)


def test_nasnet_is_planned_and_checked() -> None:
    operators = nasnet()
    plan = planned(operators)
    check(operators, plan, H200)
    simulate(operators, plan, (), random.Random(0))


def test_small_blocks_run_side_by_side() -> None:
    """More small blocks than vEUs of any number: copies, each with no more than the threads."""
    choice = RKernel(4096, 32, 0, 32, 2e-6, 1e-8)
    operators = (ROperator("a", (choice,), (0,), (1,), 1e-4),)
    plan = planned(operators)
    assert plan.copies[0] * 32 <= plan.block_size
    assert plan.copies[0] > 4
    check(operators, plan, H200)


def test_what_fits_nowhere_has_no_plan() -> None:
    too_much = RKernel(10, 128, 300_000, 32, 1e-6, 1e-7)
    good = RKernel(10, 128, 0, 32, 1e-6, 1e-7)
    operators = (
        ROperator("a", (too_much,), (0,), (1,), 2e-6),
        ROperator("b", (good,), (1,), (2,), 2e-6, body=1),
    )
    assert coschedule(operators, H200) is None
    assert coschedule((), H200) is None
    assert coschedule(operators[1:], replace(H200, grid_barrier_latency=None)) is None


def test_scratch_of_other_operators_does_not_crowd_out_weights() -> None:
    """A way with little work but much scratch is passed over where weights stay in its place."""
    cells = tuple(
        replace(c, choices=tuple(replace(choice, registers=160) for choice in c.choices))
        for c in lstm(10, 20)
    )
    small, large = plain(40, 2e-6), replace(plain(10, 2e-6), shared_bytes=150_000)
    side = ROperator("side", (small, large), (1000,), (2000,), 3e-6, body=1)
    plan = planned((*cells, side))
    assert plan.residents == (True,) * len(cells) + (False,)
    assert plan.chosen[-1] == 0


def test_as_many_weights_stay_as_there_is_room_for() -> None:
    """Resident parts that run much faster, of more layers than fit: some stay, some do not."""
    cells = tuple(
        replace(
            cell,
            choices=(
                RKernel(16, 512, 4096, 120, 6e-6, 5e-6),
                RKernel(16, 512, 4096, 120, 1e-6, 0.5e-6, resident_bytes=131_072),
            ),
        )
        for cell in lstm(layers=12, length=30)
    )
    plan = planned(cells)
    staying = {cell.weights for cell, stays in zip(cells, plan.residents, strict=True) if stays}
    assert len(staying) == 8  # a part takes a vEU for itself: 132 // 16 layers
    check(cells, plan, H200)
