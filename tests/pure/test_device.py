"""Device records, the catalog and the description of unknown GPUs."""

from __future__ import annotations

import sys
import types
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tvm_tile.device import Device, MemoryLevel, detect, devices, find_device
from tvm_tile.device.describe import GpuProperties, describe_gpu
from tvm_tile.device.detect import properties_of, read_amd_arch, resolve_device
from tvm_tile.errors import DeviceAbsentError, DeviceTooSmallError, UnknownDeviceError

NAMES = [
    "nvidia/h200",
    "nvidia/h100",
    "nvidia/a100",
    "nvidia/rtx4090",
    "nvidia/rtx3090",
    "nvidia/v100",
    "nvidia/l40s",
    "nvidia/l4",
    "nvidia/a10",
    "nvidia/t4",
    "nvidia/rtx5090",
    "nvidia/b200",
    "amd/mi300x",
    "amd/mi250x",
    "amd/mi355x",
    "amd/rx7900xtx",
    "amd/rx9070xt",
    "emulated",
]


def gpu(
    name: str = "NVIDIA H200",
    compute_version: tuple[int, int] = (9, 0),
    multi_processor_count: int = 132,
    total_global_memory: int = 150 * 10**9,
) -> GpuProperties:
    return GpuProperties(
        name=name,
        compute_version=compute_version,
        multi_processor_count=multi_processor_count,
        max_shared_memory_per_block=49152,
        total_global_memory=total_global_memory,
        l2_capacity=60 << 20,
    )


def test_the_catalog_is_the_documented_list() -> None:
    assert [device.name for device in devices()] == NAMES


@pytest.mark.parametrize("device", devices(), ids=lambda device: device.name)
def test_a_record_is_consistent(device: Device) -> None:
    target = dict(device.target)
    shared = device.memory(MemoryLevel.SHARED)
    assert device.target == tuple(sorted(target.items()))
    assert hash(device) == hash(find_device(device.name))
    assert target["max_shared_memory_per_block"] == shared.capacity
    assert target["max_threads_per_block"] == device.max_threads_per_block
    assert shared.capacity <= device.shared_memory_per_multi_processor
    assert device.max_threads_per_block <= device.max_threads_per_multi_processor
    assert [memory.level for memory in device.memories] == list(MemoryLevel)
    bandwidths = [memory.bandwidth for memory in device.memories]
    assert bandwidths == sorted(bandwidths, reverse=True)
    assert device.memory(MemoryLevel.GLOBAL).bandwidth < device.l2_bandwidth
    assert device.read_bandwidth < device.l2_bandwidth
    assert device.flops("float32") == device.flops("no such dtype") > 1e12
    assert device.matrix_flops == tuple(sorted(device.matrix_flops))
    assert dict(device.matrix_flops)["float16"] >= device.flops("float16")
    assert device.launch_latency <= device.stream_launch_latency * 1.1


def test_h200_has_the_measured_numbers() -> None:
    h200 = find_device("nvidia/h200")
    assert h200.measured is not None
    assert h200.measured.gpu == "NVIDIA H200"
    readings = {(r.quantity, r.variant.partition(" ")[0]): r.value for r in h200.measured.readings}
    bandwidth = h200.memory(MemoryLevel.GLOBAL).bandwidth
    assert bandwidth == pytest.approx(readings["copy_bandwidth", ""], rel=1e-3)
    assert bandwidth == pytest.approx(4.3e12, rel=0.05)
    assert h200.flops("float32") == pytest.approx(readings["peak_flops", "float32"], rel=1e-3)
    assert 0.5e-6 < (h200.grid_barrier_latency or 0) < 3e-6
    assert dict(h200.matrix_flops)["float16"] > 10 * h200.flops("float32")
    assert h200.multi_processor_count == 132
    assert h200.memory(MemoryLevel.SHARED).capacity == 232_448


def test_the_emulated_device_decides_like_h200() -> None:
    emulated, h200 = find_device("emulated"), find_device("nvidia/h200")
    for field in ("peak_flops", "multi_processor_count", "warp_size", "bank_count"):
        assert getattr(emulated, field) == getattr(h200, field)
    # OpenCL has another name for shared memory; nothing else about it differs.
    assert [replace(memory, scope="") for memory in emulated.memories] == [
        replace(memory, scope="") for memory in h200.memories
    ]
    assert emulated.measured is None
    assert not emulated.supports_graphs
    assert not emulated.supports_grid_barrier


