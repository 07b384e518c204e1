"""CUDA text to machine code (a cubin), with NVRTC or, where that is missing, nvcc.

NVRTC needs no toolkit: ``cuda-bindings`` and three ``nvidia-cuda-*`` packages bring the
compiler and its headers.
"""

from __future__ import annotations

import functools
import importlib.metadata
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

from tvm_tile.build.packed import pack_halves
from tvm_tile.device.device import STATIC_SHARED_LIMIT
from tvm_tile.errors import BuildError, CompilerNotFoundError
from tvm_tile.files.scratch import scratch_folder

# The one place where the options of every kernel are chosen. Square root, exp and denormals stay
# accurate (no --use_fast_math, which TVM itself turns on), and so does division unless the caller
# allows two units in the last place; products and sums contract to fused multiply-adds where the
# caller allows it, which only removes a rounding.
# Optimisation level 3 is the default of NVRTC's and nvcc's assembler.
_NVRTC_OPTIONS = ("-default-device", "--device-int128", "-w")
_NVCC_OPTIONS = ("-O3", "--expt-relaxed-constexpr", "-w")

_SHARED_ARRAY = re.compile(r"__shared__ alignas\(\d+\) ([\w ]+?) \w+\[(\d+)\]")
_TYPE_SIZES = {
    **dict.fromkeys(("bool", "char", "signed char", "uchar", "int8_t", "uint8_t"), 1),
    **dict.fromkeys(("half", "nv_bfloat16", "short", "ushort", "int16_t", "uint16_t"), 2),
    **dict.fromkeys(("float", "int", "uint", "int32_t", "uint32_t"), 4),
}

# TVM's kernels start by including two libcu++ headers for a handful of names; reading these
# takes NVRTC a second, more than the kernel itself. The names alone take it milliseconds.
_LEAN_HEADERS = {
    "cuda/std/cstdint": """
namespace cuda { namespace std {
typedef signed char int8_t; typedef unsigned char uint8_t;
typedef short int16_t; typedef unsigned short uint16_t;
typedef int int32_t; typedef unsigned int uint32_t;
typedef long long int64_t; typedef unsigned long long uint64_t;
} }
""",
    "cuda/std/type_traits": """
namespace cuda { namespace std {
template <bool V> struct lean_bool { static constexpr bool value = V; };
template <class A, class B> struct is_same : lean_bool<false> {};
template <class A> struct is_same<A, A> : lean_bool<true> {};
template <class A, class B> inline constexpr bool is_same_v = is_same<A, B>::value;
template <class T> struct is_floating_point
    : lean_bool<is_same_v<T, float> || is_same_v<T, double>> {};
template <class T> struct is_integral
    : lean_bool<is_same_v<T, bool> || is_same_v<T, char> || is_same_v<T, signed char> ||
                    is_same_v<T, unsigned char> || is_same_v<T, short> ||
                    is_same_v<T, unsigned short> || is_same_v<T, int> ||
                    is_same_v<T, unsigned int> || is_same_v<T, long> ||
                    is_same_v<T, unsigned long> || is_same_v<T, long long> ||
                    is_same_v<T, unsigned long long>> {};
template <class T> struct is_signed
    : lean_bool<(is_integral<T>::value || is_floating_point<T>::value) && (T(-1) < T(0))> {};
template <class T> struct is_unsigned
    : lean_bool<is_integral<T>::value && (T(0) < T(-1))> {};
template <bool C, class T = void> struct enable_if {};
template <class T> struct enable_if<true, T> { using type = T; };
template <bool C, class A, class B> struct conditional { using type = A; };
template <class A, class B> struct conditional<false, A, B> { using type = B; };
} }
""",
}

_EXTREMA = Path(__file__).with_name("cuda_extrema.h").read_text()
# What TVM's own prelude for CUDA ends with; helpers that a kernel calls come behind it.
END_OF_PRELUDE = "#define ushort unsigned short\n#endif\n"

