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


@dataclass(frozen=True, slots=True)
class Report:
    """All kernels of a model for one device."""

    device: str
    kernels: tuple[KernelReport, ...]
    notes: tuple[str, ...]

    def render(self) -> str:
        """Lines for people."""
        lines = [f"{len(self.kernels)} kernels for {self.device}"]
        lines += [f"  {k.name}: {k.operators} ({k.rule}) {k.tile}" for k in self.kernels]
        return "\n".join([*lines, *self.notes])

    def to_json(self) -> str:
        """Text that :meth:`from_json` reads back."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Report:
        """The report that :meth:`to_json` wrote."""
        data = json.loads(text)
        kernels = tuple(KernelReport(**kernel) for kernel in data["kernels"])
        return cls(data["device"], kernels, tuple(data["notes"]))
