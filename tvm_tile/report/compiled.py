"""Kernels and decisions of a compilation, with predicted times, as data."""

from __future__ import annotations

import operator
from dataclasses import astuple, dataclass

from tvm_tile.graph.open_extents import Symbol
from tvm_tile.report.coded_weights import CodedWeight
from tvm_tile.report.cover_report import CoverReport, ModelCover
from tvm_tile.report.kernel_graph import KernelGraph
from tvm_tile.report.limits import Bottleneck, Limits, bound_of
from tvm_tile.report.origin import Origin
from tvm_tile.report.persistent_report import LeftApart, PersistentReport
from tvm_tile.report.resources import Resources
from tvm_tile.report.skipped_zeros import SkippedZeros
from tvm_tile.report.turned_weights import TurnedWeights
from tvm_tile.tile.rules import RunnerUp
from tvm_tile.tile.weld.connect import Decision


@dataclass(frozen=True, slots=True)
class KernelReport:
    """Facts about one kernel of a model.

    Attributes:
        name: its symbol.
        operators: the operators in it.
        rule: the schedule rule that wrote it.
        grid: blocks of a launch.
        block: threads of a block.
        tile: the chosen tile, as text; of several, that for the greatest extents.
        seconds: predicted time amid the model.
        traffic: predicted bytes to and from global memory.
        fallback: why TVM's default schedule was used; empty when it was not.
        measured: number of candidates that ran; 0 where the model's first was taken unmeasured.
        rank: rank, in the model's order, of the candidate that was kept; 0 is its first choice.
        measured_seconds: measured seconds of that candidate; 0 where nothing was measured.
        written: the part of ``traffic`` that is written to global memory, in bytes.
        calls: how often the program calls it.
        registers: predicted, of a thread; ``None`` where the model does not say.
        shared_bytes: predicted, of a block.
        resources: resources of its machine code, one for each kernel that the function became.
        resident: blocks of the main one of these that a multiprocessor holds at once; 0 where that
            is not known.
        launches: kernels that a call of it launches, one after another.
        runner_up: the best choice of another rule; ``None`` where no other was asked or has one.
        cover: tiles by open extents; ``None`` where one tile runs at all of them.
        names: names that the user's model has for its values (nodes of an ONNX graph, paths of
            PyTorch modules, variables of a Relax function), for each call, equal ones once.
        flops: operations of a call, those on integers included.
        arithmetic_seconds: least seconds of these operations, by the fastest units that there are
            for them.
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
    runner_up: RunnerUp | None = None
    cover: CoverReport | None = None
    names: tuple[tuple[str, ...], ...] = ()
    flops: float = 0.0
    arithmetic_seconds: float = 0.0

    @property
    def run_seconds(self) -> float:
        """Predicted time of all its calls in a run, amid the model; 0 where it fell back."""
        return 0.0 if self.fallback else self.calls * self.seconds

    @property
    def main(self) -> Resources | None:
        """Resources of the kernel that ``block`` and the predictions are for; None if not known.

        Those behind it are small, such as one that adds the parts of sums.
        """
        own = (r for r in self.resources if r.most_threads in (None, self.block))
        return next(own, None) if self.block else None


@dataclass(frozen=True, slots=True)
class Launches:
    """Launches that one run queues on a device that captures graphs.

    Attributes:
        outside: kernels that are launched one by one, such as those that touch inputs and outputs.
        graphs: graphs that are launched.
        captured: kernels in these.
        dependent: number of those that depend programmatically on the kernel before them: they
            start while that one ends.
        saved_seconds: predicted seconds by which the graphs end earlier for it.
    """

    outside: int
    graphs: int
    captured: int = 0
    dependent: int = 0
    saved_seconds: float = 0.0

    def describe(self) -> str:
        """A line for people."""
        graphs = f"{self.graphs} graph{'s' * (self.graphs != 1)}"
        inside = f"{self.dependent} of {self.captured} kernels in graphs"
        return (
            f"launches outside of CUDA graphs: {self.outside}, beside {graphs}; "
            f"{inside} depend programmatically on the one before"
        )

    def __mul__(self, times: int) -> Launches:
        return Launches(*(times * each for each in astuple(self)))

    def __add__(self, other: Launches) -> Launches:
        return Launches(*map(operator.add, astuple(self), astuple(other)))


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage of compilation and the wall-clock seconds it took."""

    name: str
    seconds: float