# NVRTC has neither <math.h> nor <cuda.h>, where nvcc finds these.
_NVRTC_PREAMBLE = """
struct alignas(64) CUtensorMap { unsigned long long opaque[16]; };
#ifndef INFINITY
#define INFINITY __int_as_float(0x7f800000)
#endif
#ifndef NAN
#define NAN __int_as_float(0x7fffffff)
#endif
"""


def compile_cuda(
    source: str, arch: str, *, contract: bool = True, exact_quotients: bool = True
) -> bytes:
    """Compile one CUDA text to a cubin.

    Args:
        source: CUDA C++ with one or more ``extern "C" __global__`` functions.
        arch: the real architecture, such as ``"sm_90a"``.
        contract: whether products may be fused into sums.
        exact_quotients: whether those of float32 must be rounded correctly, not only to within two
            units in the last place.

    Returns:
        The bytes of the cubin.

    Raises:
        CompilerNotFoundError: neither NVRTC nor nvcc is installed, or none knows ``arch``.
        BuildError: the compiler rejected the text.
    """
    _check_static_shared_memory(source)
    source = _with_extrema(pack_halves(source, contract=contract))
    options = (
        f"-fmad={str(contract).lower()}",
        f"-prec-div={str(exact_quotients).lower()}",
    )
    if _digits(arch) in nvrtc_architectures():
        return _compile_with_nvrtc(source, arch, (*options, *_NVRTC_OPTIONS))
    nvcc = shutil.which("nvcc")
    if nvcc is not None:
        return _compile_with_nvcc(nvcc, source, arch, (*options, *_NVCC_OPTIONS))
    if nvrtc_architectures():
        raise _too_new(arch, f"NVRTC for {', '.join(map(str, nvrtc_architectures()))}, no nvcc")
    raise CompilerNotFoundError(
        "a CUDA compiler: NVRTC (the packages of the extra cuda), or nvcc on PATH",
        "neither",
        'pip install "tvm_tile[cuda]"',
    )


def _with_extrema(source: str) -> str:
    """CUDA text with `maximum` and `minimum` behind its prelude, where it calls them."""
    if "maximum(" not in source and "minimum(" not in source:
        return source
    prelude, end, kernel = source.rpartition(END_OF_PRELUDE)
    return f"{prelude}{end}{_EXTREMA}{kernel}"


def compiler_for(arch: str) -> str:
    """Name and version of the compiler that :func:`compile_cuda` would use for an architecture."""
    if _digits(arch) in nvrtc_architectures():
        return f"nvrtc {importlib.metadata.version('nvidia-cuda-nvrtc')}"
    nvcc = shutil.which("nvcc")
    return "none" if nvcc is None else _nvcc_version(nvcc)


@functools.cache
def _nvcc_version(nvcc: str) -> str:
    """Version of nvcc, as it prints it."""
    done = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=False)
    return done.stdout


def _check_static_shared_memory(source: str) -> None:
    """Refuse what the driver would refuse at load: the compilers let it pass.

    Raises:
        BuildError: statically declared shared memory above the limit of every CUDA GPU.
    """
    declared = sum(
        _TYPE_SIZES.get(kind, 8) * int(count) for kind, count in _SHARED_ARRAY.findall(source)
    )
    if declared > STATIC_SHARED_LIMIT:
        raise BuildError(
            f"a kernel may declare at most {STATIC_SHARED_LIMIT} bytes of static shared memory",
            f"{declared} bytes",
            "use a smaller tile, or dynamic shared memory (the scope shared.dyn)",
        )


def _too_new(arch: str, found: str) -> CompilerNotFoundError:
    """The error for an architecture that no compiler here knows."""
    remedy = "put an nvcc on PATH that still knows this GPU: CUDA 12 for sm_70"
    return CompilerNotFoundError(f"a CUDA compiler that makes code for {arch}", found, remedy)


def _digits(arch: str) -> int:
    """Number in an architecture's name."""
    return int(arch.removeprefix("sm_").rstrip("af"))


