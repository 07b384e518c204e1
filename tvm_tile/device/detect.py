"""Find the record for what is there: the GPU that is present, or a TVM target."""

from __future__ import annotations

import ctypes
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tvm_tile.device import Device, MemoryLevel, devices, find_device
from tvm_tile.device.cuda import ARCHITECTURES
from tvm_tile.device.emulated import EMULATED
from tvm_tile.errors import DeviceTooSmallError, UnknownDeviceError

# The oldest GPUs that there is a record of, and that CUDA 13 still loads code for.
_OLDEST_COMPUTE_VERSION = (7, 0)
_SHARED_MEMORY_OF_ANY_GPU = 48 << 10
# Without a GPU at hand TVM marks every kernel for ROCm ``amdgpu-flat-work-group-size="1,256"``, and
# none with a larger block can be launched.
_MOST_THREADS_OF_TVM = 256
# From Hopper on, the instructions that make a generation worth having need the "a" targets.
_FIRST_ARCH_SPECIFIC = (9, 0)
_FIRST_DEPENDENT_LAUNCHES = (9, 0)
# CUdevice_attribute; clocks are in kHz, the bus in bits.
_CLOCK_RATE, _MEMORY_CLOCK_RATE, _GLOBAL_MEMORY_BUS_WIDTH = 13, 36, 37
_ATTRIBUTES = {
    "max_threads_per_multi_processor": 39,
    "max_blocks_per_multi_processor": 106,
    "registers_per_multi_processor": 82,
    "shared_memory_per_block_optin": 97,
    "shared_memory_per_multi_processor": 81,
}


@dataclass(frozen=True, slots=True)
class GpuProperties:
    """Properties of a GPU as its driver tells them.

    Attributes:
        name: the marketing name, such as ``"NVIDIA H200"``.
        compute_version: compute capability, such as ``(9, 0)``.
        multi_processor_count: enabled streaming multiprocessors.
        max_shared_memory_per_block: bytes without opting in to more.
        total_global_memory: bytes.
        l2_capacity: bytes.
        max_threads_per_multi_processor, max_blocks_per_multi_processor: that are resident; 0, as
            of all that follows, where a driver does not tell.
        registers_per_multi_processor: 32-bit registers.
        shared_memory_per_block_optin: bytes that a block can opt in to.
        shared_memory_per_multi_processor: bytes.
        clock: cycles per second of a multiprocessor, at most.
        memory_bandwidth: bytes per second of the memory's interface.
    """

    name: str
    compute_version: tuple[int, int]
    multi_processor_count: int
    max_shared_memory_per_block: int
    total_global_memory: int
    l2_capacity: int
    max_threads_per_multi_processor: int = 0
    max_blocks_per_multi_processor: int = 0
    registers_per_multi_processor: int = 0
    shared_memory_per_block_optin: int = 0
    shared_memory_per_multi_processor: int = 0
    clock: float = 0.0
    memory_bandwidth: float = 0.0


def resolve_device(device: str | Device) -> Device:
    """The record for what a user passed as ``device``.

    Args:
        device: a name or file for :func:`tvm_tile.find_device`, ``"auto"``, or a record
            (returned as it is).

    Raises:
        UnknownDeviceError: no record has that name, or ``device`` is neither name nor record.
        DeviceRecordError: the file holds no device record.
        DeviceTooSmallError: ``"auto"``, and the GPU present is older than any record.
    """
    if isinstance(device, Device):
        return device
    if isinstance(device, str) and device.strip().lower() == "auto":
        return detect_device()
    return find_device(device)


def detect_device() -> Device:
    """The GPU of this machine as a record; the emulated device when there is none.

    Raises:
        DeviceTooSmallError: the GPU is older than any that there is a record of.
    """
    properties = read_gpu()
    return EMULATED if properties is None else describe_gpu(properties)


def device_for_target(target: Any) -> Device:
    """The record to schedule for when all that is known is a TVM target.

    Args:
        target: a ``tvm.target.Target`` of kind cuda, rocm or opencl, or None.

    Returns:
        For CUDA the GPU that is present, if it is of the target's architecture, else the first
        record of that architecture, else of the newest older one, with no more shared memory
        than the target says. For ROCm the record with blocks no larger than TVM's own code
        generator lets start. For OpenCL the emulated device.

    Raises:
        UnknownDeviceError: there is no target, or it is of a kind or architecture that there
            is no record of.
    """
    kind = None if target is None else str(target.kind.name)
    attributes = {} if target is None else dict(target.attrs)
    if kind == "cuda":
        return _cuda_device_for_target(attributes)
    if kind == "opencl":
        return EMULATED
    for device in devices():
        if kind == "rocm" and dict(device.target).get("mcpu") == attributes.get("mcpu"):
            return replace(device, max_threads_per_block=_MOST_THREADS_OF_TVM)
    architectures = [str(dict(device.target).get("mcpu", "")) for device in devices()]
    raise UnknownDeviceError(
        "the target must be a GPU that tvm_tile has a record of",
        "no target in scope" if target is None else str(target),
        "enter one first (`with target:`), of kind cuda, opencl, or rocm with mcpu "
        + " or ".join(sorted(filter(None, architectures))),
    )


