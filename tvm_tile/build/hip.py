"""HIP text to machine code for AMD's GPUs (a code object, HSACO), with the clang and lld of Zig.

The package ``ziglang`` from PyPI holds both, for every AMD GPU; nothing of ROCm is needed. They run
as processes of their own: what the code generator cannot select ends one of those, never this one.

The text is TVM's for CUDA, behind a prelude of our own (``hip_prelude.h``) that has CUDA's types,
indices, barriers and functions in the compiler's own terms; ``hip_matrix.h`` adds the instructions
of the matrix cores. TVM's code generator for ROCm is not
used. It writes barriers that wait for nothing, of what was stored before; it allows blocks of 256
threads at most; and functions of float64 end the process.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import importlib.util
import subprocess
import tempfile
from pathlib import Path

from tvm_tile.errors import BuildError, CompilerNotFoundError

_PRELUDES = tuple(Path(__file__).with_name(f"hip_{name}.h") for name in ("prelude", "matrix"))
# What TVM's own prelude for CUDA ends with; helpers that a kernel calls come behind it.
_END_OF_CUDA_PRELUDE = "#define ushort unsigned short\n#endif\n"
_OPTIONS = (
    *("-x", "hip", "-std=c++20", "-O3", "-w", "-fdeclspec"),
    *("--cuda-device-only", "-nogpuinc", "-nogpulib", "-nostdinc"),
)
_ASSEMBLER = ("-target", "amdgcn-amd-amdhsa")


def compile_hip(
    source: str, arch: str, *, contract: bool = True, exact_quotients: bool = True
) -> bytes:
    """Compile one text of TVM's for CUDA to a code object.

    Args:
        source: CUDA C++ with one or more ``extern "C" __global__`` functions.
        arch: the processor, such as ``"gfx942"``.
        contract: whether products may be fused into sums.
        exact_quotients: whether those of float32 must be rounded correctly, not only to within
            three units in the last place.

    Returns:
        The bytes of the code object, an ELF file.

    Raises:
        CompilerNotFoundError: the package ziglang is not installed.
        BuildError: the compiler rejected the text, or crashed.
    """
    assembly = assembly_of(source, arch, contract=contract, exact_quotients=exact_quotients)
    with tempfile.TemporaryDirectory() as folder:
        text, relocatable, linked = (f"{folder}/kernel.{end}" for end in ("s", "o", "hsaco"))
        Path(text).write_text(assembly)
        # To a relocatable file at once, the driver would look for a linker that Zig has inside.
        _run("clang", *_ASSEMBLER, f"-mcpu={arch}", "-c", text, "-o", relocatable)
        _run("ld.lld", "--no-undefined", "-shared", relocatable, "-o", linked)
        return Path(linked).read_bytes()


def assembly_of(
    source: str, arch: str, *, contract: bool = True, exact_quotients: bool = True
) -> str:
    """The assembly that :func:`compile_hip` makes of the same arguments, for people and tests."""
    options = [
        f"--offload-arch={arch}",
        f"-ffp-contract={'fast' if contract else 'off'}",
        f"-f{'' if exact_quotients else 'no-'}hip-fp32-correctly-rounded-divide-sqrt",
    ]
    preludes = (part for prelude in _PRELUDES for part in ("-include", str(prelude)))
    with tempfile.TemporaryDirectory() as folder:
        text, assembly = f"{folder}/kernel.hip", f"{folder}/kernel.s"
        Path(text).write_text(hip_text(source))
        _run("clang", *_OPTIONS, *options, *preludes, "-S", text, "-o", assembly)
        return Path(assembly).read_text()


def hip_text(source: str) -> str:
    """TVM's CUDA text without its prelude for CUDA."""
    return source.partition(_END_OF_CUDA_PRELUDE)[2] or source


def hip_compiler() -> str:
    """What :func:`compile_hip` uses, with its version; ``"none"`` where it is not installed."""
    if _zig() is None:
        return "none"
    preludes = hashlib.sha256(b"".join(prelude.read_bytes() for prelude in _PRELUDES))
    return f"ziglang {importlib.metadata.version('ziglang')} {preludes.hexdigest()[:16]}"


@functools.cache
def _zig() -> Path | None:
    found = importlib.util.find_spec("ziglang")
    return None if found is None or found.origin is None else Path(found.origin).with_name("zig")


def _run(tool: str, *arguments: str) -> None:
    zig = _zig()
    if zig is None:
        raise CompilerNotFoundError(
            "clang and lld for AMD GPUs, which the package ziglang brings (the extra rocm)",
            "ziglang is not installed",
            'pip install "tvm_tile[rocm]"',
        )
    done = subprocess.run([zig, tool, *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BuildError(
            f"{tool} must accept the kernel",
            done.stderr.strip() or f"it ended with {done.returncode}",
            "report it with the kernel's source; the schedule that made it is at fault",
        )
