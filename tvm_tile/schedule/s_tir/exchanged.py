"""Elements of a row that its output makes of others than its own, as rotations of positions do.

Behind a norm, a rotation takes two elements of each row for one (RoFormer, section 3.2.2)::

    for i, j: N[i, j] = norm(A[i, j])
    for i, j: B[i, j] = N[i, j] * cos[j] + (N[i, j - 1] if j % 2 else -N[i, j + 1]) * sin[j]

Threads hold rows in registers, and whether the one that makes ``B[i, j]`` holds ``N[i, j + 1]``,
too, depends on the tile. So these loads become calls that say where in the row the element is::

    for i, j: B[i, j] = N[i, j] * cos[j] + (exchanged(N[i, j], j - 1) if j % 2 else
                                            -exchanged(N[i, j], j + 1)) * sin[j]

which is a function of rows as others are, until it is known where a thread holds what.
"""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import ir, sym, tirx
from tvm.s_tir import SBlock, Schedule

from tvm_tile.compat import start_schedule
from tvm_tile.graph.expression import block_ranges, loads_of, substituted, uses
from tvm_tile.graph.extract import is_choice, nodes_in
from tvm_tile.schedule.s_tir.normalize import NormalForm
from tvm_tile.schedule.s_tir.steps import blocks_named, element, replace_parts
from tvm_tile.tile.rows.held_rows import Pairs

_EXTERN, _NAME = "call_pure_extern", "exchanged"
_LONGEST = 1024  # elements of a row, for each of which is found what it is made of


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
    if not plain or all(_is_same(own, plain[0]) for own in places.values()):
        return block
    *row, along = plain[0]
    others = [v.var for v in block.iter_vars if not v.var.same_as(along)]
    for *own, place in places.values():
        if not _is_same(own, row) or uses(place, others):
            return block

    def load(node: ir.TensorLoad) -> Any:
        if not node.source.same_as(tensor):
            return node
        own = tirx.BufferLoad(tensor, plain[0])
        place = ranges.simplify(node.indices[-1])
        if place.same_as(along):
            return own
        return tirx.call_pure_extern(str(own.ty.dtype), _NAME, own, place)

    value = tvm_ffi.structural_map(block.body.value, [(ir.TensorLoad, load)], order="post")
    reads = [
        element(tensor, plain[0]) if region.source.same_as(tensor) else region
        for region in block.reads
    ]
    store = tirx.BufferStore(block.body.buffer, value, block.body.indices)
    return replace_parts(block, reads=reads, body=store)


def exchanged_place(node: Any) -> Any | None:
    """Where in its row the element is that a call of this kind gives; ``None`` of any other."""
    is_named = isinstance(node, ir.Call) and getattr(node.op, "name", "").endswith(_EXTERN)
    return node.args[2] if is_named and str(node.args[0].value) == _NAME else None


def pairs_of(block: SBlock) -> Pairs | None:
    """What elements of a row are made of what others.

    Returns:
        ``None`` where places are not those of one short axis.
    """
    places = [exchanged_place(node) for node in nodes_in(block.body.value, ir.Call)]
    found = [place for place in places if place is not None]
    variables = {var for place in found for var in nodes_in(place, tirx.Var)}
    if not found:
        return frozenset()
    own = [v for v in block.iter_vars if v.var in variables]
    if len(own) != 1 or int(own[0].dom.extent) > _LONGEST:
        return None
    count, ranges = int(own[0].dom.extent), sym.Analyzer()
    pairs: set[tuple[int, int]] = set()

    def taken(expr: Any, at: int) -> None:
        def number(inner: Any) -> Any:
            return ranges.simplify(substituted(inner, {own[0].var: tirx.const(at, "int64")}))

        def visit(node: Any) -> Any:
            place = exchanged_place(node)
            if place is not None:
                pairs.add((at, int(number(place))))
                return node.args[1]
            condition = number(node.args[0]) if is_choice(node) else None
            if not isinstance(condition, tirx.IntImm):
                return node
            taken(node.args[1 if condition.value else 2], at)
            return tirx.const(0, str(node.ty.dtype))

        tvm_ffi.structural_map(expr, ((ir.Call, visit),), order="pre")

    for at in range(count):
        taken(block.body.value, at)
    return frozenset(pairs)


def _is_same(indices: list[Any], others: list[Any]) -> bool:
    """Whether two places are one."""
    return all(map(tvm_ffi.structural_equal, indices, others))
