"""OpenCL text for the emulated device: only checked here, compiled by PoCL when it runs."""

from __future__ import annotations

import functools
import os
import re
import threading
from typing import Any

from tvm_tile.build.pocl_processor import name_processor
from tvm_tile.errors import BuildError, CompilerNotFoundError, DeviceError
from tvm_tile.files.opencl_cache import bounded_caches

# Barriers of a kernel that PoCL still optimises: with more, as reductions over a block have, that
# takes it up to half a minute, and the kernel a few milliseconds. Of attention with five of them
# it computed something else.
_MOST_OPTIMISED = 3
_LOCK = threading.Lock()


def opencl_context() -> Any:
    """PoCL's context on the CPU, shared by every emulated kernel of the process.

    Raises:
        CompilerNotFoundError: pyopencl or PoCL is not installed.
        DeviceError: the process was forked from one in which PoCL was used.
    """
    # A cache alone lets two threads make two contexts, whose objects do not mix.
    with _LOCK:
        context, process = _make_context()
    if process != os.getpid():
        raise DeviceError(
            "the emulated device must not have been used before a fork: PoCL's threads stay behind",
            f"process {os.getpid()} was forked from {process}, which has used it",
            'start processes with multiprocessing.get_context("spawn"), or fork before the first '
            "compilation",
        )
    return context


@functools.cache
def _make_context() -> tuple[Any, int]:
    """The context, and the process that it was made in."""
    with bounded_caches(os.environ):
        return _start(), os.getpid()


def _start() -> Any:
    """Find PoCL, and open a context on it."""
    requirement = "pyopencl and PoCL, which run kernels on the CPU (the packages of emulate)"
    remedy = 'pip install "tvm_tile[emulate]"'
    try:
        import pyopencl
    except ImportError as error:
        raise CompilerNotFoundError(requirement, str(error), remedy) from error
    try:
        platforms = pyopencl.get_platforms()
    except pyopencl.Error as error:
        raise CompilerNotFoundError(requirement, str(error), remedy) from error
    for platform in platforms:
        if platform.name == "Portable Computing Language":
            devices = platform.get_devices()[:1]
            name_processor(devices[0])
            return pyopencl.Context(devices)
    found = ", ".join(platform.name for platform in platforms) or "no OpenCL platform"
    raise CompilerNotFoundError(requirement, found, remedy)


def _release_lock() -> None:
    """Make a new lock in a forked process, where another thread of the parent may have held it."""
    global _LOCK
    _LOCK = threading.Lock()


os.register_at_fork(after_in_child=_release_lock)


# TVM has OpenCL's names for some functions only. The others it calls by their names in C,
# which end in f for float; in OpenCL C a function has one name for all types.
_C_NAMES = (
    "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "copysign", "hypot", "ldexp",
    "log1p", "nextafter", "tan",
)  # fmt: skip
_OPENCL_NAMES = {name + "f": name for name in _C_NAMES} | {"nearbyint": "rint"}


# Extrema that are NaN where an operand is: OpenCL's own are then undefined (max) or the other
# operand (fmax). Of vectors the comparison is one of each element. Not inline: in reductions over
# threads PoCL would take half a minute to compile them, instead of seconds.
_EXTREMA = """
#define EXTREMUM(type, name, beats)                                         \\
  static type __attribute__((overloadable, noinline)) name(type a, type b) { \\
    return (b beats a) | (b != b) ? b : a;                                  \\
  }
#define EXTREMA(type) EXTREMUM(type, maximum, >) EXTREMUM(type, minimum, <)
#define EXTREMA_OF_VECTORS(type)                                  \\
  EXTREMA(type) EXTREMA(type##2) EXTREMA(type##3) EXTREMA(type##4) EXTREMA(type##8)
EXTREMA_OF_VECTORS(float)
EXTREMA_OF_VECTORS(double)
"""
# PoCL's hyperbolic tangent of a large number is 1 less the last place, so that infinity times what
# it lacks of 1 is infinite, where it should be NaN.
_TANH = """
#define EXACT_TANH(type)                                          \\
  static type __attribute__((overloadable)) exact_tanh(type x) {  \\
    return fabs(x) > (type)10 ? copysign((type)1, x) : tanh(x);   \\
  }
EXACT_TANH(float) EXACT_TANH(float2) EXACT_TANH(float3) EXACT_TANH(float4) EXACT_TANH(float8)
EXACT_TANH(double) EXACT_TANH(double2) EXACT_TANH(double3) EXACT_TANH(double4) EXACT_TANH(double8)
#define tanh exact_tanh
"""
# PoCL computes sines of several elements at once, and an infinity among them spoils the others.
_PERIODIC = """
#define EXACT_{name}(type)                                               \\
  static type __attribute__((overloadable)) exact_{name}(type x) {{        \\
    return isfinite(x) ? {name}(isfinite(x) ? x : (type)0) : (type)NAN;   \\
  }}
EXACT_{name}(float) EXACT_{name}(float2) EXACT_{name}(float3) EXACT_{name}(float4)
EXACT_{name}(float8) EXACT_{name}(double) EXACT_{name}(double2) EXACT_{name}(double3)
EXACT_{name}(double4) EXACT_{name}(double8)
#define {name} exact_{name}
"""


