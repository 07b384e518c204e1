"""Choose among a function's candidates by running them."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from typing import Any

from tvm import tirx
from tvm_ffi import StructuralKey

from tvm_tile.build import Builder
from tvm_tile.build.program import Program
from tvm_tile.device.device import Device
from tvm_tile.errors import DeviceAbsentError, DeviceError
from tvm_tile.graph.extract import nodes_in
from tvm_tile.passes.scheduling.plan_function import Request, Selection
from tvm_tile.report.trial import fastest, tolerance_for
from tvm_tile.runtime.exclusive import one_at_a_time
from tvm_tile.runtime.launch import find_runtime_device
from tvm_tile.runtime.trials import Argument, can_be_drawn, run_trials
from tvm_tile.schedule import Scheduled
from tvm_tile.schedule.attention.listed import has_table
from tvm_tile.schedule.listed import settlers_of


def candidate_name(name: str, rank: int) -> str:
    """The symbol of a function's candidate.

    The first keeps the function's own. Others need their own: the emulated device finds kernels
    in a table of the whole process, and two live models may have chosen differently.
    """
    return f"{name}_rank{rank}" if rank else name


def given_name(candidate: str, rank: int) -> str:
    """The function's name that :func:`candidate_name` was given."""
    return candidate.removesuffix(f"_rank{rank}") if rank else candidate


class MeasureCandidates:
    """Builds candidates, runs each, and keeps the fastest that agrees with the first.

    All are built before the first is timed, and no two are timed at once.

    Args:
        device: the GPU, which must be present by the time there is something to measure.
        builder: builder that keeps what it builds, so the chosen kernel is not built again.
        exclusive: held while candidates run; None: a lock among this user's processes.

    Attributes:
        seconds: spent in running candidates, waiting for ``exclusive`` included.
        notes: functions none of whose candidates ran, and why.

    Raises:
        DeviceAbsentError: the GPU is not there, in a call.
    """

    def __init__(
        self, device: Device, builder: Builder, exclusive: AbstractContextManager[Any] | None = None
    ) -> None:
        self._device = device
        self._builder = builder
        self._exclusive = exclusive
        self.seconds = 0.0
        self.notes: list[str] = []

    def __call__(self, request: Request, found: tuple[Scheduled, ...]) -> Selection | None:
        """The fastest of ``found`` that agrees with the first; ``None`` where none builds."""
        # Different tiles can be written alike.
        ranks = {StructuralKey(item.func): rank for rank, item in reversed([*enumerate(found)])}
        arguments = arguments_of(request.func)
        is_drawn = arguments is not None and not has_table(request.func)
        if len(ranks) < 2 or arguments is None or not is_drawn or not can_be_drawn(arguments):
            return Selection(found[0])
        self._require_device()
        built = self._build(request.name, {rank: found[rank] for rank in sorted(ranks.values())})
        if not built:
            return None
        start = time.perf_counter()
        with self._exclusive or one_at_a_time(self._device.name):
            trials = run_trials(built, arguments, self._device.name)
        self.seconds += time.perf_counter() - start
        if not trials.ran:
            self.notes.append(f"not measured: {request.name}: no candidate ran: {trials.error}")
            first = built[0][0]
            return Selection(found[first], first, lasting=False)
        best = fastest(trials.ran, tolerance_for([argument.dtype for argument in arguments]))
        return Selection(found[best.rank], best.rank, len(trials.ran), best.seconds)

    def _build(self, name: str, candidates: dict[int, Scheduled]) -> list[tuple[int, str, Program]]:
        """Rank, symbol and program of those that build, best first."""
        functions = {
            # Marked as they will be in the model: the builder knows them then.
            candidate_name(name, rank): item.func.with_attr("tirx.is_scheduled", True)
            for rank, item in candidates.items()
        }
        programs = self._builder.build_functions(functions)
        named = zip(candidates, programs.items(), strict=True)
        return [(r, symbol, p) for r, (symbol, p) in named if isinstance(p, Program)]

    def _require_device(self) -> None:
        """Refuse to measure where the GPU is not present."""
        arch = str(dict(self._device.target).get("arch", ""))
        try:
            find_runtime_device(self._device.kernel_language, arch, self._device.name)
        except DeviceError as error:
            raise DeviceAbsentError(
                f"candidates are measured on {self._device.name}, which must be present",
                error.current,
                "compile with Options(topk=1), which measures nothing, or where this GPU is",
            ) from error


def arguments_of(func: tirx.PrimFunc) -> tuple[Argument, ...] | None:
    """Arguments of a function; None where they are not tensors of static shapes only."""
    stores = nodes_in(func.body, tirx.BufferStore)
    arguments, settlers = [], settlers_of(func)
    for place, param in enumerate(func.params):
        shape = getattr(param.ty, "shape", None)
        if shape is None or not all(isinstance(extent, tirx.IntImm) for extent in shape):
            return None
        is_output = any(param.same_as(store.buffer) for store in stores)
        extents = tuple(int(extent) for extent in shape)
        settle = settlers.get(place)
        arguments.append(Argument(extents, str(param.ty.dtype), is_output, settle))
    return tuple(arguments)