def test_names_are_found_in_any_case() -> None:
    assert find_device(" NVIDIA/H200 ") is find_device("nvidia/h200")


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [("h200", "nvidia/h200"), ("nvidia/mi300x", "amd/mi300x"), ("emulate", "emulated")],
)
def test_an_unknown_name_suggests_the_closest_one(name: str, suggestion: str) -> None:
    with pytest.raises(UnknownDeviceError, match=f"did you mean {suggestion}") as raised:
        find_device(name)
    assert raised.value.current == name
    assert all(known in raised.value.remedy for known in NAMES)


def test_a_record_resolves_to_itself() -> None:
    h200 = find_device("nvidia/h200")
    assert resolve_device(h200) is h200
    assert resolve_device("nvidia/h200") is h200


@pytest.mark.parametrize(
    ("properties", "name"),
    [
        (gpu(), "nvidia/h200"),
        (gpu("NVIDIA H100 80GB HBM3", total_global_memory=85 * 10**9), "nvidia/h100"),
        (gpu("NVIDIA A100-SXM4-80GB", (8, 0), 108, 85 * 10**9), "nvidia/a100"),
        (gpu("NVIDIA GeForce RTX 4090", (8, 9), 128, 25 * 10**9), "nvidia/rtx4090"),
        (gpu("NVIDIA GeForce RTX 3090", (8, 6), 82, 25 * 10**9), "nvidia/rtx3090"),
        (gpu("Tesla V100-SXM2-32GB", (7, 0), 80, 34 * 10**9), "nvidia/v100"),
        (gpu("NVIDIA L40S", (8, 9), 142, 48 * 10**9), "nvidia/l40s"),
        (gpu("NVIDIA L4", (8, 9), 58, 24 * 10**9), "nvidia/l4"),
        (gpu("NVIDIA A10", (8, 6), 72, 24 * 10**9), "nvidia/a10"),
        (gpu("Tesla T4", (7, 5), 40, 16 * 10**9), "nvidia/t4"),
        (gpu("NVIDIA GeForce RTX 5090", (12, 0), 170, 34 * 10**9), "nvidia/rtx5090"),
        (gpu("NVIDIA B200", (10, 0), 148, 190 * 10**9), "nvidia/b200"),
    ],
)
def test_a_known_gpu_is_its_record(properties: GpuProperties, name: str) -> None:
    assert describe_gpu(properties) is find_device(name)


def test_a_smaller_sibling_is_scaled() -> None:
    pcie = describe_gpu(gpu("NVIDIA H100 PCIe", (9, 0), 114, 85 * 10**9))
    h100 = find_device("nvidia/h100")
    assert pcie.name == "nvidia/h100-pcie"
    assert pcie.multi_processor_count == 114
    for dtype, rate in h100.matrix_flops:
        assert dict(pcie.matrix_flops)[dtype] == pytest.approx(rate * 114 / 132)
    assert pcie.flops("float32") == pytest.approx(h100.flops("float32") * 114 / 132)
    assert pcie.memory(MemoryLevel.SHARED).capacity == h100.memory(MemoryLevel.SHARED).capacity
    assert dict(pcie.target)["arch"] == "sm_90a"


def test_an_unknown_generation_gets_only_what_is_safe() -> None:
    ampere = describe_gpu(gpu("Orin", (8, 7), 16, 32 * 10**9))
    assert dict(ampere.target)["arch"] == "sm_87"
    assert dict(ampere.target)["max_shared_memory_per_block"] == 49152
    assert ampere.memory(MemoryLevel.SHARED).capacity == 49152
    blackwell = describe_gpu(gpu("NVIDIA GB200", (10, 0), 144, 190 * 10**9))
    assert dict(blackwell.target)["arch"] == "sm_100"
    # Hopper's warpgroup instructions are Hopper's alone.
    assert {i.intrinsic for i in blackwell.matrix_instructions} == {"mma"}


def test_a_sibling_of_a_measured_gpu_is_not_measured() -> None:
    sibling = describe_gpu(gpu("NVIDIA GH200 144G HBM3e", (9, 0), 120, 150 * 10**9))
    assert sibling.name == "nvidia/gh200-144g-hbm3e"
    assert sibling.measured is None


def test_an_old_gpu_is_refused() -> None:
    with pytest.raises(DeviceTooSmallError, match=r"7\.0 or newer") as raised:
        describe_gpu(gpu("Tesla P100", (6, 0), 56, 16 * 10**9))
    assert "Tesla P100 with 6.0" in str(raised.value)


