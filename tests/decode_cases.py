"""Attention of few queries: heads that share keys, masks of all kinds, lengths no tile divides."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
from chain_bodies import attention, biased, constant, masked, sunk
from kernels import Case, Input
from tvm import relax
from tvm.relax import op

Body = Callable[..., Any]


def known(value: Any) -> Any:
    """An expression whose type is known."""
    return relax.BlockBuilder.current().emit(value)


def repeated(x: Any, times: int) -> Any:
    """Each head's keys so many times, as ``repeat_kv`` has them."""
    batch, heads, rows, width = (int(extent) for extent in x.ty.shape)
    each = known(op.expand_dims(x, 2))
    each = known(op.broadcast_to(each, (batch, heads, times, rows, width)))
    return known(op.reshape(each, (batch, heads * times, rows, width)))


def grouped(times: int, inner: Body) -> Body:
    """Attention whose heads share keys, ``times`` each."""

    def body(q: Any, k: Any, v: Any, *others: Any) -> Any:
        return inner(q, repeated(k, times), repeated(v, times), *others)

    return body


def joined_heads(inner: Body) -> Body:
    """With the heads side by side in the output's rows."""

    def body(*given: Any) -> Any:
        out = known(op.permute_dims(inner(*given), [0, 2, 1, 3]))
        batch, rows, heads, width = (int(extent) for extent in out.ty.shape)
        return op.reshape(out, (batch, rows, heads * width))

    return body


def capped(scores: Any, dtype: str, keep: Any) -> Any:
    """As Gemma 2 has it: soft-capped, then masked by a number that is added."""
    scores = op.multiply(op.tanh(op.multiply(scores, constant(0.2, dtype))), constant(5.0, dtype))
    lowest = constant(float(ml_dtypes.finfo(dtype).min), dtype)
    return op.add(scores, op.where(keep, constant(0.0, dtype), lowest))


def before(scores: Any, dtype: str, position: Any) -> Any:
    """Keys up to each row's position."""
    scores = known(scores)
    count, rows = int(scores.ty.shape[-1]), int(position.ty.shape[0])
    numbers = relax.const(np.arange(count, dtype="int64"), "int64")
    own = known(op.reshape(position, (rows, 1)))
    keep = known(op.less_equal(known(op.multiply(numbers, relax.const(3, "int64"))), own))
    return op.where(keep, scores, constant(-np.inf, dtype))


def normed(inner: Body, *, is_centered: bool) -> Body:
    """Queries that are divided by their root mean square, perhaps less their mean."""

    def mean(x: Any) -> Any:
        return known(op.mean(x, axis=-1, keepdims=True))

    def body(q: Any, k: Any, v: Any, weight: Any) -> Any:
        dtype = str(q.ty.dtype)
        q = known(op.astype(q, "float32"))
        if is_centered:
            q = known(op.subtract(q, mean(q)))
        size = known(op.add(mean(known(op.multiply(q, q))), constant(1e-3, "float32")))
        q = known(op.multiply(q, known(op.rsqrt(size))))
        q = known(op.multiply(known(op.astype(q, dtype)), weight))
        rotated = known(op.flip(known(op.multiply(q, q)), 3))
        return inner(known(op.add(q, rotated)), k, v)

    return body


def decode_case(
    name: str,
    body: Body,
    sizes: tuple[int, int, int, int, int],
    *others: Input,
    dtype: str = "float32",
    width: int = 0,
) -> Case:
    """Batch, heads of queries and of keys, rows, keys, and the heads' widths."""
    heads, shared, rows, keys, depth = sizes
    shapes = ((2, heads, rows, depth), (2, shared, keys, depth), (2, shared, keys, width or depth))
    inputs = [Input(shape, dtype) for shape in shapes]
    whole = grouped(heads // shared, body) if heads > shared else body
    return Case(name, "decode", joined_heads(whole), (*inputs, *others))


def _sizes(dtype: str) -> list[Case]:
    plain = attention(0.3)
    return [
        decode_case(f"{h}/{g}x{m}x{k}x{d} {dtype}", plain, (h, g, m, k, d), dtype=dtype)
        for h, g, m, k, d in (
            (4, 2, 1, 64, 16),
            (8, 2, 1, 1000, 64),
            (3, 3, 1, 77, 64),
            (12, 3, 4, 130, 80),
            (6, 2, 5, 33, 24),
            (2, 2, 16, 200, 32),
            (8, 1, 1, 300, 256),
            (4, 2, 1, 96, 35),
            (2, 1, 3, 50, 18),
        )
    ]


def _others(dtype: str) -> list[Case]:
    sizes = (4, 2, 2, 150, 32)
    keep, bias = Input((2, 1, 2, 150), "bool"), Input((1, 4, 2, 150), dtype)
    positions = Input((2,), "int64")
    return [
        decode_case(f"masked {dtype}", attention(0.3, masked), sizes, keep, dtype=dtype),
        decode_case(f"biased {dtype}", attention(0.3, biased), sizes, bias, dtype=dtype),
        decode_case(f"capped {dtype}", attention(0.3, capped), sizes, keep, dtype=dtype),
        decode_case(f"by position {dtype}", attention(0.3, before), sizes, positions, dtype=dtype),
        *(
            decode_case(
                f"normed {own} x {dtype}",
                normed(attention(0.3), is_centered=own > 2),
                (4, 2, own, 150, 36),
                Input((36,), dtype),
                dtype=dtype,
            )
            for own in (1, 2, 3)
        ),
        decode_case(f"wide values {dtype}", attention(0.3), sizes, dtype=dtype, width=72),
        *(
            decode_case(f"sunk {name} {dtype}", body, (*own, 32), *others, dtype=dtype)
            for name, body, own, others in (
                ("bare", sunk(0.3), (8, 2, 1, 1000), (Input((8,), dtype),)),
                ("masked", sunk(0.3, masked), (4, 2, 2, 150), (keep, Input((4,), dtype))),
                ("capped", sunk(0.3, capped), (4, 2, 2, 150), (keep, Input((4,), "float32"))),
                ("constant", sunk(0.3, capped, is_constant=True), (4, 2, 2, 150), (keep,)),
                ("by position", sunk(0.3, before), (6, 2, 2, 77), (positions, Input((6,), dtype))),
            )
        ),
    ]


DECODE_CASES = tuple(
    case
    for dtype in ("float32", "bfloat16", "float16")
    for case in (*_sizes(dtype), *_others(dtype))
)
