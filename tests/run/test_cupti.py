"""Runs that are watched by CUPTI, with a stand-in for the package that reads its records."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
from fake_cupti import ActivityKind, FakeCupti, copy, kernel

from tvm_tile.errors import DriverError, ProfileError
from tvm_tile.plan.activities import Activity
from tvm_tile.plan.activities import ActivityKind as Kind
from tvm_tile.runtime.cupti import Cupti, load_cupti
from tvm_tile.runtime.timing import WARM_UP_CALLS


def watcher(failing: str = "") -> Cupti:
    fake = FakeCupti(failing)
    return Cupti(fake, fake)


def running(cupti: FakeCupti, start: int = 1000) -> Iterator[None]:
    """Each step is a run of two kernels, the first of which is recorded last, and a copy."""
    while True:
        cupti.now = start
        cupti.ran([kernel("b_kernel", start + 300, start + 500)])
        cupti.ran([copy(12, start + 600, start + 650), copy(0, start, start, ActivityKind.RUNTIME)])
        cupti.ran([kernel("a_kernel", start + 200, start + 400, stream=8)])
        yield
        start += 10_000


def test_each_run_has_its_own_activities_from_when_the_host_began() -> None:
    fake = FakeCupti()
    runs, steps = running(fake), 0

    def run() -> None:
        nonlocal steps
        steps += 1
        next(runs)

    fake.now = 1000
    first, second = Cupti(fake, fake).watch(run, 2)
    assert steps == WARM_UP_CALLS + 2
    assert [one.name for one in first] == ["a_kernel", "b_kernel", "copy of 12 bytes"]
    assert [one.stream for one in first] == [8, 7, 7]
    assert [one.kind for one in first] == [Kind.KERNEL, Kind.KERNEL, Kind.COPY]
    assert [one.seconds for one in first] == pytest.approx([200e-9, 200e-9, 50e-9])
    assert [one.begin - second[0].begin for one in second] == pytest.approx([0, 100e-9, 400e-9])


def test_times_count_from_the_host_and_never_from_before_it() -> None:
    fake = FakeCupti()
    fake.now = 500

    def run() -> None:
        fake.ran([kernel("a_kernel", 700, 900)])

    assert Cupti(fake, fake).watch(run, 1) == ((Activity("a_kernel", 200e-9, 400e-9, 7),),)
    fake.now = 750  # the clocks differ a little
    ((only,),) = Cupti(fake, fake).watch(run, 1)
    assert only.begin == 0


@pytest.mark.parametrize(("start", "end"), [(0, 0), (0, 5), (9, 5)])
def test_a_record_without_times_is_refused(start: int, end: int) -> None:
    fake = FakeCupti()
    with pytest.raises(ProfileError, match="no times for 1 of 2 records"):
        Cupti(fake, fake).watch(lambda: fake.ran([kernel("a", start, end), kernel("b", 1, 2)]), 1)
    assert not fake.enabled


def test_a_run_without_records_is_refused() -> None:
    with pytest.raises(ProfileError, match="0 of 0 records"):
        watcher().watch(lambda: None, 1)


@pytest.mark.parametrize("failing", ["activity_register_callbacks", "activity_enable"])
def test_what_cupti_says_is_told(failing: str) -> None:
    with pytest.raises(ProfileError, match="INSUFFICIENT_PRIVILEGES"):
        watcher(failing).watch(lambda: None, 1)


def test_a_driver_that_fails_is_told() -> None:
    fake = FakeCupti()
    fake.status = 700
    with pytest.raises(DriverError, match="700"):
        Cupti(fake, fake).watch(lambda: None, 1)


def test_nothing_is_watched_behind_a_run_that_failed() -> None:
    fake = FakeCupti()

    def run() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        Cupti(fake, fake).watch(run, 1)
    assert not fake.enabled


def test_a_missing_package_is_named_with_what_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupti", None)
    load_cupti.cache_clear()
    with pytest.raises(ProfileError, match=r'pip install "tvm-tile\[profile\]"'):
        load_cupti()
