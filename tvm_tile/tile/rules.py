"""The schedule rules as data: what is known of each, whatever function it takes.

Functions of the same names in ``schedule/`` find tiles for functions and write them;
``schedule/ranking.py`` has these in the order in which they are asked.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Level(Enum):
    """Where a kernel keeps a value that one of its operators hands to another."""

    REGISTER = "register"
    SHARED = "shared"


@dataclass(frozen=True, slots=True)
class Rule:
    """What is known of a rule.

    Attributes:
        name: for people, in reports and in plans that are kept.
        hands_over: where kernels of joined functions keep what these hand on. ``None`` of a rule
            that no functions are joined for: its model knows of no stores but to where the sums
            lie, neighbours side by side.
        is_task: whether its kernels may be rTasks of persistent ones: what they take inside these
            is known.
        is_timed_inside: whether its model was fitted to rTasks, not to kernels by themselves.
        has_fewer_blocks: whether its tiles range from one block for all outputs to one for each,
            so that several of its kernels can share out the device.
    """

    name: str
    hands_over: Level | None = None
    is_task: bool = True
    is_timed_inside: bool = False
    has_fewer_blocks: bool = False

    def __str__(self) -> str:
        return self.name


CHAIN = Rule("chain", Level.REGISTER, is_task=False)
ATTENTION = Rule("attention", Level.SHARED, is_task=False)
WARP_ATTENTION = Rule("warp_attention", Level.REGISTER, is_task=False)
HALO = Rule("halo", Level.SHARED, is_task=False)
GATES = Rule("gates", is_timed_inside=True, has_fewer_blocks=True)
ROWS = Rule("rows", Level.REGISTER)
MATVEC = Rule("matvec")
WGMMA = Rule("wgmma", Level.REGISTER, is_task=False)
MMA = Rule("mma", Level.REGISTER, is_task=False)
MATRIX_CORES = Rule("matrix_cores", is_task=False)
CONTRACTION = Rule("contraction")
WINDOW = Rule("window")
ROW = Rule("row")
COLUMN = Rule("column")
TRANSPOSE = Rule("transpose")
ELEMENTWISE = Rule("elementwise")
SCAN = Rule("scan")
SORT = Rule("sort")

_ALL = (
    *(
        CHAIN,
        ATTENTION,
        HALO,
        GATES,
        ROWS,
        MATVEC,
        WGMMA,
        MMA,
        MATRIX_CORES,
        CONTRACTION,
        WINDOW,
        ROW,
        COLUMN,
    ),
    *(TRANSPOSE, ELEMENTWISE, SCAN, SORT),
)


def rule_named(name: str) -> Rule | None:
    """The rule of a name; ``None`` where none of ours has it (that of dlight's kernels, say)."""
    return next((rule for rule in _ALL if rule.name == name), None)
