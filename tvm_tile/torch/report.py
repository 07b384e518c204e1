"""Reports on the graphs that PyTorch handed over, as data and for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from tvm_tile.runtime import CompiledModel


class GraphKind(Enum):
    """Purpose for which PyTorch wants a graph."""

    INFERENCE = "inference"
    FORWARD = "forward, for training"
    BACKWARD = "backward"


@dataclass(frozen=True, slots=True)
class EagerOperator:
    """An operator that PyTorch runs.

    Attributes:
        operator: its name.
        why: why it is not compiled.
        line: the line of the model's code that it is from; empty where PyTorch does not know.
    """

    operator: str
    why: str
    line: str


@dataclass(frozen=True, slots=True)
class CompiledPart:
    """Operators that were compiled as one program.

    Attributes:
        operators: number of operators; views are not counted.
        model: the program, whose ``explain()`` tells of its kernels.
    """

    operators: int
    model: CompiledModel


@dataclass(frozen=True, slots=True)
class GraphReport:
    """Report of one graph: parts that were compiled, and operators that were not.

    Attributes:
        kind: purpose for which PyTorch wants it.
        parts: parts that were compiled.
        eager: operators that PyTorch runs, and why.
        note: why the whole graph is as it is; empty where the rest says it all.
    """

    kind: GraphKind
    parts: tuple[CompiledPart, ...]
    eager: tuple[EagerOperator, ...]
    note: str = ""

    @property
    def compiled_operators(self) -> int:
        """How many operators were compiled; views are not counted."""
        return sum(part.operators for part in self.parts)

    def render(self) -> str:
        """Lines for people, joined by newlines."""
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        """Lines on a graph: parts that were compiled, and operators that PyTorch runs."""
        total = self.compiled_operators + len(self.eager)
        parts = f"{len(self.parts)} part{'s' * (len(self.parts) != 1)}"
        compiled = f"{self.compiled_operators} of {total} operators compiled"
        yield f"{self.kind.value}: {compiled}, in {parts}"
        if self.note:
            yield f"  {self.note}"
        counted = Counter(self.eager)
        for number, part in enumerate(self.parts, 1):
            launches = part.model.report.launches
            if launches is not None:
                outside = f"{launches.outside} launches outside of {launches.graphs} CUDA graphs"
                yield f"  part {number}: {part.operators} operators, {outside}"
        for one, times in counted.items():
            line = f", from `{one.line}`" if one.line else ""
            yield f"  eager: {times} x {one.operator}: {one.why}{line}"


@dataclass(frozen=True, slots=True)
class Explanation:
    """Report of a call: one report for each graph that it needed.

    Attributes:
        graphs: reports of graphs, in the order in which PyTorch handed them over.
    """

    graphs: tuple[GraphReport, ...]

    def render(self) -> str:
        """Lines for people, joined by newlines."""
        return "\n".join(graph.render() for graph in self.graphs) or "no graph was captured"

    def __str__(self) -> str:
        return self.render()


def code_line(stack_trace: str | None) -> str:
    """The innermost line of the model's code that a node is from; Python marks parts of it."""
    lines = [line.strip() for line in (stack_trace or "").splitlines()]
    return next((line for line in reversed(lines) if line.strip("~^")), "")
