"""The drawn operators: the same each time, of other shapes, and sound."""

from __future__ import annotations

from collections import Counter

from bench.suites import drawn, ops


def test_twenty_operators_the_same_each_time() -> None:
    found = drawn.workloads()
    assert len(found) == 20
    assert len({workload.name for workload in found}) == 20
    assert found == drawn.workloads()
    assert set(Counter(w.family for w in found)) == set(Counter(w.family for w in ops.workloads()))


def test_no_shape_is_of_the_suite() -> None:
    known = {workload.sizes for workload in ops.workloads()}
    assert not known & {workload.sizes for workload in drawn.workloads()}


def test_windows_fit_and_outputs_follow() -> None:
    for workload in drawn.workloads():
        sizes = dict(workload.sizes)
        if "HO" not in sizes:
            continue
        assert int(sizes["H"]) + 2 * int(sizes["pad"]) >= int(sizes["KH"])
        assert int(sizes["HO"]) >= 1
        last = (int(sizes["HO"]) - 1) * int(sizes["stride"]) + int(sizes["KH"])
        assert last <= int(sizes["H"]) + 2 * int(sizes["pad"]) < last + int(sizes["stride"])
