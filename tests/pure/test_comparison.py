"""Two compilations side by side: what is matched, and that no time is lost or counted twice."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tvm_tile.report.activities import Activity
from tvm_tile.report.compiled import KernelReport
from tvm_tile.report.limits import Limits
from tvm_tile.report.origin import Origin
from tvm_tile.report.shown import Comparison, Profile, Report, compare_profiles, compare_reports

US = 1e-6


def kernel(name: str, seconds: float, *names: tuple[str, ...], calls: int = 1) -> KernelReport:
    """One whose calls take so many microseconds, all together."""
    each = seconds * US / calls
    return KernelReport(name, "relu", "row", 1, 32, "", each, 1e6, "", calls=calls, names=names)


def report(*kernels: KernelReport, device: str = "nvidia/h200") -> Report:
    return Report(device, kernels, (), limits=Limits(1e12, False, 2e-6))


def told(comparison: Comparison) -> list[tuple[tuple[str, ...], float, float]]:
    return [
        (change.names, round(change.first / US, 6), round(change.second / US, 6))
        for change in comparison.changes
    ]


def test_kernels_are_matched_by_what_they_compute_not_by_their_names() -> None:
    first = report(kernel("k1", 10, ("conv",)), kernel("k2", 5, ("head",)))
    second = report(kernel("other", 4, ("conv",)), kernel("k2", 5, ("head",)))
    found = compare_reports(first, second)
    assert told(found) == [(("conv",), 10, 4), (("head",), 5, 5)]
    assert [change.names for change in found.gained] == [("conv",)]
    assert not found.lost
    assert found.seconds == pytest.approx((15 * US, 9 * US))


def test_what_is_joined_on_one_side_only_is_one_change() -> None:
    first = report(kernel("k1", 10, ("conv", "bn")), kernel("k2", 5, ("pool",)))
    second = report(kernel("all", 20, ("conv", "bn", "pool")))
    (change,) = compare_reports(first, second).changes
    assert (change.first_kernels, change.second_kernels) == (("k1", "k2"), ("all",))
    assert change.difference == pytest.approx(5 * US)


def test_chains_of_joins_are_one_change() -> None:
    first = report(kernel("ab", 1, ("a", "b")), kernel("cd", 2, ("c", "d")))
    second = report(kernel("bc", 4, ("b", "c")), kernel("a", 8, ("a",)), kernel("d", 16, ("d",)))
    assert told(compare_reports(first, second)) == [(("a", "b", "c", "d"), 3, 28)]


def test_a_kernel_of_several_layers_does_not_hold_these_together() -> None:
    layers = tuple((f"layer{n}",) for n in range(3))
    first = report(kernel("k", 30, *layers, calls=3))
    second = report(kernel("k1", 4, ("layer0",)), kernel("k2", 12, *layers[1:], calls=2))
    found = compare_reports(first, second)
    assert told(found) == [(("layer1",), 20, 12), (("layer0",), 10, 4)]
    assert [change.places for change in found.changes] == [2, 1]


def test_what_is_on_one_side_only_is_told() -> None:
    found = compare_reports(report(kernel("k", 3, ("a",))), report(kernel("k", 2, ("b",))))
    assert told(found) == [(("a",), 3, 0), (("b",), 0, 2)]
    assert [change.names for change in found.lost] == [("b",)]


def test_without_names_operators_tell() -> None:
    found = compare_reports(report(kernel("k", 3)), report(kernel("other", 4)))
    assert told(found) == [(("(relu)",), 3, 4)]


def test_profiles_are_compared_by_what_was_measured() -> None:
    def profile(seconds: float) -> Profile:
        run = (Activity("k_kernel", 0.0, seconds * US), Activity("foreign", 0.0, US))
        made = report(kernel("k", 3, ("a",)), kernel("never", 9, ("b",)))
        return Profile(made, "CUPTI", (seconds + 1) * US, 0.0, (run,))

    found = compare_profiles(profile(7), profile(5))
    assert told(found) == [(("a",), 7, 5), (("foreign",), 1, 1)]
    assert found.is_measured
    assert found.seconds == pytest.approx((8 * US, 6 * US))
    assert "b takes 2.0 us less: it is 1.33 times as fast" in str(found)


NAMES = st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=3, unique=True).map(tuple)
KERNELS = st.lists(
    st.tuples(st.lists(NAMES, max_size=3, unique=True), st.integers(0, 100)), max_size=6
)


@given(KERNELS, KERNELS)
def test_no_time_is_lost_and_no_name_is_in_two_changes(
    first: list[tuple[list[tuple[str, ...]], int]], second: list[tuple[list[tuple[str, ...]], int]]
) -> None:
    numbers = count()
    reports = [
        report(*(kernel(f"k{next(numbers)}", seconds, *names) for names, seconds in side))
        for side in (first, second)
    ]
    found = compare_reports(*reports)
    for side, made in (("first", reports[0]), ("second", reports[1])):
        total = sum(getattr(change, side) for change in found.changes)
        assert total == pytest.approx(made.predicted_seconds)
        kernels = {name for c in found.changes for name in getattr(c, f"{side}_kernels")}
        assert kernels == {k.name for k in made.kernels}
    assert sum(change.difference for change in found.changes) == pytest.approx(
        found.seconds[1] - found.seconds[0]
    )


def test_the_screen_tells_both_sides_and_what_differs() -> None:
    origins = Origin("0.1.0", "0f3a99c1", "0.27", ()), Origin("0.1.0", "", "0.27", ("weld=False",))
    kept = kernel("k", 90, *(((f"layer{n}.conv", f"layer{n}.relu")) for n in range(3)), calls=3)
    first = replace(report(kept, kernel("k1", 12, ("head.fc",))), origin=origins[0], weights=10**6)
    apart = (kernel("k2", 8, ("head.fc",)), kernel("k3", 60, ("tail",)))
    second = replace(report(kept, *apart), origin=origins[1])
    assert str(compare_reports(first, second)).splitlines() == [
        "a: nvidia/h200, a run takes 102.0 us predicted, 4.0 us at best",
        "   2 different kernels, 4 launches, moves 4.00 MB, keeps 1.00 MB",
        "   tvm_tile 0.1.0 (code 0f3a99c1), TVM 0.27, default options",
        "b: nvidia/h200, a run takes 158.0 us predicted, 5.0 us at best",
        "   3 different kernels, 5 launches, moves 5.00 MB, keeps 0.00 MB",
        "   tvm_tile 0.1.0, TVM 0.27, weld=False",
        "b takes 56.0 us more: 1.55 times as long",
        "",
        "difference  a        b        kernels  places  computes (first place)",
        "+60.0 us    -        60.0 us  0 -> 1   1       tail",
        "-4.0 us     12.0 us  8.0 us   1 -> 1   1       head.fc",
        "0.0 us in 1 other part of the model",
    ]


def test_however_much_differs_a_screen_is_one() -> None:
    def many(factor: float) -> Report:
        long = "a/very/long/path" * 20
        kernels = [kernel(f"{factor}{n}", factor * (n + 1), (f"{long}{n}",)) for n in range(60)]
        origin = Origin("0.1.0", "0f3a99c1", "0.27", tuple(f"option{n}=1" for n in range(99)))
        return replace(report(*kernels, device="amd/" + "x" * 200), origin=origin)

    lines = str(compare_reports(many(1), many(2))).splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 100


def test_sides_without_a_time_are_told_apart() -> None:
    nothing = compare_reports(report(), report(kernel("k", 1, ("a",))))
    assert "nothing follows" in str(nothing)
    same = compare_reports(report(kernel("k", 1, ("a",))), report(kernel("k", 1, ("a",))))
    assert "both take the same time" in str(same)
    assert not (*same.gained, *same.lost)
