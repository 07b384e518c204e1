"""The ranked schedules of one function."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from operator import itemgetter
from typing import Any, TypeVar

from tvm import tirx

from tvm_tile import compat
from tvm_tile.device import Device
from tvm_tile.device.detect import resolve_device
from tvm_tile.errors import DynamicShapeError, ModelError, OptionError
from tvm_tile.graph.extract import extract
from tvm_tile.graph.own_names import with_own_names
from tvm_tile.schedule import warp_products
from tvm_tile.schedule.attention import schedule_attention
from tvm_tile.schedule.chain import schedule_chain
from tvm_tile.schedule.coded import schedule_coded
from tvm_tile.schedule.decode import schedule_decode
from tvm_tile.schedule.gates import schedule_gates
from tvm_tile.schedule.halo import schedule_halo
from tvm_tile.schedule.rule import Choice, FindChoices, Scheduled, Task
from tvm_tile.schedule.s_tir import contraction
from tvm_tile.schedule.s_tir.elementwise import schedule_elementwise
from tvm_tile.schedule.s_tir.matvec import schedule_matvec
from tvm_tile.schedule.s_tir.reduction import schedule_reduction
from tvm_tile.schedule.s_tir.rows import schedule_rows
from tvm_tile.schedule.s_tir.transpose import schedule_transpose
from tvm_tile.schedule.s_tir.window import schedule_window
from tvm_tile.schedule.statements import find_obstacle
from tvm_tile.schedule.tensor_cores.over_extents import Values
from tvm_tile.schedule.warp_products import mma_over, schedule_matrix_cores, schedule_mma
from tvm_tile.schedule.wgmma import schedule_wgmma, wgmma_over
from tvm_tile.tile.rules import (
    ATTENTION,
    CHAIN,
    CODED,
    CONTRACTION,
    DECODE,
    ELEMENTWISE,
    GATES,
    HALO,
    MATRIX_CORES,
    MATVEC,
    MMA,
    ROW,
    ROWS,
    TRANSPOSE,
    WGMMA,
    WINDOW,
    Rule,
    RunnerUp,
)

TimesOver = Callable[[Task, str, Sequence[Values]], list[float] | None]


@dataclass(frozen=True, slots=True)
class Finder:
    """A rule, and how it is asked for tiles.

    Attributes:
        rule: facts about the rule, and about the others that ``find`` may name in its place.
        find: function that names tiles.
        least_seconds: predicted time that none of its tiles for a function can be below; asked
            instead of ``find`` where that takes long.
        over: function that predicts the seconds of one of its tiles for a function of open extents
            in calls with smaller extents; it gives ``None`` if these are not known.
    """

    rule: Rule
    find: FindChoices
    least_seconds: Callable[[Task], float] = lambda _: 0.0
    over: TimesOver = lambda _task, _tile, _points: None


# In the order in which rules are asked. The one with the fastest tile takes the function; of
# equals the first.
RULES = (
    Finder(CODED, schedule_coded),  # and CODED_WARPGROUP
    Finder(DECODE, schedule_decode),
    Finder(CHAIN, schedule_chain),
    Finder(ATTENTION, schedule_attention),  # and WARP_ATTENTION
    Finder(HALO, schedule_halo),
    Finder(GATES, schedule_gates),
    Finder(ROWS, schedule_rows),
    Finder(MATVEC, schedule_matvec),
    Finder(WGMMA, schedule_wgmma, over=wgmma_over),
    Finder(MMA, schedule_mma, warp_products.least_seconds, mma_over),
    Finder(MATRIX_CORES, schedule_matrix_cores),
    Finder(CONTRACTION, contraction.schedule_contraction, contraction.least_seconds),
    Finder(WINDOW, schedule_window),
    Finder(ROW, schedule_reduction),  # and COLUMN, and WINDOW where the strips are refused
    Finder(TRANSPOSE, schedule_transpose),
    Finder(ELEMENTWISE, schedule_elementwise),
)
T = TypeVar("T")
_MOST_PREDICTED = 64  # tiles; to look closely at each takes some rules milliseconds
_SPARE = 3  # further choices, for those that TVM cannot write


def schedule(
    prim_func: tirx.PrimFunc, device: str | Device = "auto", *, topk: int = 1
) -> tuple[Scheduled, ...]:
    """The model's choices for one function, as ``tvm_tile.schedule``; never touches a GPU.

    Args:
        prim_func: an unscheduled TensorIR function of static shapes, as LegalizeOps and FuseTIR
            leave them.
        device: a device as in :func:`tvm_tile.compile`, ``"auto"`` by default.
        topk: number of schedules to write, at least 1, which is the default.

    Returns:
        At most ``topk`` schedules, best first; fewer where there are not as many, none where
        no rule takes the function. They keep the function's symbol and are
        marked as scheduled, so each can replace it in its module. Those of rules ``wgmma``,
        ``mma`` and ``matrix_cores`` are of TVM's thread-level dialect:
        ``tvm.compile(..., tir_pipeline="tirx")`` builds them, if for NVIDIA GPUs.

    Raises:
        ModelError: this is no PrimFunc, or it has a schedule already.
        DynamicShapeError: the shape of a parameter is not known.
        OptionError: ``topk`` < 1.
        UnknownDeviceError: no device record has that name.
        DeviceRecordError: the file that ``device`` names holds no device record.
        DeviceTooSmallError: ``"auto"``, and the GPU is older than any that there is a record of.
    """
    if topk < 1:
        raise OptionError("topk must be at least 1", str(topk), "ask for one schedule or more")
    _check_unscheduled(prim_func)
    _check_static(prim_func)
    # What the pipeline schedules has no symbol either.
    func = with_own_names(prim_func.without_attr("global_symbol"))
    graph = None if find_obstacle(func) else extract(func)
    if graph is None:
        return ()
    attrs = {"tirx.is_scheduled": True}
    if "global_symbol" in (prim_func.attrs or {}):
        attrs["global_symbol"] = prim_func.attrs["global_symbol"]
    found = candidates(Task(func, graph, resolve_device(device)), topk)
    return tuple(replace(item, func=item.func.with_attrs(attrs)) for item in found)


def _check_unscheduled(func: Any) -> None:
    """Refuse anything but a TensorIR function without a schedule."""
    if not isinstance(func, tirx.PrimFunc):
        raise ModelError(
            "schedule takes one TensorIR function (tvm.tirx.PrimFunc)",
            f"a {type(func).__module__}.{type(func).__qualname__}",
            'pass a function of the module, mod["name"]; tvm_tile.compile takes whole models',
        )
    if "tirx.is_scheduled" in (func.attrs or {}):
        raise ModelError(
            "the function must have no schedule yet",
            "its attribute tirx.is_scheduled is set",
            "pass it as FuseTIR left it",
        )


def _check_static(func: tirx.PrimFunc) -> None:
    """Refuse a function with parameters of unknown extents."""
    for param in func.params:
        shape = getattr(param.ty, "shape", ())
        if not all(isinstance(extent, tirx.IntImm) for extent in shape):
            extents = ", ".join(map(str, shape))
            raise DynamicShapeError(
                "the shape of every parameter must be known when it is scheduled",
                f"{param.name} of shape ({extents})",
                "fix it before LegalizeOps: relax.transform.BindSymbolicVars",
            )


def candidates(
    task: Task, topk: int, rules: Collection[Rule] | None = None
) -> tuple[Scheduled, ...]:
    """The best schedules of a function, at most ``topk``, best first; empty if no rule takes it.

    They are of all rules that were asked, by predicted time.

    Args:
        task: the function.
        topk: number of schedules to write.
        rules: rules to be asked, by default all.
    """
    asked = _asked(task, topk + _SPARE, rules)
    found = _written(task, topk, list(asked.values()))
    if found or not asked:
        return found
    others = {finder.rule for finder in RULES if rules is None or finder.rule in rules}
    return candidates(task, topk, others - set(asked))


def _written(task: Task, topk: int, asked: Sequence[Sequence[Choice]]) -> tuple[Scheduled, ...]:
    """Write the best choices of several rules, at most ``topk``, as far as TVM can write them."""
    firsts = [choices[0] for choices in asked]
    # A rule's own order stays: of near ties it may prefer one that is not the fastest.
    keyed = (
        pair
        for choices in asked
        for pair in zip(accumulate((own.seconds for own in choices), max), choices, strict=True)
    )
    found: list[Scheduled] = []
    for _, choice in sorted(keyed, key=itemgetter(0)):
        done = attempt(choice)
        if done is not None:
            found.append(replace(done, runner_up=_runner_up(done, firsts)))
        if len(found) == topk:
            break
    return tuple(found)


def _asked(task: Task, count: int, rules: Collection[Rule] | None) -> dict[Rule, Sequence[Choice]]:
    """The choices of each rule that may take a function, in the order of ``RULES``.

    Of rules behind the first that has any, those that could be faster than the best one so far.
    """
    found: dict[Rule, Sequence[Choice]] = {}
    for finder in RULES:
        if rules is not None and finder.rule not in rules:
            continue
        least = min((choices[0].seconds for choices in found.values()), default=math.inf)
        if found and finder.least_seconds(task) >= least:
            continue
        # A rule that trips over a function has not taken it.
        choices = attempt(partial(finder.find, replace(task, below=least), count))
        if choices:
            found[finder.rule] = choices
    return found


def predicted_of(task: Task, rule: str) -> dict[str, float]:
    """Predicted seconds of the best tiles that a rule names for a function, by the tiles' texts.

    There are at most ``_MOST_PREDICTED``; none where the rule names none, or another rule's.
    """
    found = next((finder.find for finder in RULES if finder.rule.name == rule), None)
    choices = () if found is None else attempt(partial(found, task, _MOST_PREDICTED)) or ()
    return {choice.tile: choice.seconds for choice in choices if choice.rule.name == rule}


def predicted_over(
    task: Task, rule: str, tile: str, points: Sequence[Values]
) -> list[float] | None:
    """Predicted seconds of a rule's tile for a function of open extents, in some calls.

    ``None`` where the rule does not know that of its tiles.
    """
    found = next((finder for finder in RULES if finder.rule.name == rule), None)
    return None if found is None else attempt(partial(found.over, task, tile, points))


def _runner_up(taken: Scheduled, firsts: Sequence[Choice]) -> RunnerUp | None:
    """The best choice of another rule than the one that was taken."""
    others = [choice for choice in firsts if choice.rule != taken.rule]
    best = min(others, key=lambda choice: choice.seconds, default=None)
    return None if best is None else RunnerUp(best.rule.name, best.tile, best.seconds)


def attempt(call: Callable[[], T]) -> T | None:
    """The answer of a call; ``None`` where TVM fails in it."""
    try:
        return call()
    except compat.TVM_ERRORS:
        return None