def _cuda_device_for_target(attributes: dict[str, Any]) -> Device:
    """The record for a CUDA target: of the GPU here if it fits, or the architecture's newest."""
    arch = str(attributes.get("arch", ""))
    wanted = _arch_version(arch)
    gpu = read_gpu()
    if gpu is not None and gpu.compute_version == wanted:
        return describe_gpu(gpu)
    if wanted < _OLDEST_COMPUTE_VERSION:
        raise UnknownDeviceError(
            "the target's architecture must be sm_70 or newer",
            f"{arch} (what TVM takes when it finds neither an architecture nor a GPU is sm_50)",
            'name it: Target({"kind": "cuda", "arch": "sm_90a"})',
        )
    base = _newest_records(wanted)[0]
    if _compute_version(base) == wanted:
        return base
    # Not a record's generation: how much a block can opt in to is unknown.
    safe = int(attributes.get("max_shared_memory_per_block", _SHARED_MEMORY_OF_ANY_GPU))
    return _with_limits(base, arch=arch, shared_memory=safe)


def read_gpu() -> GpuProperties | None:
    """Ask the driver about the first NVIDIA GPU; None when there is none."""
    load_cuda_runtime()
    import tvm

    gpu = tvm.cuda(0)
    if not gpu.exist:
        return None
    major, _, minor = gpu.compute_version.partition(".")
    return GpuProperties(
        name=gpu.device_name,
        compute_version=(int(major), int(minor)),
        multi_processor_count=gpu.multi_processor_count,
        max_shared_memory_per_block=gpu.max_shared_memory_per_block,
        total_global_memory=gpu.total_global_memory,
        l2_capacity=gpu.l2_cache_size_bytes,
        **_told_by_driver(),
    )


