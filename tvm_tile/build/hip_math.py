"""The library of mathematics for AMD's GPUs, as LLVM's bitcode, made where it is first needed.

Everything is compiled from sources that the package ``ziglang`` ships: ``hip_math.zig`` names what
is in Zig's own language; what musl, its library of C, still has in C is named here. Functions that
a kernel does not call leave no trace in it.
"""

from __future__ import annotations

import functools
import hashlib
import re
import threading
from pathlib import Path

from tvm_tile.build.zig import run_zig, zig_folder, zig_version
from tvm_tile.files.scratch import scratch_folder
from tvm_tile.files.store import Store

_SOURCE = Path(__file__).with_name("hip_math.zig")
_LOCK = threading.Lock()

# What a function is compiled for; one without takes that of the kernel that it is linked with.
_PROCESSOR = re.compile(r'"target-(?:cpu|features)"="[^"]*"')

# musl's files in C: functions, then what they call and read.
_MUSL = (
    *("acosh", "asinf", "asinh", "asinhf", "atan2", "atan2f", "atanh", "atanhf", "erf", "erff"),
    *("expm1", "expm1f", "ldexp", "ldexpf", "nextafter", "nextafterf", "pow", "powf"),
    *("sinh", "sinhf"),
    *("__expo2", "__expo2f", "scalbn", "scalbnf"),
    *("exp_data", "exp2f_data", "pow_data", "powf_data"),
    *(
        f"__math_{event}{suffix}"
        for event in ("divzero", "invalid", "oflow", "uflow", "xflow")
        for suffix in ("", "f")
    ),
)
# Both keep the compiler from dropping operations that only raise exceptions, which these GPUs do
# not report: Zig by assembly for operands that they do not have, musl by way of memory.
_HELD_IN_PLACE = re.compile(r"^.* asm sideeffect .*\n", re.MULTILINE)
_NO_EXCEPTIONS = (
    *("-Dfp_barrier(x)=(x)", "-Dfp_barrierf(x)=(x)"),
    *("-Dfp_force_eval(x)=((void)(x))", "-Dfp_force_evalf(x)=((void)(x))"),
)
_CALLED = re.compile(
    r"\b(?:h|__)?(?:a?(?:sin|cos|tan)h?|atan2|erf|expm1|log1p|pow|hypot|nextafter|ldexp|exp10)f?\("
    r"|\b(?:exp|exp2|log|log2|log10)\("
)


def calls_mathematics(source: str) -> bool:
    """Whether the text of a kernel calls functions of the library."""
    return _CALLED.search(source) is not None


def math_library(store: Store | None) -> bytes:
    """The library, for whatever processor.

    Args:
        store: store that keeps the library from one process to the next; without one, this process
            does.

    Returns:
        LLVM's bitcode.

    Raises:
        CompilerNotFoundError: the package ziglang is not installed.
        BuildError: the compiler crashed.
    """
    with _LOCK:
        if store is None:
            return _made()
        key = f"mathematics\0{math_version()}".encode()
        library = store.get(key)
        if library is None:
            library = _made()
            store.put(key, library)
        return library


def math_version() -> str:
    """Version of the sources and tools of the library: it is the same where this is."""
    sources = (_SOURCE.read_bytes(), Path(__file__).read_bytes())
    return f"ziglang {zig_version()} {hashlib.sha256(b''.join(sources)).hexdigest()[:16]}"


@functools.cache
def _made() -> bytes:
    """Make the library of mathematics as bitcode."""
    with scratch_folder() as folder:
        options = ("-target", "amdgcn-amdhsa", "-OReleaseFast", "-fstrip", "-fomit-frame-pointer")
        output = ("-fno-emit-bin", "-femit-llvm-ir=zig.ll")
        run_zig("build-obj", lay_out(folder), *options, *output, folder=folder)
        text = folder / "zig.ll"
        text.write_text(_PROCESSOR.sub("", _HELD_IN_PLACE.sub("", text.read_text())))
        bitcode = ("--target=amdgcn-amd-amdhsa", "-nogpulib", "-emit-llvm", "-c")
        run_zig("clang", *c_options(), *bitcode, *c_files(), folder=folder)
        parts = [f"{part}.bc" for part in _MUSL]
        linked = [f"-Xclang={word}" for part in parts for word in ("-mlink-bitcode-file", part)]
        run_zig("clang", "-w", *bitcode, *linked, text, "-o", "all.bc", folder=folder)
        return (folder / "all.bc").read_bytes()


def lay_out(folder: Path) -> Path:
    """Put Zig's part where it finds the files that it imports; the path to compile."""
    source = folder / "compiler_rt.zig"
    source.write_bytes(_SOURCE.read_bytes())
    (folder / "compiler_rt").symlink_to(_lib() / "compiler_rt")
    return source


def c_files() -> tuple[Path, ...]:
    """The source files in C that musl's part of the functions is compiled from."""
    return tuple(_lib() / "libc/musl/src/math" / f"{part}.c" for part in _MUSL)


def c_options() -> tuple[str, ...]:
    """Options of the compiler for :func:`c_files`, for whatever processor."""
    musl = _lib() / "libc/musl"
    headers = ("src/internal", "src/include", "include", "arch/generic")
    return (
        # With errno, exp stays a call: no intrinsic, of which AMD has none of float64.
        *("-std=c99", "-O3", "-w", "-fmath-errno", "-ffp-contract=off", "-nostdinc"),
        *_NO_EXCEPTIONS,
        *(f"-I{musl / part}" for part in headers),
        *(f"-isystem{_lib() / part}" for part in ("include", "libc/include/generic-musl")),
    )


def _lib() -> Path:
    """Folder of the libraries that come with Zig."""
    return zig_folder() / "lib"
