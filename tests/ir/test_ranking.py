"""The choices of all rules together: which is taken, which is the next, and which are not asked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from chain_cases import CHAIN_CASES
from gates_cases import GATES_CASES
from kernel_cases import CASES
from kernels import Case, prim_functions
from mma_cases import MMA_CASES
from tvm import tirx
from wgmma_cases import WGMMA_CASES, product_case

from tvm_tile.device import Device, find_device
from tvm_tile.graph.extract import extract
from tvm_tile.schedule import Choice, Finder, Scheduled, Task, candidates, ranking
from tvm_tile.tile.rules import CONTRACTION, MMA, ROW, WGMMA, Rule, RunnerUp

pytestmark = pytest.mark.bank(6)

A100, H200 = find_device("nvidia/a100"), find_device("nvidia/h200")


def task(entry: Case, device: Device = H200) -> Task:
    """The last function of a case as a task."""
    func = list(prim_functions(entry, device).values())[-1]
    graph = extract(func)
    assert graph is not None
    return Task(func, graph, device)


@pytest.fixture(scope="module")
def given() -> Task:
    """A task that no rule looks at."""
    return task(product_case("NN", 16, 16, 16))


def naming(rule: Rule, *seconds: float, fails: Sequence[int] = ()) -> Callable[..., Any]:
    """A rule's choices with these predicted times, of which TVM cannot write some."""

    def choice(number: int) -> Choice:
        tile = f"{rule} {number}"
        done = Scheduled(tirx.PrimFunc([], tirx.Evaluate(0)), rule, tile, 1, 1, seconds[number])
        return Choice(rule, tile, seconds[number], lambda: None if number in fails else done)

    return lambda _, count: [choice(number) for number in range(len(seconds))][:count]


def taken(monkeypatch: pytest.MonkeyPatch, given: Task, topk: int, *finders: Finder) -> list[str]:
    monkeypatch.setattr(ranking, "RULES", finders)
    return [done.tile for done in candidates(given, topk)]


def test_the_choices_of_all_rules_are_by_time(monkeypatch: pytest.MonkeyPatch, given: Task) -> None:
    rules = (Finder(WGMMA, naming(WGMMA, 1.0, 1.1, 1.2)), Finder(MMA, naming(MMA, 0.99, 1.15)))
    found = taken(monkeypatch, given, 9, *rules)
    assert found == ["mma 0", "wgmma 0", "wgmma 1", "mma 1", "wgmma 2"]
    assert taken(monkeypatch, given, 2, *rules) == found[:2]


def test_of_equals_the_rule_that_is_asked_first_is_taken(
    monkeypatch: pytest.MonkeyPatch, given: Task
) -> None:
    rules = Finder(WGMMA, naming(WGMMA, 1.0)), Finder(MMA, naming(MMA, 1.0))
    assert taken(monkeypatch, given, 1, *rules) == ["wgmma 0"]
    assert taken(monkeypatch, given, 1, *reversed(rules)) == ["mma 0"]


def test_the_next_by_time_is_taken_where_tvm_cannot_write_the_first(
    monkeypatch: pytest.MonkeyPatch, given: Task
) -> None:
    first = Finder(WGMMA, naming(WGMMA, 1.0, 1.01, fails=[0]))
    assert taken(monkeypatch, given, 1, first, Finder(MMA, naming(MMA, 1.02))) == ["wgmma 1"]


def test_rules_that_were_not_asked_are_where_tvm_writes_none_of_the_others(
    monkeypatch: pytest.MonkeyPatch, given: Task
) -> None:
    first = Finder(CONTRACTION, naming(CONTRACTION, 1.0, fails=[0]))
    assert taken(monkeypatch, given, 1, first, Finder(ROW, naming(ROW, 9.0))) == ["row 0"]
    assert taken(monkeypatch, given, 1, first) == []


def test_the_runner_up_is_the_best_of_another_rule(
    monkeypatch: pytest.MonkeyPatch, given: Task
) -> None:
    first, second = Finder(WGMMA, naming(WGMMA, 1.0, 1.01)), Finder(MMA, naming(MMA, 0.99))
    monkeypatch.setattr(ranking, "RULES", (first, second))
    found = candidates(given, 3)
    kept = RunnerUp("mma", "mma 0", 0.99), RunnerUp("wgmma", "wgmma 0", 1.0)
    assert [done.runner_up for done in found] == [kept[1], kept[0], kept[0]]
    (alone,) = candidates(given, 1, (MMA,))
    assert (alone.rule, alone.runner_up) == (MMA, None)


def test_who_cannot_be_faster_is_not_asked(monkeypatch: pytest.MonkeyPatch, given: Task) -> None:
    def asked(*_: Any) -> Any:
        raise AssertionError("asked")

    slow = Finder(CONTRACTION, asked, lambda _: 1.0)
    assert taken(monkeypatch, given, 1, Finder(MMA, naming(MMA, 1.0)), slow) == ["mma 0"]


def test_a_product_is_compared_with_the_other_matrix_unit_rule() -> None:
    (found,) = candidates(task(product_case("NT", 256, 1024, 1024)), 1)
    assert found.runner_up is not None
    assert {found.rule.name, found.runner_up.rule} == {"wgmma", "mma"}


EVERY = (
    *(pytest.param(entry, H200, id=entry.name) for entry in CASES[::3]),
    *(pytest.param(entry, H200, id=entry.name) for entry in WGMMA_CASES[::12]),
    *(pytest.param(entry, H200, id=entry.name) for entry in (CHAIN_CASES[0], GATES_CASES[0])),
    *(pytest.param(entry, A100, id=entry.name) for entry in MMA_CASES[::9]),
)


@pytest.mark.parametrize(("entry", "device"), EVERY)
def test_what_is_written_is_what_was_named(entry: Case, device: Device) -> None:
    given = task(entry, device)
    found = [choice for finder in ranking.RULES for choice in finder.find(given, 2)]
    for choice in found:
        done = choice()
        assert done is None or (done.rule, done.tile, done.seconds) == (
            choice.rule,
            choice.tile,
            choice.seconds,
        )


PRODUCTS = (
    *(pytest.param(entry, H200, id=entry.name) for entry in CASES if "contraction" in entry.rules),
    *(pytest.param(entry, H200, id=entry.name) for entry in WGMMA_CASES[::4]),
    *(pytest.param(entry, A100, id=entry.name) for entry in MMA_CASES[::3]),
)


@pytest.mark.parametrize(("entry", "device"), PRODUCTS)
def test_no_tile_is_faster_than_the_least_time(entry: Case, device: Device) -> None:
    given = task(entry, device)
    for finder in (finder for finder in ranking.RULES if finder.least_seconds(given) > 0):
        least = finder.least_seconds(given)
        assert all(least <= choice.seconds for choice in finder.find(given, 1)), finder.rule


@pytest.mark.parametrize("rule", [MMA, CONTRACTION])
def test_of_the_least_time_most_is_arithmetic_where_products_are_large(rule: Rule) -> None:
    (finder,) = (finder for finder in ranking.RULES if finder.rule is rule)
    tasks = [task(product_case("NT", size, size, size)) for size in (1024, 2048)]
    small, large = (finder.least_seconds(own) for own in tasks)
    assert 4 * small < large < 8 * small
