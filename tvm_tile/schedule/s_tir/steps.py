"""Steps that several rules take on a ``Schedule``: fuse, bind, copy together."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import tvm_ffi
from tvm import ir, tirx
from tvm.s_tir import SBlock, SBlockRealize, Schedule

from tvm_tile.device.device import STATIC_SHARED_LIMIT, VECTOR_BYTES, Device, MemoryLevel
from tvm_tile.graph.expression import block_ranges
from tvm_tile.graph.extract import loads_in, nodes_in
from tvm_tile.tile.staging import run_dimension, share_copy

SBlockRV = Any
LoopRV = Any

_PARTS = (
    "iter_vars", "reads", "writes", "name_hint", "body", "init",
    "alloc_buffers", "match_buffers", "annotations",
)  # fmt: skip
_LOADS_IN_FLIGHT = 16  # of one thread in a staging copy


def shared_scope(device: Device, footprint: int) -> str:
    """The storage scope for ``footprint`` bytes of a block's shared memory."""
    return "shared" if footprint <= STATIC_SHARED_LIMIT else device.memory(MemoryLevel.SHARED).scope


def is_reduction(sch: Schedule, block: SBlockRV) -> bool:
    """Whether ``block`` sums over some axis."""
    return any(v.iter_type != tirx.IterVar.DataPar for v in sch.get(block).iter_vars)


def is_output(sch: Schedule, block: SBlockRV) -> bool:
    """Whether ``block`` writes a parameter of the function."""
    written = sch.get(block).writes[0].source
    func = sch.mod["main"]
    return any(param.same_as(written) for param in func.params)


def blocks_named(sch: Schedule, names: Iterable[str]) -> list[SBlock]:
    """The blocks of these names, as they stand."""
    return [sch.get(sch.get_sblock(name)) for name in names]


def child_blocks(sch: Schedule) -> list[SBlockRV]:
    """The function's blocks in program order."""
    return list(sch.get_child_blocks(sch.get_sblock("root")))


def extent(sch: Schedule, loop: LoopRV) -> int:
    """A loop's static extent."""
    return int(sch.get(loop).extent)


def loops_by_kind(sch: Schedule, block: SBlockRV) -> tuple[list[LoopRV], list[LoopRV]]:
    """The loops around ``block`` that it does not sum over, and those that it does.

    Its variables have a loop each, the innermost ones; those further out sum nothing.
    """
    loops = list(sch.get_loops(block))
    kinds = [v.iter_type == tirx.IterVar.DataPar for v in sch.get(block).iter_vars]
    kinds = [True] * (len(loops) - len(kinds)) + kinds
    pairs = list(zip(loops, kinds, strict=True))
    return [loop for loop, spatial in pairs if spatial], [loop for loop, own in pairs if not own]


def loop(var: Any, extent: int, kind: Any, body: Any, binding: Any = None) -> tirx.For:
    """A loop from zero on around ``body``, of its variable's type."""
    zero, count = (tirx.const(value, str(var.ty.dtype)) for value in (0, extent))
    return tirx.For(var, zero, count, kind, body, binding)


def launched(body: Any, blocks: tuple[Any, int], threads: tuple[Any, int]) -> tirx.For:
    """``body`` in loops over blocks and over threads, each given as a variable and its extent."""
    for (var, extent), tag in ((threads, "threadIdx.x"), (blocks, "blockIdx.x")):
        axis = tirx.IterVar(None, tirx.Var(tag, "int32"), tirx.IterVar.ThreadIndex, tag)
        body = loop(var, extent, tirx.ForKind.THREAD_BINDING, body, axis)
    return body


def replace_parts(block: SBlock, **parts: Any) -> SBlock:
    """``block`` with other parts, named as those of an ``SBlock``; what is not given stays."""
    return SBlock(**({name: getattr(block, name) for name in _PARTS} | parts))


def replace_value(block: SBlock, value: Any, **parts: Any) -> SBlock:
    """A block that stores another value at the same place, with other parts besides."""
    store = tirx.BufferStore(block.body.buffer, value, block.body.indices)
    return replace_parts(block, body=store, **parts)


