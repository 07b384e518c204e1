"""The instructions of a vEU of a persistent kernel with control flow as a drawing (SVG)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tvm_tile.plan.execution_plan import ExecutionPlan, ROperator
from tvm_tile.plan.rprogram import RProgram
from tvm_tile.report.screen import svg
from tvm_tile.report.screen.flow_text import Told, summary, told
from tvm_tile.report.screen.short_names import cut

# All in pixels.
_MARGIN, _TITLE = 16, 24
_BOX_WIDTH, _LINE, _PADDING, _GAP = 640, 16, 6, 18
_LANE = 12  # between two arrows that run side by side
_SHIFT = 5  # from the middle of a box to where arrows leave it, and to where they arrive
_LONGEST = 98  # letters of a line that a box holds
_STYLE = """
  .waits { font-size: 11px; fill: #444 }
  .box { stroke: #444; rx: 4px }
  .arrow { fill: none; stroke: #444; stroke-width: 1.5; marker-end: url(#tip) }
  .otherwise { stroke-dasharray: 5 3 }
"""
_TIP = """<marker id="tip" refX="5" refY="3" markerWidth="6" markerHeight="6" orient="auto">
  <path d="M0 0 L6 3 L0 6 z" fill="#444"/>
</marker>"""


@dataclass(frozen=True, slots=True)
class Jump:
    """A jump from one instruction to another that is not the one below it.

    Attributes:
        start: place of the one.
        end: place of the other.
        is_otherwise: whether it leads where a condition does not hold, no iteration is left, or a
            call has ended.
        lane: how far from the boxes it runs, the nearest being one.
    """

    start: int
    end: int
    is_otherwise: bool
    lane: int = 0

    @property
    def is_back(self) -> bool:
        """Whether the jump leads up, or to where it starts; it is then drawn on the left."""
        return self.end <= self.start


def draw_veu(
    operators: tuple[ROperator, ...], program: RProgram, plan: ExecutionPlan, veu: int
) -> str:
    """An SVG of a vEU's instructions, from top to bottom, each with what it waits for first.

    Arrows back are on the left, those over others on the right; dashed where a condition does not
    hold, no iteration is left, or a call has ended. rTasks of equal code have one colour.

    Args:
        operators: operators of the program.
        program: itself.
        plan: places the operators.
        veu: number of the vEU.

    Returns:
        The text of an SVG file.
    """
    code = told(operators, program, plan, veu)
    found = jumps(code)
    left, right = (
        max((jump.lane for jump in found if jump.is_back == is_back), default=0) + 1
        for is_back in (True, False)
    )
    tops = list(_tops(code))
    x = _MARGIN + left * _LANE
    parts = [_TIP, svg.text(_MARGIN, _MARGIN + _TITLE // 2, f"vEU {veu}: {summary(program)}")]
    for own, top in zip(code, tops, strict=False):
        parts += _box(own, operators, x, top)
    for place, own in enumerate(code):
        if place + 1 in (own.next, own.otherwise):
            start = f"M{x + _BOX_WIDTH // 2} {tops[place] + _height(own)}"
            parts.append(_line(f"{start} V{tops[place + 1]}", is_otherwise=own.next != place + 1))
    parts += (_arrow(jump, code, tops, x) for jump in found)
    width = x + _BOX_WIDTH + right * _LANE + _MARGIN
    return svg.document(width, tops[-1] - _GAP + _MARGIN, _STYLE, parts)


def jumps(code: Sequence[Told]) -> tuple[Jump, ...]:
    """Jumps that do not lead to the next instruction.

    Jumps that run beside each other have a lane each, the short ones near.
    """
    found = [
        Jump(place, end, is_otherwise)
        for place, own in enumerate(code)
        for end, is_otherwise in ((own.next, False), (own.otherwise, True))
        if end is not None and end != place + 1
    ]
    placed: list[Jump] = []
    for jump in sorted(found, key=lambda jump: abs(jump.end - jump.start)):
        beside = (other.lane for other in placed if _are_beside(jump, other))
        lane = max(beside, default=0) + 1
        placed.append(Jump(jump.start, jump.end, jump.is_otherwise, lane))
    return tuple(placed)


def _are_beside(one: Jump, other: Jump) -> bool:
    """Whether two jumps in the same direction need lanes of their own."""
    first = max(min(one.start, one.end), min(other.start, other.end))
    last = min(max(one.start, one.end), max(other.start, other.end))
    return one.is_back == other.is_back and first <= last


def _height(own: Told) -> int:
    """Height of an instruction's box."""
    return 2 * _PADDING + _LINE * (1 + len(own.waits))


def _tops(code: Sequence[Told]) -> Iterator[int]:
    """Top of each box, and of one behind the last."""
    top = _MARGIN + _TITLE
    yield top
    for own in code:
        top += _height(own) + _GAP
        yield top


def _box(own: Told, operators: Sequence[ROperator], x: int, top: int) -> Iterator[str]:
    """The box of an instruction, with its text."""
    fill = "#f4f4f4"
    if own.operator is not None:
        fill = svg.colour(operators[own.operator].body, 85)
    lines = own.does, *(f"waits for {wait}" for wait in own.waits)
    yield svg.box(x, top, _BOX_WIDTH, _height(own), kind="box", fill=fill, told="\n".join(lines))
    for number, line in enumerate(lines):
        y = top + _PADDING + _LINE * number + _LINE // 2
        yield svg.text(x + 8, y, cut(line, _LONGEST), "waits" if number else "")


def _arrow(jump: Jump, code: Sequence[Told], tops: Sequence[int], x: int) -> str:
    """An arrow beside the boxes, in its lane."""
    start = tops[jump.start] + _height(code[jump.start]) // 2 + _SHIFT
    end = tops[jump.end] + _height(code[jump.end]) // 2 - _SHIFT
    edge, away = (x, -1) if jump.is_back else (x + _BOX_WIDTH, 1)
    line = f"M{edge} {start} H{edge + away * jump.lane * _LANE} V{end} H{edge}"
    return _line(line, is_otherwise=jump.is_otherwise)


def _line(line: str, *, is_otherwise: bool) -> str:
    """The path of an arrow, dashed if it is taken otherwise."""
    return svg.path(line, "arrow otherwise" if is_otherwise else "arrow")
