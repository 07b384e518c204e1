"""How many bytes lie between kernels while each of them runs."""

from __future__ import annotations

import json

from page_reports import report

from tvm_tile.report.kernel_graph import CallValue, KernelCall, KernelGraph
from tvm_tile.report.shown import Report


def graph(
    calls: list[tuple[tuple[int, ...], tuple[int, ...]]],
    sizes: list[int | None],
    outputs: tuple[int, ...],
    homes: dict[int, int] | None = None,
) -> KernelGraph:
    tensors = [CallValue(("1",), "int8", s, (homes or {}).get(n)) for n, s in enumerate(sizes)]
    made = [KernelCall(f"k{n}", (), *own) for n, own in enumerate(calls)]
    return KernelGraph("main", tuple(made), tuple(tensors), (("x", 0),), (outputs,))


def test_a_value_is_needed_from_the_call_that_makes_it_to_the_last_that_reads_it() -> None:
    chain = [((0,), (1,)), ((1,), (2,)), ((2,), (3,)), ((3, 1), (4,))]
    found = graph(chain, [1000, 1, 10, 100, 5], (4,))
    assert found.live_bytes == (1, 11, 111, 106)


def test_outputs_are_needed_to_the_end_and_what_nobody_reads_while_it_is_made() -> None:
    found = graph([((0,), (1, 2)), ((0,), (3,))], [1000, 1, 10, 100], (1,))
    assert found.live_bytes == (11, 101)


def test_what_is_written_over_another_value_takes_no_memory_but_keeps_that_one() -> None:
    found = graph([((0,), (1,)), ((1,), (2,)), ((2,), (3,))], [9, 4, 4, 1], (3,), {2: 1})
    assert found.live_bytes == (4, 4, 5)


def test_tensors_of_unknown_sizes_are_left_out() -> None:
    assert graph([((0,), (1,)), ((1,), (2,))], [None, None, 3], (2,)).live_bytes == (0, 3)


def test_a_report_keeps_the_graph_and_reads_reports_without_one() -> None:
    own = report()
    text = own.to_json()
    assert Report.from_json(text) == own
    data = json.loads(text)
    del data["graphs"], data["planned"], data["limits"]["roofs"]
    older = Report.from_json(json.dumps(data))
    assert older.graphs == ()
    assert older.limits is not None
    assert older.limits.roofs is None
