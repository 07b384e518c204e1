"""Define ONNX Runtime's attention by standard operators, as other models write it.

Queries, keys and values are ``[batch, heads, length, size]``, scores ``[batch, heads, queries,
keys]``. A mask of keys is added to scores, and hides by ``mask_filter_value``; keys that come later
than a query are hidden altogether.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tvm_tile.frontend.onnx.microsoft.codes import integer_product
from tvm_tile.frontend.onnx.microsoft.function_body import FunctionBody

_FILTER = -10000.0  # ONNX Runtime's mask_filter_value, where a node has none


@dataclass(frozen=True, slots=True)
class Scores:
    """How scores become weights.

    Attributes:
        added: names of what is added to scores, in turn; empty ones are none.
        visible: the name of where they are seen at all; empty where everywhere.
        hidden: stands for a score that is not seen.
        cap: scores are ``cap * tanh(score / cap)`` first; 0 where they are as they are.
        sink: the name of each row's score that has no value; empty where there is none.
    """

    added: tuple[str, ...] = ()
    visible: str = ""
    hidden: float = -math.inf
    cap: float = 0.0
    sink: str = ""


def attend(
    b: FunctionBody, q: str, k: str, v: str, size: int, scores: Scores, rank: int = 4
) -> str:
    """The weighted values of each query, heads apart.

    Args:
        b: where operators are written.
        q, k, v: queries, keys and values, of ``rank`` dimensions.
        size: a key's.
        scores: how they become weights.
        rank: 5 where several heads of queries share one of keys, ``[batch, groups, heads of a
            group, length, size]``.
    """
    scale = b.attribute("scale", 0.0) or 1 / math.sqrt(size)
    turned = b("Transpose", k, perm=[*range(rank - 2), rank - 1, rank - 2])
    x = b("Mul", b("MatMul", q, turned), scale)
    if scores.cap:
        x = b("Mul", b("Tanh", b("Mul", x, 1 / scores.cap)), scores.cap)
    for addend in scores.added:
        x = b.add(x, addend)
    if scores.visible:
        x = b("Where", scores.visible, x, scores.hidden)
    if not scores.sink:
        return str(b("MatMul", b("Softmax", x, axis=-1), v))
    wide = b("Softmax", b("Concat", x, scores.sink, axis=-1), axis=-1)
    return str(b("MatMul", b.part(wide, 0, -1), v))  # without the last weight


def apart(b: FunctionBody, x: str, batch: int, length: int, heads: int) -> str:
    """Heads of ``[batch, length, heads * size]``, apart."""
    return str(b("Transpose", b("Reshape", x, [batch, length, heads, -1]), perm=[0, 2, 1, 3]))


def together(b: FunctionBody, x: str, batch: int, length: int) -> str:
    """Heads beside each other again."""
    return str(b("Reshape", b("Transpose", x, perm=[0, 2, 1, 3]), [batch, length, -1]))


def _padding(b: FunctionBody, mask: str, batch: int, keys: int) -> str:
    """What a mask adds to scores; it says which keys are seen, or where they end and begin."""
    extents = b.shape(mask)
    if len(extents) > 1:
        if extents[-1] != keys or len(extents) > 3:
            raise NotImplementedError(f"a mask of shape {extents} for {keys} keys")
        seen = b("Greater", mask, np.zeros((), b.dtype(mask)))
        seen = b("Reshape", seen, [batch, 1, -1, keys])
    else:
        if extents[0] not in (batch, 2 * batch, 3 * batch + 2):
            raise NotImplementedError(f"a mask of {extents[0]} numbers for {batch} batches")
        place = np.arange(keys, dtype=b.dtype(mask))
        seen = b("Less", place, b("Reshape", b.part(mask, 0, batch, 0), [batch, 1, 1, 1]))
        if extents[0] == 2 * batch:
            first = b("Reshape", b.part(mask, batch, 2 * batch, 0), [batch, 1, 1, 1])
            seen = b("And", seen, b("Not", b("Less", place, first)))
    return str(b("Where", seen, 0.0, float(b.attribute("mask_filter_value", _FILTER))))


def _scores(b: FunctionBody, mask: str, bias: str, sizes: tuple[int, int, int]) -> Scores:
    """Scores of Attention and MultiHeadAttention, given the counts of batches, queries and keys."""
    batch, queries, keys = sizes
    padding = _padding(b, mask, batch, keys) if mask else ""
    visible = ""
    if b.attribute("unidirectional", 0) == 1:
        visible = b.constant(np.tri(queries, keys, keys - queries, dtype=bool))
    return Scores((padding, bias), visible)


def write_attention(b: FunctionBody) -> tuple[str, ...]:
    """Attention: queries, keys and values are products of one matrix."""
    x, weight, bias, mask, past, added, count = b.inputs(7)
    b.require_absent(
        {
            "do_rotary": b.attribute("do_rotary", 0),
            "past_present_share_buffer": b.attribute("past_present_share_buffer", 0) or count,
        }
    )
    product = b.add(b("MatMul", x, weight), bias)
    return _self_attention(b, product, mask, past, added)


def write_quantized_attention(b: FunctionBody) -> tuple[str, ...]:
    """QAttention: queries, keys and values are products of codes."""
    x, weight, bias, x_scale, scale, mask, x_zero, zero, past = b.inputs(9)
    b.require_absent(
        {name: b.attribute(name, 0) for name in ("do_rotary", "past_present_share_buffer")}
    )
    product = integer_product(b, x, x_zero, weight, zero, b("Mul", x_scale, scale), bias)
    return _self_attention(b, product, mask, past, "")


def _self_attention(
    b: FunctionBody, product: str, mask: str, past: str, added: str
) -> tuple[str, ...]:
    (batch, queries, _), (_, width) = b.shape(b.input(0)), b.shape(b.input(1))
    heads = b.integer("num_heads")
    widths = b.attribute("qkv_hidden_sizes") or [width // 3] * 3
    ends = np.cumsum(widths).tolist()
    q, k, v = (
        apart(b, b.part(product, end - own, end), batch, queries, heads)
        for own, end in zip(widths, ends, strict=True)
    )
    keys, present = queries, ""
    if past:
        keys += b.shape(past)[3]
        olds = (b.part(past, i, i + 1, 0) for i in range(2))
        k, v = (
            b("Concat", b("Reshape", old, [batch, heads, keys - queries, -1]), new, axis=2)
            for old, new in zip(olds, (k, v), strict=True)
        )
    if b.returns(1):
        sizes = [1, batch, heads, keys, -1]
        present = b("Concat", *(b("Reshape", each, sizes) for each in (k, v)), axis=0)
    scores = _scores(b, mask, added, (batch, queries, keys))
    return together(b, attend(b, q, k, v, widths[0] // heads, scores), batch, queries), present


def write_multi_head_attention(b: FunctionBody) -> tuple[str, ...]:
    """MultiHeadAttention: keys and values may be of another sequence, heads apart or together."""
    query, key, value, bias, mask, added, past_key, past_value, count, beams = b.inputs(10)
    b.require_absent(
        {
            "past_sequence_length": count,
            "cache_indirection": beams,
            "queries, keys and values in one tensor": not value,
            "the output qk": b.returns(3),
        }
    )
    heads = b.integer("num_heads")
    batch, queries, width = b.shape(query)
    is_apart = len(b.shape(key)) == 4
    keys = b.shape(key)[2 if is_apart else 1]
    if b.attribute("unidirectional", 0) == 1 and keys != queries:
        raise NotImplementedError(f"unidirectional, {queries} queries and {keys} keys")
    operands = [query, key, value]
    if bias:
        starts = [0, width, 2 * width, b.shape(bias)[0]]
        count_biased = 1 if is_apart else 3  # keys and values that are apart have theirs
        for i in range(count_biased):
            operands[i] = b("Add", operands[i], b.part(bias, starts[i], starts[i + 1]))
    q = apart(b, operands[0], batch, queries, heads)
    k, v = operands[1:] if is_apart else (apart(b, x, batch, keys, heads) for x in operands[1:])
    if past_key:
        keys += b.shape(past_key)[2]
        k, v = b("Concat", past_key, k, axis=2), b("Concat", past_value, v, axis=2)
    scores = _scores(b, mask, added, (batch, queries, keys))
    return together(b, attend(b, q, k, v, width // heads, scores), batch, queries), k, v


def rotated(
    b: FunctionBody, x: str, extents: tuple[int, ...], caches: tuple[str, str], *, interleaved: bool
) -> str:
    """Heads whose first elements are turned, in pairs.

    Args:
        b: where operators are written.
        x: ``[batch, heads, length, size]``, which ``extents`` are.
        caches: cosines and sines, ``[batch or 1, 1, length, pairs]``.
        interleaved: whether a pair is beside each other, or its second element in the second half.
    """
    *outer, size = extents
    cos, sin = caches
    pairs = b.shape(b.input(_COS[b.node.op_type]))[1]
    turned = b.part(x, 0, 2 * pairs) if 2 * pairs < size else x
    if interleaved:
        turned = b("Reshape", turned, [*outer, pairs, 2])
        first, second = (b("Reshape", b.part(turned, i, i + 1), [*outer, pairs]) for i in range(2))
    else:
        first, second = b.part(turned, 0, pairs), b.part(turned, pairs, 2 * pairs)
    halves = [
        b("Sub", b("Mul", first, cos), b("Mul", second, sin)),
        b("Add", b("Mul", first, sin), b("Mul", second, cos)),
    ]
    if interleaved:
        split = [b("Reshape", half, [*outer, pairs, 1]) for half in halves]
        halves = [b("Reshape", b("Concat", *split, axis=-1), [*outer, 2 * pairs])]
    rest = [b.part(x, 2 * pairs, size)] if 2 * pairs < size else []
    return str(b("Concat", *halves, *rest, axis=-1)) if len(halves) + len(rest) > 1 else halves[0]


_COS = {"RotaryEmbedding": 2, "GroupQueryAttention": 7}  # places of the cosines


def caches_at(b: FunctionBody, places: str, shape: list[int]) -> tuple[str, str]:
    """Cosines and sines of places, in a shape that broadcasts with heads that are apart."""
    first = _COS[b.node.op_type]
    cos, sin = (b("Reshape", b("Gather", b.input(first + i), places), shape) for i in range(2))
    return cos, sin


def write_rotary_embedding(b: FunctionBody) -> tuple[str, ...]:
    """RotaryEmbedding: pairs of elements turned by the angles of their places."""
    x, places = b.inputs(2)
    b.require_absent(
        {
            "is_packed_batching": b.attribute("is_packed_batching", 0),
            "scale": b.attribute("scale", 1.0) != 1,
        }
    )
    extents = b.shape(x)
    pairs = b.shape(b.input(2))[1]
    if len(extents) == 4:
        batch, heads, length, size = extents
        own = x
    else:
        batch, length, width = extents
        size = 2 * pairs
        if b.attribute("rotary_embedding_dim", 0):
            size = width // b.integer("num_heads")
        heads = width // size
        own = apart(b, x, batch, length, heads)
    if b.shape(places) == (1,):
        places = b("Add", places, np.arange(length))
    caches = caches_at(b, places, [-1, 1, length, pairs])
    interleaved = b.attribute("interleaved", 0) == 1
    y = rotated(b, own, (batch, heads, length, size), caches, interleaved=interleaved)
    return (y if own == x else together(b, y, batch, length),)
