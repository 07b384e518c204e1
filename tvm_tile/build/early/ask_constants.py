"""Small constants that a kernel reads late, asked for before it waits for the kernel before it.

A bias or a norm's scale is read where it is needed, behind the wait. A model that streams its
weights has such a vector in no cache: each kernel would wait for memory once more. Asked for ahead
of the wait, it is in the second-level cache by then. Nobody writes a constant while a model runs,
and a prefetch changes nothing that a program sees.

Each line is asked for once, by one thread, and no block asks for many: the cache answers requests
for a line one after the other, and a multiprocessor sends one in some cycles. On an H200, 50,000
threads that each ask for what they load took 11 us longer than their kernel; one block that asks
for all of it, 2 us.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import tvm
from tvm import tirx
from tvm.script import tirx as T

from tvm_tile.build.launched import launches
from tvm_tile.graph.extract import nodes_in
from tvm_tile.graph.tile_graph import stored_bytes

_SMALL = 1 << 14  # bytes: what is larger streams, and is asked for step by step
_LINE = 128  # bytes
_MOST = 8  # constants of a kernel
_LANES = 32  # threads of a block that ask
_ASK_FOR = Path(__file__).with_name("ask_for.h").read_text()


def asks_for(body: Any, constants: Collection[Any]) -> list[Any]:
    """Statements that bring into the cache the small constants that a lowered kernel loads.

    They stand within all axes that the kernel is launched with; there are none where the kernel
    does anything outside of there.

    Args:
        body: the kernel's body, its buffers flat.
        constants: parameters whose memory nobody writes, and that are not asked for already.
    """
    axes = launches(body)
    kinds = tirx.Evaluate, tirx.BufferStore
    if not axes or len(nodes_in(body, *kinds)) != len(nodes_in(axes[-1].body, *kinds)):
        return []
    loaded = [(param, -(-size // _LINE)) for param, size in _loaded(body, constants)]
    named = [(axis.node.thread_tag, axis.node.var, axis.value) for axis in axes]
    threads = [(var, extent) for tag, var, extent in named if tag.startswith("threadIdx")]
    blocks = [(var, extent) for tag, var, extent in named if tag.startswith("blockIdx")]
    if not loaded or not threads:
        return []
    (lane, width), *others = sorted(threads, key=lambda own: -int(own[1]))
    lanes, number, count = min(_LANES, int(width)), tirx.const(0), 1
    for var, extent in blocks:
        number, count = number * extent + tirx.Cast("int32", var), count * extent
    first = number * lanes + tirx.Cast("int32", lane)
    asks = [tirx.Evaluate(ask_for(param, first, lines, count * lanes)) for param, lines in loaded]
    most = max(lines for _, lines in loaded)
    is_asking = [lane < lanes, first < most, *(var == 0 for var, _ in others)]
    whole = asks[0] if len(asks) == 1 else tirx.SeqStmt(asks)
    return [tirx.IfThenElse(tirx.all(*is_asking), whole, None)]


def ask_for(constant: Any, line: Any, lines: Any, by: int) -> Any:
    """A call that brings lines of a constant into the cache: each ``by``-th from one on."""
    return T.cuda.func_call("tile_ask_for", constant, line, lines, by, source_code=_ASK_FOR)


def _loaded(body: Any, constants: Collection[Any]) -> list[tuple[Any, int]]:
    """The small ones of some parameters that a kernel loads, and their bytes."""
    loaded = [load.source for load in nodes_in(body, tvm.ir.TensorLoad)]
    found: dict[Any, tuple[Any, int]] = {}
    for declared in nodes_in(body, tirx.DeclBuffer):
        param = next((own for own in constants if declared.data.same_as(own)), None)
        if param is None or not any(map(declared.buffer.same_as, loaded)):
            continue
        size = stored_bytes(declared.buffer.ty)
        if size <= _SMALL:
            found.setdefault(str(param.name), (param, size))
    return list(found.values())[:_MOST]
