"""Two products with something between them, which one kernel should compute."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from kernels import Case, Input
from tvm import relax
from tvm.relax import op

Body = Callable[..., Any]


def attention(scale: float, after: Body | None = None, *, rounded: bool = True) -> Body:
    """As importers leave it: scores rounded to half precision, a softmax in float32.

    Unless they are ``rounded``, scores are float32, as a kernel keeps them.
    """

    def body(q: Any, k: Any, v: Any, *others: Any) -> Any:
        dtype = str(q.ty.dtype)
        held = dtype if rounded else "float32"
        axes = [*range(len(k.ty.shape) - 2), len(k.ty.shape) - 1, len(k.ty.shape) - 2]
        wide = op.matmul(q, op.permute_dims(k, axes), out_dtype="float32")
        scores = op.multiply(op.astype(wide, held), constant(scale, held))
        scores = scores if after is None else after(scores, held, *others)
        weights = op.astype(op.nn.softmax(op.astype(scores, "float32"), -1), dtype)
        return op.astype(op.matmul(weights, v, out_dtype="float32"), dtype)

    return body


def constant(value: float, dtype: str) -> Any:
    if dtype == "bfloat16":
        return op.astype(relax.const(np.float32(value)), dtype)
    return relax.const(np.array(value, dtype))


def masked(scores: Any, dtype: str, keep: Any) -> Any:
    return op.where(keep, scores, constant(-np.inf, dtype))


def biased(scores: Any, _: str, bias: Any) -> Any:
    return op.add(scores, bias)


def _case(
    name: str,
    body: Body,
    heads: tuple[int, ...],
    sizes: tuple[int, int, int, int],
    *others: Input,
    dtype: str = "float16",
) -> Case:
    rows, keys, depth, columns = sizes
    shapes = ((rows, depth), (keys, depth), (keys, columns))
    inputs = [Input((*heads, *shape), dtype) for shape in shapes]
    return Case(name, "chain", body, (*inputs, *others))


def _sizes() -> list[Case]:
    plain = attention(0.125)
    return [
        _case(f"{m}x{k}x{d}x{n}", plain, (2, 3), (m, k, d, n))
        for m, k, d, n in (
            (64, 64, 64, 64),
            (128, 128, 64, 64),
            (49, 49, 32, 32),
            (50, 50, 64, 64),
            (197, 197, 64, 64),
            (256, 512, 128, 128),
            (24, 300, 64, 64),
            (300, 16, 64, 64),
            (77, 77, 80, 80),
            (130, 97, 48, 40),
            (64, 200, 256, 64),
            (65, 129, 8, 8),
            (61, 1024, 64, 72),
        )
    ]


def _others() -> list[Case]:
    half = (2, 3, 72, 88)
    return [
        _case("bfloat16", attention(0.125), (2, 3), (72, 88, 64, 64), dtype="bfloat16"),
        _case("one_batch", attention(0.25), (), (150, 130, 32, 48)),
        _case(
            "masked",
            attention(0.125, masked),
            (2, 3),
            (*half[2:], 64, 64),
            Input((1, 1, 72, 88), "bool"),
        ),
        _case(
            "biased",
            attention(0.125, biased),
            (2, 3),
            (*half[2:], 32, 32),
            Input((1, 3, 72, 88), "float16"),
        ),
        _case("negative", attention(-0.5), (2, 3), (*half[2:], 64, 64)),
        _case("steep", attention(40.0, rounded=False), (2, 3), (100, 400, 64, 64)),
        Case(
            "rows_hidden",
            "chain",
            attention(0.125, hidden(72, 88), rounded=False),
            tuple(Input((2, 3, size, 64), "float16") for size in (72, 88, 88)),
        ),
        Case(
            "causal",
            "chain",
            attention(0.125, causal(200)),
            tuple(Input((2, 3, 200, 64), "float16") for _ in range(3)),
        ),
    ]


def causal(keys: int) -> Body:
    keep = np.tril(np.ones((keys, keys), "bool"))
    return lambda scores, dtype: masked(scores, dtype, relax.const(keep))


def hidden(rows: int, keys: int) -> Body:
    """The last keys, and all of some rows, at the lowest number, as padded sentences are masked.

    The weights of a row that is hidden are all the same.
    """
    keep = np.ones((rows, keys), "bool")
    keep[:, -5:] = keep[10:20] = False
    lowest = float(np.finfo("float32").min)
    return lambda scores, dtype: op.where(relax.const(keep), scores, constant(lowest, dtype))


CHAIN_CASES = (*_sizes(), *_others())
