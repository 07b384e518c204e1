"""What was compiled, how, and what it should cost: the data behind ``explain()``."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class KernelReport:
    """One kernel of a model.

    Attributes:
        name: its symbol.
        operators: the operators in it.
        rule: the schedule rule that wrote it.
        grid: blocks of a launch.
        block: threads of a block.
        tile: the chosen tile, as text.
        seconds: predicted time.
        traffic: predicted bytes to and from global memory.
        fallback: why TVM's default schedule was used; empty when it was not.
        measured: how many candidates ran; 0 where the model's first was taken unmeasured.
        rank: which of them was kept, in the model's order; 0 is its first choice.
        measured_seconds: that one's time; 0 where nothing was measured.
    """

    name: str
    operators: str
    rule: str
    grid: int
    block: int
    tile: str
    seconds: float
    traffic: float
    fallback: str
    measured: int = 0
    rank: int = 0
    measured_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage of compilation and the wall-clock seconds it took."""

    name: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Report:
    """All kernels of a model for one device, and how long each stage of compilation took."""

    device: str
    kernels: tuple[KernelReport, ...]
    notes: tuple[str, ...]
    stages: tuple[Stage, ...] = ()

    @property
    def fallbacks(self) -> tuple[KernelReport, ...]:
        """Functions that no rule of ours took, or whose kernel did not build."""
        return tuple(kernel for kernel in self.kernels if kernel.fallback)

    def render(self) -> str:
        """Lines for people: a table of kernels, then what fell back and why, then totals."""
        # Names last: fused kernels have long ones.
        heading = ("rule", "grid", "block", "tile", "predicted", "measured", "traffic", "kernel")
        rows = [heading, *(_row(kernel) for kernel in self.kernels)]
        if not any(kernel.measured for kernel in self.kernels):
            column = heading.index("measured")
            rows = [(*row[:column], *row[column + 1 :]) for row in rows]
        widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
        table = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in rows
        ]
        seconds = sum(kernel.seconds for kernel in self.kernels)
        traffic = sum(kernel.traffic for kernel in self.kernels)
        own = len(self.kernels) - len(self.fallbacks)
        totals = (
            f"{len(self.kernels)} kernels for {self.device}: {own} scheduled by tiles, "
            f"{len(self.fallbacks)} fell back"
        )
        predicted = (
            f"each launched once: {seconds * 1e6:.1f} us predicted (without fallbacks), "
            f"{traffic / 1e6:.2f} MB of traffic"
        )
        reasons = [f"fell back: {k.name} ({k.operators}): {k.fallback}" for k in self.fallbacks]
        spent = ", ".join(f"{stage.name} {stage.seconds:.2f}" for stage in self.stages)
        total = sum(stage.seconds for stage in self.stages)
        compiled = [f"compiled in {total:.2f} s: {spent}"] if self.stages else []
        return "\n".join([*table, *reasons, totals, predicted, *compiled, *self.notes])

    def to_json(self) -> str:
        """Text that :meth:`from_json` reads back."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Report:
        """The report that :meth:`to_json` wrote."""
        data = json.loads(text)
        kernels = tuple(KernelReport(**kernel) for kernel in data["kernels"])
        stages = tuple(Stage(**stage) for stage in data["stages"])
        return cls(data["device"], kernels, tuple(data["notes"]), stages)


def _row(kernel: KernelReport) -> tuple[str, ...]:
    ours = not kernel.fallback
    return (
        kernel.rule,
        str(kernel.grid) if ours else "-",
        str(kernel.block) if ours else "-",
        kernel.tile or "-",
        f"{kernel.seconds * 1e6:.1f} us" if ours else "-",
        _measured(kernel) if kernel.measured else "-",
        f"{kernel.traffic / 1e6:.2f} MB",
        kernel.name,
    )


def _measured(kernel: KernelReport) -> str:
    return f"{kernel.measured_seconds * 1e6:.1f} us, #{kernel.rank + 1} of {kernel.measured}"