@given(
    st.tuples(st.integers(7, 12), st.integers(0, 9)),
    st.integers(1, 300),
    st.integers(10**9, 10**12),
)
def test_every_gpu_from_volta_on_has_a_consistent_record(
    compute_version: tuple[int, int], count: int, memory: int
) -> None:
    record = describe_gpu(gpu("NVIDIA Something", compute_version, count, memory))
    target = dict(record.target)
    assert target["arch"].startswith(f"sm_{compute_version[0]}{compute_version[1]}")
    assert target["max_shared_memory_per_block"] == record.memory(MemoryLevel.SHARED).capacity
    assert record.multi_processor_count == count
    assert record.target == tuple(sorted(target.items()))


class FakeDriver:
    """Tells the attributes of a GPU as CUDA's driver does."""

    def __init__(self, attributes: dict[int, int]) -> None:
        self._attributes = attributes

    def cuDeviceGetAttribute(self, value: Any, attribute: int, gpu: int) -> int:
        assert gpu == 0
        if attribute not in self._attributes:
            return 1
        value._obj.value = self._attributes[attribute]
        return 0


RTX5080 = FakeDriver(
    {13: 2_617_000, 36: 15_001_000, 37: 256, 39: 1536, 81: 102_400, 82: 65536, 97: 101_376, 106: 24}
)
B300 = FakeDriver(
    {13: 2_032_000, 36: 3_996_000, 37: 8192, 39: 2048, 81: 233_472, 82: 65536, 97: 232_448, 106: 32}
)


def test_an_unknown_gpu_is_what_its_driver_tells() -> None:
    """Its rates are its own generation's: an RTX 5080 is no H100 of 1,274 TFLOP/s."""
    known = gpu("NVIDIA GeForce RTX 5080", (12, 0), 84, 16 * 10**9)
    found = describe_gpu(replace(known, **properties_of(RTX5080)))
    assert found.is_estimated
    assert found.name == "nvidia/geforce-rtx-5080"
    assert dict(found.target)["arch"] == "sm_120"
    assert dict(found.matrix_flops)["bfloat16"] == pytest.approx(112.6e12, rel=0.01)
    assert found.flops("float32") == pytest.approx(56.3e12, rel=0.01)
    assert found.read_bandwidth == pytest.approx(0.96e12, rel=0.01)
    assert found.memory(MemoryLevel.GLOBAL).bandwidth == found.read_bandwidth
    assert found.clock == 2.617e9
    threads, blocks = found.max_threads_per_multi_processor, found.max_blocks_per_multi_processor
    assert (threads, blocks) == (1536, 24)
    assert found.shared_memory_per_multi_processor == 102_400
    assert found.memory(MemoryLevel.SHARED).capacity == 101_376
    assert {i.intrinsic for i in found.matrix_instructions} == {"mma"}


def test_one_architecture_has_not_the_units_of_another() -> None:
    known = gpu("NVIDIA B300", (10, 3), 148, 270 * 10**9)
    found = describe_gpu(replace(known, **properties_of(B300)))
    assert {i.intrinsic for i in found.matrix_instructions} == {"mma"}
    # No more than the tensor memory's unit, by which no kernel of ours multiplies, would reach.
    assert dict(found.matrix_flops)["bfloat16"] < 0.5 * 2.25e15
    assert found.memory(MemoryLevel.SHARED).capacity == 232_448
    assert found.read_bandwidth == pytest.approx(8.18e12, rel=0.01)


@pytest.mark.parametrize(
    ("name", "version", "relative"),
    [
        ("NVIDIA GeForce RTX 4080", (8, 9), "nvidia/rtx4090"),
        ("NVIDIA RTX 4000 Ada Generation", (8, 9), "nvidia/l4"),
        ("NVIDIA GeForce RTX 3080", (8, 6), "nvidia/rtx3090"),
        ("NVIDIA RTX A5000", (8, 6), "nvidia/a10"),
    ],
)
def test_a_card_for_games_has_the_rates_of_one(
    name: str, version: tuple[int, int], relative: str
) -> None:
    found, known = describe_gpu(gpu(name, version, 60, 20 * 10**9)), find_device(relative)
    assert dict(found.matrix_flops)["float16"] / found.flops("float32") == pytest.approx(
        dict(known.matrix_flops)["float16"] / known.flops("float32")
    )


