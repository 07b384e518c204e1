"""Find a product, perhaps a softmax along its rows, and a product with what it makes.

Once everything spatial of a fused function is inlined, with ``g`` element-wise, it is attention::

    S[i, k] += Q[i, d] * K[k, d]
    m[i] = max(m[i], g(S[i, k]));  l[i] += exp(g(S[i, k]) - m[i])
    O[i, n] += exp(g(S[i, k]) - m[i]) / l[i] * V[k, n]

or, without a softmax, a feed-forward, whose hidden values are called keys here, too::

    S[i, k] += Q[i, d] * K[k, d]
    O[i, n] += g(S[i, k]) * V[k, n]

Heads that share keys are read as two axes, of their groups and of a group's.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tvm import ir, sym, tirx
from tvm.s_tir import SBlock, Schedule

from tvm_tile.compat import start_schedule
from tvm_tile.graph.expression import (
    Expression,
    loads_of,
    number_in,
    substituted,
    summand,
    with_simple_indices,
)
from tvm_tile.graph.extract import extract_operators
from tvm_tile.graph.functions import is_tensor
from tvm_tile.graph.tile_graph import Axis, Operator, stored_bytes
from tvm_tile.schedule.attention.limit import without_limit
from tvm_tile.schedule.attention.mask import Reach, find_mask
from tvm_tile.schedule.attention.weights import HALVES, Weights, read_weights, without_casts
from tvm_tile.schedule.rule import Task
from tvm_tile.schedule.s_tir.normalize import NormalForm, inlined, store_by_sums
from tvm_tile.schedule.s_tir.steps import blocks_named, replace_value, with_simple_places
from tvm_tile.schedule.tensor_cores.epilogue import Epilogue
from tvm_tile.schedule.tensor_cores.found import epilogue_of, is_sum_of_products, limits_at_call
from tvm_tile.schedule.tensor_cores.groups import axis_of, division_in, split_axis
from tvm_tile.schedule.tensor_cores.limits import Limits, bound_limits, in_register, limited
from tvm_tile.schedule.tensor_cores.place import Place
from tvm_tile.schedule.tensor_cores.work import made_operations
from tvm_tile.tile.attention.chain import Chain, connect, is_along_rows, is_narrow, with_axes_of

# Reductions: two products; a softmax's maximum and sum; whether a row has anything at all.
FEED_FORWARD, _SOFTMAX, _SAFE_SOFTMAX = 2, 4, 5
_LARGEST_FACTOR = 2.0**15  # of operands, such that scores of half precision stay finite


@dataclass(frozen=True, slots=True)
class ProductsForm:
    """The parts of such a function.

    Attributes:
        sums: the blocks of sums that make the first product's left operand, such as a norm's.
        scores: the block of the first product.
        first: the first product.
        values: right operand of the second product, a load.
        last: the block of the second product.
        second: the second product; its axes are named as the first one's.
        between: blocks between the products, and the second one, named likewise.
        weights: the weight of a score, as an expression.
        epilogue: the output's element, as an expression of a sum of the second product.
        params: parameters of the function, as its callers pass them.
    """

    sums: tuple[SBlock, ...]
    scores: SBlock
    first: Operator
    values: Any
    last: SBlock
    second: Operator
    between: tuple[Operator, ...]
    weights: Weights
    epilogue: Epilogue
    params: Sequence[Any]

    def is_along(self, keys: Axis) -> bool:
        """Whether all that lies between is of a row's keys, and used in that row."""
        return is_along_rows(keys, self.between)


