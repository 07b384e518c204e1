"""Results of verification, as data and as a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tvm_tile.report.screen.table import aligned


@dataclass(frozen=True, slots=True)
class Difference:
    """How an output compares with what was wanted.

    Attributes:
        error: the largest difference, relative to the element and the output's mean size; infinite
            where NaN, an infinity or a number stands in another's place.
        wrong: elements beyond what rounding allows.
        size: all elements.
        example: one that is wrong, in words; empty where none is.
    """

    error: float
    wrong: int
    size: int
    example: str = ""

    @property
    def is_right(self) -> bool:
        """Whether every element is."""
        return not self.wrong


@dataclass(frozen=True, slots=True)
class Verified:
    """Outcome of a comparison of the model with its source.

    Attributes:
        is_right: whether nothing differs.
        text: all that was compared, for people.
        kernels: name -> what was found of that kernel, in a few words.
    """

    is_right: bool
    text: str
    kernels: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class KernelCheck:
    """One kernel next to what NumPy makes of its unscheduled function.

    Attributes:
        name: its symbol.
        rule: the schedule rule that wrote it.
        tile: the chosen tile, as text.
        calls: how often the model launches it.
        allowed: the largest relative error that rounding explains.
        comparison: comparison of the output that is farthest off.
        missing: why there is nothing to compare with; empty where there is.
        in_tvm: why it was compared with TVM's CPU build, which may have the same faults; empty
            where it was not.
    """

    name: str
    rule: str
    tile: str
    calls: int
    allowed: float
    comparison: Difference
    missing: str = ""
    in_tvm: str = ""


@dataclass(frozen=True, slots=True)
class OutputCheck:
    """One output of the whole model next to its source's."""

    name: str
    allowed: float
    comparison: Difference


@dataclass(frozen=True, slots=True)
class Verification:
    """Kernels and outputs that were compared, and their differences.

    Attributes:
        device: the device's name.
        kernels: each different kernel, in the order of their names.
        outputs: comparisons of the whole model's outputs; empty where there is nothing to compare
            them with.
        source: origin of the outputs to compare with, or the reason why there are none.
    """

    device: str
    kernels: tuple[KernelCheck, ...]
    outputs: tuple[OutputCheck, ...]
    source: str

    @property
    def is_right(self) -> bool:
        """Whether nothing differs."""
        checks: tuple[KernelCheck | OutputCheck, ...] = (*self.kernels, *self.outputs)
        return all(check.comparison.is_right for check in checks)

    def for_page(self) -> Verified:
        """Rows and remarks that a page shows of it."""
        found = {
            kernel.name: kernel.missing
            or f"{_mark(kernel.comparison)}, error "
            f"{kernel.comparison.error:.1e} of {kernel.allowed:.1e} allowed"
            for kernel in self.kernels
        }
        return Verified(self.is_right, self.render(), found)

    def render(self) -> str:
        """A table of kernels, one of outputs, and what differs in words."""
        rows: list[tuple[str, ...]] = [("", "kernel", "rule", "calls", "error", "allowed")]
        rows += [
            (
                "-" if k.missing else _mark(k.comparison),
                k.name,
                k.rule,
                str(k.calls),
                *_errors(k.comparison, k.allowed),
            )
            for k in self.kernels
        ]
        missing = [kernel for kernel in self.kernels if kernel.missing]
        right = sum(k.comparison.is_right for k in self.kernels) - len(missing)
        lines = [f"Verified on {self.device}", "", *aligned(rows), ""]
        lines += [
            f"{right} of {len(self.kernels)} kernels agree with what NumPy makes of their functions"
        ]
        lines += [
            f"Compared with TVM's CPU build instead, {kernel.name}: {kernel.in_tvm}"
            for kernel in self.kernels
            if kernel.in_tvm
        ]
        lines += [f"Not compared, {kernel.name}: {kernel.missing}" for kernel in missing]
        if self.outputs:
            rows = [("", "output", "error", "allowed")]
            rows += [
                (_mark(o.comparison), o.name, *_errors(o.comparison, o.allowed))
                for o in self.outputs
            ]
            lines += ["", *aligned(rows), ""]
        lines += [f"The whole model: {self.source}"]
        lines += _differences(self)
        return "\n".join(lines)


def _mark(comparison: Difference) -> str:
    """The word for a comparison's outcome."""
    return "right" if comparison.is_right else "WRONG"


def _errors(comparison: Difference, allowed: float) -> tuple[str, str]:
    """The error, and the one that is allowed, for people."""
    return f"{comparison.error:.1e}", f"{allowed:.1e}"


def _differences(found: Verification) -> Iterator[str]:
    """A line on each comparison that is wrong."""
    checks: tuple[KernelCheck | OutputCheck, ...] = (*found.kernels, *found.outputs)
    for check in checks:
        own = check.comparison
        if not own.is_right:
            yield f"WRONG {check.name}: {own.wrong} of {own.size} elements, {own.example}"
