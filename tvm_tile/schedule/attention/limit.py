"""Softmaxes over an open number of keys: all of them, and how many a call has.

A reduction over an open extent takes from beyond it its neutral element
(``passes/open/bound_loops.py``). Attention's kernels know better: they stop at the last key.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.s_tir import SBlock

from tvm_tile.graph.expression import uses
from tvm_tile.graph.extract import is_choice
from tvm_tile.schedule.s_tir.steps import replace_parts

_REDUCE = 2
_COMBINED = (tirx.Add, tirx.Max)


@dataclass(frozen=True, slots=True)
class Unlimited:
    """A function whose masked reductions take everything.

    Attributes:
        func: the function.
        limit: number of elements that they took in fact, the same for all; ``None`` where none was
            masked.
        count: number of reductions that were masked.
    """

    func: tirx.PrimFunc
    limit: Any
    count: int


def without_limit(func: tirx.PrimFunc) -> Unlimited | None:
    """A function without the masks of its reductions; ``None`` where these differ."""
    limits: list[Any] = []

    def block(block: Any) -> Any:
        found = _masked(block)
        if found is None:
            return block
        limits.append(found[0])
        store = tirx.BufferStore(block.body.buffer, found[1], block.body.indices)
        return replace_parts(block, body=store)

    plain = tvm_ffi.structural_map(func, [(SBlock, block)], order="post")
    if not limits:
        return Unlimited(func, None, 0)
    if not all(tvm_ffi.structural_equal(limits[0], other) for other in limits):
        return None
    return Unlimited(plain, limits[0], len(limits))


def _masked(block: Any) -> tuple[Any, Any] | None:
    """The limit ``n`` of ``y = y + (f if k < n else 0)``, and ``y + f``."""
    value = block.body.value if isinstance(block.body, tirx.BufferStore) else None
    if not isinstance(value, _COMBINED) or not is_choice(value.b):
        return None
    condition, inside, _ = value.b.args
    summed = [v.var for v in block.iter_vars if int(v.iter_type) == _REDUCE]
    is_bound = isinstance(condition, tirx.LT) and any(condition.a.same_as(v) for v in summed)
    if not is_bound or uses(condition.b, [v.var for v in block.iter_vars]):
        return None
    return condition.b, type(value)(value.a, inside)