@functools.cache
def nvrtc_architectures() -> tuple[int, ...]:
    """Compute capabilities, such as 90, that the installed NVRTC can make code for.

    Empty unless cuda-bindings, NVRTC's library and CUDA's headers are all installed.
    """
    try:
        from cuda.bindings import nvrtc

        architectures = _nvrtc(nvrtc.nvrtcGetSupportedArchs())
        return tuple(architectures) if _include_folders() else ()
    except (ImportError, RuntimeError):  # the library is looked for at the first call
        return ()


@functools.cache
def _include_folders() -> tuple[str, ...]:
    """Folders of CUDA's headers that pip has installed."""
    from cuda.pathfinder import find_nvidia_header_directory

    folders = [find_nvidia_header_directory(name) for name in ("cudart", "cccl")]
    return tuple(folder for folder in folders if folder is not None)


def _compile_with_nvrtc(source: str, arch: str, options: tuple[str, ...]) -> bytes:
    """Compile a text with NVRTC, with the real standard headers only if needed."""
    cubin, log = _run_nvrtc(source, arch, options, _LEAN_HEADERS)
    if cubin is None:
        # Other headers may need the real libcu++: read it, slowly.
        cubin, log = _run_nvrtc(source, arch, options, {})
    if cubin is None:
        raise BuildError(f"NVRTC must accept the kernel for {arch}", log, _REMEDY)
    return cubin


_REMEDY = "report it with the kernel's source; the schedule that made it is at fault"


def _run_nvrtc(
    source: str, arch: str, options: tuple[str, ...], headers: dict[str, str]
) -> tuple[bytes | None, str]:
    """The cubin and an empty text, or None and the compiler's log."""
    from cuda.bindings import nvrtc

    names = [name.encode() for name in headers]
    texts = [text.encode() for text in headers.values()]
    text = (_NVRTC_PREAMBLE + source).encode()
    program = _nvrtc(nvrtc.nvrtcCreateProgram(text, b"kernel.cu", len(names), texts, names))
    try:
        arguments = [
            f"--gpu-architecture={arch}".encode(),
            *(option.encode() for option in options),
            *(f"-I{folder}".encode() for folder in _include_folders()),
        ]
        (result,) = nvrtc.nvrtcCompileProgram(program, len(arguments), arguments)
        if result != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            log = bytearray(_nvrtc(nvrtc.nvrtcGetProgramLogSize(program)))
            _nvrtc(nvrtc.nvrtcGetProgramLog(program, log))
            return None, bytes(log).rstrip(b"\0").decode(errors="replace")
        cubin = bytearray(_nvrtc(nvrtc.nvrtcGetCUBINSize(program)))
        _nvrtc(nvrtc.nvrtcGetCUBIN(program, cubin))
        return bytes(cubin), ""
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _nvrtc(answer: tuple[Any, ...]) -> Any:
    """The value of a call of cuda-bindings, whose answer is (status, value)."""
    if int(answer[0]) != 0:
        raise BuildError("NVRTC must serve every call", str(answer[0]), "reinstall cuda-bindings")
    return answer[1] if len(answer) > 1 else None


def _compile_with_nvcc(nvcc: str, source: str, arch: str, options: tuple[str, ...]) -> bytes:
    """Compile a text with nvcc."""
    with scratch_folder() as folder:
        text, cubin = folder / "kernel.cu", folder / "kernel.cubin"
        text.write_text(source)
        command = [nvcc, "-cubin", f"-arch={arch}", *options, "-o", str(cubin), str(text)]
        # Its own files are to go with the folder, too.
        environment = {**os.environ, "TMPDIR": str(folder)}
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        if done.returncode != 0:
            log = done.stderr + done.stdout
            if "nsupported gpu architecture" in log:
                raise _too_new(arch, log.strip())
            raise BuildError(f"nvcc must accept the kernel for {arch}", log, _REMEDY)
        return cubin.read_bytes()
