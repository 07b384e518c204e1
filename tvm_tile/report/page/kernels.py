"""A kernel of a page: what its report says, and what follows from that, ready to be shown."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from tvm_tile.report.compiled import KernelReport, ModelReport
from tvm_tile.report.limits import Bottleneck
from tvm_tile.report.page.content import Content, SourceText, Styled
from tvm_tile.report.page.numbers import bytes_text, count_text, rate_text, share_text, time_text
from tvm_tile.report.profile import KernelProfile
from tvm_tile.report.screen.kernel_table import sorted_by
from tvm_tile.report.screen.short_names import short_of_calls

_ROOM = 100  # characters of a title
_MOST_OPERATORS = 6  # of a kernel, named in a line


class BoxKind(Styled):
    """Kind of a box, which its colour shows: a kernel, by its bottleneck, or an end of the graph.

    The value of a kind is its name for people.
    """

    MEMORY = Bottleneck.MEMORY.value
    ARITHMETIC = Bottleneck.ARITHMETIC.value
    LAUNCH = Bottleneck.LAUNCH.value
    LATENCY = Bottleneck.LATENCY.value
    FELL_BACK = "fell back"
    INPUT = "input"
    OUTPUT = "output"
    FUNCTION = "function of the model"
    HOST = "on the host"


MEANINGS = {
    BoxKind.MEMORY: "most of its time goes to bytes from and to memory",
    BoxKind.ARITHMETIC: "most of its time goes to operations",
    BoxKind.LAUNCH: "most of its time is that of any launch",
    BoxKind.LATENCY: "it mostly waits: for data on their way, for other threads, or for a few "
    "blocks while others have ended",
    BoxKind.FELL_BACK: "no rule of ours took it, so that nothing predicts its time",
}
"""What the kinds of kernels mean."""


@dataclass(frozen=True, slots=True)
class WorkPart:
    """Least time of a part of a kernel's work, beside the time of a call.

    Attributes:
        kind: kind of the part.
        seconds: seconds of the part.
        share: share of the call's time, at most 1.
    """

    kind: BoxKind
    seconds: float
    share: float

    @property
    def text(self) -> str:
        """The time for people."""
        return time_text(self.seconds)


@dataclass(frozen=True, slots=True)
class KernelView:
    """A kernel as it is shown.

    Attributes:
        number: its place, those that take most time first.
        report: report of the kernel.
        kind: bottleneck of the kernel.
        share: share of the time of all kernels.
        call_seconds: seconds of one of its calls.
        parts: parts of its time.
        facts: names and texts.
        sources: its texts.
        within: operators that run in a persistent kernel, and how often each does.
        measured: measured seconds of its calls in a run; ``None`` where they were not measured.
    """

    number: int
    report: KernelReport
    kind: BoxKind
    share: float
    call_seconds: float
    parts: tuple[WorkPart, ...]
    facts: tuple[tuple[str, str], ...]
    sources: tuple[SourceText, ...]
    within: tuple[tuple[str, int], ...] = ()
    measured: float | None = None

    @property
    def title(self) -> str:
        """Names, in the user's model, of what its calls compute."""
        return short_of_calls(self.report.names, _ROOM) or self.operators

    @property
    def operators(self) -> str:
        """The kernel's operators in a line."""
        own = tuple(Counter(self.report.operators.split()))
        more = f" and {len(own) - _MOST_OPERATORS} more" if len(own) > _MOST_OPERATORS else ""
        return (" ".join(own[:_MOST_OPERATORS]) or self.report.name) + more

    @property
    def time(self) -> str:
        """The time of all calls of the kernel, as text."""
        fell_back = self.kind is BoxKind.FELL_BACK
        return "unknown" if fell_back else time_text(self.report.run_seconds)


def kernel_views(content: Content) -> tuple[KernelView, ...]:
    """All kernels of a page, those that take most time first."""
    report = content.report
    total = sum(kernel.run_seconds for kernel in report.kernels) or 1.0
    measured = () if content.profile is None else content.profile.kernels
    profiled = {kernel.name: kernel for kernel in measured}
    within = {plan.name: Counter(o.name for o in plan.operators) for plan in report.plans}
    return tuple(
        KernelView(
            number,
            kernel,
            BoxKind.FELL_BACK if kernel.fallback else BoxKind(report.bound(kernel).value),
            kernel.run_seconds / total,
            kernel.run_seconds / kernel.calls if kernel.calls else 0.0,
            _parts(report, kernel),
            tuple(_facts(content, kernel, profiled.get(kernel.name))),
            content.sources.get(kernel.name, ()),
            tuple(within.get(kernel.name, Counter()).items()),
            profiled[kernel.name].seconds if kernel.name in profiled else None,
        )
        for number, kernel in enumerate(sorted_by(report.kernels, "time"))
    )


