"""The schedule rules as data: what is known of each, whatever function it takes.

Functions of the same names in ``schedule/`` find tiles for functions and write them;
``schedule/ranking.py`` has these in the order in which they are asked.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Level(Enum):
    """Level of memory in which a kernel's operators hand a value to one another."""

    REGISTER = "register"
    SHARED = "shared"


@dataclass(frozen=True, slots=True)
class Rule:
    """Facts about a rule that hold for all functions.

    Attributes:
        name: name for people, in reports and in plans that are kept.
        hands_over: level of memory at which kernels of joined functions hand values over. ``None``
            for a rule that no functions are joined for.
        stores_elsewhere: whether functions may be joined that store its sums in another order than
            they lie. Not where its model knows of no stores but of neighbours side by side.
        joins: whether it is asked what functions would take as one. Of those that are, the
            fastest one decides: where it hands nothing over, the functions stay apart.
        is_task: whether its kernels may be rTasks of persistent ones: what they take inside these
            is known.
        is_timed_inside: whether its model was fitted to rTasks, not to kernels by themselves.
        has_fewer_blocks: whether its tiles range from one block for all outputs to one for each,
            so that several of its kernels can share out the device.
    """

    name: str
    hands_over: Level | None = None
    stores_elsewhere: bool = True
    joins: bool = False
    is_task: bool = True
    is_timed_inside: bool = False
    has_fewer_blocks: bool = False

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class RunnerUp:
    """The best choice of another rule than the one that was taken.

    Attributes:
        rule: its name.
        tile: the tile in one line, for people.
        seconds: predicted time.
    """

    rule: str
    tile: str
    seconds: float


DECODE = Rule("decode", Level.SHARED, joins=True, is_task=False)
CHAIN = Rule("chain", Level.REGISTER, joins=True, is_task=False)
ATTENTION = Rule("attention", Level.SHARED, joins=True, is_task=False)
WARP_ATTENTION = Rule("warp_attention", Level.REGISTER, joins=True, is_task=False)
HALO = Rule("halo", Level.SHARED, joins=True, is_task=False)
GATES = Rule("gates", joins=True, is_timed_inside=True, has_fewer_blocks=True)
ROWS = Rule("rows", Level.REGISTER, joins=True)
MATVEC = Rule("matvec", Level.SHARED, stores_elsewhere=False, joins=True)
CODED = Rule("coded", Level.SHARED, stores_elsewhere=False, joins=True, is_task=False)
CODED_WARPGROUP = Rule("coded_warpgroup", Level.REGISTER, joins=True, is_task=False)
WGMMA = Rule("wgmma", Level.REGISTER, joins=True, is_task=False)
MMA = Rule("mma", Level.REGISTER, joins=True, is_task=False)
MATRIX_CORES = Rule("matrix_cores", Level.REGISTER, joins=True, is_task=False)
CONTRACTION = Rule("contraction")
WINDOW = Rule("window")
ROW = Rule("row")
COLUMN = Rule("column")
TRANSPOSE = Rule("transpose")
ELEMENTWISE = Rule("elementwise")
SCAN = Rule("scan")
SORT = Rule("sort")

ORDER = (
    *(CODED, CODED_WARPGROUP, DECODE, CHAIN, ATTENTION, WARP_ATTENTION, HALO, GATES, ROWS, MATVEC),
    *(WGMMA, MMA, MATRIX_CORES, CONTRACTION),
    *(WINDOW, ROW, COLUMN, TRANSPOSE, ELEMENTWISE, SCAN, SORT),
)


JOINING = tuple(rule for rule in ORDER if rule.joins)


def rule_named(name: str) -> Rule | None:
    """The rule of a name; ``None`` where none of ours has it (that of dlight's kernels, say)."""
    return next((rule for rule in ORDER if rule.name == name), None)
