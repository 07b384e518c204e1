"""Which kernels start early: the model of time, and how much each constant is fetched ahead."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tvm_tile.device import devices, find_device
from tvm_tile.device.describe import GpuProperties, describe_gpu
from tvm_tile.device.record import from_json, to_json
from tvm_tile.device.times import DependentLaunchTimes
from tvm_tile.errors import DeviceRecordError, OptionError
from tvm_tile.launches.dependent_launches import Chained, Dependence, dependence, shares
from tvm_tile.options import Options
from tvm_tile.stages.forced import Forced

H200 = find_device("nvidia/h200")
MEASURED = replace(
    H200, dependent_launches=DependentLaunchTimes("a test", 5e-7, 1e-7, 1 << 20, 2e-7)
)


def test_nothing_measured_is_off_unless_forced() -> None:
    chained = Chained(4, 4, 1 << 30)
    unmeasured = replace(H200, dependent_launches=None)
    assert dependence(chained, unmeasured) is None
    assert dependence(chained, unmeasured, forced=True) == Dependence(0, 0.0)


def test_a_device_without_them_has_none_even_if_forced() -> None:
    a100 = find_device("nvidia/a100")
    assert dependence(Chained(4, 4, 1 << 30), a100, forced=True) is None


def test_a_step_gains_what_overlaps_and_what_is_fetched_ahead() -> None:
    found = dependence(Chained(2, 2, 1 << 30), MEASURED)
    assert found is not None
    assert found.ahead_bytes == 1 << 20
    assert found.step_seconds == pytest.approx(5e-7 + 2e-7 - 1e-7)
    half = dependence(Chained(2, 2, 1 << 19), MEASURED)
    assert half is not None
    assert half.ahead_bytes == 1 << 19
    assert half.step_seconds == pytest.approx(5e-7 + 1e-7 - 1e-7)


def test_what_no_kernel_precedes_only_pays_for_the_wait() -> None:
    assert dependence(Chained(3, 0, 1 << 30), MEASURED) is None
    # One step in six pays for the six waits only if the overlap is six times the wait.
    assert dependence(Chained(6, 1, 0), MEASURED) is None
    assert dependence(Chained(4, 1, 0), MEASURED) is not None
    assert dependence(Chained(6, 1, 0), MEASURED, forced=True) is not None


@given(st.lists(st.integers(0, 1 << 24), max_size=6), st.integers(0, 1 << 25))
def test_shares_are_of_the_largest_first(sizes: list[int], ahead: int) -> None:
    found = shares(tuple(sizes), ahead)
    assert sum(found) == min(ahead, sum(sizes))
    assert all(0 <= share <= size for share, size in zip(found, sizes, strict=True))
    by_size = sorted(zip(sizes, found, strict=True), key=lambda pair: -pair[0])
    cut = [share < size for size, share in by_size]
    assert cut == sorted(cut), "what is cut short comes behind what is whole"


def test_devices_know_whether_they_have_them() -> None:
    able = {device.name for device in devices() if device.supports_dependent_launches}
    assert able == {"nvidia/h200", "nvidia/h100", "nvidia/b200", "nvidia/rtx5090"}


@pytest.mark.parametrize(("version", "able"), [((9, 0), True), ((12, 0), True), ((8, 9), False)])
def test_an_unknown_gpu_goes_by_its_compute_capability(
    version: tuple[int, int], able: bool
) -> None:
    gpu = GpuProperties("NVIDIA Some GPU", version, 100, 49152, 80 * 10**9, 50 << 20)
    assert describe_gpu(gpu).supports_dependent_launches == able


def test_a_record_keeps_what_was_measured() -> None:
    assert from_json(to_json(MEASURED)) == MEASURED


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"supports_dependent_launches": False}, "null where supports_dependent_launches"),
        (
            {"dependent_launches": DependentLaunchTimes("a test", -1e-7, 0.0, 0, 0.0)},
            "overlap_seconds must be zero or more",
        ),
        (
            {"dependent_launches": DependentLaunchTimes("a test", 1e-7, 0.0, -1, 0.0)},
            "ahead_bytes must be zero or more",
        ),
    ],
)
def test_a_record_cannot_contradict_itself(changes: dict[str, object], problem: str) -> None:
    with pytest.raises(DeviceRecordError, match=problem):
        from_json(to_json(replace(MEASURED, **changes)))


@pytest.mark.parametrize("value", ["yes", 1, None, 0.0])
def test_options_take_auto_true_and_false(value: object) -> None:
    for right in ("auto", True, False):
        assert Forced(dependent_launches=right).dependent_launches == right  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="dependent_launches"):
        Forced(dependent_launches=value)  # type: ignore[arg-type]


def test_they_are_refused_where_there_are_none() -> None:
    with pytest.raises(OptionError, match=r"compute capability 9\.0"):
        Forced(dependent_launches=True).check_device(find_device("emulated"))
    Options().check_device(find_device("emulated"))
    with pytest.raises(OptionError, match="cuda_graph=False"):
        Forced(dependent_launches=True, cuda_graph=False)


def test_notes_say_what_was_not_measured() -> None:
    (note,) = Options().notes(replace(H200, dependent_launches=None))
    assert "dependent launches are off" in note
    assert not list(Options().notes(MEASURED))
    assert not list(Forced(dependent_launches=False).notes(H200))
    assert not list(Options().notes(find_device("nvidia/a100")))
