"""What was compiled, how, and what it should cost: the data behind ``explain()``."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tvm_tile.graph.open_extents import Symbol
from tvm_tile.plan.coded_weights import CodedWeight, render_coded
from tvm_tile.plan.cover_drawing import draw_cover
from tvm_tile.plan.cover_report import CoverReport, ModelCover, render_cover
from tvm_tile.plan.drawing import draw
from tvm_tile.plan.json_data import revived, text_of
from tvm_tile.plan.persistent_report import LeftApart, PersistentReport, render_plans
from tvm_tile.plan.resources import Resources
from tvm_tile.plan.table import aligned
from tvm_tile.plan.turned_weights import TurnedWeights, render_turned
from tvm_tile.tile.connect import Decision
from tvm_tile.tile.rules import RunnerUp


@dataclass(frozen=True, slots=True)
class KernelReport:
    """What is known of one kernel of a model.

    Attributes:
        name: its symbol.
        operators: the operators in it.
        rule: the schedule rule that wrote it.
        grid: blocks of a launch.
        block: threads of a block.
        tile: the chosen tile, as text; of several, that for the greatest extents.
        seconds: predicted time.
        traffic: predicted bytes to and from global memory.
        fallback: why TVM's default schedule was used; empty when it was not.
        measured: how many candidates ran; 0 where the model's first was taken unmeasured.
        rank: which of them was kept, in the model's order; 0 is its first choice.
        measured_seconds: that one's time; 0 where nothing was measured.
        written: of ``traffic``, the bytes to global memory.
        calls: how often the program calls it.
        registers: predicted, of a thread; ``None`` where the model does not say.
        shared_bytes: predicted, of a block.
        resources: what its machine code takes, one for each kernel that the function became.
        resident: blocks of the main one of these that a multiprocessor holds at once; 0 where that
            is not known.
        launches: kernels that a call of it launches, one after another.
        warm_seconds: predicted time amid a model; ``None`` where it is ``seconds``.
        runner_up: the best choice of another rule; ``None`` where no other was asked or has one.
        cover: which tile runs at which open extents; ``None`` where one runs at all of them.
        names: what the user's model calls that which it computes (nodes of an ONNX graph, paths of
            PyTorch modules, variables of a Relax function), for each call, equal ones once.
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
    written: float = 0.0
    calls: int = 1
    registers: int | None = None
    shared_bytes: int = 0
    resources: tuple[Resources, ...] = ()
    resident: int = 0
    launches: int = 1
    warm_seconds: float | None = None
    runner_up: RunnerUp | None = None
    cover: CoverReport | None = None
    names: tuple[tuple[str, ...], ...] = ()

    @property
    def main(self) -> Resources | None:
        """What the kernel takes that ``block`` and the predictions are for; None if not known.

        Those behind it are small, such as one that adds the parts of sums.
        """
        own = (r for r in self.resources if r.most_threads in (None, self.block))
        return next(own, None) if self.block else None


