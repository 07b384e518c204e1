"""Runs that are watched by CUPTI, with a stand-in for the package that reads its records."""

from __future__ import annotations

import sys

import pytest
from fake_cupti import ActivityKind, FakeCupti, copy, kernel

from tvm_tile.errors import DriverError, ProfileError
from tvm_tile.report.activities import Activity
from tvm_tile.report.activities import ActivityKind as Kind
from tvm_tile.runtime.drivers.cupti import Cupti, Record, activities_of, load_cupti
from tvm_tile.runtime.drivers.timing import WARM_UP_CALLS


def nothing() -> None:
    """A run, or a wait, that does nothing."""


def watcher(failing: str = "") -> Cupti:
    fake = FakeCupti(failing)
    return Cupti(fake, fake)


class Model:
    """A run is two kernels, of which the first is recorded last, and a copy."""

    def __init__(self, fake: FakeCupti) -> None:
        self.fake = fake
        self.runs = 0

    def __call__(self) -> None:
        now = max(self.fake.now, self.fake.free)
        self.fake.now += 500  # the host is faster than the device
        self.fake.free = now + 700
        self.runs += 1
        self.fake.ran([kernel(f"b{self.runs}_kernel", now + 300, now + 500)])
        self.fake.ran([copy(12, now + 600, now + 650), copy(0, now, now, ActivityKind.RUNTIME)])
        self.fake.ran([kernel("a_kernel", now + 200, now + 400, stream=8)])


@pytest.mark.parametrize("is_prompt", [True, False])
def test_each_run_has_its_own_activities_from_when_it_was_let_go(is_prompt: bool) -> None:
    fake = FakeCupti()
    fake.is_prompt = is_prompt
    model = Model(fake)
    runs = Cupti(fake, fake).watch(model, lambda: None, 2)
    assert model.runs == WARM_UP_CALLS + 2
    for number, run in enumerate(runs, WARM_UP_CALLS + 1):
        assert run == (
            Activity("a_kernel", 200e-9, 400e-9, 8),
            Activity(f"b{number}_kernel", 300e-9, 500e-9, 7),
            Activity("copy of 12 bytes", 600e-9, 650e-9, 7, Kind.COPY),
        )
    assert not fake.enabled


def test_clocks_that_differ_a_little_do_not_mix_runs() -> None:
    times = [(1000, 2000), (2100, 3000)]
    records = [Record("k", begin, begin + 9, 0, Kind.KERNEL) for begin in (990, 1500, 2040, 2070)]
    first, second = activities_of(times, records)
    assert [one.begin for one in first] == pytest.approx([0, 510e-9, 1050e-9])
    assert [one.begin for one in second] == [0]  # not before the host began


@pytest.mark.parametrize(("start", "end"), [(0, 0), (0, 5), (9, 5)])
def test_a_record_without_times_is_refused(start: int, end: int) -> None:
    fake = FakeCupti()
    records = [kernel("a", start, end), kernel("b", 1, 2)]
    with pytest.raises(ProfileError, match="no times for 4 of 9 records"):
        Cupti(fake, fake).watch(lambda: fake.ran(records), nothing, 1)
    assert not fake.enabled


def test_a_run_without_records_is_refused() -> None:
    with pytest.raises(ProfileError, match="nothing of 4 of 4 runs"):
        watcher().watch(nothing, nothing, 1)


@pytest.mark.parametrize("failing", ["activity_register_callbacks", "activity_enable"])
def test_what_cupti_says_is_told(failing: str) -> None:
    with pytest.raises(ProfileError, match="INSUFFICIENT_PRIVILEGES"):
        watcher(failing).watch(nothing, nothing, 1)


def test_a_driver_that_fails_is_told() -> None:
    fake = FakeCupti()
    fake.status = 700
    with pytest.raises(DriverError, match="700"):
        Cupti(fake, fake).watch(nothing, nothing, 1)


def test_nothing_is_watched_behind_a_run_that_failed() -> None:
    fake = FakeCupti()

    def run() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        Cupti(fake, fake).watch(run, nothing, 1)
    assert not fake.enabled


def test_a_missing_package_is_named_with_what_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupti", None)
    load_cupti.cache_clear()
    with pytest.raises(ProfileError, match=r'pip install "tvm-tile\[profile\]"'):
        load_cupti()
