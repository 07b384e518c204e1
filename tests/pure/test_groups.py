"""Which operators become persistent kernels: convex groups in an order that runs, worth it."""

from __future__ import annotations

import random
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from roperators import lstm, nasnet, plain, random_graph

import tvm_tile
from tvm_tile.plan.check_plan import check
from tvm_tile.plan.coschedule import MOST_BODIES
from tvm_tile.plan.execution_plan import Group, RKernel, ROperator, dependences
from tvm_tile.plan.groups import MARGIN, partition

H200 = tvm_tile.find_device("nvidia/h200")
LARGE = RKernel(800, 256, 100_000, 200, 14e-6, 6e-6)


def seconds(groups: tuple[Group, ...]) -> float:
    return sum(g.plan.seconds if g.plan else g.apart_seconds for g in groups)


def checked(operators: tuple[ROperator, ...], allowed: tuple[bool, ...]) -> tuple[Group, ...]:
    """The groups: each operator in one, and none before what it reads, so that all are convex."""
    groups = partition(operators, H200, allowed)
    when = {number: place for place, g in enumerate(groups) for number in g.operators}
    assert sorted(n for g in groups for n in g.operators) == list(range(len(operators)))
    for number, before in enumerate(dependences(operators)):
        assert all(when[n] <= when[number] for n in before)
    for group in groups:
        assert list(group.operators) == sorted(group.operators)
        if group.plan is None:
            assert len(group.operators) == 1
            assert group.reason
            continue
        members = tuple(operators[number] for number in group.operators)
        assert all(allowed[number] for number in group.operators)
        assert len(group.plan.bodies(members)) <= MOST_BODIES
        assert group.plan.seconds < (1 - MARGIN) * group.apart_seconds
        check(members, group.plan, H200)
    return groups


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32), count=st.integers(1, 60))
def test_groups_are_convex_and_worth_it(seed: int, count: int) -> None:
    rng = random.Random(seed)
    operators = list(random_graph(rng, count))
    for number in range(count):
        if rng.random() < 0.1:
            large = replace(operators[number], choices=(LARGE,), alone_seconds=40e-6, body=99)
            operators[number] = replace(large, weights=None)
    groups = checked(tuple(operators), tuple(rng.random() < 0.9 for _ in operators))
    assert seconds(groups) <= sum(o.alone_seconds for o in operators)


def test_whole_models_become_much_shorter() -> None:
    for operators in (lstm(), nasnet()):
        groups = checked(operators, (True,) * len(operators))
        assert seconds(groups) < 0.25 * sum(o.alone_seconds for o in operators)


def chain(count: int, large: int) -> tuple[ROperator, ...]:
    small = [ROperator(f"o{n}", (plain(20, 1e-6),), (n,), (n + 1,), 4e-6) for n in range(count)]
    small[large] = replace(small[large], choices=(LARGE,), alone_seconds=40e-6, body=1)
    return tuple(small)


def test_a_large_operator_divides_a_chain() -> None:
    groups = checked(chain(21, 10), (True,) * 21)
    assert [len(group.operators) for group in groups] == [10, 1, 10]
    assert groups[1].reason == "faster as a launch of its own"


def test_an_operator_that_loses_less_than_a_launch_stays_inside() -> None:
    operators = list(chain(21, 10))
    operators[10] = replace(operators[10], choices=(plain(132, 4e-6),), alone_seconds=3e-6)
    assert len(checked(tuple(operators), (True,) * 21)) == 1


def test_what_stays_apart_moves_out_of_the_way() -> None:
    """A foreign kernel in the middle of the order that reads nothing of the group, and one last."""
    operators = list(chain(20, 19))
    operators[19] = replace(operators[18], name="more", reads=(19,), writes=(20,))
    operators.insert(7, ROperator("foreign", (), (0,), (70,), 5e-6))
    operators[15] = replace(operators[15], reads=(14, 70))
    operators.insert(12, ROperator("leaf", (), (3,), (71,), 5e-6))
    allowed = tuple(bool(o.choices) for o in operators)
    groups = checked(tuple(operators), allowed)
    assert [len(group.operators) for group in groups] == [1, 20, 1]
    assert "cannot" not in groups[1].reason
    assert groups[0].reason == groups[2].reason == "not one that a persistent kernel can take in"


def test_a_foreign_kernel_on_the_path_divides() -> None:
    operators = list(chain(21, 20))
    operators[8] = replace(operators[8], choices=())
    groups = checked(tuple(operators[:20]), tuple(bool(o.choices) for o in operators[:20]))
    assert [len(group.operators) for group in groups] == [8, 1, 11]


def test_too_much_code_is_divided() -> None:
    operators = tuple(replace(o, body=number // 2) for number, o in enumerate(chain(120, 0)[1:]))
    groups = checked(operators, (True,) * len(operators))
    assert [group.plan is not None for group in groups] == [True] * 3


def test_little_to_win_is_left_apart() -> None:
    two = chain(3, 2)[:2]
    groups = checked(tuple(replace(o, alone_seconds=1.6e-6) for o in two), (True, True))
    assert all(group.plan is None for group in groups)


def test_a_device_without_a_barrier_runs_everything_apart() -> None:
    groups = partition(chain(5, 4), replace(H200, grid_barrier_latency=None), (True,) * 5)
    assert [group.plan for group in groups] == [None] * 5


def test_no_operators_are_no_groups() -> None:
    assert partition((), H200, ()) == ()
