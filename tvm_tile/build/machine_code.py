"""Machine code of kernels' text, by the compiler that goes with their language."""

from __future__ import annotations

import re
from functools import partial

from tvm_tile.build.built import Rounding
from tvm_tile.build.cubin import resources_of
from tvm_tile.build.cuda import compile_cuda, compiler_for
from tvm_tile.build.hip import compile_hip, hip_compiler
from tvm_tile.device.device import Device
from tvm_tile.files.store import Store

_ELF = b"\x7fELF"
_FEW = 32  # bytes of stack: to spill so little costs less than to have room for fewer blocks
_THREADS_ONLY = re.compile(r"__launch_bounds__\((\d+)\)")


def architecture_of(device: Device) -> str:
    """What compilers call a device's instructions, such as ``"sm_90a"``; may be empty."""
    target = dict(device.target)
    return str(target.get("arch", target.get("mcpu", "")))


def compiler_of(device: Device) -> str:
    """Name and version of the compiler of a device's kernels; empty where the driver has it."""
    return _compiler(device.kernel_language, architecture_of(device))


def _compiler(language: str, arch: str) -> str:
    if language == "opencl":
        return ""
    return compiler_for(arch) if language == "cuda" else hip_compiler()


def with_all_registers(source: str, binary: bytes) -> str:
    """The text of a CUDA kernel, told that one block may have all registers, if it spills many.

    Of a kernel that is told its threads only, ptxas guesses how many blocks are to share a
    multiprocessor. It may leave a thread 32 registers and spill hundreds, where shared memory has
    room for one block: 850 us of a kernel that takes 16.

    Args:
        source: text of a kernel, in CUDA.
        binary: the machine code that it was compiled to; of anything else nothing is known.
    """
    spills = binary.startswith(_ELF) and (resources_of(binary).stack or 0) > _FEW
    return _THREADS_ONLY.sub(r"__launch_bounds__(\1, 1)", source) if spills else source


def machine_code(
    source: str, language: str, arch: str, rounding: Rounding, store: Store | None
) -> bytes:
    """Machine code of a text.

    Args:
        source: the text of kernels, in CUDA or HIP.
        language: ``"cuda"`` or ``"rocm"``.
        arch: as of :func:`architecture_of`.
        rounding: how its arithmetic is to be rounded.
        store: what was compiled before; ``None`` for nothing.

    Raises:
        CompilerNotFoundError: no compiler for the device is installed.
        BuildError: the text does not compile.
    """
    contract, exact_quotients = rounding.contract, rounding.exact_quotients
    compiled = compile_cuda if language == "cuda" else partial(compile_hip, store=store)
    parts = (_compiler(language, arch), arch, f"{contract} {exact_quotients}", source)
    key = "\0".join(("machine code", *parts)).encode()
    binary = None if store is None else store.get(key)
    if binary is None:
        binary = compiled(source, arch, contract=contract, exact_quotients=exact_quotients)
        if store is not None:
            store.put(key, binary)
    return binary
