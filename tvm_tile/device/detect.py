"""Find the record for what a user names, what is there, or what a TVM target says."""

from __future__ import annotations

import ctypes
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from tvm_tile.device import Device, devices, find_device
from tvm_tile.device.describe import (
    OLDEST_COMPUTE_VERSION,
    GpuProperties,
    arch_version,
    describe_gpu,
    newest_records,
    version_of,
    with_limits,
)
from tvm_tile.device.emulated import EMULATED
from tvm_tile.errors import DeviceAbsentError, UnknownDeviceError

_SHARED_MEMORY_OF_ANY_GPU = 48 << 10
# Without a GPU at hand TVM marks every kernel for ROCm ``amdgpu-flat-work-group-size="1,256"``, and
# none with a larger block can be launched.
_MOST_THREADS_OF_TVM = 256
# CUdevice_attribute; clocks are in kHz, the bus in bits.
_CLOCK_RATE, _MEMORY_CLOCK_RATE, _GLOBAL_MEMORY_BUS_WIDTH = 13, 36, 37
_ATTRIBUTES = {
    "max_threads_per_multi_processor": 39,
    "max_blocks_per_multi_processor": 106,
    "registers_per_multi_processor": 82,
    "shared_memory_per_block_optin": 97,
    "shared_memory_per_multi_processor": 81,
}
# Where Linux's driver of AMD GPUs tells of each; also without ROCm.
_AMD_NODES = Path("/sys/class/kfd/kfd/topology/nodes")
_AMD_TARGET = re.compile(r"^gfx_target_version ([1-9]\d*)$", re.MULTILINE)
_PRESENT = re.compile(r"(auto|gpu|cuda|rocm)(?::(\d+))?")
"""What names a GPU that is present, and its index."""


def resolve_device(device: Any) -> Device:
    """The record for what a user passed as ``device``.

    Args:
        device: a record, which is returned as it is; a name or file for
            :func:`tvm_tile.find_device`; ``"auto"`` or ``"gpu"``, the GPU of this machine,
            ``"cuda"`` NVIDIA's, ``"rocm"`` AMD's; a ``torch.device``; or a
            ``tvm.target.Target`` as of :func:`device_for_target`.

    Raises:
        UnknownDeviceError: there is no such record, or it is another GPU than the first.
        DeviceAbsentError: it names the GPU of this machine, and there is none.
        DeviceRecordError: it is a file that holds no device record.
        DeviceTooSmallError: the GPU of this machine is older than any record.
    """
    if isinstance(device, Device):
        return device
    if _is_instance(device, "tvm.target", "Target"):
        return device_for_target(device)
    name = _name_of_torch(device) if _is_instance(device, "torch", "device") else device
    present = _PRESENT.fullmatch(name.strip().lower()) if isinstance(name, str) else None
    if present is None:
        return find_device(name)
    if int(present[2] or 0):
        raise UnknownDeviceError(
            "kernels run on the first GPU that a process sees, of index 0",
            str(device),
            f"pass {present[1]!r}, and choose the GPU by the environment variable "
            + ("HIP_VISIBLE_DEVICES" if present[1] == "rocm" else "CUDA_VISIBLE_DEVICES"),
        )
    return detect_device(present[1])


def detect_device(name: str = "auto") -> Device:
    """The GPU of this machine as a record; NVIDIA's before AMD's.

    Args:
        name: ``"auto"`` or ``"gpu"`` for any, ``"cuda"`` for NVIDIA's, ``"rocm"`` for AMD's.

    Raises:
        DeviceAbsentError: there is none.
        UnknownDeviceError: it is one of AMD's that there is no record of.
        DeviceTooSmallError: it is older than any that there is a record of.
    """
    if name != "rocm" and (properties := read_gpu()) is not None:
        return describe_gpu(properties)
    if name != "cuda" and (arch := read_amd_arch()) is not None:
        return _amd_device(arch)
    kind = {"cuda": "an NVIDIA GPU", "rocm": "an AMD GPU"}.get(name, "a GPU")
    raise DeviceAbsentError(
        f"device={name!r} is {kind} of this machine, which must be present",
        "its driver finds none",
        "name one to compile for, as device='nvidia/h200'; or device='emulated', which runs here. "
        f"There are {', '.join(known.name for known in devices())}",
    )


def _amd_device(arch: str) -> Device:
    for device in devices():
        if dict(device.target).get("mcpu") == arch:
            return device
    raise UnknownDeviceError(
        "the AMD GPU of this machine must be one that tvm_tile has a record of",
        arch,
        "name one of the same family, such as device='amd/mi300x'",
    )


def _name_of_torch(device: Any) -> str:
    """What PyTorch's device is called here: its builds for ROCm say ``cuda``, too."""
    is_amd = device.type == "cuda" and getattr(sys.modules["torch"].version, "hip", None)
    index = "" if device.index is None else f":{device.index}"
    return ("rocm" if is_amd else device.type) + index


def _is_instance(value: Any, module: str, class_name: str) -> bool:
    """Like ``isinstance``, without importing ``module``: if it is not loaded, the answer is no."""
    loaded = sys.modules.get(module)
    return loaded is not None and isinstance(value, getattr(loaded, class_name))


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
    wanted = arch_version(arch)
    gpu = read_gpu()
    if gpu is not None and gpu.compute_version == wanted:
        return describe_gpu(gpu)
    if wanted < OLDEST_COMPUTE_VERSION:
        raise UnknownDeviceError(
            "the target's architecture must be sm_70 or newer",
            f"{arch} (what TVM takes when it finds neither an architecture nor a GPU is sm_50)",
            'name it: Target({"kind": "cuda", "arch": "sm_90a"})',
        )
    base = newest_records(wanted)[0]
    if version_of(base) == wanted:
        return base
    # Not a record's generation: how much a block can opt in to is unknown.
    safe = int(attributes.get("max_shared_memory_per_block", _SHARED_MEMORY_OF_ANY_GPU))
    return with_limits(base, arch=arch, shared_memory=safe)


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


def read_amd_arch(nodes: Path = _AMD_NODES) -> str | None:
    """The architecture of the first AMD GPU, such as ``"gfx942"``; ``None`` where there is none.

    Args:
        nodes: the folder in which the driver has a folder for each processor.
    """
    for properties in sorted(nodes.glob("*/properties"), key=lambda path: int(path.parent.name)):
        found = _AMD_TARGET.search(properties.read_text(encoding="utf-8"))
        if found is not None:  # CPUs have a zero there
            version = int(found[1])  # 90402: two digits each of minor and stepping
            major, minor, stepping = version // 10000, version // 100 % 100, version % 100
            return f"gfx{major}{minor:x}{stepping:x}"
    return None
