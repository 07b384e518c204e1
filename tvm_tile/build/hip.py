"""HIP text to machine code for AMD's GPUs (a code object, HSACO), with the clang and lld of Zig.

The package ``ziglang`` from PyPI holds both, for every AMD GPU; nothing of ROCm is needed.

The text is TVM's for CUDA, behind a prelude of our own (``hip_prelude.h``) that has CUDA's types,
indices, barriers and functions in the compiler's own terms; ``hip_matrix.h`` adds the instructions
of the matrix cores. TVM's code generator for ROCm is not used. It writes barriers that wait for
nothing of what was stored before; it allows blocks of 256 threads at most; and functions of float64
end the process.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from tvm_tile.build.cuda import END_OF_PRELUDE
from tvm_tile.build.hip_math import calls_mathematics, math_library, math_version
from tvm_tile.build.unrolling import limit_unrolling
from tvm_tile.build.zig import run_zig, zig_version
from tvm_tile.files.scratch import scratch_folder
from tvm_tile.files.store import Store

_PRELUDES = tuple(Path(__file__).with_name(f"hip_{name}.h") for name in ("prelude", "matrix"))
# Vectors of 16-bit and 8-bit numbers lie in those of 32 bits, and TVM points into these.
_ELEMENT_ADDRESS = re.compile(r"&\((\w+)\.([xyzw])\)")
# Only shared memory is volatile. Loads of what may be any memory are slower, and clang does not
# find out by itself what a volatile one is.
_VOLATILE = re.compile(r"\(volatile (\w+)\*\)")
_OPTIONS = (
    *("-x", "hip", "-std=c++20", "-O3", "-w", "-fdeclspec", "-fno-strict-aliasing"),
    *("--cuda-device-only", "-nogpuinc", "-nogpulib", "-nostdinc"),
    # What is to be unrolled is, however long: arrays that loops walk through are no memory then.
    *("-mllvm", "-pragma-unroll-threshold=131072"),
)
_ASSEMBLER = ("-target", "amdgcn-amd-amdhsa")


def compile_hip(
    source: str,
    arch: str,
    *,
    contract: bool = True,
    exact_quotients: bool = True,
    store: Store | None = None,
) -> bytes:
    """Compile one text of TVM's for CUDA to a code object.

    Args:
        source: CUDA C++ with one or more ``extern "C" __global__`` functions.
        arch: the processor, such as ``"gfx942"``.
        contract: whether products may be fused into sums.
        exact_quotients: whether those of float32 must be rounded correctly, not only to within
            three units in the last place.
        store: store that keeps the library of mathematics from one process to the next.

    Returns:
        The bytes of the code object, an ELF file.

    Raises:
        CompilerNotFoundError: the package ziglang is not installed.
        BuildError: the compiler rejected the text, or crashed.
    """
    with scratch_folder() as folder:
        _assemble(folder, source, arch, contract, exact_quotients, store)
        relocatable = ("-c", "kernel.s", "-o", "kernel.o")
        run_zig("clang", *_ASSEMBLER, f"-mcpu={arch}", *relocatable, folder=folder)
        linked = ("-shared", "kernel.o", "-o", "kernel.hsaco")
        run_zig("ld.lld", "--no-undefined", *linked, folder=folder)
        return (folder / "kernel.hsaco").read_bytes()


def assembly_of(source: str, arch: str) -> str:
    """The assembly, with metadata, that :func:`compile_hip` makes machine code of."""
    with scratch_folder() as folder:
        return _assemble(folder, source, arch, True, True, None).read_text()


def _assemble(
    folder: Path,
    source: str,
    arch: str,
    contract: bool,
    exact_quotients: bool,
    store: Store | None,
) -> Path:
    """Compile HIP text to an assembled file."""
    options = [
        f"--offload-arch={arch}",
        # Not "fast", by which the library's compensated sums would be fused as well.
        f"-ffp-contract={'fast-honor-pragmas' if contract else 'off'}",
        f"-f{'' if exact_quotients else 'no-'}hip-fp32-correctly-rounded-divide-sqrt",
    ]
    if calls_mathematics(source):
        (folder / "math.bc").write_bytes(math_library(store))
        options += ["-Xclang=-mlink-builtin-bitcode", "-Xclang=math.bc"]
    (folder / "kernel.hip").write_text(hip_text(source))
    # To a relocatable file at once, the driver would look for a linker that Zig has inside.
    preludes = [part for prelude in _PRELUDES for part in ("-include", prelude)]
    output = (*preludes, "-S", "kernel.hip", "-o", "kernel.s")
    run_zig("clang", *_OPTIONS, *options, *output, folder=folder)
    return folder / "kernel.s"


def hip_text(source: str) -> str:
    """TVM's CUDA text without its prelude for CUDA, and with bounds to its unrolled loops."""
    kernel = source.partition(END_OF_PRELUDE)[2] or source
    kernel = _VOLATILE.sub(r"(volatile SHARED \1*)", kernel)
    return limit_unrolling(_ELEMENT_ADDRESS.sub(r"address_of_\2(\1)", kernel))


def hip_compiler() -> str:
    """Name and version of the compiler of :func:`compile_hip`; ``"none"`` where it is not
    installed.
    """
    if zig_version() == "none":
        return "none"
    preludes = hashlib.sha256(b"".join(prelude.read_bytes() for prelude in _PRELUDES))
    return f"{math_version()} {preludes.hexdigest()[:16]}"