def without_blocks(func: tirx.PrimFunc, blocks: Sequence[SBlock], made: Any) -> tirx.PrimFunc:
    """A function that takes what blocks make, one of their buffers, as its first parameter."""
    written = [block.body.buffer for block in blocks]

    def root(own: Any) -> Any:
        kept = [b for b in own.alloc_buffers if not any(b.same_as(gone) for gone in written)]
        if len(kept) == len(own.alloc_buffers):
            return own
        parts = list(own.body) if isinstance(own.body, tirx.SeqStmt) else [own.body]
        rest = [part for part in parts if not any(_is_nest_of(part, block) for block in blocks)]
        body = rest[0] if len(rest) == 1 else tirx.SeqStmt(rest)
        return replace_parts(own, alloc_buffers=kept, body=body)

    body = tvm_ffi.structural_map(func.body, [(SBlock, root)], order="post")
    return tirx.PrimFunc([made, *func.params], body, func.ret_type, func.attrs)


def _is_nest_of(statement: Any, block: Any) -> bool:
    """Whether a statement is the loops around a block, and nothing else."""
    while isinstance(statement, tirx.For):
        statement = statement.body
    return bool(getattr(statement, "block", None) is not None and statement.block.same_as(block))


def begun(realize: SBlockRealize) -> SBlockRealize:
    """Number that a reduction's sums start from, which it stores before it adds anything."""
    block = realize.block
    pairs = zip(block.iter_vars, realize.iter_values, strict=True)
    kept = [(v, value) for v, value in pairs if v.iter_type == tirx.IterVar.DataPar]
    start = SBlock([v for v, _ in kept], [], block.writes, block.name_hint, block.init)
    return SBlockRealize([value for _, value in kept], realize.predicate, start)


def element(buffer: Any, indices: Iterable[Any]) -> tirx.BufferRegion:
    """The region of one element, which a block says that it reads or writes."""
    return tirx.BufferRegion(buffer, [ir.Range.from_min_extent(index, 1) for index in indices])


def reads_of(value: Any) -> list[Any]:
    """The regions that an expression reads, each an element."""
    places = {load.source: load.indices for load in loads_in(value)}
    return [element(source, indices) for source, indices in places.items()]


def permuted(order: Sequence[int], *index: Any) -> list[Any]:
    """An index of dimensions in another ``order``; for ``transform_layout``."""
    return [index[dimension] for dimension in order]


def fuse(sch: Schedule, loops: list[LoopRV]) -> LoopRV:
    """The loops as one; a single loop as it is."""
    return loops[0] if len(loops) == 1 else sch.fuse(*loops)


def flat_loop(sch: Schedule, block: SBlockRV) -> LoopRV:
    """All loops of ``block`` as one, which is made where there is none."""
    loops = sch.get_loops(block)
    if not loops:
        sch.add_unit_loop(block)
        loops = sch.get_loops(block)
    return fuse(sch, list(loops))


def bind_loop(sch: Schedule, flat: LoopRV, threads: int, vector: int = 0) -> None:
    """Spread a loop over the grid: ``flat -> blockIdx, threadIdx, vector``, if there is any."""
    outer, thread, *inner = sch.split(flat, [None, threads, *([vector] if vector else [])])
    sch.bind(outer, "blockIdx.x")
    sch.bind(thread, "threadIdx.x")
    if vector > 1:
        sch.vectorize(*inner)


def bind_elements(sch: Schedule, block: SBlockRV, threads: int, vector: int) -> None:
    """Spread all loops of ``block`` over the grid, neighbours in vectors.

    Where rows have whole vectors, these are loops of their own: what differs from row to row is
    then seen to be the same for all of a vector.
    """
    loops = list(sch.get_loops(block))
    if vector == 1 or not loops or extent(sch, loops[-1]) % vector:
        bind_loop(sch, flat_loop(sch, block), threads, vector)
        return
    *rows, last = loops
    outer, inner = sch.split(last, [None, vector])
    bind_loop(sch, fuse(sch, [*rows, outer]), threads)
    sch.vectorize(inner)


def keep_sum(sch: Schedule, main: SBlockRV, outputs: tuple[str, ...]) -> SBlockRV:
    """Keep a reduction's sum in registers; returns the block that takes it to global memory.

    That is the epilogue, the only one of ``outputs``, or else a plain copy. A sum over threads must
    not store by itself: TVM loses the guard of such a store.
    """
    if outputs:
        sch.set_scope(main, 0, "local")
        return sch.get_sblock(outputs[0])
    return sch.cache_write(main, 0, "local")


