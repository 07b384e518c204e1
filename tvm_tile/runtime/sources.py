"""Texts of kernels, which a page shows beside a compiled model's report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tvm_tile.build.cubin import instructions
from tvm_tile.build.program import Kernel, Program
from tvm_tile.device import Device, find_device
from tvm_tile.errors import UnknownDeviceError
from tvm_tile.report.page.content import SourceText
from tvm_tile.report.shown import Report
from tvm_tile.report.symbols import function_of

_LANGUAGES = {"cuda": "CUDA", "rocm": "HIP", "opencl": "OpenCL"}


def sources_of(
    program: Program, report: Report, scripts: Mapping[str, str] | None
) -> Mapping[str, tuple[SourceText, ...]]:
    """The texts of each kernel of a report, by its name.

    Args:
        program: the built program.
        report: about it.
        scripts: TensorIR by the name of the kernel; ``None`` where it is not known.
    """
    built: dict[str, list[SourceText]] = {kernel.name: [] for kernel in report.kernels}
    for kernel in program.kernels:
        name = function_of(kernel.name, built)
        if name in built:
            built[name].append(_source(program.language, kernel))
    return {
        kernel.name: (*built[kernel.name], *_script(kernel.name, scripts or {}))
        for kernel in report.kernels
    }


def _source(language: str, kernel: Kernel) -> SourceText:
    """The text of a kernel, with the number of its instructions if known."""
    known = language == "cuda" and kernel.binary
    number = instructions(kernel.binary) if known else 0
    return SourceText(_LANGUAGES[language], kernel.name, kernel.source, number)


def _script(name: str, scripts: Mapping[str, str]) -> Iterator[SourceText]:
    """TensorIR of a function, if it is kept."""
    if name in scripts:
        yield SourceText("TensorIR", name, scripts[name])


def record_of(device_name: str) -> Device | None:
    """The record of a device that a model was compiled for; ``None`` where it is none of those
    that the package has."""
    try:
        return find_device(device_name)
    except UnknownDeviceError:
        return None
