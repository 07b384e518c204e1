"""Kernels for functions whose best ones no persistent kernel can hold."""

from __future__ import annotations

from tvm_tile.schedule.decode.find import find_decode
from tvm_tile.schedule.decode.rule import decode_choices
from tvm_tile.schedule.ranking import candidates
from tvm_tile.schedule.rule import Scheduled, Task
from tvm_tile.schedule.s_tir.staged import draft
from tvm_tile.tile.attention.decode import construct_decode
from tvm_tile.tile.construct import construct_contraction
from tvm_tile.tile.rules import CONTRACTION, DECODE, Rule

# Of a block: each may then have all registers that a thread can name, and kernels of most rules
# are no larger, so that one size of vEUs does for all.
_MOST_THREADS = 256
_EXAMINED = 128  # tiles
_WRITTEN = 32  # kernels


def schedule_rtask(task: Task, rule: Rule, threads: int) -> Scheduled | None:
    """The fastest kernel of a rule that can be the rTasks of a persistent one.

    Products and convolutions whose sums are divided among blocks are two kernels, and attention of
    few queries divides its keys among the blocks of a cluster: here neither is divided. Nor has a
    block more threads than may each have as many registers as they can name.

    Args:
        task: the function.
        rule: rule that takes it.
        threads: threads of a block of its best kernel.

    Returns:
        The kernel; ``None`` where the rule has none but its usual ones.
    """
    place = task.device, _EXAMINED, task.scene
    if rule is CONTRACTION:
        found = draft(task)
        plans = construct_contraction(found.operator, *place) if found else ()
        fitting = [p for p in plans if p.parts == 1 and p.block_size <= _MOST_THREADS]
        return found.choices(fitting[:1], rule)[0]() if found and fitting else None
    if rule is DECODE:
        match = find_decode(task)
        tiles = construct_decode(match.decode, *place) if match else ()
        whole = [tile for tile in tiles if tile.splits == 1]
        return decode_choices(task, match, whole[:1])[0]() if match and whole else None
    if threads <= _MOST_THREADS:
        return None
    written = candidates(task, _WRITTEN, (rule,))
    return next((kernel for kernel in written if kernel.block <= _MOST_THREADS), None)
