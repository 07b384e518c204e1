"""Find a chain of two products in a fused function, and what happens between them.

Once everything spatial is inlined, with ``g`` element-wise, it is::

    S[i, k] += Q[i, d] * K[k, d]
    m[i] = max(m[i], g(S[i, k]));  l[i] += exp(g(S[i, k]) - m[i])
    O[i, n] += exp(g(S[i, k]) - m[i]) / l[i] * V[k, n]
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Container, Sequence
from dataclasses import dataclass, field
from typing import Any

from tvm import ir, tirx
from tvm.s_tir import SBlock, Schedule

from tvm_tile.graph.expression import loads_of, substituted, summand
from tvm_tile.graph.extract import extract_operator
from tvm_tile.graph.functions import is_tensor
from tvm_tile.graph.tile_graph import Operator, element_size
from tvm_tile.schedule.attention.limit import without_limit
from tvm_tile.schedule.attention.mask import find_mask
from tvm_tile.schedule.attention.weights import Weights, read_weights, without_casts
from tvm_tile.schedule.normalize import NormalForm, inlined, store_by_sums
from tvm_tile.schedule.rule import Task
from tvm_tile.schedule.tensor_cores.epilogue import Epilogue
from tvm_tile.schedule.tensor_cores.found import (
    epilogue_of,
    is_sum_of_products,
    limits_at_call,
)
from tvm_tile.schedule.tensor_cores.limits import (
    Limits,
    bound_limits,
    in_register,
    limited,
)
from tvm_tile.schedule.tensor_cores.place import Place
from tvm_tile.tile.chain import Chain, connect, is_along_rows, with_axes_of

# Reductions: two products, a softmax's maximum and sum; whether a row has anything at all.
_SOFTMAX, _SAFE_SOFTMAX = 4, 5


@dataclass(frozen=True, slots=True)
class AttentionMatch:
    """A function that computes a chain of two products with a softmax in between.

    Attributes:
        chain: the products; their operands are parameters.
        weights: what becomes of a score.
        epilogue: what becomes of a sum of the second product.
        params: of the function, as its callers pass them.
        keys: how many a call has, int32; ``None``: all.
        limits: how far other axes go in a call.
    """

    chain: Chain
    weights: Weights
    epilogue: Epilogue
    params: Sequence[Any]
    keys: Any = None
    limits: Limits = field(default_factory=dict)

    def in_registers(self) -> AttentionMatch:
        """The same, what a call has of axes being in registers of the kernel that is written."""
        keys = None if self.keys is None else in_register(self.keys)
        return dataclasses.replace(self, keys=keys, limits=bound_limits(self.limits))

    def needs(self, place: Place) -> list[Any]:
        """What holds where a call needs rows: those from a place on, of that batch."""
        own = self.limits.items()
        return [place[name] < limit for name, limit in own if name in place]

    @property
    def key_count(self) -> Any:
        """How many keys a call has."""
        return limited(self.chain.keys.extent, self.keys)


def find_chain(task: Task) -> AttentionMatch | None:
    """The chain that a function computes; ``None`` if it computes anything else."""
    plain = without_limit(task.func)
    if plain is None:
        return None
    normal = softmax_form(dataclasses.replace(task, func=plain.func))
    found = None if normal is None else _read(*normal)
    if normal is None or found is None:
        return None
    params = list(normal[0].mod["main"].params)
    match = AttentionMatch(*found, params, limits=limits_at_call(task, found[2], found[0].second))
    if plain.limit is None:
        return match
    # All that sums over keys, which is all but the first product.
    if plain.count != len(task.graph.reductions) - 1 or not _ends_with_keys(match.chain):
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


def softmax_form(task: Task) -> tuple[Schedule, NormalForm] | None:
    """The normal form of a function with the sums of two products and of a softmax in between, and
    with nothing else; ``None`` for others."""
    if len(task.graph.reductions) not in (_SOFTMAX, _SAFE_SOFTMAX):
        return None
    sch, form = inlined(task.func, keep_producers=False)
    if form is None or form.producers or len(form.outputs) > 1:
        return None
    store_by_sums(sch, form)
    return sch, form


def _read(sch: Schedule, form: NormalForm) -> tuple[Chain, Weights, Epilogue] | None:
    blocks = [sch.get(sch.get_sblock(name)) for name in form.reductions]
    first, last = extract_operator(blocks[0]), extract_operator(blocks[-1])
    factors = factors_of_second(blocks[-1], blocks[0].body.buffer)
    if first is None or last is None or factors is None or not is_sum_of_products(blocks[0]):
        return None
    weight, values = factors
    names = {str(buffer.name) for buffer in (blocks[0].body.buffer, values.source)}
    known = tuple(read for read in last.reads if read.tensor.name in names)
    second = with_axes_of(first, dataclasses.replace(last, reads=known))
    chain = None if second is None else connect(first, second)
    if second is None or chain is None or not _is_along_rows(chain, first, blocks[1:]):
        return None
    weights = read_weights(blocks[1:-1], weight, blocks[0].body.buffer, first)
    epilogue = epilogue_of(sch, form, blocks[-1], second)
    if weights is None or epilogue is None:
        return None
    mask = find_mask(chain, weights)
    if mask is not None:
        band, value = mask
        chain = dataclasses.replace(chain, band=band)
        element = dataclasses.replace(weights.element, value=value)
        weights = dataclasses.replace(weights, element=element)
    chain = dataclasses.replace(
        chain, beside=_bytes(weights.element.tensors, sch.mod["main"].params)
    )
    return chain, weights, epilogue


def _bytes(names: Container[str], params: Sequence[Any]) -> int:
    """Bytes of the parameters with these names."""
    types = [param.ty for param in params if is_tensor(param) and str(param.name) in names]
    return sum(
        math.prod(int(extent) for extent in own.shape) * element_size(str(own.dtype))
        for own in types
    )


def _is_along_rows(chain: Chain, first: Operator, blocks: Sequence[SBlock]) -> bool:
    operators = (extract_operator(block) for block in blocks)
    named = [None if op is None else with_axes_of(first, op) for op in operators]
    known = [op for op in named if op is not None]
    return len(known) == len(named) and is_along_rows(chain.keys, known)


def factors_of_second(block: SBlock, scores: Any) -> tuple[Any, Any] | None:
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
