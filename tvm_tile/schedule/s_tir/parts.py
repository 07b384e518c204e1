"""Split a long sum over blocks: each sums a part of it, and a second kernel adds these.

Before → after, for ``C[i, j] += A[i, k] * B[k, j]`` followed by ``D = f(C)``::

    for i, j, k: C[i, j] += A[i, k] * B[k, j]
    for i, j:    D[i, j]  = f(C[i, j])

    for i, j, part, k in part:
        P[part, i, j] += A[i, part * length + k] * B[part * length + k, j]

    for i, j in blockIdx, threadIdx:
        acc = 0
        for part unrolled: acc += P[part, i, j]
        D[i, j] = f(acc)

The parts lie in global memory, so that a small output of a long sum fills the device with blocks
of large tiles. Nothing is atomic: the order of the sum is the same in every run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.s_tir import Schedule

from tvm_tile.compat import start_schedule
from tvm_tile.device.device import Device
from tvm_tile.graph.expression import substituted
from tvm_tile.graph.extract import extract_operator
from tvm_tile.schedule.s_tir.guards import conjunction, realize_of, with_guards
from tvm_tile.schedule.s_tir.reduction import write_window
from tvm_tile.schedule.s_tir.steps import SBlockRV
from tvm_tile.tile.rows.reduce import construct_window
from tvm_tile.tile.rtile import RProgram


@dataclass(frozen=True, slots=True)
class Parts:
    """A schedule whose longest sum is split in parts, and its blocks.

    Attributes:
        sch: schedule in which it is split, and the kernel that adds the parts is written already.
        main: sums a part, without a guard; the loop over the parts stands where the longest summed
            one did, that within a part behind it.
        total: block that adds the parts.
        after: the block behind ``total``, which needs its guard.
        guard: condition that keeps ``main`` from going on behind the end of the last part.
        variables: variables of the block ``main``, in which ``guard`` is.
    """

    sch: Schedule
    main: SBlockRV
    total: SBlockRV
    after: SBlockRV
    guard: Any
    variables: tuple[Any, ...]

    def guarded(self, func: tirx.PrimFunc, name: str) -> tirx.PrimFunc:
        """``func`` with ``guard`` on the block ``name``, which ``main`` has become."""
        realize = realize_of(func, name)
        values = dict(zip(self.variables, realize.iter_values, strict=True))
        guards = [realize.predicate, substituted(self.guard, values)]
        return with_guards(func, {name: conjunction(guards)})


def split_sum(
    sch: Schedule, main: SBlockRV, outputs: tuple[str, ...], program: RProgram, device: Device
) -> Parts | None:
    """Split the longest sum of ``main``; ``None`` if what adds the parts cannot be analysed."""
    name = str(sch.get(main).name_hint)
    longest = sch.get_loops(main)[len(program.spatial) + program.group_axis]
    part, _ = sch.split(longest, [None, program.part])
    own = str(sch.get(sch.rfactor(part, 0)).name_hint)

    realize = realize_of(sch.mod["main"], own)
    variables = tuple(v.var for v in realize.block.iter_vars)
    guard = substituted(realize.predicate, dict(zip(realize.iter_values, variables, strict=True)))
    # TVM splits and reorders no loops under a test of two of a block's variables together. The
    # copies to shared memory will have guards against the end of their tensors all the same.
    sch = start_schedule(with_guards(sch.mod["main"], {own: conjunction([])}))
    total = sch.get_sblock(name)
    *spatial, added = sch.get_loops(total)
    sch.reorder(added, *spatial)  # as the block's variables are
    operator = extract_operator(sch.get(total))
    if operator is None:
        return None
    after = write_window(sch, total, outputs, construct_window(operator, device)[0])
    return Parts(sch, sch.get_sblock(own), total, after, guard, variables)
