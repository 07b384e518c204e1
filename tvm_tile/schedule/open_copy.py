"""Copies between an input or output of open extents and a tensor of the greatest ones.

before: ``for i, j in grid(n, 64): place[i, j] = value[i, j]``
after:  ``for block in ceildiv(n * 8, 256): for thread in 256: for v in vectorized(8): place[...] =
        value[...]``

As many blocks are launched as the call's extents take.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import tvm_ffi
from tvm import tirx

from tvm_tile.compat import start_schedule
from tvm_tile.device.device import Device, MemoryLevel
from tvm_tile.graph.functions import is_tensor
from tvm_tile.graph.tile_graph import element_size
from tvm_tile.schedule.rule import Scheduled
from tvm_tile.schedule.s_tir.steps import bind_loop
from tvm_tile.tile.rules import ELEMENTWISE

OPEN_COPY = "tvm_tile.open_copy"
"""Attribute of a function that is such a copy."""

_THREADS = 256
_LINE = 16  # bytes that a thread moves at once


def schedule_open_copy(func: tirx.PrimFunc, device: Device) -> Scheduled | None:
    """The schedule of a copy of open extents; ``None`` of any other function."""
    if OPEN_COPY not in (func.attrs or {}):
        return None
    sch = start_schedule(func)
    block = sch.get_sblock("place")
    loops = sch.get_loops(block)
    extents = [sch.get(loop).extent for loop in loops]
    inner = 0
    while inner < len(extents) and isinstance(extents[-1 - inner], tirx.IntImm):
        inner += 1
    known = math.prod(int(extent) for extent in extents[len(extents) - inner :])
    vector = math.gcd(known, _LINE // min(_LINE, element_size(str(func.params[0].ty.dtype))))
    if vector > 1:
        # Apart from loops of open extents: that lanes are neighbours must be seen.
        rest, lane = sch.split(sch.fuse(*loops[len(loops) - inner :]), [None, vector])
        sch.vectorize(lane)
        loops = [*loops[: len(loops) - inner], rest]
    bind_loop(sch, sch.fuse(*loops), _THREADS)
    size = sum(_bytes(p) for p in func.params if is_tensor(p))
    seconds = device.launch_latency + size / device.memory(MemoryLevel.GLOBAL).bandwidth
    tile = f"{_THREADS} threads of {vector}, as many blocks as the call takes"
    func = _with_plain_quotients(sch.mod["main"])
    return Scheduled(func, ELEMENTWISE, tile, 1, _THREADS, seconds)


def _with_plain_quotients(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """A function that divides by open extents as C does: nothing here is negative, which TVM does
    not know, and what it writes else takes long, and is no OpenCL between the lanes of a vector."""
    kinds = ((tirx.FloorDiv, tirx.Div), (tirx.FloorMod, tirx.Mod))

    def plain(kind: type, node: Any) -> Any:
        return node if isinstance(node.b, tirx.IntImm) else kind(node.a, node.b)

    callbacks = [(floor, partial(plain, kind)) for floor, kind in kinds]
    return tvm_ffi.structural_map(func, callbacks, order="post")


def _bytes(param: tirx.Var) -> int:
    """Bytes of a parameter, as far as its extents are known."""
    known = [int(extent) for extent in param.ty.shape if isinstance(extent, tirx.IntImm)]
    return math.prod(known) * element_size(str(param.ty.dtype))
