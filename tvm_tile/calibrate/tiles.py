"""Measure tiles of a committed list of operators, for :mod:`tvm_tile.calibrate.fit`.

Of each function there are the best-ranked tiles of every rule that takes it, and some of the
others. Each is built, compared with the others, and timed twice: from a cold cache, by itself, and
amid others, as one of a row of kernels in a graph (:mod:`tvm_tile.calibrate.rows`): behind a
different kernel, its operands in the cache, its code in none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import tvm
import tvm_ffi
from tvm import tirx

from tvm_tile.build import Builder, Program
from tvm_tile.calibrate.cases import Case, cases
from tvm_tile.calibrate.driver import Gpu, first_gpu
from tvm_tile.calibrate.large_cases import large_cases
from tvm_tile.calibrate.rows import KernelRows
from tvm_tile.calibrate.samples import Samples, TileSample
from tvm_tile.calibrate.tensors import Picker, Tensors
from tvm_tile.device import Device
from tvm_tile.errors import CalibrationError
from tvm_tile.graph.extract import extract
from tvm_tile.passes.scheduling.measure_candidates import arguments_of
from tvm_tile.report.trial import tolerance_for
from tvm_tile.runtime.exclusive import one_at_a_time
from tvm_tile.runtime.launch import load_functions
from tvm_tile.runtime.trials import FLUSH_BYTES, relative_difference
from tvm_tile.schedule import Task
from tvm_tile.schedule.ranking import RULES, attempt
from tvm_tile.schedule.rule import Choice, Scheduled

# Places in the order of a rule's model: mostly the first ones, for among these it must choose.
RANKS = (0, 1, 2, 4, 8, 16, 40)
# Tiles predicted to take that many times the best one's are no choice, and take long.
_LONGEST = 6.0
_DESCRIBED = 400  # tiles of a rule; a product on CUDA cores has thousands
_RUNS, _RUNS_S = 5, 3e-3  # runs from a cold cache, at most; and seconds of them, about


@dataclass(frozen=True, slots=True)
class Timed:
    """Seconds of a kernel.

    Attributes:
        cold: by itself, its code and operands in no cache.
        warm: behind a different kernel of a graph, its operands in the cache, its code in none.
    """

    cold: float
    warm: float


# Times of those of a function's kernels, by their places, that build and run.
Timer = Callable[[tirx.PrimFunc, Sequence[Scheduled]], Mapping[int, Timed]]


def all_cases() -> Iterator[Case]:
    """All cases, like ones side by side."""
    yield from cases()
    yield from large_cases()


def measure_tiles(
    device: Device,
    timer: Timer,
    chosen: Iterable[Case] | None = None,
    *,
    gpu: str = "",
    date: str = "",
    progress: Callable[[str], None] = lambda line: None,
) -> Samples:
    """Time tiles of operators.

    Args:
        device: the record of the GPU that ``timer`` uses, rates measured.
        timer: function that runs kernels, such as that of :func:`timer_on`.
        chosen: cases to be measured; by default :func:`all_cases`.
        gpu: its name.
        date: year, month and day.
        progress: called with one line for each case.
    """
    found: list[TileSample] = []
    for case in all_cases() if chosen is None else chosen:
        own = [
            sample
            for name, func in _functions(case, device)
            for sample in _of_function(name, func, device, timer)
        ]
        found += own
        progress(f"{case.name}, {case.dtype}: {len(own)} tiles")
    return Samples(gpu, date, tuple(found))


def described(samples: Samples, device: Device) -> Samples:
    """Samples whose tiles say what they do as the present code describes them.

    Tiles that are named no more keep what they said.
    """
    works = {
        (name, choice.rule.name, choice.tile): choice.works
        for case in all_cases()
        for name, func in _functions(case, device)
        for choice in _all_choices(func, device)
    }
    tiles = (
        replace(tile, works=works.get((tile.function, tile.rule, tile.tile), tile.works))
        for tile in samples.tiles
    )
    return replace(samples, tiles=tuple(tiles))


def _functions(case: Case, device: Device) -> Iterator[tuple[str, tirx.PrimFunc]]:
    """The functions of a case with their names."""
    for number, func in enumerate(case.functions(device)):
        yield f"{case.name} {case.dtype} #{number}", func


def _all_choices(func: tirx.PrimFunc, device: Device) -> Iterator[Choice]:
    """Choices of every rule for a function: all that are worth describing."""
    graph = extract(func)
    if graph is not None:
        for finder in RULES:
            yield from attempt(partial(finder.find, Task(func, graph, device), _DESCRIBED)) or ()


def choices_to_measure(func: tirx.PrimFunc, device: Device) -> list[tuple[int, Choice]]:
    """Choices of every rule for a function, with their ranks; none where no rule takes it.

    Those are left out that are predicted to take more than ``_LONGEST`` times the best one's.
    """
    graph = extract(func)
    if graph is None:
        return []
    task, found = Task(func, graph, device), list[tuple[int, Choice]]()
    for finder in RULES:
        choices = attempt(partial(finder.find, task, max(RANKS) + 1)) or ()
        found += [(rank, choices[rank]) for rank in RANKS if rank < len(choices)]
    least = min((choice.seconds for _, choice in found), default=0.0)
    return [(rank, choice) for rank, choice in found if choice.seconds <= _LONGEST * least]


def _of_function(
    name: str, func: tirx.PrimFunc, device: Device, timer: Timer
) -> Iterator[TileSample]:
    """Measured tiles of one function."""
    written = []
    for rank, choice in choices_to_measure(func, device):
        done = attempt(choice)
        if done is not None:
            written.append((rank, choice, done))
    timed = timer(func, [done for _, _, done in written]) if written else {}
    for place, times in timed.items():
        rank, choice, done = written[place]
        yield TileSample(
            *(name, done.rule.name, rank, done.tile, done.seconds, choice.works),
            cold=times.cold,
            warm=times.warm,
        )


@contextmanager
def timer_on(device: Device) -> Iterator[Timer]:
    """A timer that builds kernels and runs them on the first NVIDIA GPU.

    Its calls raise:
        CalibrationError: a kernel computes something else than the others.
    """
    # What TVM launches is queued on the stream that is timed.
    with first_gpu() as gpu, tvm_ffi.use_raw_stream(tvm.cuda(0), gpu.stream):
        flush = partial(gpu.clear, gpu.allocate(FLUSH_BYTES))
        timed = partial(_timed, gpu, KernelRows.on(gpu, device), flush)
        yield partial(_times, Builder(device), device, Picker.on(gpu, device), timed)


def _times(
    builder: Builder,
    device: Device,
    picker: Picker,
    timed: Callable[[Callable[[], None]], Timed],
    func: tirx.PrimFunc,
    written: Sequence[Scheduled],
) -> dict[int, Timed]:
    """Times of a function's kernels, by their places; see :func:`timer_on`."""
    names = {
        f"tile{place}": done.func.with_attr("tirx.is_scheduled", True)
        for place, done in enumerate(written)
    }
    programs = builder.build_functions(names)
    arguments = arguments_of(func)
    assert arguments is not None  # tensors of static shapes
    most = tolerance_for([argument.dtype for argument in arguments])
    expected: list[np.ndarray] | None = None
    found: dict[int, Timed] = {}
    with one_at_a_time(device.name):
        tensors = Tensors.drawn(picker, arguments)
        for place, (name, program) in enumerate(programs.items()):
            if not isinstance(program, Program):
                continue
            run = partial(load_functions(program, device.name)[name], *tensors.values)
            tensors.poison()
            run()
            outputs = tensors.picked()
            expected = outputs if expected is None else expected
            pairs = zip(outputs, expected, strict=True)
            if not max(relative_difference(*pair) for pair in pairs) <= most:
                raise CalibrationError(
                    "the measured tiles must compute the same",
                    f"{written[place].rule} {written[place].tile} differs",
                    "run `tvm-tile verify` on a model of yours, and report what it finds",
                )
            found[place] = timed(run)
    return found


def _timed(gpu: Gpu, rows: KernelRows, flush: Callable[[], None], run: Callable[[], None]) -> Timed:
    """Medians of a kernel's times, cold and warm; of long kernels' fewer."""
    (first,) = gpu.time(run, 1, flush)
    count = max(1, min(_RUNS, int(_RUNS_S / first)))
    cold = float(np.median(gpu.time(run, count, flush)))
    return Timed(cold, rows.seconds(run, cold))
