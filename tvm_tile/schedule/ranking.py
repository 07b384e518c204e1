"""The ranked schedules of one function."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from typing import Any, TypeVar

from tvm import tirx

from tvm_tile import compat
from tvm_tile.device import Device
from tvm_tile.device.detect import resolve_device
from tvm_tile.errors import DynamicShapeError, ModelError, OptionError
from tvm_tile.graph.extract import extract
from tvm_tile.schedule.attention import schedule_attention
from tvm_tile.schedule.chain import schedule_chain
from tvm_tile.schedule.contraction import schedule_contraction
from tvm_tile.schedule.elementwise import schedule_elementwise
from tvm_tile.schedule.gates import schedule_gates
from tvm_tile.schedule.halo import schedule_halo
from tvm_tile.schedule.matrix_cores import schedule_matrix_cores
from tvm_tile.schedule.matvec import schedule_matvec
from tvm_tile.schedule.mma import schedule_mma
from tvm_tile.schedule.reduction import schedule_reduction
from tvm_tile.schedule.rows import schedule_rows
from tvm_tile.schedule.rule import FindChoices, Scheduled, Task
from tvm_tile.schedule.statements import find_obstacle
from tvm_tile.schedule.transpose import schedule_transpose
from tvm_tile.schedule.wgmma import schedule_wgmma
from tvm_tile.schedule.window import schedule_window

# The first rule that can write a tile takes the function.
RULES: tuple[FindChoices, ...] = (
    schedule_chain,
    schedule_attention,
    schedule_halo,
    schedule_gates,
    schedule_rows,
    schedule_matvec,
    schedule_wgmma,
    schedule_mma,
    schedule_matrix_cores,
    schedule_contraction,
    schedule_window,
    schedule_reduction,
    schedule_transpose,
    schedule_elementwise,
)
# Up to the last of those that store sums wherever they belong, neighbours side by side. The others'
# models know of no stores but to where the sums lie: what these take is never joined.
JOINING = RULES[: RULES.index(schedule_matrix_cores) + 1]
# Up to the one that writes recurrent cells.
UP_TO_GATES = RULES[: RULES.index(schedule_gates) + 1]
T = TypeVar("T")
_SPARE = 3  # further choices, for those that TVM cannot write


def schedule(
    prim_func: tirx.PrimFunc, device: str | Device = "auto", *, topk: int = 1
) -> tuple[Scheduled, ...]:
    """The model's choices for one function, as ``tvm_tile.schedule``; never touches a GPU.

    Args:
        prim_func: an unscheduled TensorIR function of static shapes, as LegalizeOps and FuseTIR
            leave them.
        device: as in :func:`tvm_tile.compile`.
        topk: how many schedules to write.

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
    """
    if topk < 1:
        raise OptionError("topk must be at least 1", str(topk), "ask for one schedule or more")
    _check_unscheduled(prim_func)
    _check_static(prim_func)
    # What the pipeline schedules has no symbol either.
    func = prim_func.without_attr("global_symbol")
    graph = None if find_obstacle(func) else extract(func)
    if graph is None:
        return ()
    attrs = {"tirx.is_scheduled": True}
    if "global_symbol" in (prim_func.attrs or {}):
        attrs["global_symbol"] = prim_func.attrs["global_symbol"]
    found = candidates(Task(func, graph, resolve_device(device)), topk)
    return tuple(replace(item, func=item.func.with_attrs(attrs)) for item in found)


def _check_unscheduled(func: Any) -> None:
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
    task: Task, topk: int, rules: tuple[FindChoices, ...] | None = None
) -> tuple[Scheduled, ...]:
    """At most ``topk`` schedules of a function, best first; empty if no rule takes it.

    ``rules`` are the first ones of ``RULES``, by default all.
    """
    for rule in RULES if rules is None else rules:
        found = tuple(islice(_written(rule, task, topk + _SPARE), topk))
        if found:
            return found
    return ()


def candidates_at(task: Task, ranks: tuple[int, ...]) -> dict[int, Scheduled]:
    """Those of the first rule's choices that stand at ``ranks``, where TVM can write them."""
    for rule in RULES:
        choices = rule(task, max(ranks) + 1)
        if choices:
            written = {rank: choices[rank]() for rank in ranks if rank < len(choices)}
            return {rank: done for rank, done in written.items() if done is not None}
    return {}


def _written(rule: FindChoices, task: Task, count: int) -> Iterator[Scheduled]:
    """A rule that trips over a function, or over a tile, has not taken it."""
    choices = _attempt(lambda: rule(task, count))
    for choice in choices or ():
        done = _attempt(choice)
        if done is not None:
            yield done


def _attempt(call: Callable[[], T]) -> T | None:
    try:
        return call()
    except compat.TVM_ERRORS:
        return None
