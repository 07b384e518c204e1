"""Elements of a row that its output makes of others than its own, as rotations of positions do.

Behind a norm, a rotation takes two elements of each row for one (RoFormer, section 3.2.2)::

    for i, j: N[i, j] = norm(A[i, j])
    for i, j: B[i, j] = N[i, j] * cos[j] + (N[i, j - 1] if j % 2 else -N[i, j + 1]) * sin[j]

Threads hold rows in registers, and whether the one that makes ``B[i, j]`` holds ``N[i, j + 1]``,
too, depends on the tile. So these loads become calls that say how far away the element is::

    for i, j: B[i, j] = N[i, j] * cos[j] + (exchanged(N[i, j], -1) if j % 2 else
                                            -exchanged(N[i, j], 1)) * sin[j]

which is a function of rows as others are, until it is known where a thread holds what.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import tvm_ffi
from tvm import ir, sym, tirx
from tvm.s_tir import SBlock, Schedule
from tvm_ffi import structural_equal

from tvm_tile.compat import start_schedule
from tvm_tile.graph.expression import are_same, block_ranges, loads_of, substituted, uses
from tvm_tile.graph.extract import is_choice, nodes_in
from tvm_tile.schedule.s_tir.normalize import NormalForm
from tvm_tile.schedule.s_tir.steps import blocks_named, element, replace_parts
from tvm_tile.tile.rows.held_rows import Pairs

_EXTERN, _NAME = "call_pure_extern", "exchanged"
_LONGEST = 256  # elements of a row, for each of which is found what it is made of


def with_exchanged(sch: Schedule, form: NormalForm) -> Schedule:
    """A schedule whose output has such calls; ``sch`` where it reads its producers in place."""
    (output,) = blocks_named(sch, form.outputs)
    made = [block.writes[0].source for block in blocks_named(sch, form.producers)]
    changed = output
    for tensor in made:
        changed = _exchanged(changed, tensor)
    if changed.same_as(output):
        return sch

    def block(node: SBlock) -> SBlock:
        return changed if node.name_hint == output.name_hint else node

    func = sch.mod["main"]
    body = tvm_ffi.structural_map(func.body, [(SBlock, block)], order="post")
    return start_schedule(func.with_body(body))


def _exchanged(block: SBlock, tensor: Any) -> SBlock:
    """A block with calls for the loads of a tensor that are elsewhere in its row."""
    ranges = block_ranges(block)
    loads = loads_of(block.body.value, tensor)
    places = {load: [ranges.simplify(index) for index in load.indices] for load in loads}
    plain = [own for own in places.values() if isinstance(own[-1], tirx.Var)]
    if not plain or all(are_same(own, plain[0]) for own in places.values()):
        return block
    *row, along = plain[0]
    others = [v.var for v in block.iter_vars if not v.var.same_as(along)]
    for *own, place in places.values():
        if not are_same(own, row) or uses(place, others):
            return block
    far = [load for load, own in places.items() if not are_same(own, plain[0])]
    extent = next(int(v.dom.extent) for v in block.iter_vars if v.var.same_as(along))
    told = {load: _distance(block.body.value, load, along, extent) for load in far}
    if None in told.values():
        return block

    def load(node: ir.TensorLoad) -> Any:
        if not node.source.same_as(tensor):
            return node
        own = tirx.BufferLoad(tensor, plain[0])
        distance = next((d for load, d in told.items() if structural_equal(load, node)), 0)
        if not distance:
            return own
        return tirx.call_pure_extern(str(own.ty.dtype), _NAME, own, tirx.const(distance, "int64"))

    value = tvm_ffi.structural_map(block.body.value, [(ir.TensorLoad, load)], order="post")
    reads = [
        element(tensor, plain[0]) if region.source.same_as(tensor) else region
        for region in block.reads
    ]
    store = tirx.BufferStore(block.body.buffer, value, block.body.indices)
    return replace_parts(block, reads=reads, body=store)


def _distance(value: Any, load: ir.TensorLoad, along: Any, extent: int) -> int | None:
    """How far behind the place in its row an element is that a load gives, wherever it is chosen.

    Returns:
        ``None`` where that differs from place to place, or the row is too long to look.
    """
    if extent > _LONGEST:
        return None
    found: set[int] = set()
    for at, node in _chosen(value, along, extent, ir.TensorLoad):
        if structural_equal(node, load):
            found.add(_number(node.indices[-1], along, at) - at)
    return found.pop() if len(found) == 1 else None


def distance_of(node: Any) -> int | None:
    """How far away the element is that a call of this kind gives; ``None`` of any other."""
    is_named = isinstance(node, ir.Call) and getattr(node.op, "name", "").endswith(_EXTERN)
    return int(node.args[2]) if is_named and str(node.args[0].value) == _NAME else None


def pairs_of(block: SBlock) -> Pairs | None:
    """What elements of a row are made of what others.

    Returns:
        ``None`` where a row is no axis of its own.
    """
    calls = [node for node in nodes_in(block.body.value, ir.Call) if distance_of(node) is not None]
    if not calls:
        return frozenset()
    along = calls[0].args[1].indices[-1]
    own = [v for v in block.iter_vars if v.var.same_as(along)]
    if not own or any(not call.args[1].indices[-1].same_as(along) for call in calls):
        return None
    chosen = _chosen(block.body.value, along, int(own[0].dom.extent), ir.Call)
    told = ((at, distance_of(node)) for at, node in chosen)
    return frozenset((at, at + distance) for at, distance in told if distance is not None)


def _chosen(value: Any, along: Any, extent: int, kind: Any) -> Iterator[tuple[int, Any]]:
    """The nodes of a kind in what is chosen at each place of an axis, each with the place."""
    for at in range(extent):
        found: list[Any] = []

        def visit(node: Any, at: int = at, found: list[Any] = found) -> Any:
            test = _simple(node.args[0], along, at) if is_choice(node) else None
            if isinstance(test, tirx.IntImm):
                return walk(node.args[1 if test.value else 2])
            if isinstance(node, kind):
                found.append(node)
            return node

        def walk(expr: Any, visit: Any = visit) -> Any:
            return tvm_ffi.structural_map(expr, ((ir.Call, ir.TensorLoad), visit), order="pre")

        walk(value)
        yield from ((at, node) for node in found)


def _simple(expr: Any, along: Any, at: int) -> Any:
    """An expression at a place of an axis."""
    return sym.Analyzer().simplify(substituted(expr, {along: tirx.const(at, "int64")}))


def _number(expr: Any, along: Any, at: int) -> int:
    """An expression of an axis alone at a place of it."""
    return int(_simple(expr, along, at))