@dataclass(frozen=True, slots=True)
class Launches:
    """What one run queues on a device that captures graphs.

    Attributes:
        outside: kernels that are launched one by one, such as those that touch inputs and outputs.
        graphs: graphs that are launched.
        captured: kernels in these.
        dependent: of those, how many depend programmatically on the kernel before them: they start
            while that one ends.
        saved_seconds: by which the graphs end earlier for it, predicted.
    """

    outside: int
    graphs: int
    captured: int = 0
    dependent: int = 0
    saved_seconds: float = 0.0

    def __add__(self, other: Launches) -> Launches:
        return Launches(
            self.outside + other.outside,
            self.graphs + other.graphs,
            self.captured + other.captured,
            self.dependent + other.dependent,
            self.saved_seconds + other.saved_seconds,
        )


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage of compilation and the wall-clock seconds it took."""

    name: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Report:
    """All kernels of a model for one device, and how they came about.

    Attributes:
        device: its name.
        kernels: in the order of their names, equal ones once.
        notes: what else there is to say.
        stages: how long each stage of compilation took.
        decisions: which functions were made one kernel and which were not, in the order of the
            program, equal ones as often as they occur.
        plans: persistent kernels, in which several kernels run, in the order of the program.
        left_apart: what was asked about and is launched by itself, by reason, the commonest first.
        is_estimated: whether the times go by what was measured on another device.
        launches: of one run; None where no graphs are captured.
        turned: weights that are stored in another layout than the model has them in, each matrix.
        coded: matrices of weights that arrive as codes of a few bits, where they may be kept so.
        symbols: its open extents.
    """

    device: str
    kernels: tuple[KernelReport, ...]
    notes: tuple[str, ...]
    stages: tuple[Stage, ...] = ()
    decisions: tuple[Decision, ...] = ()
    plans: tuple[PersistentReport, ...] = ()
    left_apart: tuple[LeftApart, ...] = ()
    is_estimated: bool = False
    launches: Launches | None = None
    turned: tuple[TurnedWeights, ...] = ()
    coded: tuple[CodedWeight, ...] = ()
    symbols: tuple[Symbol, ...] = ()

    @property
    def fallbacks(self) -> tuple[KernelReport, ...]:
        """Functions that no rule of ours took, or whose kernel did not build."""
        return tuple(kernel for kernel in self.kernels if kernel.fallback)

    @property
    def predicted_seconds(self) -> float:
        """Seconds of a run, launches included; fallbacks count as nothing, for they have no model.

        A kernel's own ``seconds`` are those of a cold cache. Amid a model it finds what the one
        before has just written in the second-level cache: each counts as
        :func:`~tvm_tile.plan.warm.warm_seconds` said, as persistent kernels are predicted too. Less
        what is saved where kernels of graphs start while those before them end.
        """
        own = (kernel for kernel in self.kernels if not kernel.fallback)
        warm = (k.calls * (k.seconds if k.warm_seconds is None else k.warm_seconds) for k in own)
        return sum(warm) - (self.launches.saved_seconds if self.launches else 0.0)

    @property
    def cover(self) -> ModelCover:
        """What the kernels with tiles by open extents take, each and together."""
        covers = {k.name: (k.cover, k.calls) for k in self.kernels if k.cover is not None}
        others = (k.seconds * k.calls for k in self.kernels if k.cover is None and not k.fallback)
        return ModelCover(self.symbols, covers, sum(others))

    def render(self) -> str:
        """Lines for people: kernels, what fell back, was joined or stored turned, weights as codes,
        tiles by open extents, totals."""
        rows = [_HEADING, *(_row(kernel) for kernel in self.kernels)]
        if not any(kernel.measured for kernel in self.kernels):
            rows = _without("measured", rows)
        if not any(kernel.runner_up for kernel in self.kernels):
            rows = _without("next rule", rows)
        seconds = sum(kernel.seconds for kernel in self.kernels)
        traffic = sum(kernel.traffic for kernel in self.kernels)
        own = len(self.kernels) - len(self.fallbacks)
        totals = (
            f"{len(self.kernels)} kernels for {self.device}: {own} scheduled by tiles, "
            f"{len(self.fallbacks)} fell back"
        )
        how = self._how
        predicted = (
            f"each launched once: {seconds * 1e6:.1f} us {how} (without fallbacks), "
            f"{traffic / 1e6:.2f} MB of traffic"
        )
        calls = sum(kernel.calls * kernel.launches for kernel in self.kernels)
        seconds = self.predicted_seconds
        run = f"one run: {calls} launches, {seconds * 1e6:.1f} us {how}, with a warm cache"
        graphs = [] if self.launches is None else [_launched(self.launches)]
        reasons = [f"fell back: {k.name} ({k.operators}): {k.fallback}" for k in self.fallbacks]
        spent = ", ".join(f"{stage.name} {stage.seconds:.2f}" for stage in self.stages)
        total = sum(stage.seconds for stage in self.stages)
        compiled = [f"compiled in {total:.2f} s: {spent}"] if self.stages else []
        groups = [*_decided(self.decisions), *render_plans(self.plans, self.left_apart)]
        return "\n".join(
            [
                *aligned(rows),
                *_machine_code(self.kernels),
                *reasons,
                *groups,
                *render_turned(self.turned),
                *render_coded(self.coded),
                *render_cover(self.cover, how),
                *(totals, predicted, run, *graphs),
                *compiled,
                *self.notes,
            ]
        )

    def draw(self) -> str:
        """The text of an SVG file that shows what was joined; see :mod:`tvm_tile.plan.drawing`."""
        return draw(self.decisions)

    def draw_extents(self) -> str:
        """The text of an SVG file of times over open extents: of all kernels that have tiles by
        these, then of each; see :mod:`tvm_tile.plan.cover_drawing`."""
        return draw_cover(self.cover, self._how)

    @property
    def _how(self) -> str:
        """Where times are from."""
        return "estimated" if self.is_estimated else "predicted"

    def to_json(self) -> str:
        """Text that :meth:`from_json` reads back."""
        return text_of(self)

    @classmethod
    def from_json(cls, text: str) -> Report:
        """The report that :meth:`to_json` wrote."""
        # Models that were saved before there were decisions, or plans, have none.
        report: Report = revived(cls, json.loads(text))
        return report


def _launched(launches: Launches) -> str:
    graphs = f"{launches.graphs} graph{'s' * (launches.graphs != 1)}"
    inside = f"{launches.dependent} of {launches.captured} kernels in graphs"
    return (
        f"launches outside of CUDA graphs: {launches.outside}, beside {graphs}; "
        f"{inside} depend programmatically on the one before"
    )


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
)


def _without(name: str, rows: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """The rows of the table without a column."""
    column = rows[0].index(name)
    return [(*row[:column], *row[column + 1 :]) for row in rows]


def _machine_code(kernels: Sequence[KernelReport]) -> Iterator[str]:
    """What kernels take of a compute unit, where the code says all that its table tells."""
    rows = [
        _taken(kernel, own)
        for kernel in kernels
        for own in kernel.resources
        if own.warp is not None
    ]
    if rows:
        yield "machine code, of each kernel (predicted):"
        heading = ("vgpr", "agpr", "sgpr", "lds", "spilled", "stack", "blocks a unit", "kernel")
        yield from (f"  {line}" for line in aligned([heading, *rows]))


def _taken(kernel: KernelReport, own: Resources) -> tuple[str, ...]:
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
    )


def _measured(kernel: KernelReport) -> str:
    return f"{kernel.measured_seconds * 1e6:.1f} us, #{kernel.rank + 1} of {kernel.measured}"


def _decided(decisions: tuple[Decision, ...]) -> Iterator[str]:
    """What was joined and what was left apart; equal decisions are one line, with their number."""
    counts = Counter(decisions)
    joined = {decision: count for decision, count in counts.items() if not decision.reason}
    apart = {decision: count for decision, count in counts.items() if decision.reason}
    for title, chosen in (("joined:", joined), ("left apart:", apart)):
        yield from [title] if chosen else []
        for decision, count in chosen.items():
            yield f"  {count} x {_names(decision.functions)}: {_outcome(decision)}"
            yield from _details(decision)


def _names(functions: tuple[str, ...]) -> str:
    return " + ".join(functions)


def _outcome(decision: Decision) -> str:
    alone = f"{decision.apart * 1e6:.1f} us apart"
    as_one = f"{decision.together * 1e6:.1f} us as one"
    moved = f"{decision.saved_bytes / 1e6:.2f} MB"
    if not decision.reason:
        return f"{decision.rule}, {as_one}, {alone}, {moved} less traffic"
    times = [*([as_one] if decision.together else []), *([alone] if decision.apart else [])]
    return ", ".join([decision.reason, *times, f"{moved} of traffic between them"])


def _details(decision: Decision) -> Iterator[str]:
    """The values of a joined group, and what else it could have been."""
    if decision.reason:
        return
    for edge in decision.edges:
        ends = f"{decision.functions[edge.maker]} -> {decision.functions[edge.taker]}"
        yield f"      {ends}: {edge.size / 1e6:.2f} MB, {decision.level(edge)}"
    for option in decision.options:
        others = tuple((Counter(decision.functions) - Counter(option.functions)).elements())
        yield f"      without {_names(others)}: {option.seconds * 1e6:.1f} us"