def read_products(
    func: tirx.PrimFunc, reductions: int, *, with_sums: bool = False, of_loads: bool = False
) -> ProductsForm | None:
    """The parts of a function with ``reductions`` reductions; ``None`` if these are others.

    Before a softmax there may be sums that make the first product's operands, if ``with_sums``. So
    that operands are loads ``of_loads``, heads that share keys are an axis of their own, and what
    queries and keys are scaled by scales scores.
    """
    counts = (FEED_FORWARD, _SOFTMAX, _SAFE_SOFTMAX)
    if reductions not in counts and not (with_sums and reductions > _SOFTMAX):
        return None
    sch, form = inlined(func, keep_producers=False)
    if form is None or form.producers or len(form.outputs) > 1:
        return None
    store_by_sums(sch, form)
    sch = _with_split_heads(sch, form) if of_loads else sch
    blocks = blocks_named(sch, form.reductions)
    sums = tuple(itertools.takewhile(lambda own: summand(own) is not None, blocks))[:-1]
    if not with_sums or len(sums) == len(blocks) - 1:
        sums = ()
    blocks = blocks[len(sums) :]
    if len(blocks) not in counts:
        return None
    made, factor = blocks[0].body.buffer, 1.0
    if of_loads:
        blocks[0], factor = _without_factors(blocks[0])
    operators, factors = extract_operators(blocks), _factors(blocks[-1], made)
    if not operators or factors is None:
        return None
    weight, values = factors
    weight = with_simple_indices(weight, _short_sums(blocks[-1]))
    first, *others = operators
    names = {str(made.name), str(values.source.name)}
    reads = tuple(read for read in others[-1].reads if read.tensor.name in names)
    last = dataclasses.replace(others[-1], reads=reads)
    named = [with_axes_of(first, operator) for operator in (*others, last)]
    if any(operator is None for operator in named):
        return None
    *between, second = (operator for operator in named if operator is not None)
    axes = Expression.of(blocks[-1], second, weight).axes
    weights = read_weights(blocks[1:-1], weight, made, axes)
    epilogue = epilogue_of(sch, form, blocks[-1], second)
    if weights is None or epilogue is None:
        return None
    weights = weights.scaled(factor)
    ends = sums, blocks[0], first, values, blocks[-1], second
    return ProductsForm(*ends, tuple(between), weights, epilogue, list(sch.mod["main"].params))


def _with_split_heads(sch: Schedule, form: NormalForm) -> Schedule:
    """The function with an axis for the groups of heads that share keys, and one for a group's.

    before: ``S[h, i, k] += Q[h, i, d] * K[h // 4, k, d]``
    after:  ``S[4 * g + h, i, k] += Q[4 * g + h, i, d] * K[g, k, d]``, with ``h`` below 4
    """
    blocks = blocks_named(sch, form.reductions)
    scores = [loads_of(block.body, blocks[0].body.buffer)[0].indices for block in blocks]
    axes = [[axis_of(block, own) for own in at] for block, at in zip(blocks, scores, strict=True)]
    cuts = {
        (own.index(found[0]), found[1])
        for block, own in zip(blocks, axes, strict=True)
        if (found := division_in(block)) is not None and found[0] in own
    }
    if len(cuts) != 1:
        return sch
    ((dimension, size),) = cuts
    for name, own in zip(form.reductions, axes, strict=True):
        place = own[dimension]
        if place is not None:
            split_axis(sch, sch.get_sblock(name), place, size)
    return start_schedule(with_simple_places(sch.mod["main"]))


def _without_factors(block: SBlock) -> tuple[SBlock, float]:
    """A product of half precision without the numbers that scale its operands, and their product.

    before: ``S[i, k] += float32(Q[i, d] * 0.125) * float32(K[k, d])``
    after:  ``S[i, k] += float32(Q[i, d]) * float32(K[k, d])``, times 0.125

    Nothing is rounded any more when it is scaled.
    """
    product, factor, sides = summand(block), 1.0, []
    if not isinstance(product, tirx.Mul) or str(product.ty.dtype) != "float32":
        return block, 1.0
    for side in (product.a, product.b):
        load = without_casts(side)
        while isinstance(load, tirx.Mul) and (number := number_in(load.b)) is not None:
            load, factor = without_casts(load.a), factor * number
        if not isinstance(load, ir.TensorLoad) or str(load.ty.dtype) not in HALVES:
            return block, 1.0
        sides.append(tirx.Cast("float32", load))
    if factor == 1 or abs(factor) > _LARGEST_FACTOR:
        return block, 1.0
    own = tirx.BufferLoad(block.body.buffer, list(block.body.indices))
    return replace_value(block, own + sides[0] * sides[1]), factor


def _short_sums(block: SBlock) -> sym.Analyzer:
    """An analyzer that knows the axes that a product sums one value of: a window of 1 x 1."""
    ranges = sym.Analyzer()
    for v in block.iter_vars:
        if v.iter_type == tirx.IterVar.CommReduce and int(v.dom.extent) == 1:
            ranges.bind(v.var, v.dom)
    return ranges


def _factors(block: SBlock, scores: Any) -> tuple[Any, Any] | None:
    """The two factors of a sum of products: the one made of scores, and the load of the other."""
    product = summand(block)
    if not isinstance(product, tirx.Mul):
        return None
    sides = [product.a, product.b]
    made = [bool(loads_of(side, scores)) for side in sides]
    if made.count(True) != 1:
        return None
    weight, values = sides if made[0] else sides[::-1]
    values = without_casts(values)
    return (weight, values) if isinstance(values, ir.TensorLoad) else None


