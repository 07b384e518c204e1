"""Measure one model: compile all ways, then every way at one extent after the other."""

from __future__ import annotations

import copy
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from bench.gpu import CudaStage, HostStage, Stage
from bench.inputs import draw
from bench.lines import append
from bench.open_shapes import record as records
from bench.open_shapes.compiling import Lowerings, Made, compile_open, reason, warm_up
from bench.open_shapes.models import find_model, module_of
from bench.open_shapes.points import points
from bench.open_shapes.record import Compilation, Point, Provenance
from bench.open_shapes.statics import Statics
from bench.open_shapes.systems import Contender, Dynamic, Run, padded
from bench.protocol import Times, checked, measure, tensors
from bench.worker import release_memory
from bench.workload import Case

Say = Callable[[str], None]
# What files of compiled models may take at once, all of which hold the weights.
_DISK_BYTES = 24 << 30


@dataclass(frozen=True, slots=True)
class Plan:
    """What to measure of a model.

    Attributes:
        model: its name.
        systems: of :data:`bench.open_shapes.record.SYSTEMS`.
        modes: of torch.compile.
        device: name of the device record.
        results: folder of the records.
        count: of extents.
        low: the least extent, if it is not the model's.
        seed: of extents and inputs.
        jobs: compilations at once.
        cache: a folder of schedules and machine code, or none.
        ends: when no further extent is begun, by the monotonic clock.
    """

    model: str
    systems: tuple[str, ...]
    modes: tuple[str, ...]
    device: str
    results: Path
    count: int = 64
    low: int | None = None
    seed: int = 1
    jobs: int = 1
    cache: Path | None = None
    ends: float = float("inf")