@dataclass(frozen=True, slots=True)
class ModelReport:
    """All kernels of a model for one device, and how they came about.

    Attributes:
        device: its name.
        kernels: kernels in the order of their names, equal ones once.
        notes: further remarks, in sentences.
        stages: how long each stage of compilation took.
        decisions: groups of functions that were made one kernel and groups that were not, in the
            order of the program, equal ones as often as they occur.
        plans: persistent kernels, in which several kernels run, in the order of the program.
        left_apart: calls that were asked about and are launched by themselves, by reason, the
            commonest first.
        is_estimated: whether the times go by what was measured on another device.
        launches: launches of one run; None where no graphs are captured.
        turned: weights that are stored in another layout than the model has them in, each matrix.
        coded: matrices of weights that arrive as codes of a few bits, where they may be kept so.
        zeros: matrices of weights with zeros that are skipped, or could be.
        symbols: its open extents.
        weights: bytes of all constants.
        limits: peaks of the device; None where they were not told.
        origin: code and options that it was compiled by; None where they were not told.
        graphs: graphs of kernels' calls, of each function of the model, ``main`` first; none where
            that was not told.
        planned: bytes of memory for what kernels hand to each other and return, as it was planned
            for all of them; of tensors whose sizes are known.
        has_open_loops: whether the host has loops that end when the data say so; one iteration of
            each is counted.
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
    zeros: tuple[SkippedZeros, ...] = ()
    symbols: tuple[Symbol, ...] = ()
    weights: int = 0
    limits: Limits | None = None
    origin: Origin | None = None
    graphs: tuple[KernelGraph, ...] = ()
    planned: int = 0
    has_open_loops: bool = False

    @property
    def fallbacks(self) -> tuple[KernelReport, ...]:
        """Functions that no rule of ours took, or whose kernel did not build."""
        return tuple(kernel for kernel in self.kernels if kernel.fallback)

    @property
    def launch_count(self) -> int:
        """Launches of a run, those in CUDA graphs included."""
        return sum(kernel.calls * kernel.launches for kernel in self.kernels)

    @property
    def traffic(self) -> float:
        """Bytes that a run's kernels move to and from memory."""
        return sum(kernel.calls * kernel.traffic for kernel in self.kernels)

    @property
    def predicted_seconds(self) -> float:
        """Seconds of a run, launches included; at least, where :attr:`is_bound`.

        Fallbacks have no model: they count with what their bytes and launches take at least.
        Less what is saved where kernels of graphs start while those before them end.
        """
        total = sum(kernel.run_seconds for kernel in self.kernels)
        total += sum(kernel.calls * self._fallback_seconds(kernel) for kernel in self.fallbacks)
        return total - (self.launches.saved_seconds if self.launches else 0.0)

    @property
    def is_bound(self) -> bool:
        """Whether a run takes at least what is predicted, and may take more."""
        return bool(self.fallbacks) or self.has_open_loops

    @property
    def at_least(self) -> str:
        """Words ahead of the seconds of a run: ``"at least "``, or nothing."""
        return "at least " if self.is_bound else ""

    def _fallback_seconds(self, kernel: KernelReport) -> float:
        """Least seconds of a kernel that has no prediction: its bytes, and its launches."""
        launches = self.limits.launch_seconds * kernel.launches if self.limits else 0.0
        return self.memory_seconds(kernel) + launches

    def memory_seconds(self, kernel: KernelReport) -> float:
        """Least seconds of a call for the bytes that it moves."""
        return kernel.traffic / self.limits.bandwidth if self.limits else 0.0

    def least_seconds(self, kernel: KernelReport) -> float:
        """Least seconds of a call, at the memory's bandwidth or the units' peak."""
        return max(self.memory_seconds(kernel), kernel.arithmetic_seconds)

    def bound(self, kernel: KernelReport, seconds: float | None = None) -> Bottleneck:
        """Bottleneck that takes most of a call's time, which is as predicted if not given."""
        each = kernel.run_seconds / kernel.calls if seconds is None else seconds
        launches = self.limits.launch_seconds * kernel.launches if self.limits else 0.0
        return bound_of(each, self.memory_seconds(kernel), kernel.arithmetic_seconds, launches)

    @property
    def limit_seconds(self) -> float:
        """Seconds of a run whose kernels all were at the memory's bandwidth or the units' peak."""
        own = (kernel for kernel in self.kernels if not kernel.fallback)
        return sum(kernel.calls * self.least_seconds(kernel) for kernel in own)

    @property
    def cover(self) -> ModelCover:
        """Times of the kernels with tiles by open extents, each and together."""
        covers = {k.name: (k.cover, k.calls) for k in self.kernels if k.cover is not None}
        others = (k.seconds * k.calls for k in self.kernels if k.cover is None and not k.fallback)
        return ModelCover(self.symbols, covers, sum(others))

    @property
    def how(self) -> str:
        """Origin of the times, in words."""
        return "estimated" if self.is_estimated else "predicted"