@dataclass(frozen=True, slots=True)
class AttentionMatch:
    """A function that computes a chain of two products, perhaps with a softmax in between.

    Attributes:
        chain: the products; their operands are parameters.
        weights: the weight of a score, as an expression.
        epilogue: the output's element, as an expression of a sum of the second product.
        params: parameters of the function, as its callers pass them.
        keys: number of keys that a call has, int32; ``None``: all.
        limits: how far other axes go in a call.
        reach: the keys that numbers in memory let each row see; ``None``: all in the band.
        seen: whether a row sees a key, where a table lists tiles of keys; ``None`` without one.
        table: name of the table's parameter; empty without one.
    """

    chain: Chain
    weights: Weights
    epilogue: Epilogue
    params: Sequence[Any]
    keys: Any = None
    limits: Limits = field(default_factory=dict)
    reach: Reach | None = None
    seen: Expression | None = None
    table: str = ""

    def in_registers(self) -> AttentionMatch:
        """The match with what a call has of axes put into registers of the kernel being written."""
        keys = None if self.keys is None else in_register(self.keys)
        return dataclasses.replace(self, keys=keys, limits=bound_limits(self.limits))

    def sees(self, place: Place, buffers: Mapping[str, Any]) -> tuple[Any, Any]:
        """The first and the last key that numbers in memory let the row at a place see."""
        assert self.reach is not None
        ends = zip(
            (self.reach.first, self.reach.last), (0, self.chain.keys.extent - 1), strict=True
        )
        first, last = (
            tirx.const(end, "int32") if own is None else own.at(place, [], buffers)
            for own, end in ends
        )
        return first, last

    def needs(self, place: Place) -> list[Any]:
        """Condition under which a call needs rows: those from a place on, of that batch."""
        own = self.limits.items()
        return [place[name] < limit for name, limit in own if name in place]

    @property
    def key_count(self) -> Any:
        """How many keys a call has."""
        return limited(self.chain.keys.extent, self.keys)


def find_chain(task: Task) -> AttentionMatch | None:
    """The chain that a function computes; ``None`` if it computes anything else."""
    sums = task.graph.reductions
    if len(sums) == FEED_FORWARD and not is_narrow(sums[0]):
        return None  # most feed-forwards are wider, and to read them takes time
    plain = without_limit(task.func)
    if plain is None:
        return None
    form = read_products(plain.func, len(sums), of_loads=True)
    found = None if form is None else _chain(form)
    if form is None or found is None:
        return None
    chain, weights, reach = found
    limits = limits_at_call(task, form.epilogue, chain.second)
    ends = weights, form.epilogue, form.params
    match = AttentionMatch(chain, *ends, limits=limits, reach=reach)
    if plain.limit is None:
        return match
    # All that sums over keys, which is all but the first product.
    if plain.count != len(sums) - 1 or not _ends_with_keys(match.chain):
        return None
    return dataclasses.replace(match, keys=_of_params(plain.limit, plain.func, task.func))


def _of_params(limit: Any, plain: tirx.PrimFunc, func: tirx.PrimFunc) -> Any:
    """An expression of a function's parameters as one of another's that are as many, int32."""
    pairs = dict(zip(plain.params, func.params, strict=True))
    return tirx.Cast("int32", substituted(limit, pairs))


def _ends_with_keys(chain: Chain) -> bool:
    """Whether the values' tensor has a dimension that is the keys, so that it ends with them."""
    name = chain.keys.name
    own = [index for index in chain.second.right.indices if index.coefficient(name)]
    return len(own) == 1 and own[0].terms == ((name, 1),) and not own[0].offset


def _chain(form: ProductsForm) -> tuple[Chain, Weights, Reach | None] | None:
    """The products, what becomes of a score that the mask lets be seen, and how far it does."""
    chain, weights = connect(form.first, form.second), form.weights
    if chain is None or not is_sum_of_products(form.scores) or not form.is_along(chain.keys):
        return None
    if weights.lowest is None and chain.first.left.free[0].name in weights.element.names_read:
        return None  # threads would load a tensor a number at a time, amid the walk
    reach = None
    if weights.lowest is not None:
        mask = find_mask(chain, weights)
        chain = dataclasses.replace(chain, band=mask.band, expected=mask.expected)
        weights, reach = mask.weights, mask.reach
    beside = bytes_of(weights.tensors, form.params)
    work = made_operations(weights.element) if weights.lowest is None else None
    asked = float(chain.keys.name in weights.element.names_read)
    return dataclasses.replace(chain, beside=beside, asked=asked, operations=work), weights, reach


def bytes_of(names: Container[str], params: Sequence[Any]) -> int:
    """Bytes of the parameters with these names."""
    types = [param.ty for param in params if is_tensor(param) and str(param.name) in names]
    return sum(map(stored_bytes, types))
