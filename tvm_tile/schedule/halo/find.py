"""Find a product, windows over its values, and perhaps a second product, in a fused function.

Before, once everything spatial is inlined, with ``f``, ``g`` and ``h`` element-wise::

    S[n, y, x, c] += X[n, y, x, k] * A[c, k]
    P[n, y, x, c] = f(S[n, y - 1, x - 1, c]) if inside else 0
    W[n, y, x, c] += P[n, y + i, x + j, c] * B[c, i, j]
    Q[n, y, x, c] = g(W[n, y, x, c])
    O[n, y, x, m] += Q[n, y, x, c] * C[m, c];  out = h(O)

Either the windows or the second product may be missing; what comes before the second product, or
before the output, may read several channels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tvm.s_tir import SBlock

from tvm_tile.graph.expression import loads_of
from tvm_tile.graph.extract import extract_operators
from tvm_tile.graph.tile_graph import Access, Operator
from tvm_tile.schedule.halo.step import SpatialStage, read_step
from tvm_tile.schedule.rule import Task
from tvm_tile.schedule.s_tir.normalize import inlined
from tvm_tile.schedule.s_tir.steps import blocks_named
from tvm_tile.schedule.tensor_cores.epilogue import Epilogue, fused_epilogue, plain_epilogue
from tvm_tile.schedule.tensor_cores.found import is_sum_of_products
from tvm_tile.tile.classify import is_contraction
from tvm_tile.tile.products.halo_tile import Halo, Row
from tvm_tile.tile.units.product import Operand, Product, find_product


@dataclass(frozen=True, slots=True)
class WindowSums:
    """Sum over the windows: its weights and its axes.

    Attributes:
        weights: their tensor, a parameter.
        taps: name of the summed axis along each of the places' dimensions; ``None`` without one.
        channel: name of the channels' axis.
        rows: the places' dimensions.
    """

    weights: Access
    taps: tuple[str | None, ...]
    channel: str
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class HaloMatch:
    """A function of one or two products with windows between them, or without.

    Attributes:
        halo: sizes of the computation, for tiles.
        sources: name of the first product's axis of each of the places' dimensions, if any.
        inner: arithmetic on the first product's values.
        window: ``None`` where there is none.
        outer: arithmetic on the windows' sums; ``None`` without windows.
        places: name of the second product's axis of each of the places' dimensions, if any.
        epilogue: arithmetic on the second product's values; ``None`` without one.
        params: parameters of the function, as its callers pass them.
    """

    halo: Halo
    sources: tuple[str | None, ...]
    inner: SpatialStage
    window: WindowSums | None
    outer: SpatialStage | None
    places: tuple[str | None, ...]
    epilogue: Epilogue | None
    params: tuple[Any, ...]


def find_halo(task: Task) -> HaloMatch | None:
    """The parts of a function that is what this file's head says; ``None`` of any other."""
    sums = task.graph.reductions
    if len(sums) not in (2, 3) or not is_contraction(sums[0]):
        return None
    sch, form = inlined(task.func, keep_producers=True)
    if form is None or len(form.outputs) > 1 or len(form.reductions) != len(sums):
        return None
    spatial = blocks_named(sch, (*form.producers, *form.outputs))
    reductions = blocks_named(sch, form.reductions)
    params = tuple(sch.mod["main"].params)
    return _Finder(task, reductions, spatial, bool(form.outputs), params).found()


