"""Measure tiles of a committed set of operators, for :mod:`tvm_tile.calibrate.fit`.

Each operator's best-ranked tiles and some of the others are built and timed one by one, from a
cold cache, as models of single kernels predict them.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from tvm import relax, tirx
from tvm.relax import op

from tvm_tile.build import Builder, Program
from tvm_tile.calibrate.samples import (
    ContractionSamples,
    ContractionTile,
    FamilySamples,
    Samples,
    tile_seconds,
)
from tvm_tile.device import Device
from tvm_tile.errors import CalibrationError
from tvm_tile.graph.extract import extract
from tvm_tile.passes.scheduling.measure_candidates import arguments_of
from tvm_tile.report.trial import tolerance_for
from tvm_tile.runtime.exclusive import one_at_a_time
from tvm_tile.runtime.trials import run_trials
from tvm_tile.schedule import Task
from tvm_tile.schedule.rule import FindChoices, Scheduled
from tvm_tile.schedule.s_tir.elementwise import schedule_elementwise
from tvm_tile.schedule.s_tir.matvec import schedule_matvec
from tvm_tile.schedule.s_tir.reduction import schedule_reduction
from tvm_tile.schedule.s_tir.staged import draft
from tvm_tile.schedule.warp_products import schedule_matrix_cores, schedule_mma
from tvm_tile.schedule.wgmma import schedule_wgmma
from tvm_tile.tile.construct import construct_contraction
from tvm_tile.tile.rules import CONTRACTION

# Places in the model's order: mostly the first ones, for it is among these that it must choose.
RANKS = (*range(10), 14, 20, 30, 45, 70, 100, 150, 220, 330, 500)
_FEW_RANKS = (0, 1, 2, 4, 8)
Shape = tuple[int, ...]
# Seconds of those of a function's kernels, by rank, that build and run.
Timer = Callable[[tirx.PrimFunc, Mapping[int, Scheduled]], Mapping[int, float]]
_RULES: dict[str, FindChoices] = {
    "wgmma": schedule_wgmma,
    "mma": schedule_mma,
    "matrix_cores": schedule_matrix_cores,
    "matvec": schedule_matvec,
    "elementwise": schedule_elementwise,
    "reduction": schedule_reduction,
}


@dataclass(frozen=True, slots=True)
class Case:
    """An operator to measure tiles of.

    Attributes:
        family: the field of :class:`~tvm_tile.device.times.KernelTimes` that it is for.
        name: name for people.
        func: an unscheduled function.
    """

    family: str
    name: str
    func: tirx.PrimFunc


def cases() -> Iterator[Case]:
    """Products and convolutions of usual networks, large and small; few of other families."""
    for m, n, k in (
        (64, 64, 64), (256, 256, 256), (512, 512, 512), (1024, 1024, 1024), (2048, 2048, 64),
        (128, 768, 3072), (64, 1000, 2048), (4096, 1024, 512), (197, 3072, 768), (2048, 2048, 2048),
    ):  # fmt: skip
        yield product("contraction", (m, k), (k, n), "float32")
    for channels, size, filters, kernel, stride in (
        (3, 224, 64, 7, 2), (64, 56, 64, 3, 1), (128, 28, 128, 3, 1), (256, 14, 256, 3, 1),
        (512, 7, 512, 3, 1), (64, 56, 256, 1, 1), (256, 56, 64, 1, 1), (1024, 14, 256, 1, 1),
        (2048, 7, 512, 1, 1), (128, 56, 128, 3, 2),
    ):  # fmt: skip
        yield convolution((1, channels, size, size), filters, kernel, stride)
    for family in ("wgmma", "mma", "matrix_cores"):
        for m, n, k in ((128, 128, 128), (512, 512, 512), (1024, 1024, 64), (256, 256, 2048)):
            yield product(family, (m, k), (k, n), "float16")
    for n, k in ((1024, 1024), (4096, 4096), (1000, 2048), (4096, 512)):
        yield product("matvec", (1, k), (k, n), "float16")
    for shape in ((64, 64), (256, 1024), (1024, 4096), (1, 1000)):
        yield Case("elementwise", f"relu {shape}", _function(op.nn.relu, "float32", shape))
        sums = _function(lambda x: op.sum(x, -1), "float32", shape)
        yield Case("reduction", f"sum {shape}", sums)


def product(family: str, left: Shape, right: Shape, dtype: str) -> Case:
    """``left @ right``, with sums in float32."""
    func = _function(lambda x, w: op.matmul(x, w, out_dtype="float32"), dtype, left, right)
    return Case(family, f"matmul {left} {right} {dtype}", func)


def convolution(data: Shape, filters: int, kernel: int, stride: int) -> Case:
    """NCHW in float32, its output as large as its input, divided by the stride."""
    weights = (filters, data[1], kernel, kernel)
    padding = (kernel - 1) // 2
    func = _function(
        lambda x, w: op.nn.conv2d(x, w, strides=stride, padding=padding), "float32", data, weights
    )
    return Case("contraction", f"conv2d {data} {weights} stride {stride}", func)


def _function(body: Callable[..., relax.Expr], dtype: str, *shapes: Shape) -> tirx.PrimFunc:
    """A TensorIR function of an operator on tensors of these shapes."""
    builder = relax.BlockBuilder()
    names = (f"x{place}" for place in range(len(shapes)))
    pairs = zip(names, shapes, strict=True)
    inputs = [relax.Var(name, relax.TensorType(shape, dtype)) for name, shape in pairs]
    with builder.function("main", inputs):
        builder.emit_func_output(builder.emit(body(*inputs)))
    legal = relax.transform.LegalizeOps()(builder.get())
    (func,) = (f for f in legal.functions.values() if isinstance(f, tirx.PrimFunc))
    return func.without_attr("global_symbol")


def measure_tiles(
    device: Device,
    timer: Timer,
    chosen: Iterable[Case] | None = None,
    *,
    gpu: str = "",
    progress: Callable[[str], None] = lambda line: None,
) -> Samples:
    """Time tiles of operators.

    Args:
        device: the record of the GPU that ``timer`` uses, rates measured.
        timer: function that runs kernels, such as :func:`timer_on`.
        chosen: cases to be measured; by default all :func:`cases`. Those whose kernels the device
            does not run are left out.
        gpu: its name.
        progress: called with one line for each operator.
    """
    contractions, families = [], []
    for case in cases() if chosen is None else chosen:
        if case.family == "contraction":
            contraction = _contraction(case, device, timer)
            contractions += [] if contraction is None else [contraction]
            count = 0 if contraction is None else len(contraction.tiles)
        else:
            found = _family(case, device, timer)
            families += [] if found is None else [found]
            count = 0 if found is None else len(found.tiles)
        progress(f"{case.family}, {case.name}: {count} tiles")
    today = datetime.date.today().isoformat()
    return Samples(gpu, today, tuple(contractions), tuple(families))


def _contraction(case: Case, device: Device, timer: Timer) -> ContractionSamples | None:
    """Measured tiles of a product on CUDA cores; ``None`` where there are none."""
    graph = extract(case.func)
    found = None if graph is None else draft(Task(case.func, graph, device))
    if found is None:
        return None
    plans = construct_contraction(found.operator, device, max(RANKS) + 1)
    choices = found.choices(plans, CONTRACTION)
    written = {rank: choices[rank]() for rank in RANKS if rank < len(choices)}
    seconds = timer(case.func, {rank: done for rank, done in written.items() if done is not None})
    tiles = tuple(ContractionTile.of(plans[rank], s) for rank, s in seconds.items())
    return ContractionSamples(found.operator, tiles) if tiles else None


def _family(case: Case, device: Device, timer: Timer) -> FamilySamples | None:
    """Measured tiles of another kernel family; ``None`` where there are none."""
    graph = extract(case.func)
    if graph is None or len(graph.operators) != 1 or getattr(device.times, case.family) is None:
        return None
    operator = graph.operators[0]
    choices = _RULES[case.family](Task(case.func, graph, device), max(_FEW_RANKS) + 1)
    written = {rank: choices[rank]() for rank in _FEW_RANKS if rank < len(choices)}
    # A rule may know more of a function than its operator tells: then this fit cannot use it.
    known = tile_seconds(case.family, operator, device)
    mine = {
        rank: done
        for rank, done in written.items()
        if done is not None and math.isclose(known.get(done.tile, 0.0), done.seconds)
    }
    seconds = timer(case.func, mine) if mine else {}
    pairs = tuple((mine[rank].tile, s) for rank, s in seconds.items())
    return FamilySamples(case.family, operator, pairs) if pairs else None


def timer_on(device: Device) -> Timer:
    """Builds kernels and runs them on a device that is present.

    Its calls raise:
        CalibrationError: a kernel failed, or computes something else than the others.
    """
    builder = Builder(device)

    def timer(func: tirx.PrimFunc, written: Mapping[int, Scheduled]) -> Mapping[int, float]:
        names = {
            f"rank{rank}": done.func.with_attr("tirx.is_scheduled", True)
            for rank, done in written.items()
        }
        built = zip(written, builder.build_functions(names).items(), strict=True)
        programs = [(r, name, p) for r, (name, p) in built if isinstance(p, Program)]
        arguments = arguments_of(func)
        assert arguments is not None  # tensors of static shapes
        with one_at_a_time(device.name):
            trials = run_trials(programs, arguments, device.name)
        most = tolerance_for([argument.dtype for argument in arguments])
        wrong = [trial for trial in trials.ran if not trial.difference <= most]
        if trials.error or wrong:
            raise CalibrationError(
                "the measured tiles must run, and compute the same",
                trials.error or f"{written[wrong[0].rank].tile} differs by {wrong[0].difference}",
                "run `tvm-tile verify` on a model of yours, and report what it finds",
            )
        return {trial.rank: trial.seconds for trial in trials.ran}

    return timer