def copy_together(
    sch: Schedule,
    block: SBlockRV,
    region: tuple[int, ...],
    shape: tuple[int, ...],
    threads: int,
    vector: int,
    *,
    is_unrolled: bool = True,
) -> None:
    """The threads share a staging copy: its inner loops -> serial, threadIdx, vector.

    ``region`` is the tile's extent in each dimension of a tensor of extents ``shape``, one inner
    loop each. Threads run along the innermost dimensions, as ``tile/staging.py`` decides, and the
    serial loop is unrolled: a thread finds its place once, each round is a constant further, and
    many loads are in flight, where one at a time would cost the latency of memory each. Not
    unrolled, it is left to the CUDA compiler: TVM takes only plain loops to registers ahead.
    """
    loops = list(sch.get_loops(block))[-len(region) :]
    extents = list(region)
    if vector > 1:
        # Vectors lie within the contiguous run of the innermost dimensions, so cut these first.
        first = run_dimension(region, shape)
        pieces, inner = sch.split(fuse(sch, loops[first:]), [None, vector])
        loops[first:] = [pieces]
        extents[first:] = [math.prod(region[first:]) // vector]
        sch.vectorize(inner)
    dimension, part = share_copy(tuple(extents), threads)
    busy = part * math.prod(extents[dimension + 1 :])
    if vector > 1 and busy < threads:
        # TVM recognizes a vector's neighbouring addresses only where all threads take part.
        serial, thread = sch.split(fuse(sch, loops), [None, threads])
    else:
        rounds, own = sch.split(loops[dimension], [None, part])
        thread = fuse(sch, [own, *loops[dimension + 1 :]])
        serial = fuse(sch, [*loops[:dimension], rounds])
        if busy < threads:
            _, thread = sch.split(thread, [None, threads])
    sch.bind(thread, "threadIdx.x")
    if is_unrolled:
        unroll_part(sch, serial, _LOADS_IN_FLIGHT)


def unroll_part(sch: Schedule, loop: LoopRV, most: int) -> None:
    """Unroll ``loop``, or a part of it of at most ``most`` iterations, a divisor if one is near."""
    count = extent(sch, loop)
    part = max(n for n in range(1, most + 1) if count % n == 0)
    if count > most and part < most // 4:
        part = most // 2
    if part >= count:
        sch.unroll(loop)
    elif part > 1:
        _, inner = sch.split(loop, [None, part])
        sch.unroll(inner)


def vector_width(region: tuple[int, ...], shape: tuple[int, ...], element_size: int) -> int:
    """Elements a thread can move at once from the contiguous runs of a tile.

    ``region`` is the tile's extent in each dimension of a tensor of extents ``shape``.
    """
    first = run_dimension(region, shape)
    run, stride = math.prod(region[first:]), math.prod(shape[first:])
    widest = max(1, VECTOR_BYTES // element_size)
    if region[-1] % widest:
        # A vector across rows has an address for each element; CUDA has no type for eight of them.
        widest = min(widest, 4)
    return math.gcd(widest, run, stride)


def with_simple_places(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """A function that reads the same elements, told as simply as the ranges of axes allow.

    Loops that are written by hand stay as they are.
    """
    return tvm_ffi.structural_map(func, (SBlock, _with_simple_places), order="post")


def _with_simple_places(block: SBlock) -> SBlock:
    """A block that reads the same elements."""
    if not isinstance(block.body, tirx.BufferStore) or not _divides(block.body):
        return block
    ranges = block_ranges(block)

    def simple(index: Any) -> Any:
        # Others stay the variables that they are: a sum is recognised by reading where it writes.
        return ranges.simplify(index) if _divides(index) else index

    def load(node: ir.TensorLoad) -> Any:
        return tirx.BufferLoad(node.source, list(map(simple, node.indices)))

    def region(node: tirx.BufferRegion) -> tirx.BufferRegion:
        found = [(simple(axis.min), axis.extent) for axis in node.region]
        return tirx.BufferRegion(node.source, [ir.Range.from_min_extent(*own) for own in found])

    value = tvm_ffi.structural_map(block.body.value, (ir.TensorLoad, load), order="post")
    return replace_value(block, value, reads=[region(read) for read in block.reads])


def _divides(value: Any) -> bool:
    """Whether there is a division in an expression or a statement."""
    return bool(nodes_in(value, tirx.FloorDiv, tirx.FloorMod))
