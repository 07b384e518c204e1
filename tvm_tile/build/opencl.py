"""OpenCL text for the emulated device: only checked here, compiled by PoCL when it runs."""

from __future__ import annotations

import functools
import warnings
from typing import Any

from tvm_tile.errors import BuildError, CompilerNotFoundError


@functools.cache
def opencl_context() -> Any:
    """PoCL's context on the CPU, shared by every emulated kernel of the process.

    Raises:
        CompilerNotFoundError: pyopencl or PoCL is not installed.
    """
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
            return pyopencl.Context(platform.get_devices()[:1])
    found = ", ".join(platform.name for platform in platforms) or "no OpenCL platform"
    raise CompilerNotFoundError(requirement, found, remedy)


def compile_opencl(name: str, source: str) -> Any:
    """The OpenCL kernel ``name`` of a text, ready for its arguments.

    Raises:
        CompilerNotFoundError: pyopencl or PoCL is not installed.
        BuildError: PoCL rejected the text.
    """
    context = opencl_context()
    import pyopencl

    try:
        with warnings.catch_warnings():
            # PoCL's remarks about correct code; errors raise.
            warnings.simplefilter("ignore")
            program = pyopencl.Program(context, source).build(cache_dir=False)
            return pyopencl.Kernel(program, name)
    except (pyopencl.Error, RuntimeError) as error:
        raise BuildError(
            f"PoCL must accept the kernel {name}",
            str(error),
            "float16 kernels cannot be emulated; use float32, or report the kernel's source",
        ) from error
