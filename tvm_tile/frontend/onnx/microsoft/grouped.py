"""Define GroupQueryAttention, a step of a decoder or its prompt, by standard operators.

The sequences of a batch have different lengths, known at run time: ``seqlens_k`` has each less one.
New keys begin at ``past``, which is ``seqlens_k + 1 - queries``, or at 0.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from tvm_tile.frontend.onnx.microsoft.attention import (
    Scores,
    apart,
    attend,
    caches_at,
    rotated,
    together,
)
from tvm_tile.frontend.onnx.microsoft.function_body import FunctionBody, NotYetKnown

_OPTIONAL = {"k_scale": 12, "v_scale": 13, "q_norm_weight": 14, "query_seqlens": 16}


def write_group_query_attention(b: FunctionBody) -> tuple[str, ...]:
    """GroupQueryAttention: several heads of queries read one of keys and values."""
    b.require_absent(
        {
            **{name: b.input(place) for name, place in _OPTIONAL.items()},
            "sliding_window_cache": b.attribute("sliding_window_cache", 0),
            "the output output_qk": b.returns(3),
        }
    )
    batch, queries, _ = b.shape(b.input(0))
    heads, groups = b.integer("num_heads"), b.integer("kv_num_heads")
    q, k, v, size = _operands(b, batch, queries, (heads, groups))
    length, past = b("Reshape", b.cast(b.input(5), np.int64), [batch, 1, 1, 1]), ""
    length = b("Add", length, [1])
    keys, kept = queries, b.shape(b.input(3))[2] if b.input(3) else 0
    if kept:
        total = _total(b)
        is_full = kept < total != kept + queries
        if is_full or (batch > 1 and 1 < queries < total):
            told = f"{total} keys of {batch} batches, {queries} of them new behind {kept}"
            raise NotImplementedError(told)
        keys = max(total, kept)
        past = b("Sub", length, [queries]) if total > queries else b.constant([[[[0]]]])
    if b.attribute("do_rotary", 0) == 1:
        q, k = (
            _turned(b, x, past, (batch, own, queries, size)) for x, own in ((q, heads), (k, groups))
        )
    present_key, present_value = k, v
    if past:
        present_key, present_value = (
            _written(b, b.input(3 + i), new, past, keys) for i, new in enumerate((k, v))
        )
    shape = (groups, heads // groups, queries)
    scores = _scores(b, past, length, shape, keys)
    k, v = (b("Reshape", x, [batch, groups, 1, keys, size]) for x in (present_key, present_value))
    q = b("Reshape", q, [batch, *shape, size])
    result = b("Reshape", attend(b, q, k, v, size, scores, rank=5), [batch, heads, queries, size])
    return together(b, result, batch, queries), present_key, present_value


def _bounded(b: FunctionBody, x: str) -> str:
    """Integers that are not below 0, which Max has in newer opsets only."""
    return str(b("Where", b("Greater", x, [0]), x, [0]))


def _total(b: FunctionBody) -> int:
    """The value of total_sequence_length, which decides how long the present keys are."""
    value = b.value(b.input(6))
    if value is None:
        raise NotYetKnown(f"the value of total_sequence_length, {b.input(6)!r},")
    return int(value.item())


def _operands(
    b: FunctionBody, batch: int, queries: int, counts: tuple[int, int]
) -> tuple[str, str, str, int]:
    """Queries, keys and values, heads apart, and the size of a head."""
    query, key, value = b.inputs(3)
    heads, groups = counts
    width = b.shape(query)[2]
    if key:
        size = width // heads
        parts = [query, key, value]
    else:
        size = width // (heads + 2 * groups)
        ends = [0, heads * size, (heads + groups) * size, width]
        parts = [b.part(query, first, last) for first, last in pairwise(ends)]
    q, k, v = (
        apart(b, x, batch, queries, n) for x, n in zip(parts, (heads, groups, groups), strict=True)
    )
    return q, k, v, size


def _turned(b: FunctionBody, x: str, past: str, extents: tuple[int, ...]) -> str:
    """Heads turned by the angles of their places, ``position_ids`` where these are given."""
    queries = extents[2]
    steps = np.arange(queries).reshape(1, 1, queries, 1)
    if b.input(9) and past and _total(b) > queries:
        places = b.input(9)
    elif b.input(9):  # of a prompt ONNX Runtime reads the first one only
        places = b("Add", b.part(b("Reshape", b.input(9), [-1]), 0, 1, 0), steps)
    else:
        places = b("Add", past, steps) if past else b.constant(steps)
    pairs = b.shape(b.input(7))[1]
    caches = caches_at(b, places, [-1, 1, queries, pairs])
    return rotated(b, x, extents, caches, interleaved=b.attribute("rotary_interleaved", 0) == 1)


def _written(b: FunctionBody, cache: str, new: str, past: str, keys: int) -> str:
    """A cache, as long as all keys, with new ones from the place ``past`` on."""
    batch, groups, kept, size = b.shape(cache)
    queries = b.shape(b.input(0))[1]
    if keys > kept:
        zeros = np.zeros((batch, groups, keys - kept, size), b.dtype(cache))
        cache = b("Concat", cache, zeros, axis=2)
    step = b("Sub", np.arange(keys).reshape(1, 1, keys, 1), past)
    is_new = b("Equal", step, [0])
    if queries > 1:
        is_new = b("And", b("Greater", step, [-1]), b("Less", step, [queries]))
        behind = b("Sub", [queries - 1], _bounded(b, step))
        source = b("Sub", [queries - 1], _bounded(b, behind))
        source = b("Reshape", source, [keys])
        new = b("Gather", new, source, axis=2)
    return str(b("Where", is_new, new, cache))


def _scores(
    b: FunctionBody, past: str, length: str, shape: tuple[int, int, int], keys: int
) -> Scores:
    """Keys of the sequence are seen, none that is later than the query or outside of its window."""
    groups, heads, queries = shape
    key = np.arange(keys)
    visible = b("Less", key, b("Reshape", length, [-1, 1, 1, 1, 1]))
    window = int(b.attribute("local_window_size", -1))
    if b.attribute("causal", 1):
        query = b.constant(np.arange(queries).reshape(queries, 1))
        if past:
            query = b("Add", b("Reshape", past, [-1, 1, 1, 1, 1]), query)
        visible = b("And", visible, b("Not", b("Greater", key, query)))
        if window >= 0:
            visible = b("And", visible, b("Greater", key, b("Sub", query, [window])))
    sink = b.input(11)
    if sink or b.attribute("smooth_softmax", 0) == 1:
        score = b("Reshape", sink, [groups, heads, 1, 1]) if sink else b.constant(0.0)
        sink = b("Expand", score, [b.shape(b.input(0))[0], groups, heads, queries, 1])
    bias = b.input(10)
    if bias:
        batch, own, _, known = b.shape(bias)
        if known < keys:  # of a cache that is longer
            zeros = np.zeros((batch, own, queries, keys - known), b.dtype(bias))
            bias = b("Concat", bias, zeros, axis=-1)
        shared = (1, 1) if own == 1 else (groups, heads)
        bias = b("Reshape", bias, [batch, *shared, queries, keys])
    # Rows of padding see nothing: they must stay numbers, as later layers read them, too.
    lowest = -65504.0 if b.real == np.float16 else -3e38
    return Scores((bias,), visible, lowest, float(b.attribute("softcap", 0.0)), sink)