@dataclass(frozen=True, slots=True)
class _Finder:
    """Finds the parts of a function in its normal form."""

    task: Task
    reductions: Sequence[SBlock]
    spatial: Sequence[SBlock]
    has_output: bool
    params: tuple[Any, ...]

    def found(self) -> HaloMatch | None:
        """The whole match; ``None`` where something is else."""
        operators = extract_operators(self.reductions)
        if not operators or not all(map(is_sum_of_products, self.reductions)):
            return None
        with_second = is_contraction(operators[-1])
        middle = operators[1:-1] if with_second else operators[1:]
        first, inner = find_product(operators[0]), self._step(0)
        if first is None or inner is None or len(middle) + with_second != len(operators) - 1:
            return None
        sources = _sources(operators[0], first, inner)
        if len(middle) > 1 or sources is None or not self._is_plain(first, given=2):
            return None
        if not middle:
            return self._ended(first, sources, inner, None, None, operators[-1])
        window, outer = _window(middle[0], inner), self._step(1)
        if window is None or outer is None or inner.parts != (0,) or any(outer.shifts):
            return None
        if not self._are_given(window.weights):
            return None
        last = operators[-1] if with_second else None
        return self._ended(first, sources, inner, window, outer, last)

    def _step(self, number: int) -> SpatialStage | None:
        """Arithmetic of a block on the sums of reduction ``number``."""
        made = self.reductions[number]
        readers = [block for block in self.spatial if _reads(block, made.body.buffer)]
        return read_step(readers[0], made) if len(readers) == 1 else None

    def _is_plain(self, product: Product, given: int) -> bool:
        """Whether a product has one axis of columns, nothing but the depth to sum, no batch.

        Its right operand, and its left one where ``given`` is 2, must be parameters.
        """
        is_simple = len(product.right.free) == 1 and not product.batch and not product.steps
        return is_simple and self._are_given(*(product.right, product.left)[:given])

    def _are_given(self, *operands: Operand | Access) -> bool:
        """Whether operands are parameters of the function."""
        names = {str(param.name) for param in self.params}
        return all(operand.tensor.name in names for operand in operands)

    def _ended(
        self,
        first: Product,
        sources: tuple[str | None, ...],
        inner: SpatialStage,
        window: WindowSums | None,
        outer: SpatialStage | None,
        last: Operator | None,
    ) -> HaloMatch | None:
        """The match, with the second product if there is a ``last`` operator."""
        end = outer or inner
        second = None if last is None else find_product(last)
        places: tuple[str | None, ...] | None = ()
        epilogue = None
        if last is not None:
            places = None if second is None else _places(second, end)
            epilogue = self._epilogue(last)
            if second is None or places is None or epilogue is None:
                return None
            if not self._is_plain(second, given=1):
                return None
        elif not any(param.same_as(end.buffer) for param in self.params):
            return None
        dtypes = {str(step.buffer.ty.dtype) for step in (inner, outer) if step}
        dtypes |= {window.weights.tensor.dtype} if window else set()
        if dtypes != {first.left.tensor.dtype} or places is None:
            return None
        halo = Halo(
            first=first,
            rows=window.rows if window else tuple(Row(extent) for extent in end.shape[:-1]),
            channels=end.shape[-1],
            parts=end.parts,
            has_window=window is not None,
            second=second,
            inner_operations=inner.operations,
            outer_operations=outer.operations if outer else 0,
            traffic=self.task.graph.traffic,
        )
        return HaloMatch(halo, sources, inner, window, outer, places, epilogue, self.params)

    def _epilogue(self, last: Operator) -> Epilogue | None:
        """Arithmetic on the last product's sums."""
        block = self.reductions[-1]
        if not self.has_output:
            return plain_epilogue(block, last)
        return fused_epilogue(block, last, self.spatial[-1])


def _reads(block: SBlock, buffer: Any) -> bool:
    """Whether a block reads a buffer."""
    return bool(loads_of(block.body.value, buffer))


def _sources(
    operator: Operator, product: Product, inner: SpatialStage
) -> tuple[str | None, ...] | None:
    """The first product's axis of each of the places' dimensions; its columns are the last."""
    long = {axis.name for axis in operator.spatial_axes if axis.extent > 1}
    names: list[str | None] = []
    for index in operator.write.indices:
        own = [name for name, _ in index.terms if name in long]
        if index.offset or len(own) > 1 or any(index.coefficient(name) != 1 for name in own):
            return None
        names.append(own[0] if own else None)
    free = product.right.free
    is_last = len(free) == 1 and names[-1] == free[0].name
    return tuple(names[:-1]) if is_last and len(names) == len(inner.shifts) + 1 else None


def _window(operator: Operator, inner: SpatialStage) -> WindowSums | None:
    """The windows' sums of a depthwise convolution of what ``inner`` makes."""
    made = str(inner.buffer.name)
    values = [read for read in operator.reads if read.tensor.name == made]
    weights = [read for read in operator.reads if read.tensor.name != made]
    if len(values) != 1 or len(weights) != 1 or not all(read.is_exact for read in operator.reads):
        return None
    extents = {axis.name: axis.extent for axis in operator.axes}
    summed = {axis.name for axis in operator.reduce_axes if axis.extent > 1}
    rows, taps, last = [], [], []
    for index, written in zip(values[0].indices, operator.write.indices, strict=True):
        terms = {name: c for name, c in index.terms if extents[name] > 1}
        own = [name for name in terms if name in summed]
        places = [name for name in terms if name not in summed]
        known = [name for name, _ in written.terms if extents[name] > 1]
        if (
            len(own) > 1
            or places not in ([], known)
            or index.offset
            or min(terms.values(), default=1) < 1
        ):
            return None
        row = Row(math.prod(extents[name] for name in known))
        row = replace(row, step=terms[places[0]]) if places else row
        row = replace(row, taps=extents[own[0]], spread=terms[own[0]]) if own else row
        rows.append(row)
        taps.append(own[0] if own else None)
        last = places
    if len(last) != 1 or taps[-1] is not None or rows[-1].step != 1:
        return None
    if {name for name in taps if name} != summed:
        return None
    indices = tuple(
        replace(index, terms=tuple(term for term in index.terms if extents[term[0]] > 1))
        for index in weights[0].indices
    )
    own_weights = replace(weights[0], indices=indices)
    return WindowSums(own_weights, tuple(taps[:-1]), last[0], tuple(rows[:-1]))


def _places(product: Product, made: SpatialStage) -> tuple[str | None, ...] | None:
    """The second product's axis of each of the places' dimensions of what it reads."""
    left = product.left
    if left.tensor.name != str(made.buffer.name):
        return None
    if list(left.tensor.shape) != [extent for extent in made.shape if extent > 1]:
        return None
    if any(len(i.terms) != 1 or i.offset or i.terms[0][1] != 1 for i in left.indices):
        return None
    names = iter([index.terms[0][0] for index in left.indices])
    found = [next(names) if extent > 1 else None for extent in made.shape]
    return tuple(found[:-1]) if found[-1] == product.depth.name else None
