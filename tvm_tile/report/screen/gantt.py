"""An execution plan as a drawing (SVG): vEUs down, time across, one colour for equal code."""

from __future__ import annotations

from collections.abc import Iterator

from tvm_tile.device.device import Device
from tvm_tile.plan.execution_plan import ExecutionPlan, ROperator
from tvm_tile.plan.timeline import Slot, timeline
from tvm_tile.report.screen import svg

# All in pixels.
_MARGIN, _TITLE, _AXIS = 16, 24, 20
_WIDTH, _HEIGHT = 1200, 660  # of the time and of all vEUs
_TICKS = 10
# A page that shows the drawing may have colours of its own for what is no task.
_STYLE = """
  text { fill: black; fill: var(--gantt-ink, black) }
  #paper { fill: var(--gantt-paper, white) }
  .frame { fill: #f4f4f4; fill: var(--gantt-frame, #f4f4f4); stroke: #444 }
  .tick { stroke: #444; stroke-width: 0.5; stroke-dasharray: 2 4 }
  .task { stroke: white; stroke-width: 0.2 }
"""


def gantt(operators: tuple[ROperator, ...], plan: ExecutionPlan, device: Device) -> str:
    """An SVG in which each vEU is a row, each rTask a box as long as its predicted time.

    Boxes of neighbouring vEUs that run the same operator at the same time are one; to point at it
    shows the operator's name. What the kernel does before its first step is left out.

    Returns:
        The text of an SVG file.
    """
    spans = timeline(operators, plan, device)
    seconds = max(span.end for span in spans)
    waits = "flags" if plan.uses_flags else "barriers"
    kind = f"{plan.num_veus} vEUs of {plan.block_size} threads, {len(plan.steps)} steps, {waits}"
    title = f"{len(operators)} operators in {plan.seconds * 1e6:.1f} us: {kind}"
    parts = [
        svg.text(_MARGIN, _MARGIN + _TITLE / 2, title),
        svg.box(_MARGIN, _MARGIN + _TITLE, _WIDTH, _HEIGHT, kind="frame"),
        *(_box(span, operators, plan, seconds) for span in spans),
        *_axis(seconds),
    ]
    width, height = _WIDTH + 2 * _MARGIN, _HEIGHT + _TITLE + _AXIS + 2 * _MARGIN
    # On a page no wider than its place, but never too small to be read.
    fits = "max-width: 100%; min-width: 700px; height: auto"
    size = f"0 0 {width} {height}"
    return svg.document(width, height, _STYLE, parts, viewBox=size, style=fits)


def colour(operator: ROperator) -> str:
    """Colour that fills the boxes of an operator; equal for equal code."""
    return svg.colour(operator.body, 55)


def _box(span: Slot, operators: tuple[ROperator, ...], plan: ExecutionPlan, seconds: float) -> str:
    """The box of rTasks in the drawing."""
    across, down = _WIDTH / seconds, _HEIGHT / plan.num_veus
    x, y = _MARGIN + span.begin * across, _MARGIN + _TITLE + span.first_veu * down
    width, height = (span.end - span.begin) * across, span.num_veus * down
    operator = operators[span.operator]
    return svg.box(x, y, width, height, kind="task", fill=colour(operator), told=operator.name)


def _axis(seconds: float) -> Iterator[str]:
    """The time below, in microseconds."""
    top, bottom = _MARGIN + _TITLE, _MARGIN + _TITLE + _HEIGHT
    for tick in range(_TICKS):
        x = _MARGIN + tick * _WIDTH / _TICKS
        yield svg.path(f"M{x:.1f} {top}V{bottom}", "tick")
        yield svg.text(x, bottom + _AXIS / 2, f"{seconds * tick / _TICKS * 1e6:.1f} us")
