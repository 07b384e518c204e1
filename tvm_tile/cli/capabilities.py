"""Capabilities of this package on this machine: each is looked for, compilers are tried."""

from __future__ import annotations

import importlib.metadata
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from tvm_tile.cli.output import describe_size
from tvm_tile.device import Device, devices
from tvm_tile.errors import CompilerNotFoundError, TileError, UnknownDeviceError

_NVIDIA_ARCH, _AMD_ARCH = "sm_90a", "gfx942"
"""What compilers are tried for where no GPU is present."""
_EMPTY_CUDA = 'extern "C" __global__ void nothing() {}'
_EMPTY_OPENCL = "__kernel void nothing() {}"


@dataclass(frozen=True, slots=True)
class Capability:
    """Something that this package can do, or cannot on this machine.

    Attributes:
        name: name for people.
        is_ready: whether it can.
        found: findings on this machine: versions, a GPU, or the problem.
        remedy: remedy that gives it, or more of it; empty where nothing is missing.
        compiles: whether it is to compile kernels for some device.
    """

    name: str
    is_ready: bool
    found: str
    remedy: str = ""
    compiles: bool = False


Found = tuple[str, str]
"""What was found, and what would give more."""


def capabilities() -> Iterator[Capability]:
    """Look for each capability in turn. Compiling takes a second or two each."""
    yield _looked_for("kernels for NVIDIA GPUs", _cuda_compiler, compiles=True)
    yield _looked_for("an NVIDIA GPU to run on", _nvidia_gpu)
    yield _looked_for("kernels for AMD GPUs", _amd_compiler, compiles=True)
    yield _looked_for("an AMD GPU to run on", _amd_gpu)
    yield _looked_for("kernels for the emulated device, and to run them", _pocl, compiles=True)
    for name, package, extra in (
        ("ONNX models", "onnx", ""),
        ("PyTorch models, torch.compile", "torch", "[torch]"),
        ("ONNX Runtime, to verify with", "onnxruntime", "[demo]"),
        ("profiles of NVIDIA GPUs", "cupti-python", "[profile]"),
        ("signatures of saved models", "cryptography", "[sign]"),
        ("calibrate --fit", "scipy", "[fit]"),
    ):
        yield _looked_for(name, partial(_package, package, extra))
    yield _looked_for("a cache for the next compilation", _cache)


def _looked_for(name: str, look: Callable[[], Found], *, compiles: bool = False) -> Capability:
    """A capability, found by ``look``; its error tells what is missing."""
    try:
        found, remedy = look()
    except TileError as error:
        first_line = error.current.strip().partition("\n")[0]
        return Capability(name, False, first_line, error.remedy, compiles)
    except Exception as error:  # of drivers and compilers, which raise what they like
        found = f"{type(error).__name__}: {error}".partition("\n")[0]
        return Capability(name, False, found, "reinstall it; if that does not help, report it")
    return Capability(name, True, found, remedy, compiles)


def _cuda_compiler() -> Found:
    """Compile an empty kernel for an NVIDIA GPU."""
    from tvm_tile.build.cuda import compile_cuda, compiler_for
    from tvm_tile.device.describe import describe_gpu
    from tvm_tile.device.detect import read_gpu

    gpu = read_gpu()
    arch = _NVIDIA_ARCH if gpu is None else str(dict(describe_gpu(gpu).target)["arch"])
    compile_cuda(_EMPTY_CUDA, arch)
    lines = compiler_for(arch).splitlines()
    return next((line for line in lines if "release" in line), lines[0]), ""


def _nvidia_gpu() -> Found:
    """Look for an NVIDIA GPU, and its record."""
    from tvm_tile.calibrate.driver import first_gpu
    from tvm_tile.device.describe import describe_gpu
    from tvm_tile.device.detect import load_cuda_runtime, read_gpu

    gpu = read_gpu()
    if gpu is None:
        has_runtime = load_cuda_runtime()
        raise UnknownDeviceError(
            "an NVIDIA GPU",
            "the CUDA runtime finds none" if has_runtime else "no CUDA runtime, or no driver",
            "run it where `nvidia-smi` lists a GPU"
            + ("" if has_runtime else '; pip install "tvm-tile[cuda]"'),
        )
    with first_gpu() as opened:
        driver = opened.facts().driver
    record = describe_gpu(gpu)
    return f"{gpu.name}, driver {driver}, {_described(record)}", _of_record(record)


def _described(record: Device) -> str:
    """Words for a device record."""
    if record.measured is None:
        return f"record {record.name}, not measured"
    return f"record {record.name}, measured {record.measured.date}"


def _of_record(record: Device) -> str:
    """Words for how to have a record measured, if it is not."""
    return "" if record.measured else "`tvm-tile calibrate` measures it, then --device FILE"


def _amd_compiler() -> Found:
    """Compile an empty kernel for an AMD GPU."""
    from tvm_tile.build.hip import compile_hip
    from tvm_tile.build.zig import zig_version

    compile_hip(_EMPTY_CUDA, _AMD_ARCH)
    packed, _ = _package("msgpack", "[rocm]")
    return f"clang and lld of ziglang {zig_version()}, {packed}", ""


def _amd_gpu() -> Found:
    """Look for an AMD GPU, and its record."""
    from tvm_tile.runtime.drivers.hip import load_hip

    hip = load_hip()
    if hip is None or hip.device_count() == 0:
        raise UnknownDeviceError(
            "an AMD GPU",
            "no HIP runtime (libamdhip64)" if hip is None else "HIP finds none",
            "run it where `rocminfo` lists a GPU, with ROCm 6 or later",
        )
    gpu = hip.properties(0)
    arch = gpu.arch.partition(":")[0]
    fitting = [device for device in devices() if dict(device.target).get("mcpu") == arch]
    if not fitting:
        raise UnknownDeviceError(
            "an AMD GPU that there is a record of",
            f"{gpu.name}, {gpu.arch}",
            "`tvm-tile devices` lists those that there are; CONTRIBUTING.md says how to add one",
        )
    return f"{gpu.name}, {gpu.arch}, {_described(fitting[0])}", ""


def _pocl() -> Found:
    """Compile an empty kernel with PoCL."""
    from tvm_tile.build.opencl import compile_opencl, opencl_context

    compile_opencl("nothing", _EMPTY_OPENCL)
    (device,) = opencl_context().devices
    pyopencl = importlib.metadata.version("pyopencl")
    # Behind two spaces, the version tells how PoCL was built.
    return f"{device.platform.version.partition('  ')[0]}, pyopencl {pyopencl}", ""


def _package(name: str, extra: str) -> Found:
    """Look for a package that an extra installs."""
    try:
        return f"{name} {importlib.metadata.version(name)}", ""
    except importlib.metadata.PackageNotFoundError as error:
        remedy = f'pip install "tvm-tile{extra}"'
        raise CompilerNotFoundError(name, f"{name} is not installed", remedy) from error


def _cache() -> Found:
    """Look for the folder of the cache, and its size."""
    from tvm_tile.cli.cache import contents_of
    from tvm_tile.files.store import cache_folder

    folder = cache_folder(True, os.environ)
    if folder is None:
        return "none is kept, as TVM_TILE_CACHE says, or there is no home", ""
    contents = contents_of(folder)
    total = sum(entry.size for entry in (*contents.kept, *contents.programs))
    present = next(place for place in (folder, *folder.parents) if place.exists())
    if not os.access(present, os.R_OK | os.W_OK | os.X_OK):
        raise PermissionError(f"{present} cannot be written")
    return f"{folder}, {describe_size(total)}", ""
