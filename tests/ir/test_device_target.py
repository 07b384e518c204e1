"""Which record a TVM target stands for. No GPU is needed; with one, its own record wins."""

from __future__ import annotations

import pytest
import tvm
from tvm.target import Target

from tvm_tile.compat import make_target
from tvm_tile.device import Device, MemoryLevel, devices
from tvm_tile.device.detect import device_for_target, load_cuda_runtime, resolve_device
from tvm_tile.device.rocm import ROCM_DEVICES
from tvm_tile.errors import UnknownDeviceError

NO_GPU = not (load_cuda_runtime() and tvm.cuda(0).exist)


@pytest.mark.parametrize("device", devices(), ids=lambda device: device.name)
def test_a_target_made_from_a_record_finds_the_same_architecture(device: Device) -> None:
    target = Target(dict(device.target))
    assert str(target.kind.name) == dict(device.target)["kind"]
    found = device_for_target(target)
    assert dict(found.target) == dict(device.target)


@pytest.mark.parametrize("device", ROCM_DEVICES, ids=lambda device: device.name)
def test_amds_kernels_are_lowered_as_cuda_with_their_own_waves(device: Device) -> None:
    target = make_target(device)
    assert str(target.kind.name) == "cuda"
    assert int(target.attrs["thread_warp_size"]) == device.warp_size
    assert int(target.attrs["max_num_threads"]) == device.max_threads_per_block


@pytest.mark.parametrize("device", ROCM_DEVICES, ids=lambda device: device.name)
def test_tvms_own_code_for_rocm_takes_no_larger_blocks(device: Device) -> None:
    assert device_for_target(Target(dict(device.target))).max_threads_per_block == 256


@pytest.mark.skipif(not NO_GPU, reason="the GPU that is present is preferred")
@pytest.mark.parametrize(
    ("target", "name"),
    [
        ({"kind": "cuda", "arch": "sm_90"}, "nvidia/h200"),
        ({"kind": "cuda", "arch": "sm_90a"}, "nvidia/h200"),
        ({"kind": "cuda", "arch": "sm_75"}, "nvidia/t4"),
        ({"kind": "cuda", "arch": "sm_120"}, "nvidia/rtx5090"),
        ({"kind": "rocm", "mcpu": "gfx90a"}, "amd/mi250x"),
        ("opencl", "emulated"),
        ("nvidia/nvidia-a100", "nvidia/a100"),
    ],
)
def test_a_target_finds_the_closest_record(target: str | dict[str, str], name: str) -> None:
    assert device_for_target(Target(target)).name == name


def test_an_unknown_generation_keeps_to_the_targets_limits() -> None:
    target = {"kind": "cuda", "arch": "sm_87", "max_shared_memory_per_block": 101376}
    device = device_for_target(Target(target))
    assert dict(device.target)["arch"] == "sm_87"
    assert device.memory(MemoryLevel.SHARED).capacity == 101376
    unlimited = device_for_target(Target({"kind": "cuda", "arch": "sm_87"}))
    assert unlimited.memory(MemoryLevel.SHARED).capacity == 49152


@pytest.mark.parametrize("target", ["llvm", {"kind": "rocm", "mcpu": "gfx1030"}, None])
def test_other_targets_are_refused(target: str | dict[str, str] | None) -> None:
    with pytest.raises(UnknownDeviceError, match="record"):
        device_for_target(target and Target(target))


def test_an_architecture_that_tvm_guessed_is_refused() -> None:
    with pytest.raises(UnknownDeviceError, match="sm_70 or newer"):
        device_for_target(Target({"kind": "cuda", "arch": "sm_50"}))


def test_a_target_is_a_device() -> None:
    target = tvm.target.Target({"kind": "cuda", "arch": "sm_80"})
    assert resolve_device(target) == device_for_target(target)