class Measurement:
    """A plan that is carried out."""

    def __init__(self, plan: Plan, origin: Provenance, compiled: Statics, say: Say) -> None:
        self.plan, self.origin, self.say = plan, origin, say
        self.statics = compiled
        model = find_model(plan.model)
        self.model = replace(model, low=plan.low or model.low)
        self.on_gpu = torch.cuda.is_available()
        self.place = "cuda" if self.on_gpu else "cpu"
        self.stage: Stage = CudaStage() if self.on_gpu else HostStage()
        self.module = module_of(plan.model)
        self.reference = copy.deepcopy(self.module).to(self.place).float()
        self.lowerings = Lowerings()
        self.done = records.read(plan.results / records.POINTS, Point)
        wanted = points(self.model.low, self.model.high, plan.count, plan.seed)
        left = (extent for extent in wanted if not self._is_done(extent))
        # One comes last: torch.compile compiles anew for it, which may take minutes.
        self.extents = sorted(left, key=lambda extent: extent == 1)
        self._padded: dict[int, Any] = {}

    def _is_done(self, extent: int) -> bool:
        """Whether each system was measured at an extent, or does not compile."""
        place = self.plan.model, extent
        measured = {p.system for p in self.done.values() if (p.model, p.extent) == place}
        to = {"static": extent, "padded": self.model.padded_extent(extent)}
        made = records.read(self.plan.results / records.COMPILATIONS, Compilation)
        refused = {
            one.system
            for one in made.values()
            if one.model == self.plan.model
            and one.status != "ok"
            and one.extent == to.get(one.system, self.model.high)
        }
        return (measured | refused).issuperset(self.plan.systems)

    def run(self) -> None:
        """Compile and measure; records are written as they come."""
        if not self.extents:
            self.say(f"{self.plan.model}: all was measured")
            return
        if "padded" in self.plan.systems:
            for extent in self.model.padded_extents():
                self.statics.ask(extent, is_masked=self.model.masked is not None)
        batches = self._batches()
        self._ask(batches[0])
        whole = [*self._open(), *self._dynamic()]
        if "padded" in self.plan.systems:
            for extent in self.model.padded_extents():
                made = self.statics.made(extent, is_masked=self.model.masked is not None)
                self._compilation("padded", "", extent, made)
        with self.lowerings.counting():
            for batch in batches:
                self._ask(batch)
                for extent in batch if "static" in self.plan.systems else ():
                    self._compilation("static", "", extent, self.statics.made(extent))
                for extent in batch:
                    if time.monotonic() > self.plan.ends:
                        self.say("out of time; --resume goes on")
                        return
                    self._point(extent, [*whole, *self._known(extent)])
                    self.statics.discard(extent)

    def _batches(self) -> list[list[int]]:
        """Extents whose compiled models are on disk at once."""
        weights = sum(p.numel() * p.element_size() for p in self.module.parameters())
        size = max(self.plan.jobs, _DISK_BYTES // max(1, weights))
        return [self.extents[at : at + size] for at in range(0, len(self.extents), size)]

    def _ask(self, batch: Sequence[int]) -> None:
        for extent in batch if "static" in self.plan.systems else ():
            self.statics.ask(extent)

    def _open(self) -> list[Contender]:
        if "open" not in self.plan.systems:
            return []
        warm_up()
        compiled, made = compile_open(self.model, self.module, self.plan.device, self.plan.cache)
        self._compilation("open", "", self.model.high, made)
        if compiled is None:
            return []
        return [Contender("open", "", lambda _, value: partial(compiled, value), self.lowerings)]

    def _dynamic(self) -> list[Contender]:
        if "dynamic" not in self.plan.systems:
            return []
        import torch._inductor.config

        torch._inductor.config.compile_threads = self.plan.jobs
        # Of known shapes Inductor does this by itself: tensor cores want channels last.
        module = copy.deepcopy(self.module).to(self.place, memory_format=torch.channels_last)
        dynamic = Dynamic(module, self.plan.modes)
        failed = set()
        for contender in dynamic.contenders(on_gpu=False):
            start = time.perf_counter()
            try:
                contender.start(self.model.high, self._input(self.model.high))()
                self.stage.synchronize()
                status = "ok"
            except Exception as error:  # the others are to be measured
                status = reason(error)
                failed.add(contender.variant)
            made = Made(status, time.perf_counter() - start)
            self._compilation("dynamic", contender.variant, self.model.high, made)
        ways = dynamic.contenders(on_gpu=self.on_gpu)
        return [way for way in ways if way.variant.partition(",")[0] not in failed]

    def _known(self, extent: int) -> list[Contender]:
        """Those whose models are for this extent, or for the one that it is padded to."""
        found = []
        if "static" in self.plan.systems and self.statics.made(extent).status == "ok":
            compiled = self.statics.load(extent)
            found.append(
                Contender("static", "", lambda _, value: partial(compiled, value), self.lowerings)
            )
        if "padded" in self.plan.systems:
            found += self._padded_to(self.model.padded_extent(extent))
        return found

    def _padded_to(self, extent: int) -> list[Contender]:
        is_masked = self.model.masked is not None
        if self.statics.made(extent, is_masked=is_masked).status != "ok":
            return []
        if extent not in self._padded:
            self._padded[extent] = self.statics.load(extent, is_masked=is_masked)
        start = partial(padded, self.model, extent, self._padded[extent])
        return [Contender("padded", "", start, self.lowerings)]

    def _input(self, extent: int) -> Any:
        what = (self.model.input(extent),)
        case = Case(self.module, what, 0.0, 0.0, "float32", self.model.tolerance)
        return draw(case, self.place, self.plan.seed)[0]

    def _point(self, extent: int, contenders: Sequence[Contender]) -> None:
        keys = {c: (self.plan.model, c.system, c.variant, extent) for c in contenders}
        contenders = [c for c in contenders if keys[c] not in self.done]
        if not contenders:
            return
        value = self._input(extent)
        expected = self._expected(value)
        runs: dict[str, Run] = {}
        found: dict[str, Point] = {}
        for contender in contenders:
            name = f"{contender.system} {contender.variant}".strip()
            blank = self._blank(extent, contender)
            try:
                runs[name], found[name] = self._checked(contender, value, expected, blank)
            except Exception as error:
                self._write(replace(blank, status=reason(error)))
                release_memory()
                self.stage.synchronize()  # raises where the GPU is in error: --resume goes on
        for name, times in self._times(runs, found).items():
            self._write(_with_times(found[name], times))
        runs.clear()
        release_memory()

    def _expected(self, value: Any) -> list[Any]:
        widened = value.float() if value.is_floating_point() else value
        with torch.no_grad(), torch.backends.cudnn.flags(benchmark=False, allow_tf32=False):
            return tensors(self.reference(widened))

    def _blank(self, extent: int, contender: Contender) -> Point:
        to = self.model.padded_extent(extent) if contender.system == "padded" else None
        return Point(
            self.plan.model,
            contender.system,
            contender.variant,
            extent,
            "",
            tolerance=self.model.tolerance,
            padded_to=to,
            provenance=self.origin,
        )

    def _checked(
        self, contender: Contender, value: Any, expected: list[Any], blank: Point
    ) -> tuple[Run, Point]:
        """A first call and two that are compared with the reference."""
        before, start = contender.compiled(), time.perf_counter()
        run = contender.start(blank.extent, value)
        run()
        self.stage.synchronize()
        seconds = time.perf_counter() - start
        error = checked(run, expected, self.stage)
        is_right = error <= self.model.tolerance  # NaN is not
        return run, replace(
            blank,
            status="ok" if is_right else f"wrong: error above {self.model.tolerance:.1e}",
            error=error,
            first_call_s=seconds,
            compiled=contender.compiled() - before,
        )

    def _times(self, runs: dict[str, Run], found: dict[str, Point]) -> dict[str, Times]:
        """Times of all, taken in turns; one that fails is recorded, and the others begin again."""
        turn = [""]
        while runs:
            try:
                return measure(
                    runs, self.stage, cold=False, on_system=lambda name: turn.__setitem__(0, name)
                )
            except Exception as error:
                self._write(replace(found[turn[0]], status=reason(error)))
                del runs[turn[0]]
                self.stage.synchronize()
        return {}

    def _compilation(self, system: str, variant: str, extent: int, made: Made) -> None:
        record = Compilation(
            self.plan.model,
            system,
            variant,
            extent,
            made.status,
            made.seconds,
            made.kernels,
            made.fallbacks,
            self.plan.jobs,
            self.plan.cache is not None,
            self.origin,
        )
        append(self.plan.results / records.COMPILATIONS, record)
        kernels = "" if made.kernels is None else f", {made.kernels} kernels"
        self.say(
            f"{record.model} {system} {variant} {extent}: compiled in {made.seconds:.1f} s"
            f"{kernels}, {made.status}"
        )

    def _write(self, point: Point) -> None:
        append(self.plan.results / records.POINTS, point)
        self.done[point.key] = point
        times = "" if point.median_ms is None else f"{point.median_ms:.4f} ms, "
        self.say(f"{point.model} {point.extent} {point.system} {point.variant}: "
                 f"{times}{point.status}")  # fmt: skip


def _with_times(point: Point, times: Times) -> Point:
    first, median, third = statistics.quantiles(times.samples, n=4, method="inclusive")
    return replace(
        point,
        median_ms=median * 1e3,
        first_quartile_ms=first * 1e3,
        third_quartile_ms=third * 1e3,
        repeats=len(times.samples),
    )
