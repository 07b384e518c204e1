"""The groups of a model as a drawing (SVG): what became one kernel, and what crosses memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from tvm_tile.report.screen import svg
from tvm_tile.report.screen.short_names import cut
from tvm_tile.tile.weld.connect import Decision, Edge

# All in pixels.
_MARGIN, _PADDING = 16, 12
_BOX_WIDTH, _BOX_HEIGHT, _GAP = 420, 24, 10
_LANE = 12  # between two arrows that run side by side
_LABEL_WIDTH = 180
_TITLE = 22
_LONGEST = 60  # letters of a name that a box holds

_COLOURS = {
    "global": "#b3261e",
    "shared": "#1f5fa8",
    "register": "#1a6b3c",
    "in place": "#8a8a8a",
}
_STYLE = """
  .box { fill: #f4f4f4; stroke: #444 }
  .frame { fill: none; stroke: #444; stroke-width: 2; rx: 6 }
  .apart { stroke-dasharray: 6 4; stroke-width: 1 }
  path { fill: none; stroke-width: 1.5 }
"""


def draw(decisions: Sequence[Decision]) -> str:
    """An SVG of frames, one for each different group; dashed where its functions stayed apart.

    Each function is a box; each arrow a value that one hands to another, with its bytes and where
    it is handed over: through global or shared memory, in registers, or in place.

    Returns:
        The text of an SVG file.
    """
    counts = Counter(decisions)
    lanes = max((len(decision.edges) for decision in counts), default=0)
    width = _BOX_WIDTH + lanes * _LANE + _LABEL_WIDTH + 2 * _PADDING
    parts: list[str] = []
    top = _MARGIN
    for decision, count in counts.items():
        height = _height(decision)
        parts += _frame(decision, count, top, width)
        top += _TITLE + height + _MARGIN
    return svg.document(width + 2 * _MARGIN, top, _STYLE, parts)


def _height(decision: Decision) -> int:
    """Height of a group's drawing."""
    return len(decision.functions) * (_BOX_HEIGHT + _GAP) - _GAP + 2 * _PADDING


def _frame(decision: Decision, count: int, top: int, width: int) -> Iterator[str]:
    """A group below its title."""
    title = f"{count} x {decision.reason or decision.rule}, {decision.saved_bytes / 1e6:.2f} MB "
    title += "of traffic between them" if decision.reason else "less traffic"
    style = "frame apart" if decision.reason else "frame"
    yield svg.text(_MARGIN, top + _TITLE // 2, title)
    yield svg.box(_MARGIN, top + _TITLE, width, _height(decision), kind=style)
    left, first = _MARGIN + _PADDING, top + _TITLE + _PADDING
    for number, name in enumerate(decision.functions):
        y = first + number * (_BOX_HEIGHT + _GAP)
        yield svg.box(left, y, _BOX_WIDTH, _BOX_HEIGHT, kind="box", told=name)
        yield svg.text(left + 8, y + _BOX_HEIGHT // 2, cut(name, _LONGEST))
    for lane, edge in enumerate(decision.edges, start=1):
        yield from _arrow(decision, edge, (left + _BOX_WIDTH, first), lane)


def _arrow(decision: Decision, edge: Edge, corner: tuple[int, int], lane: int) -> Iterator[str]:
    """An arrow from a box to a lower one, in a lane of its own, beside the value's name."""
    right, first = corner
    start, end = (
        first + number * (_BOX_HEIGHT + _GAP) + _BOX_HEIGHT // 2 + shift
        for number, shift in ((edge.maker, 5), (edge.taker, -5))
    )
    line = f"M{right} {start} H{right + lane * _LANE} V{end} H{right + 2} l5 -3 m-5 3 l5 3"
    yield svg.path(line, stroke=_COLOURS[decision.level(edge)])
    beyond = right + (len(decision.edges) + 1) * _LANE
    yield svg.text(beyond, start - 5, f"{edge.size / 1e6:.2f} MB, {decision.level(edge)}")
