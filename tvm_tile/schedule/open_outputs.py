"""Elements that a function of bounded loops computes in a call with smaller extents.

Its outputs are made for the greatest extents; a call needs the elements within its own. Which
these are stands in an attribute of the function, for kernels that leave the others out.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.s_tir import SBlockRealize

from tvm_tile.build.leaving import Need, leaving_unless
from tvm_tile.graph.expression import substituted, uses, variables_in
from tvm_tile.graph.extract import nodes_in
from tvm_tile.graph.functions import is_tensor
from tvm_tile.schedule.s_tir.guards import is_grid, loop_ranges

_ATTRIBUTE = "tvm_tile.open_outputs"
_RANGES = "tvm_tile.open_ranges"


@dataclass(frozen=True, slots=True)
class Range:
    """A function of open extents for those up to a bound.

    Attributes:
        bound: bound of each open extent that is a parameter, in order.
        func: the function, which takes what it does for all extents.
    """

    bound: tuple[int, ...]
    func: tirx.PrimFunc


@dataclass(frozen=True, slots=True)
class OpenFunction:
    """A function that takes open extents, apart from these.

    Attributes:
        params: parameters of the function, in order.
        ranges: bounds of the same function for smaller open extents, the greatest first.
        func: without those open extents that its body does not ask for, and without the attribute.
        extents: extents of each output in a call, in order: numbers, or expressions of parameters.
    """

    params: tuple[Any, ...]
    func: tirx.PrimFunc
    extents: tuple[tuple[Any, ...], ...]
    ranges: tuple[Range, ...] = ()

    @classmethod
    def of(cls, func: tirx.PrimFunc) -> OpenFunction:
        """The parts of a function; of one that takes no open extents, itself and no extents."""
        params = tuple(func.params)
        attribute = (func.attrs or {}).get(_ATTRIBUTE)
        if attribute is None:
            return cls(params, func, ())
        # Passes that rename a function's variables leave its attributes alone.
        scalars = [p for p in params if not is_tensor(p)]
        own = dict(zip(attribute[0], scalars, strict=True))
        extents = tuple(tuple(substituted(e, own) for e in one) for one in attribute[1:])
        asked = [p for p in params if is_tensor(p) or uses(func.body, [p])]
        plain = tirx.PrimFunc(asked, func.body, func.ret_type, func.attrs)
        plain = plain.without_attr(_ATTRIBUTE).without_attr(_RANGES)
        told = (func.attrs or {}).get(_RANGES, ())
        ranges = tuple(Range(tuple(map(int, bound)), other) for bound, other in told)
        return cls(params, plain, extents, ranges)

    def whole(self, scheduled: tirx.PrimFunc) -> tirx.PrimFunc:
        """A schedule of ``func`` as one of the function that it is a part of.

        Blocks that write nothing that a call needs do nothing, as far as that can be seen.
        """
        if not self.extents:
            return scheduled
        # Kernels that are written instruction by instruction take open extents as they are here.
        kinds = (is_tensor, lambda param: not is_tensor(param))
        own = {
            given: made
            for kind in kinds
            for given, made in zip(
                filter(kind, self.func.params), filter(kind, scheduled.params), strict=False
            )
        }
        outputs = [own[p] for p in self.params if is_tensor(p)][-len(self.extents) :]
        params = [own.get(p, p) for p in self.params]
        renamed = {p: own[p] for p in own if not is_tensor(p)}
        extents = [tuple(substituted(e, renamed) for e in one) for one in self.extents]
        needs = needed_blocks(scheduled.body, dict(zip(outputs, extents, strict=True)))
        whole = tirx.PrimFunc(params, scheduled.body, scheduled.ret_type, scheduled.attrs)
        return leaving_unless(whole, needs)


def with_extents(func: tirx.PrimFunc, extents: Sequence[Sequence[Any]]) -> tirx.PrimFunc:
    """A function that says which elements of its outputs a call needs."""
    scalars = [p for p in func.params if not is_tensor(p)]
    return func.with_attr(_ATTRIBUTE, [scalars, *(list(one) for one in extents)])


def with_ranges(func: tirx.PrimFunc, ranges: Sequence[Range]) -> tirx.PrimFunc:
    """A function that says what it is for lesser bounds; the first is its own bound."""
    return func.with_attr(_RANGES, [[list(one.bound), one.func] for one in ranges])


def needed_blocks(body: Any, extents: dict[Any, tuple[Any, ...]]) -> list[Need]:
    """For each kernel, the condition for a block to write anything within a call's extents.

    Of ``for b in blockIdx.x(64): for t in threadIdx.x(256): y[b * 4 + t // 64, t % 64] = ...`` that
    is ``b * 4 < n``.

    Args:
        body: body of a scheduled function, its loops bound to threads.
        extents: tensors -> their extents in a call.
    """
    needs: list[Need] = []

    def grid(loop: Any) -> Any:
        if not is_grid(loop):
            return None
        blocks: dict[str, Any] = {}
        while is_grid(loop):
            blocks[str(loop.thread_binding.thread_tag)] = loop
            loop = loop.body
        variables = {tag: block.loop_var for tag, block in blocks.items()}
        needs.append(Need(variables, _needed(loop, list(blocks.values()), extents)))
        return tvm_ffi.WalkResult.SKIP

    tvm_ffi.structural_walk(body, (tirx.For, grid), order="pre")
    return needs


def _needed(body: Any, blocks: Sequence[Any], extents: dict[Any, tuple[Any, ...]]) -> Any | None:
    """The condition for a block to write anything within the extents; ``None`` if it always may.

    Args:
        body: body of the grid's loops.
        blocks: the loops over blocks.
        extents: tensors -> their extents in a call.
    """
    loops = nodes_in(body, tirx.For)
    conditions = []
    for tensor, first in _first_elements(body):
        if tensor in extents:
            conditions.append(_within(first, blocks, loops, extents[tensor]))
    if not conditions or any(condition is None for condition in conditions):
        return None
    return functools.reduce(tirx.Or, conditions)


def _first_elements(body: Any) -> list[tuple[Any, list[Any]]]:
    """Tensors that are written, and indices of the first elements, of variables of loops."""
    found: list[tuple[Any, list[Any]]] = []

    def block(one: Any) -> Any:
        values = dict(zip((v.var for v in one.block.iter_vars), one.iter_values, strict=True))
        for region in one.block.writes:
            found.append((region.source, [substituted(r.min, values) for r in region.region]))
        return tvm_ffi.WalkResult.SKIP

    def store(one: Any) -> None:
        found.append((one.buffer, list(one.indices)))

    tvm_ffi.structural_walk(body, [(SBlockRealize, block), (tirx.BufferStore, store)], order="pre")
    return found


def _within(
    indices: Sequence[Any], blocks: Sequence[Any], loops: Sequence[Any], extents: Sequence[Any]
) -> Any | None:
    """Whether the first element that is written is within the extents.

    The first one is where all loops within the grid's are at their start, if no index is ever less
    than there.
    """
    starts = {loop.loop_var: loop.min for loop in loops}
    analyzer = loop_ranges([*blocks, *loops])
    known = {block.loop_var for block in blocks}
    inside = []
    for index, extent in zip(indices, extents, strict=True):
        if isinstance(extent, tirx.IntImm):
            continue
        index = analyzer.simplify(index)
        first = analyzer.simplify(substituted(index, starts))
        grows = _grows(index, list(starts)) or analyzer.can_prove(index >= first)
        if not grows or not known.issuperset(variables_in(first)):
            return None
        if not isinstance(first, tirx.IntImm):
            inside.append(tirx.LT(first.astype("int64"), extent))
    return functools.reduce(tirx.And, inside) if inside else None


def _grows(value: Any, variables: Sequence[Any]) -> bool:
    """Whether a value is seen to become no less where any of some variables becomes greater."""
    if isinstance(value, tirx.Cast):
        return _grows(value.value, variables)
    if isinstance(value, tirx.Add):
        return _grows(value.a, variables) and _grows(value.b, variables)
    if isinstance(value, tirx.Mul | tirx.FloorDiv) and isinstance(value.b, tirx.IntImm):
        return int(value.b) >= 0 and _grows(value.a, variables)
    return isinstance(value, tirx.Var) or not uses(value, variables)