_OWN_ARRAY = re.compile(r"^ *(\w+) (\w+)\[\d+\];$", re.MULTILINE)
_OWN_LOAD = re.compile(r"vload(\d+)\(0, (\w+) \+ (\w+|\([^()]*\))\)")


def complete_opencl(source: str, *, contract: bool) -> str:
    """TVM's OpenCL text with what it lacks to be compiled, and compiled rightly.

    Args:
        source: the text of a kernel.
        contract: whether products may be fused into sums, as OpenCL C allows by default.
    """
    lines = [f"#define {c} {name}" for c, name in _OPENCL_NAMES.items() if _calls(source, c)]
    if _calls(source, "maximum") or _calls(source, "minimum"):
        lines.append(_EXTREMA)
    if _calls(source, "tanh"):
        lines.append(_TANH)
    periodic = [name for name in ("sin", "cos", "tan") if _calls(source, name)]
    lines += [_PERIODIC.format(name=name) for name in periodic]
    if not contract:
        lines.append("#pragma OPENCL FP_CONTRACT OFF")
    return "\n".join([*lines, _with_own_elements(source)])


def _with_own_elements(source: str) -> str:
    """A text that stores what it makes of a thread's own arrays element by element.

    before: ``vstore2(maximum(vload2(0, sums + 4), zeros), 0, y + 8);``
    after:  ``vstore2(maximum(((float2)(sums[4], sums[5])), zeros), 0, y + 8);``

    Optimised by PoCL, a loop's sums that are loaded as a vector may be what was never stored: those
    of a convolution were, of two neighbours a thread, multiplied behind a barrier.
    """
    kinds = {name: kind for kind, name in _OWN_ARRAY.findall(source)}

    def elements(found: re.Match[str]) -> str:
        count, name, place = found.groups()
        if name not in kinds:
            return found[0]
        own = ", ".join(f"{name}[{place} + {number}]" for number in range(int(count)))
        return f"(({kinds[name]}{count})({own}))"

    lines = source.split("\n")
    return "\n".join(_OWN_LOAD.sub(elements, own) if "vstore" in own else own for own in lines)


def _calls(source: str, function: str) -> bool:
    """Whether a text calls a function."""
    return re.search(rf"\b{function}\(", source) is not None


def check_opencl(name: str, source: str) -> bytes:
    """No machine code, only the certainty that PoCL accepts the kernel.

    Raises:
        CompilerNotFoundError: pyopencl or PoCL is not installed.
        BuildError: PoCL rejected the text.
    """
    compile_opencl(name, source)
    return b""


def compile_opencl(name: str, source: str) -> Any:
    """The OpenCL kernel ``name`` of a text, ready for its arguments.

    Raises:
        CompilerNotFoundError: pyopencl or PoCL is not installed.
        BuildError: PoCL rejected the text.
        DeviceError: as in :func:`opencl_context`.
    """
    opencl_context()
    program = _build_program(source)
    import pyopencl

    try:
        return pyopencl.Kernel(program, name)
    except pyopencl.Error as error:
        raise BuildError(
            f"the text of the kernel {name} must define it", str(error), "report it"
        ) from error


# A model that runs in the process that built it would otherwise compile everything twice.
@functools.lru_cache(maxsize=128)
def _build_program(source: str) -> Any:
    """Build a program with PoCL, without optimization where that would take too long."""
    context = opencl_context()
    import pyopencl

    options = ["-w"]  # PoCL's remarks about correct code would become Python warnings
    if source.count("barrier(") > _MOST_OPTIMISED:
        options.append("-cl-opt-disable")
    try:
        return pyopencl.Program(context, source).build(options=options, cache_dir=False)
    except (pyopencl.Error, RuntimeError) as error:
        raise BuildError(
            "PoCL must accept every kernel",
            str(error),
            "float16 kernels cannot be emulated; use float32, or report the kernel's source",
        ) from error
