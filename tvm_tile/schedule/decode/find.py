"""Find attention of few queries in a fused function, its keys and values read where they lie.

Once everything spatial is inlined, with ``g`` element-wise and ``q`` whatever makes the queries, a
norm and a rotation by their positions, say, it is::

    S[b, h, i, k] += q(b, h, i, d) * K[b, h // 4, k, d]
    m[b, h, i] = max(m[b, h, i], g(S[b, h, i, k]));  l[b, h, i] += exp(g(S) - m[b, h, i])
    O[b, h, i, n] += exp(g(S) - m) / l * V[b, h // 4, k, n]

Before that, rows of the keys and the values may be written in place (``appended.py``).

No repeated keys are ever written, then: four heads ``h`` and all positions ``i`` are the rows of a
group, which reads its keys once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tvm import ir, tirx
from tvm.s_tir import SBlock

from tvm_tile.graph.expression import Expression, is_load_of, substituted, summand, variables_in
from tvm_tile.graph.extract import Names, affine_index, extract
from tvm_tile.graph.tile_graph import AffineIndex, Axis, Operator, element_size
from tvm_tile.schedule.attention.find import FEED_FORWARD, ProductsForm, read_products
from tvm_tile.schedule.attention.weights import Weights, without_casts
from tvm_tile.schedule.decode.appended import Appended, read_appended, split
from tvm_tile.schedule.made_rows import MadeRow, made_row
from tvm_tile.schedule.rule import Task
from tvm_tile.schedule.tensor_cores.epilogue import Epilogue
from tvm_tile.tile.attention.decode import vector_of
from tvm_tile.tile.attention.decode_tile import Cached, Decode

_NARROW = 2  # bytes
_FARTHEST = 1 << 31  # elements that an address reaches


@dataclass(frozen=True, slots=True)
class SplitAxis:
    """An axis of the output, cut: rows of a group, and groups.

    Attributes:
        axis: axis of the first product.
        rows: neighbouring values that read the same keys and values.
    """

    axis: Axis
    rows: int

    @property
    def groups(self) -> int:
        """Sets of rows."""
        return self.axis.extent // self.rows

    @property
    def outer(self) -> str:
        """Name of the axis of groups."""
        return f"{self.axis.name}.group"


@dataclass(frozen=True, slots=True)
class Cache:
    """Place of the keys, or the values, of a group in memory.

    Attributes:
        name: name of the parameter.
        offset: elements from its start, of the axes of groups, of the keys and of the columns.
        shared: the axes of the output, cut as far as the same rows are read.
        rows: rows of neighbouring elements.
        index: index of an element, of the axes of the output, the keys and the columns.
        appended: rows that the kernel itself writes to it.
    """

    name: str
    offset: AffineIndex
    shared: tuple[SplitAxis, ...]
    rows: Cached
    index: tuple[Expression, ...]
    appended: Appended | None = None


@dataclass(frozen=True, slots=True)
class DecodeMatch:
    """A function that computes attention of few queries.

    Attributes:
        decode: its sizes.
        shared: the axes of its rows and groups, the slowest first.
        key: the axis of keys.
        depth: the axis that the first product sums.
        column: the output's other axis.
        query: a row of the queries.
        keys: place of the keys.
        values: place of the values.
        weights: the weight of a score, as an expression.
        epilogue: the output's element, as an expression of a sum of the second product.
        params: parameters of the function, as its callers pass them.
    """

    decode: Decode
    shared: tuple[SplitAxis, ...]
    key: Axis
    depth: Axis
    column: Axis
    query: MadeRow
    keys: Cache
    values: Cache
    weights: Weights
    epilogue: Epilogue
    params: Sequence[Any]


def find_decode(task: Task) -> DecodeMatch | None:
    """The attention that a function computes; ``None`` if it computes anything else, or keys lie
    otherwise than one row behind the other."""
    first, func = split(task.func)
    appended = read_appended(first)
    graph = task.graph if first is None else extract(func)
    if appended is None or graph is None or len(graph.reductions) == FEED_FORWARD:
        return None
    form = read_products(func, len(graph.reductions), with_sums=True)
    axes = None if form is None else _axes(form.first, form.second)
    if form is None or axes is None:
        return None
    key, depth, column, others = axes
    pair = _factors_of_first(form.scores, form.first, key)
    if pair is None or not form.is_along(key):
        return None
    element, keys = pair
    query = made_row(element, form.sums, depth.name)
    if query is None:
        return None
    values = Expression.of(form.last, form.second, form.values)
    found = [_cache(source, others, key, own) for source, own in ((keys, depth), (values, column))]
    known = [cache for cache in found if cache is not None]
    if len(known) < len(found):
        return None
    pairs = zip(others, known[0].shared, known[1].shared, strict=True)
    shared = tuple(SplitAxis(axis, math.gcd(k.rows, v.rows)) for axis, k, v in pairs)
    decode = Decode(
        math.prod(own.groups for own in shared),
        math.prod(own.rows for own in shared),
        key.extent,
        known[0].rows,
        known[1].rows,
        task.graph.traffic,
        len(query.sums),
        is_narrow=_is_narrow(element, form, known),
    )
    ends = form.weights, form.epilogue, form.params
    match = DecodeMatch(decode, shared, key, depth, column, query, known[0], known[1], *ends)
    return _appending(match, appended) if appended else match


def _is_narrow(query: Expression, form: ProductsForm, caches: Sequence[Cache]) -> bool:
    """Whether keys, values, queries and weights are of one type of 16 bits.

    They may be widened for the products. Weights that a model keeps wider are not to be rounded.
    """
    product = summand(form.last)
    values = form.values.source
    sides = (product.a, product.b) if isinstance(product, tirx.Mul) else ()
    made = [query.value, *(s for s in sides if not is_load_of(without_casts(s), values))]
    bare = [value.value if isinstance(value, tirx.Cast) else value for value in made]
    dtypes = {str(value.ty.dtype) for value in bare} | {own.rows.dtype for own in caches}
    return len(dtypes) == 1 and element_size(dtypes.pop()) == _NARROW


def _appending(match: DecodeMatch, appended: Mapping[str, Appended]) -> DecodeMatch | None:
    """Attention that appends rows to its keys and its values first; ``None`` unless each group has
    them for itself, all of them, and nothing else is made of them."""
    caches = [
        replace(cache, appended=appended.get(cache.name)) for cache in (match.keys, match.values)
    ]
    known = [cache.appended for cache in caches if cache.appended]
    tensors = [own.tensors for own in (match.query, match.weights, match.epilogue)]
    tensors += [own.tensors for own in known]
    if (
        appended.keys() != {cache.name for cache in caches}
        or len(appended) != len(caches)
        or len({own.count for own in known}) > 1
        or not all(appended.keys().isdisjoint(own) for own in tensors)
    ):
        return None
    for cache, axis in zip(caches, (match.depth, match.column), strict=True):
        if not _is_whole(match, cache, axis):
            return None
    sums = max(match.decode.sums, *(len(own.row.sums) for own in known))
    decode = replace(match.decode, sums=sums, appended=known[0].count)
    return replace(match, keys=caches[0], values=caches[1], decode=decode)


def _is_whole(match: DecodeMatch, cache: Cache, column: Axis) -> bool:
    """Whether groups have rows of their own, and together all of a tensor that rows are written
    to along its dimension of keys."""
    extents = {own.outer: own.groups for own in cache.shared}
    extents |= {match.key.name: match.key.extent, column.name: column.extent}
    terms = sorted((c, extents[name]) for name, c in cache.offset.terms if extents[name] > 1)
    size = 1
    for stride, extent in terms:
        if stride != size:
            return False
        size *= extent
    appended = cache.appended
    groups = match.decode.groups * match.key.extent * column.extent
    if appended is None or cache.offset.offset or not size == groups == math.prod(appended.extents):
        return False
    along = [n for n, own in enumerate(cache.index) if match.key.name in own.names]
    return along == [appended.along] and appended.extents[appended.along] == match.key.extent


def _axes(first: Operator, second: Operator) -> tuple[Axis, Axis, Axis, tuple[Axis, ...]] | None:
    """Keys, the depth, the columns, and what is left of the axes of the output; of more than one
    element each."""
    summed = [[a for a in op.reduce_axes if a.extent > 1] for op in (first, second)]
    if [len(own) for own in summed] != [1, 1]:
        return None
    ((depth,), (key,)) = summed
    spatial = {axis.name: axis for axis in first.spatial_axes if axis.extent > 1}
    others = tuple(axis for name, axis in spatial.items() if name != key.name)
    known = {axis.name for axis in others}
    own = [axis for axis in second.spatial_axes if axis.extent > 1 and axis.name not in known]
    kept = [axis for axis in second.spatial_axes if axis.name in known]
    if key.name not in spatial or len(own) != 1 or len(kept) != len(others):
        return None
    return spatial[key.name], depth, own[0], others


def _factors_of_first(
    block: SBlock, operator: Operator, key: Axis
) -> tuple[Expression, Expression] | None:
    """The queries, of whatever they are made, and the load of the keys."""
    product = summand(block)
    if not isinstance(product, tirx.Mul) or str(product.ty.dtype) == "float64":
        return None
    sides = [Expression.of(block, operator, side) for side in (product.a, product.b)]
    depends = [key.name in side.names for side in sides]
    if depends.count(True) != 1:
        return None
    keys, query = sides if depends[0] else sides[::-1]
    load = without_casts(keys.value)
    if not isinstance(load, ir.TensorLoad):
        return None
    return query, replace(keys, value=load)


def _shared(axis: Axis, axes: Sequence[Axis], cache: Expression) -> SplitAxis:
    """An axis, cut into the most neighbouring values that read the same keys, or values."""
    for rows in range(axis.extent, 1, -1):
        if axis.extent % rows == 0:
            cut = [SplitAxis(own, rows if own is axis else own.extent) for own in axes]
            indices, known = _indices(cache, cut)
            used = variables_in([known.ranges.simplify(index) for index in indices])
            if not any(known.axes.get(var) == axis.name for var in used):
                return SplitAxis(axis, rows)
    return SplitAxis(axis, 1)


def _indices(cache: Expression, cut: Sequence[SplitAxis]) -> tuple[list[Any], Names]:
    """A load's indices, of all axes of more than one element, cut into rows and groups.

    Rows are named as the axis, groups as its axis of groups.
    """
    names: dict[Any, str] = {}
    domains: list[tuple[Any, Any]] = []

    def declared(name: str, extent: int, dtype: str) -> Any:
        if extent == 1:
            return tirx.const(0, dtype)
        var = tirx.Var(name, dtype)
        names[var] = name
        domains.append((var, ir.Range.from_min_extent(0, tirx.const(extent, dtype))))
        return var

    by_name = {own.axis.name: own for own in cut}
    values: dict[Any, Any] = {}
    for var, name in cache.variables.items():
        dtype, own = str(var.ty.dtype), by_name.get(name)
        values[var] = tirx.const(0, dtype)
        if own is not None:
            group = declared(own.outer, own.groups, dtype)
            values[var] = group * own.rows + declared(name, own.rows, dtype)
    indices = [substituted(index, values) for index in cache.value.indices]
    return indices, Names(names, tuple(domains))


def _offset(cache: Expression, cut: Sequence[SplitAxis]) -> AffineIndex | None:
    """Elements from a tensor's start; ``None`` where that is no affine form."""
    whole, stride = AffineIndex((), 0), 1
    indices, known = _indices(cache, cut)
    for index, extent in reversed(list(zip(indices, cache.value.source.ty.shape, strict=True))):
        found = affine_index(index, known)
        if not found.is_exact:
            return None
        terms = dict(whole.terms)
        for name, coefficient in found.terms:
            terms[name] = terms.get(name, 0) + coefficient * stride
        whole = AffineIndex(tuple(terms.items()), whole.offset + found.offset * stride)
        stride *= int(extent)
    return whole if stride < _FARTHEST else None


def _cache(source: Expression, others: Sequence[Axis], key: Axis, column: Axis) -> Cache | None:
    """Place of rows of keys or values in memory; ``None`` unless their columns are neighbours."""
    axes = (*others, key, column)
    shared = tuple(_shared(axis, axes, source) for axis in others)
    offset = _offset(source, (*shared, *(SplitAxis(axis, axis.extent) for axis in (key, column))))
    if offset is None or offset.coefficient(column.name) != 1:
        return None
    terms = [(name, c) for name, c in offset.terms if name != column.name]
    if any(c <= 0 for _, c in terms) or not offset.coefficient(key.name):
        return None
    buffer = source.value.source
    dtype = str(buffer.ty.dtype)
    size = math.prod(int(extent) for extent in buffer.ty.shape)
    distances = [*(c for _, c in terms), offset.offset, column.extent, size]
    vector = vector_of(dtype, iter(distances))
    index = tuple(replace(source, value=own) for own in source.value.indices)
    return Cache(str(buffer.name), offset, shared, Cached(column.extent, dtype, vector), index)