@pytest.mark.parametrize("version", [(7, 5), (10, 3), (11, 0), (12, 1)])
def test_a_driver_that_tells_little_leaves_the_rest_to_the_architecture(
    version: tuple[int, int],
) -> None:
    found = describe_gpu(gpu("NVIDIA Something", version, 48, 100 * 10**9))
    assert found.is_estimated
    assert found.memory(MemoryLevel.GLOBAL).bandwidth < found.l2_bandwidth
    assert found.max_threads_per_multi_processor < 2048 or version[0] in (10, 11)
    assert not any(i.intrinsic == "wgmma" for i in found.matrix_instructions)


class FakeTorchDevice:
    """What can be asked of a ``torch.device``."""

    def __init__(self, type: str, index: int | None = None) -> None:
        self.type, self.index = type, index


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    """A machine without GPUs, and without PyTorch."""
    monkeypatch.setattr(detect, "read_gpu", lambda: None)
    monkeypatch.setattr(detect, "read_amd_arch", lambda: None)
    return Machine(monkeypatch)


class Machine:
    """What GPUs are present."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.patch = patch

    def has_nvidia(self) -> None:
        self.patch.setattr(detect, "read_gpu", gpu)

    def has_amd(self, arch: str = "gfx942") -> None:
        self.patch.setattr(detect, "read_amd_arch", lambda: arch)

    def has_torch(self, hip: str | None = None) -> None:
        version = types.SimpleNamespace(hip=hip)
        module = types.SimpleNamespace(device=FakeTorchDevice, version=version)
        self.patch.setitem(sys.modules, "torch", module)


@pytest.mark.parametrize("name", ["auto", "gpu", "cuda", " CUDA ", "cuda:0"])
def test_a_gpu_that_is_present_has_several_names(name: str, machine: Machine) -> None:
    machine.has_nvidia()
    assert resolve_device(name).name == "nvidia/h200"


@pytest.mark.parametrize("name", ["auto", "gpu", "rocm", "rocm:0"])
def test_amds_are_found(name: str, machine: Machine) -> None:
    machine.has_amd()
    assert resolve_device(name).name == "amd/mi300x"
    machine.has_amd("gfx908")
    with pytest.raises(UnknownDeviceError, match="gfx908"):
        resolve_device(name)


@pytest.mark.parametrize(
    ("name", "kind"),
    [("auto", "a GPU"), ("gpu", "a GPU"), ("cuda", "an NVIDIA GPU"), ("rocm", "an AMD GPU")],
)
def test_without_a_gpu_the_remedy_names_devices(name: str, kind: str, machine: Machine) -> None:
    with pytest.raises(DeviceAbsentError, match=f"{kind} of this machine") as raised:
        resolve_device(name)
    assert "device='emulated'" in raised.value.remedy
    assert all(known in raised.value.remedy for known in NAMES)


def test_a_vendor_has_not_the_others_gpu(machine: Machine) -> None:
    machine.has_amd()
    with pytest.raises(DeviceAbsentError):
        resolve_device("cuda")
    machine.has_nvidia()
    assert resolve_device("rocm").name == "amd/mi300x"


@pytest.mark.parametrize("name", ["cuda:1", "auto:2", FakeTorchDevice("cuda", 1)])
def test_another_index_is_refused_by_name(name: Any, machine: Machine) -> None:
    machine.has_nvidia()
    machine.has_torch()
    with pytest.raises(UnknownDeviceError, match="CUDA_VISIBLE_DEVICES"):
        resolve_device(name)


def test_a_device_of_pytorch(machine: Machine) -> None:
    machine.has_nvidia()
    machine.has_torch()
    assert resolve_device(FakeTorchDevice("cuda", 0)).name == "nvidia/h200"
    with pytest.raises(UnknownDeviceError, match="cpu"):
        resolve_device(FakeTorchDevice("cpu"))
    machine.has_amd()
    machine.has_torch("6.4")
    assert resolve_device(FakeTorchDevice("cuda")).name == "amd/mi300x"


def test_the_driver_of_amd_tells_the_architecture(tmp_path: Path) -> None:
    assert read_amd_arch(tmp_path) is None
    for node, version in enumerate(("0", "90010", "90402")):
        (tmp_path / str(node)).mkdir()
        text = f"cpu_cores_count 0\ngfx_target_version {version}\n"
        (tmp_path / str(node) / "properties").write_text(text)
    assert read_amd_arch(tmp_path) == "gfx90a"
    (tmp_path / "1" / "properties").write_text("gfx_target_version 110000\n")
    assert read_amd_arch(tmp_path) == "gfx1100"
