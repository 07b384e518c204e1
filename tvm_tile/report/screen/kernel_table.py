"""All kernels of a model as a table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from tvm_tile.report.compiled import KernelReport
from tvm_tile.report.detail import Sort
from tvm_tile.report.resources import Resources
from tvm_tile.report.screen.short_names import short_of_calls
from tvm_tile.report.screen.table import Part, Table
from tvm_tile.tile.rules import RunnerUp

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
    columns = {heading: [tell(kernel) for kernel in kernels] for heading, tell in _COLUMNS.items()}
    told = {own: cells for own, cells in columns.items() if own not in _RARE or {*cells} - {"-"}}
    rows = tuple(told), *zip(*told.values(), strict=True)
    yield Table(rows, spare=("next rule", "grid", "block", "kernel"))
    yield from _machine_code(kernels)


def _ours(kernel: KernelReport, text: str) -> str:
    """A cell of what TVM's schedules do not tell."""
    return "-" if kernel.fallback else text


def _measured(kernel: KernelReport) -> str:
    """Words for the measured candidate that was kept."""
    taken = f"{kernel.measured_seconds * 1e6:.1f} us, #{kernel.rank + 1} of {kernel.measured}"
    return taken if kernel.measured else "-"


def _next(other: RunnerUp | None) -> str:
    """Words for the best choice of another rule."""
    return f"{other.rule} {other.seconds * 1e6:.1f} us" if other else "-"


# Names last: fused kernels have long ones.
_COLUMNS: dict[str, Callable[[KernelReport], str]] = {
    "rule": lambda kernel: kernel.rule,
    "grid": lambda kernel: _ours(kernel, str(kernel.grid)),
    "block": lambda kernel: _ours(kernel, str(kernel.block)),
    "tile": lambda kernel: kernel.tile or "-",
    "predicted": lambda kernel: _ours(kernel, f"{kernel.seconds * 1e6:.1f} us"),
    "measured": _measured,
    "next rule": lambda kernel: _next(kernel.runner_up),
    "traffic": lambda kernel: f"{kernel.traffic / 1e6:.2f} MB",
    "kernel": lambda kernel: kernel.name,
    "computes": lambda kernel: short_of_calls(kernel.names, _ROOM) or "-",
}
_RARE = "measured", "next rule", "computes"


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