def _told_by_driver() -> dict[str, Any]:
    """Properties of the first GPU that CUDA's driver tells and TVM does not; none without one."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return {}
    return properties_of(driver) if driver.cuInit(0) == 0 else {}


def properties_of(driver: Any) -> dict[str, Any]:
    """Further fields of :class:`GpuProperties`, of the first GPU.

    Args:
        driver: driver that has ``cuDeviceGetAttribute``, as libcuda does.
    """

    def read(attribute: int) -> int:
        value = ctypes.c_int()
        status = driver.cuDeviceGetAttribute(ctypes.byref(value), attribute, 0)
        return value.value if status == 0 else 0

    told: dict[str, Any] = {name: read(number) for name, number in _ATTRIBUTES.items()}
    transfers = 2 * 1e3 * read(_MEMORY_CLOCK_RATE)  # at both edges
    return told | {
        "clock": 1e3 * read(_CLOCK_RATE),
        "memory_bandwidth": transfers * read(_GLOBAL_MEMORY_BUS_WIDTH) / 8,
    }


def load_cuda_runtime() -> bool:
    """Make TVM's CUDA runtime usable where NVIDIA's runtime library comes from a Python package.

    TVM loads its CUDA runtime at import and silently goes without it when ``libcudart`` is
    not on the loader's path, where the ``cuda`` extra does not put it.

    Returns:
        Whether TVM can now talk to NVIDIA GPUs. (There may still be none.)
    """
    import tvm

    if tvm.get_global_func("device_api.cuda", allow_missing=True) is not None:
        return True
    try:
        from cuda.pathfinder import load_nvidia_dynamic_lib

        load_nvidia_dynamic_lib("cudart")
        ctypes.CDLL(str(Path(tvm.__file__).parent / "lib" / "libtvm_runtime_cuda.so"))
    except (ImportError, RuntimeError, OSError):
        # No NVIDIA package or no driver on this machine: neither is an error here.
        return False
    return tvm.get_global_func("device_api.cuda", allow_missing=True) is not None


def describe_gpu(gpu: GpuProperties) -> Device:
    """The record that fits a GPU best, with the numbers that were read in place of its own.

    A GPU that is one of the records is that record. Any other has what its driver tells; what no
    driver tells, the rates of its units, is derived from its architecture's, by its
    multiprocessors and clock. Of architectures that nobody knows, the newest older one's are taken.

    Raises:
        DeviceTooSmallError: the GPU is older than any that there is a record of.
    """
    if gpu.compute_version < _OLDEST_COMPUTE_VERSION:
        oldest, found = (
            ".".join(map(str, v)) for v in (_OLDEST_COMPUTE_VERSION, gpu.compute_version)
        )
        raise DeviceTooSmallError(
            f"the GPU must have compute capability {oldest} or newer",
            f"{gpu.name} with {found}",
            'use another GPU, or device="emulated"',
        )
    base = _closest_record(gpu)
    squeezed = re.sub(r"[^a-z0-9]", "", gpu.name.lower())
    if (
        base.name.rpartition("/")[2] in squeezed
        and base.multi_processor_count == gpu.multi_processor_count
    ):
        return base
    return _adjusted(base, gpu)


def _newest_records(compute_version: tuple[int, int]) -> list[Device]:
    """The CUDA records of one architecture: this one, else the newest that is older.

    Of another major version only where none is known of this one: what one has the next may lack.
    """
    cards = [device for device in devices() if device.kernel_language == "cuda"]
    older = [
        device for device in (*cards, *ARCHITECTURES) if _compute_version(device) <= compute_version
    ]
    newest = max(_compute_version(device) for device in older)
    return [device for device in older if _compute_version(device) == newest]


def _closest_record(gpu: GpuProperties) -> Device:
    """The record of the newest known architecture whose memory is nearest in size."""
    return min(
        _newest_records(gpu.compute_version),
        key=lambda device: abs(
            device.memory(MemoryLevel.GLOBAL).capacity - gpu.total_global_memory
        ),
    )


def _adjusted(base: Device, gpu: GpuProperties) -> Device:
    """A GPU by what its driver tells; what no driver tells, such as rates, by the architecture's
    of a clock and multiprocessor."""
    is_same = _compute_version(base) == gpu.compute_version
    # Where it was measured, a record's clock is the sustained one, no driver's.
    clock = base.clock if base.measured or not gpu.clock else gpu.clock
    scale = gpu.multi_processor_count * clock / (base.multi_processor_count * base.clock)
    # How much a block can opt in to differs between architectures.
    known = base.memory(MemoryLevel.SHARED).capacity if is_same else gpu.max_shared_memory_per_block
    shared = gpu.shared_memory_per_block_optin or known
    per_processor = gpu.shared_memory_per_multi_processor or max(
        shared, base.shared_memory_per_multi_processor if is_same else 0
    )
    # A warp's instructions stay from one architecture to the next, a warpgroup's are of one only.
    instructions = [i for i in base.matrix_instructions if is_same or i.intrinsic == "mma"]
    is_dependent = gpu.compute_version >= _FIRST_DEPENDENT_LAUNCHES
    bandwidth = gpu.memory_bandwidth or base.memory(MemoryLevel.GLOBAL).bandwidth
    limited = _with_limits(base, arch=_arch(gpu.compute_version), shared_memory=shared)
    return replace(
        limited,
        name="nvidia/" + re.sub(r"[^a-z0-9]+", "-", gpu.name.lower().removeprefix("nvidia ")),
        multi_processor_count=gpu.multi_processor_count,
        max_threads_per_multi_processor=(
            gpu.max_threads_per_multi_processor or base.max_threads_per_multi_processor
        ),
        max_blocks_per_multi_processor=(
            gpu.max_blocks_per_multi_processor or base.max_blocks_per_multi_processor
        ),
        registers_per_multi_processor=(
            gpu.registers_per_multi_processor or base.registers_per_multi_processor
        ),
        shared_memory_per_multi_processor=per_processor,
        reserved_shared_memory=min(base.reserved_shared_memory, per_processor - shared),
        memories=tuple(
            replace(memory, capacity=gpu.total_global_memory, bandwidth=bandwidth)
            if memory.level is MemoryLevel.GLOBAL
            else replace(memory, bandwidth=memory.bandwidth * scale)
            for memory in limited.memories
        ),
        clock=clock,
        read_bandwidth=gpu.memory_bandwidth or base.read_bandwidth,
        peak_flops=tuple((dtype, rate * scale) for dtype, rate in base.peak_flops),
        matrix_flops=tuple((dtype, rate * scale) for dtype, rate in base.matrix_flops),
        l2_capacity=gpu.l2_capacity,
        # However few multiprocessors ask, the memory's interface is behind it.
        l2_bandwidth=max(base.l2_bandwidth * scale, 1.2 * bandwidth),
        matrix_instructions=tuple(instructions),
        supports_dependent_launches=is_dependent,
        dependent_launches=base.dependent_launches if is_dependent else None,
    )


def _with_limits(base: Device, *, arch: str, shared_memory: int) -> Device:
    """The record with another architecture and size of shared memory, its measurements left out."""
    target = dict(base.target) | {"arch": arch, "max_shared_memory_per_block": shared_memory}
    return replace(
        base,
        target=tuple(sorted(target.items())),
        memories=tuple(
            replace(memory, capacity=shared_memory)
            if memory.level is MemoryLevel.SHARED
            else memory
            for memory in base.memories
        ),
        # Whatever was measured, was measured on another GPU.
        measured=None,
    )


def _compute_version(device: Device) -> tuple[int, int]:
    """Compute capability of a device."""
    return _arch_version(str(dict(device.target)["arch"]))


def _arch_version(arch: str) -> tuple[int, int]:
    """Compute capability in an architecture's name, such as ``"sm_90a"``."""
    # "sm_90a" -> (9, 0), "sm_120" -> (12, 0): the last digit is the minor version.
    digits = re.sub(r"\D", "", arch)
    return (int(digits[:-1]), int(digits[-1])) if len(digits) > 1 else (0, 0)


def _arch(compute_version: tuple[int, int]) -> str:
    """Name of an architecture for a compute capability."""
    suffix = "a" if compute_version >= _FIRST_ARCH_SPECIFIC else ""
    return f"sm_{compute_version[0]}{compute_version[1]}{suffix}"