def _parts(report: ModelReport, kernel: KernelReport) -> tuple[WorkPart, ...]:
    """Least times of the bytes, operations and launches of a call."""
    if kernel.fallback or report.limits is None or not kernel.run_seconds:
        return ()
    each = kernel.run_seconds / kernel.calls
    known = {
        BoxKind.MEMORY: report.memory_seconds(kernel),
        BoxKind.ARITHMETIC: kernel.arithmetic_seconds,
        BoxKind.LAUNCH: report.limits.launch_seconds * kernel.launches,
    }
    return tuple(WorkPart(kind, own, min(1.0, own / each)) for kind, own in known.items())


def _facts(
    content: Content, kernel: KernelReport, profiled: KernelProfile | None
) -> list[tuple[str, str]]:
    """Names and texts, in the order in which people ask."""
    report = content.report
    facts = [("Kernel", kernel.name)]
    if kernel.fallback:
        facts.append(("Fell back", kernel.fallback))
    else:
        facts += _times(report, kernel)
    if profiled is not None:
        spread = f"{time_text(profiled.seconds)}, spread {time_text(profiled.spread)}"
        facts.append(("Profiled, of a run", spread))
    read = kernel.traffic - kernel.written
    moved = f"{bytes_text(read)} read, {bytes_text(kernel.written)} written"
    facts += [("Traffic of a call", moved)]
    facts += [("Computes", count_text(kernel.flops, "FLOP"))] if kernel.flops else []
    facts += [("Scheduled by", kernel.rule), ("Tile", kernel.tile or "none")]
    if kernel.block:
        facts.append(("Launch", f"{kernel.grid} blocks of {kernel.block} threads"))
    facts += _taken(kernel, content.sources.get(kernel.name, ()))
    if kernel.measured:
        rank, time = kernel.rank + 1, time_text(kernel.measured_seconds)
        facts.append(("Measured", f"{time}, choice {rank} of the {kernel.measured} that ran"))
    if (other := kernel.runner_up) is not None:
        facts.append(("Runner-up", f"{other.rule}, {time_text(other.seconds)}: {other.tile}"))
    if content.verified is not None and kernel.name in content.verified.kernels:
        facts.append(("Verified", content.verified.kernels[kernel.name]))
    facts.append(("Operators", kernel.operators or "not told"))
    return facts


def _times(report: ModelReport, kernel: KernelReport) -> list[tuple[str, str]]:
    """Facts about a kernel's time: of a run, of a call, and the rates that it reaches."""
    each = kernel.run_seconds / kernel.calls if kernel.calls else 0.0
    total = sum(one.run_seconds for one in report.kernels) or 1.0
    cold = f", {time_text(kernel.seconds)} with a cold cache" if kernel.seconds != each else ""
    calls = f"{kernel.calls} call{'s' * (kernel.calls != 1)}"
    run = f"{time_text(kernel.run_seconds)} in {calls}, {share_text(kernel.run_seconds / total)}"
    facts = [("Time of a run", run), (f"Time of a call, {report.how}", time_text(each) + cold)]
    if each:
        reached = [rate_text(kernel.traffic / each, "B")]
        reached += [rate_text(kernel.flops / each, "FLOP")] if kernel.flops else []
        facts.append(("Reaches", " and ".join(reached)))
    return facts


def _taken(kernel: KernelReport, sources: tuple[SourceText, ...]) -> list[tuple[str, str]]:
    """Words for the resources of its machine code."""
    facts = []
    for own in kernel.resources:
        parts = [f"{own.registers} registers a thread", f"{bytes_text(own.shared)} shared"]
        parts += [f"{bytes_text(own.stack)} of stack"] if own.stack else []
        parts += [f"{own.spilled} registers spilled"] if own.spilled else []
        facts.append(("Machine code", ", ".join(parts)))
    if kernel.shared_bytes:
        facts.append(("Shared, predicted", f"{bytes_text(kernel.shared_bytes)} of a block"))
    if kernel.resident:
        facts.append(("Resident", f"{kernel.resident} blocks on a multiprocessor"))
    instructions = [str(source.instructions) for source in sources if source.instructions]
    return facts + ([("Instructions", " + ".join(instructions))] if instructions else [])
