"""Which kernels start early: the model of time, and which devices and options have that."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tvm_tile.device import devices, find_device
from tvm_tile.device.describe import GpuProperties, describe_gpu
from tvm_tile.device.record import from_json, to_json
from tvm_tile.device.times import DependentLaunchTimes
from tvm_tile.errors import DeviceRecordError, OptionError
from tvm_tile.launches.dependent_launches import early_step_seconds
from tvm_tile.options import Options
from tvm_tile.stages.forced import Forced

H200 = find_device("nvidia/h200")
MEASURED = replace(H200, dependent_launches=DependentLaunchTimes("a test", 5e-7, 1e-7, 0.0, 0.0))


def test_on_gpus_that_have_them_each_step_starts_early() -> None:
    for device in devices():
        saved, times = early_step_seconds(9, 1, device), device.dependent_launches
        if times is None:
            assert saved is None
        else:
            assert saved == times.overlap_seconds - times.wait_seconds > 0


def test_a_device_without_them_has_none_even_if_forced() -> None:
    a100 = find_device("nvidia/a100")
    assert early_step_seconds(4, 4, a100, forced=True) is None


def test_a_step_gains_what_overlaps_without_the_wait() -> None:
    assert early_step_seconds(2, 2, MEASURED) == pytest.approx(5e-7 - 1e-7)


def test_what_no_kernel_precedes_only_pays_for_the_wait() -> None:
    assert early_step_seconds(3, 0, MEASURED) is None
    # One step in six pays for the six waits only if the overlap is six times the wait.
    assert early_step_seconds(6, 1, MEASURED) is None
    assert early_step_seconds(4, 1, MEASURED) is not None
    assert early_step_seconds(6, 1, MEASURED, forced=True) is not None


def test_long_kernels_lose_more_than_an_early_start_gains() -> None:
    assert early_step_seconds(2, 2, H200, 1e-6) is not None
    assert early_step_seconds(2, 2, H200, 1e-4) is None
    assert early_step_seconds(2, 2, H200, 1e-4, loaded=0.1) is not None
    assert early_step_seconds(2, 2, H200, 1e-4, forced=True) is not None


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
        (
            {"dependent_launches": DependentLaunchTimes("a test", -1e-7, 0.0, 0.0, 0.0)},
            "overlap_seconds must be zero or more",
        ),
        (
            {"dependent_launches": DependentLaunchTimes("a test", 1e-7, -1e-9, 0.0, 0.0)},
            "wait_seconds must be zero or more",
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
