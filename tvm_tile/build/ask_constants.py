"""Small constants that a kernel reads late, asked for before it waits for the kernel before it.

A bias or a norm's scale is read where it is needed, behind the wait. A model that streams its
weights has such a vector in no cache: each kernel would wait for memory once more. Asked for ahead
of the wait, it is in the second-level cache by then. Nobody writes a constant while a model runs,
and a prefetch changes nothing that a program sees.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import tvm
import tvm_ffi
from tvm import sym, tirx
from tvm.script import tirx as T

from tvm_tile.graph.expression import are_same, substituted, variables_in
from tvm_tile.graph.extract import loads_in, nodes_in
from tvm_tile.graph.tile_graph import element_size

_SMALL = 1 << 18  # bytes: what is larger streams, and is asked for step by step
_MOST = 8  # calls of a kernel
_LAUNCH = "thread_extent"
_ASK_FOR = Path(__file__).with_suffix(".h").read_text()


def asks_for(body: Any, constants: Collection[Any]) -> list[Any]:
    """Statements that bring into the cache what a lowered kernel loads of small constants.

    Of a loop they ask for what its first step loads. They stand where all threads are known
    (:func:`at_begin`); there are none where the kernel does anything outside of there.

    Args:
        body: the kernel's body, its buffers flat.
        constants: parameters whose memory nobody writes, and that are not asked for already.
    """
    launch = _innermost(body)
    kinds = tirx.Evaluate, tirx.BufferStore
    if launch is None or len(nodes_in(body, *kinds)) != len(nodes_in(launch.body, *kinds)):
        return []
    found: list[tuple[Any, int, Any]] = []
    for param, size, index in _loads(body, constants):
        if not any(param.same_as(other) and are_same([index], [own]) for other, _, own in found):
            found.append((param, size, index))
        if len(found) == _MOST:
            break
    asks = []
    for param, size, index in found:
        byte = tirx.Cast("int64", index) * size
        call = T.cuda.func_call("tile_ask_for_constant", param, byte, source_code=_ASK_FOR)
        asks.append(tirx.Evaluate(call))
    return asks


def at_begin(body: Any, statements: list[Any]) -> Any:
    """A kernel's body with statements ahead of all else that its threads do."""
    innermost = _innermost(body)

    def visit(launch: Any) -> Any:
        if launch.attr_key != _LAUNCH or not launch.node.same_as(innermost.node):
            return launch
        inner = tirx.SeqStmt([*statements, launch.body])
        return tirx.AttrStmt(launch.node, launch.attr_key, launch.value, inner)

    return tvm_ffi.structural_map(body, [(tirx.AttrStmt, visit)], order="post")


def _innermost(body: Any) -> Any:
    """The statement that launches the last axis of a kernel's threads."""
    own = _launches(body)
    return own[-1] if own else None


def _launches(body: Any) -> list[Any]:
    """The statements that launch the axes of a kernel's blocks and threads, outermost first."""
    return [s for s in nodes_in(body, tirx.AttrStmt) if s.attr_key == _LAUNCH]


def _loads(body: Any, constants: Collection[Any]) -> Iterator[tuple[Any, int, Any]]:
    """Loads of small constants: the parameter, bytes of an element, and which element a thread's
    first one is."""
    threads = {s.node.var for s in _launches(body)}
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
