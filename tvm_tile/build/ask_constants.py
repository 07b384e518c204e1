"""Small constants that a kernel reads late, asked for before it waits for the kernel before it.

A bias or a norm's scale is read where it is needed, behind the wait. A model that streams its
weights has such a vector in no cache: each kernel would wait for memory once more. Asked for ahead
of the wait, it is in the second-level cache by then. Nobody writes a constant while a model runs,
and a prefetch changes nothing that a program sees.

Each line is asked for once, or by few: the cache answers one request for a line after the other, so
that 50,000 threads that ask for the same five lines take longer, 11 us on an H200, than their
kernel. So of the blocks and threads that mean one element the first asks, and of neighbours in a
warp that mean one line.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import tvm
from tvm import sym, tirx
from tvm.script import tirx as T

from tvm_tile.build.launched import launches
from tvm_tile.graph.expression import are_same, substituted, variables_in
from tvm_tile.graph.extract import loads_in, nodes_in
from tvm_tile.graph.tile_graph import element_size

_SMALL = 1 << 18  # bytes: what is larger streams, and is asked for step by step
_MOST = 8  # calls of a kernel
_ASK_FOR = Path(__file__).with_name("ask_for.h").read_text()


def asks_for(body: Any, constants: Collection[Any]) -> list[Any]:
    """Statements that bring into the cache what a lowered kernel loads of small constants.

    Of a loop they ask for what its first step loads. They stand within all axes that the
    kernel is launched with; there are none where the kernel does anything outside of there.

    Args:
        body: the kernel's body, its buffers flat.
        constants: parameters whose memory nobody writes, and that are not asked for already.
    """
    axes = launches(body)
    kinds = tirx.Evaluate, tirx.BufferStore
    if not axes or len(nodes_in(body, *kinds)) != len(nodes_in(axes[-1].body, *kinds)):
        return []
    found: list[tuple[Any, int, Any]] = []
    for param, size, index in _loads(body, constants):
        if not any(param.same_as(other) and are_same([index], [own]) for other, _, own in found):
            found.append((param, size, index))
        if len(found) == _MOST:
            break
    return [_asks(axes, param, size, index) for param, size, index in found]


def _asks(axes: Sequence[Any], param: Any, size: int, index: Any) -> Any:
    """A statement by which the first of all threads that load an element asks for its line.

    Args:
        axes: statements that launch the kernel's axes.
        param: the constant.
        size: bytes of an element.
        index: number of the element, of the axes.
    """
    start = T.handle_add_byte_offset(param, tirx.Cast("int64", index) * size)
    call = T.cuda.func_call("tile_ask_for_line", start, source_code=_ASK_FOR)
    named = variables_in(index)
    others = [axis.node.var for axis in axes if not any(map(axis.node.var.same_as, named))]
    asks = tirx.Evaluate(call)
    is_first = [var == 0 for var in others]
    return tirx.IfThenElse(tirx.all(*is_first), asks, None) if is_first else asks


def ask_for(constant: Any, line: Any, lines: Any, by: int) -> Any:
    """A call that brings lines of a constant into the cache: each ``by``-th from one on."""
    return T.cuda.func_call("tile_ask_for", constant, line, lines, by, source_code=_ASK_FOR)


def _loads(body: Any, constants: Collection[Any]) -> Iterator[tuple[Any, int, Any]]:
    """Loads of small constants: the parameter, bytes of an element, and which element a thread's
    first one is."""
    threads = {s.node.var for s in launches(body)}
    known = {s.var: s.value for s in nodes_in(body, tirx.Bind)}
    known |= {s.loop_var: s.min for s in nodes_in(body, tirx.For)}
    params, extents = {}, {}
    for declared in nodes_in(body, tirx.DeclBuffer):
        for param in constants:
            if declared.data.same_as(param):
                params[declared.buffer] = param
                extents[declared.buffer] = math.prod(int(n) for n in declared.buffer.ty.shape)
    ranges = sym.Analyzer()
    for load in nodes_in(body, tvm.ir.TensorLoad):
        if load.source not in params or len(load.indices) != 1:
            continue
        size = element_size(str(load.source.ty.dtype))
        if extents[load.source] * size > _SMALL:
            continue
        index = load.indices[0]
        index = index.base if isinstance(index, tirx.Ramp) else index
        while own := {v: known[v] for v in variables_in(index) if v in known}:
            index = substituted(index, own)
        if set(variables_in(index)) <= threads and not loads_in(index):
            last = tirx.const(extents[load.source] - 1, str(index.ty.dtype))
            # A load of a choice may be outside of the tensor where it is not chosen.
            inside = tirx.max(tirx.min(index, last), tirx.const(0, last.ty.dtype))
            yield params[load.source], size, ranges.simplify(inside)
