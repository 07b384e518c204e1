"""All kernels of a model as a table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from tvm_tile.report.compiled import KernelReport
from tvm_tile.report.detail import Sort
from tvm_tile.report.resources import Resources
from tvm_tile.report.screen.short_names import short_of_calls
from tvm_tile.report.screen.table import Part, Table, without

_ROOM = 80  # characters for what a kernel computes


def sorted_by(kernels: Iterable[KernelReport], sort: Sort) -> list[KernelReport]:
    """Kernels in an order: those of most time or bytes in a run first, or by their names."""
    match sort:
        case "name":
            return sorted(kernels, key=lambda kernel: kernel.name)
        case "bytes":
            return sorted(kernels, key=lambda kernel: -kernel.calls * kernel.traffic)
        case "time":
            return sorted(kernels, key=lambda kernel: -kernel.run_seconds)


def render_kernels(kernels: Sequence[KernelReport]) -> Iterator[Part]:
    """Lines for people: the table, without columns that say nothing, then machine code."""
    rows: Sequence[tuple[str, ...]] = [_HEADING, *(_row(kernel) for kernel in kernels)]
    for name, is_told in (
        ("measured", any(kernel.measured for kernel in kernels)),
        ("next rule", any(kernel.runner_up for kernel in kernels)),
        ("computes", any(kernel.names for kernel in kernels)),
    ):
        rows = rows if is_told else without(name, rows)
    yield Table(tuple(rows), spare=("next rule", "grid", "block", "kernel"))
    yield from _machine_code(kernels)


# Names last: fused kernels have long ones.
_HEADING = (
    "rule",
    "grid",
    "block",
    "tile",
    "predicted",
    "measured",
    "next rule",
    "traffic",
    "kernel",
    "computes",
)


def _machine_code(kernels: Sequence[KernelReport]) -> Iterator[Part]:
    """Table of what kernels take of a compute unit; of those whose machine code says all of it."""
    rows = [
        _taken(kernel, own)
        for kernel in kernels
        for own in kernel.resources
        if own.warp is not None
    ]
    if rows:
        yield "machine code, of each kernel (predicted):"
        heading = ("vgpr", "agpr", "sgpr", "lds", "spilled", "stack", "blocks a unit", "kernel")
        yield Table((heading, *rows), indent=2)


def _taken(kernel: KernelReport, own: Resources) -> tuple[str, ...]:
    """Cells on a kernel's machine code, with predictions in brackets."""
    is_main = own is kernel.main
    registers = f" ({kernel.registers})" if is_main and kernel.registers is not None else ""
    shared = f" ({kernel.shared_bytes})" if is_main and (own.shared or kernel.shared_bytes) else ""
    return (
        f"{own.registers}{registers}",
        str(own.accumulation),
        str(own.scalar),
        f"{own.shared}{shared}",
        str(own.spilled),
        str(own.stack),
        str(kernel.resident or "-") if is_main else "-",
        kernel.name,
    )


def _row(kernel: KernelReport) -> tuple[str, ...]:
    """Cells of a kernel."""
    ours, other = not kernel.fallback, kernel.runner_up
    return (
        kernel.rule,
        str(kernel.grid) if ours else "-",
        str(kernel.block) if ours else "-",
        kernel.tile or "-",
        f"{kernel.seconds * 1e6:.1f} us" if ours else "-",
        _measured(kernel) if kernel.measured else "-",
        f"{other.rule} {other.seconds * 1e6:.1f} us" if other else "-",
        f"{kernel.traffic / 1e6:.2f} MB",
        kernel.name,
        short_of_calls(kernel.names, _ROOM) or "-",
    )


def _measured(kernel: KernelReport) -> str:
    """Words for the measured candidate that was kept."""
    return f"{kernel.measured_seconds * 1e6:.1f} us, #{kernel.rank + 1} of {kernel.measured}"
