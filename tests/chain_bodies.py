"""What lies between two products, and around them, as Relax expressions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relax
from tvm.relax import op

from tvm_tile.runtime.arrays import numpy_dtype

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


def sunk(
    scale: float, after: Body | None = None, *, rounded: bool = True, is_constant: bool = False
) -> Body:
    """The same with a sink, a score without a value, for each head: the last argument.

    As GPT-OSS has it, its maximum subtracted first. Or sinks are constants.
    """

    def body(q: Any, k: Any, v: Any, *others: Any) -> Any:
        known = relax.BlockBuilder.current().emit
        *others, sinks = (*others, None) if is_constant else others
        dtype = str(q.ty.dtype)
        held = dtype if rounded else "float32"
        axes = [*range(len(k.ty.shape) - 2), len(k.ty.shape) - 1, len(k.ty.shape) - 2]
        wide = op.matmul(q, op.permute_dims(k, axes), out_dtype="float32")
        scores = op.multiply(op.astype(wide, held), constant(scale, held))
        scores = known(scores if after is None else after(scores, held, *others))
        *rows, keys = map(int, scores.ty.shape)
        if is_constant:
            lines = np.linspace(-3, 4, rows[1]).reshape(-1, 1, 1)
            sinks = relax.const(np.broadcast_to(lines, (*rows, 1)).astype(numpy_dtype(held)))
        else:
            sinks = op.broadcast_to(op.reshape(sinks, (-1, 1, 1)), (*rows, 1))
        both = known(op.concat((scores, known(op.astype(sinks, held))), -1))
        both = known(op.subtract(both, op.max(both, -1, keepdims=True)))
        weights = known(op.astype(op.nn.softmax(op.astype(both, "float32"), -1), dtype))
        weights = op.strided_slice(weights, [-1], [0], [keys])
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


def windowed(scores: Any, _: str, mask: Any) -> Any:
    """A mask for each of an image's windows, which the batch is made of."""
    scores = relax.BlockBuilder.current().emit(scores)
    windows, rows, keys = (int(extent) for extent in mask.ty.shape)
    batch, heads, *_ = (int(extent) for extent in scores.ty.shape)
    apart = op.reshape(scores, (batch // windows, windows, heads, rows, keys))
    added = op.add(apart, op.reshape(mask, (1, windows, 1, rows, keys)))
    return op.reshape(added, (batch, heads, rows, keys))


def turned_keys(q: Any, k: Any, v: Any) -> Any:
    """Keys that lie one beside the other, and values along a row."""
    k, v = (
        relax.BlockBuilder.current().emit(op.permute_dims(side, [0, 1, 3, 2])) for side in (k, v)
    )
    return attention(0.125)(q, k, v)


def band(sizes: tuple[int, int], upper: int | None, lower: int | None) -> np.ndarray:
    """Where ``lower <= j - i <= upper``."""
    mask = np.ones(sizes, "bool")
    mask = mask if upper is None else np.tril(mask, upper)
    return mask if lower is None else np.triu(mask, lower)


def kept(
    sizes: tuple[int, int],
    upper: int | None = 0,
    *,
    lower: int | None = None,
    fill: float = -np.inf,
    is_hidden: bool = False,
) -> Body:
    """Scores outside of a band (or inside, if that is hidden) at ``fill``."""
    keep = band(sizes, upper, lower) != is_hidden
    return lambda scores, dtype: op.where(relax.const(keep), scores, constant(fill, dtype))


def added(sizes: tuple[int, int]) -> Body:
    mask = np.where(band(sizes, 0, None), 0, -np.inf)
    return lambda scores, dtype: op.add(scores, relax.const(mask.astype(dtype)))


def up_to(
    step: int,
    start: int = 0,
    *,
    window: int | None = None,
    is_added: bool = False,
    fill: float = -np.inf,
) -> Body:
    """Keys up to each row's position, drawn for each, and perhaps a window's before it.

    Args:
        step: positions are so many times integers that are drawn.
        start: position of what is drawn as zero.
        window: keys that a row sees; ``None``: all up to its own.
        is_added: whether ``fill`` is added to what is hidden.
        fill: what hides: minus infinity, or a number.
    """

    def after(scores: Any, dtype: str, drawn: Any, *kept_keys: Any) -> Any:
        known = relax.BlockBuilder.current().emit
        scores = known(scores)
        keys = relax.const(np.arange(int(scores.ty.shape[-1]), dtype="int64"))
        steps, first = (relax.const(n, "int64") for n in (step, start))
        position = known(op.expand_dims(op.add(op.multiply(drawn, steps), first), -1))
        seen = op.less_equal(keys, position)
        if window is not None:
            begin = op.subtract(position, relax.const(window, "int64"))
            seen = op.logical_and(op.greater(keys, begin), seen)
        for keep in kept_keys:
            seen = op.logical_and(keep, seen)
        if is_added:
            nothing, lowest = (constant(value, dtype) for value in (0.0, fill))
            return op.add(scores, op.where(seen, nothing, lowest))
        return masked(scores, dtype, seen)

    return after


def in_groups(inner: Body, scales: tuple[float, ...] = ()) -> Body:
    """Fewer heads of keys and values than of queries, and queries, and keys, that are scaled."""

    def body(*given: Any) -> Any:
        known = relax.BlockBuilder.current().emit
        q, *others = given[:3]
        batch, heads, *_ = map(int, q.ty.shape)

        def repeated(x: Any) -> Any:
            _, groups, rows, width = map(int, x.ty.shape)
            each = (batch, groups, heads // groups, rows, width)
            spread = known(op.broadcast_to(known(op.expand_dims(x, 2)), each))
            return known(op.reshape(spread, (batch, heads, rows, width)))

        operands = [q, *map(repeated, others)]
        for place, scale in enumerate(scales):
            own = operands[place]
            operands[place] = known(op.multiply(own, constant(scale, str(own.ty.dtype))))
        return inner(*operands, *given[3:])

    return body


def padded(sizes: tuple[int, int]) -> Body:
    """Some keys of each batch hidden, too."""
    keep = relax.const(band(sizes, 0, None))
    return lambda scores, dtype, keys: masked(scores, dtype, op.logical_and(keep, keys))


def hidden(rows: int, keys: int) -> Body:
    """The last keys, and all of some rows, at the lowest number, as padded sentences are masked.

    The weights of a row that is hidden are all the same.
    """
    keep = np.ones((rows, keys), "bool")
    keep[:, -5:] = keep[10:20] = False
    lowest = float(np.finfo("float32").min)
    return lambda scores, dtype: op.where(relax.const(keep), scores, constant(lowest, dtype))


def sliced(heads: int, widths: tuple[int, int]) -> Body:
    """Attention of queries, keys and values that lie side by side, as one product makes them.

    Args:
        heads: of each.
        widths: of a head of queries and keys, and of values.
    """
    sizes = (widths[0], widths[0], widths[1])

    def body(x: Any) -> Any:
        batch, tokens, _ = map(int, x.ty.shape)
        parts, start = [], 0
        for size in sizes:
            part = op.strided_slice(x, [2], [start], [start + heads * size])
            part = op.reshape(part, (batch, tokens, heads, size))
            part = op.permute_dims(part, [0, 2, 1, 3])
            parts.append(relax.BlockBuilder.current().emit(part))
            start += heads * size
        own = op.permute_dims(attention(0.125)(*parts), [0, 2, 1, 3])
        return op.reshape(own, (batch, tokens, heads * widths[1]))

    return body


def feed_forward(activation: Body, *, turned: tuple[bool, bool] = (False, False)) -> Body:
    """A feed-forward network; matrices that are ``turned`` have a row for each output."""

    def known(value: Any) -> Any:
        return relax.BlockBuilder.current().emit(value)

    def product(x: Any, matrix: Any, bias: Any, is_turned: bool) -> Any:
        own = known(op.permute_dims(matrix)) if is_turned else matrix
        wide = op.matmul(x, own, out_dtype="float32")
        return known(op.add(op.astype(wide, str(x.ty.dtype)), bias))

    def body(x: Any, first: Any, before: Any, second: Any, behind: Any) -> Any:
        hidden = known(activation(product(x, first, before, turned[0])))
        return product(hidden, second, behind, turned[1])

    return body


def wide_gelu(x: Any) -> Any:
    return op.astype(op.nn.gelu(op.astype(x, "float32")), str(x.ty.dtype))


def hard_swish(x: Any) -> Any:
    """Of comparisons in half precision, a quotient, and a choice of the hidden value itself."""
    dtype = str(x.ty.dtype)
    least, most, six = (constant(value, dtype) for value in (-3.0, 3.0, 6.0))
    inner = op.divide(op.multiply(x, op.add(x, most)), six)
    upper = op.where(op.greater(x, most), x, inner)
    return op.where(op.less(x, least), constant(0.0, dtype), upper)


def images(x: Any, first: Any, before: Any, second: Any, behind: Any) -> Any:
    """Convolutions of 1 x 1, channels last."""
    options = {"data_layout": "NHWC", "kernel_layout": "OHWI", "out_dtype": "float32"}
    wide = op.nn.conv2d(x, first, **options)
    hidden = op.nn.relu(op.add(op.astype(wide, str(x.ty.dtype)), before))
    wide = op.nn.conv2d(hidden, second, **options)
    return op.add(op.astype(wide, str(x.ty.dtype)), behind)
