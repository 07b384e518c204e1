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


def windowed(scores: Any, _: str, mask: Any) -> Any:
    """A mask for each of an image's windows, which the batch is made of."""
    scores = relax.BlockBuilder.current().emit(scores)
    windows, rows, keys = (int(extent) for extent in mask.ty.shape)
    batch, heads, *_ = (int(extent) for extent in scores.ty.shape)
    apart = op.reshape(scores, (batch // windows, windows, heads, rows, keys))
    added = op.add(apart, op.reshape(mask, (1, windows, 1, rows, keys)))
    return op.reshape(added, (batch, heads, rows, keys))


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


def _turned(q: Any, k: Any, v: Any) -> Any:
    """Keys that lie one beside the other, and values along a row."""
    k, v = (
        relax.BlockBuilder.current().emit(op.permute_dims(side, [0, 1, 3, 2])) for side in (k, v)
    )
    return attention(0.125)(q, k, v)


def _others() -> list[Case]:
    half = (2, 3, 72, 88)
    return [
        _case("bfloat16", attention(0.125), (2, 3), (72, 88, 64, 64), dtype="bfloat16"),
        Case(
            "keys_of_all_heads",
            "chain",
            attention(0.125),
            tuple(Input(shape, "float16") for shape in ((2, 3, 72, 64), *((2, 1, 88, 64),) * 2)),
        ),
        Case(
            "keys_and_values_turned",
            "chain",
            _turned,
            tuple(
                Input(shape, "float16")
                for shape in ((2, 3, 72, 64), (2, 3, 64, 88), (2, 3, 40, 88))
            ),
        ),
        _case(
            "shifted_windows",
            attention(0.2, windowed),
            (8, 3),
            (49, 49, 32, 32),
            Input((4, 49, 49), "float16"),
        ),
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
    ]


def _causal() -> list[Case]:
    """Bands: square ones, with more keys than queries and fewer, of lengths that tiles divide and
    do not, hidden by minus infinity and by numbers."""
    lowest = float(np.finfo("float32").min)
    square, longer, shorter = (200, 200), (130, 210), (150, 90)
    plain: list[tuple[str, tuple[int, int], Body]] = [
        ("causal", square, attention(0.125, kept(square))),
        ("causal_even", (256, 256), attention(0.125, kept((256, 256)))),
        ("causal_longer", longer, attention(0.125, kept(longer, upper=80))),
        ("causal_prefix", longer, attention(0.125, kept(longer, upper=15))),
        ("causal_shorter", shorter, attention(0.125, kept(shorter, upper=0))),
        ("causal_no_key", shorter, attention(0.125, kept(shorter, upper=-60))),
        ("causal_added", square, attention(0.125, added(square))),
        ("causal_steep", longer, attention(4.0, kept(longer, upper=80), rounded=False)),
        ("causal_lowest", square, attention(0.125, kept(square, fill=lowest), rounded=False)),
        ("causal_lowest_no_key", shorter, attention(0.125, kept(shorter, upper=-60, fill=-65504))),
        ("anti_causal", square, attention(0.125, kept(square, None, lower=0))),
        ("window", square, attention(0.125, kept(square, lower=-20))),
        ("window_steep", square, attention(4.0, kept(square, lower=-9), rounded=False)),
        ("window_around", longer, attention(0.125, kept(longer, upper=40, lower=-40))),
        ("all_but_a_band", square, attention(0.125, kept(square, 30, lower=-30, is_hidden=True))),
    ]
    return [
        *(_case(name, body, (2, 3), (*sizes, 64, 64)) for name, sizes, body in plain),
        _case("causal_turns", attention(0.125, kept(square)), (3, 17), (*square, 64, 64)),
        _case("causal_wide", attention(0.125, kept(square)), (2, 3), (*square, 128, 72)),
        _case(
            "causal_bfloat16",
            attention(0.125, kept(square)),
            (2, 3),
            (*square, 64, 64),
            dtype="bfloat16",
        ),
        _case(
            "causal_padded",
            attention(0.125, padded(square)),
            (2, 3),
            (*square, 64, 64),
            Input((2, 1, 1, 200), "bool"),
        ),
    ]


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


def up_to(step: int, start: int = 0, *, window: int | None = None, is_added: bool = False) -> Body:
    """Keys up to each row's position, drawn for each, and perhaps a window's before it.

    Args:
        step: positions are so many times integers that are drawn.
        start: position of what is drawn as zero.
        window: keys that a row sees; ``None``: all up to its own.
        is_added: whether minus infinity is added to what is hidden.
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
            nothing, lowest = (constant(value, dtype) for value in (0.0, -np.inf))
            return op.add(scores, op.where(seen, nothing, lowest))
        return masked(scores, dtype, seen)

    return after


def _positions() -> list[Case]:
    """Causal masks as positions of rows: in no order, of a whole batch or of each, with none that
    sees a key among them, with windows and padding."""
    square, longer = (200, 200, 64, 64), (130, 330, 64, 64)
    rows, padding = Input((200,), "int64"), Input((2, 1, 1, 200), "bool")
    later = Input((130,), "int64")
    return [
        _case("positions", attention(0.125, up_to(61)), (2, 3), square, rows),
        _case("positions_later", attention(0.125, up_to(3, 150)), (2, 3), longer, later),
        _case("positions_far", attention(0.125, up_to(1000, 40)), (2, 3), longer, later),
        _case("positions_no_key", attention(0.125, up_to(90, -80)), (2, 3), square, rows),
        _case("positions_padded", attention(0.125, up_to(61)), (2, 3), square, rows, padding),
        _case("positions_added", attention(0.125, up_to(50, is_added=True)), (2, 3), square, rows),
        _case("positions_window", attention(0.125, up_to(61, window=40)), (2, 3), square, rows),
        _case("positions_turns", attention(0.125, up_to(61)), (3, 17), square, rows),
        _case(
            "positions_of_batches",
            attention(0.125, up_to(90, 60, window=70)),
            (2, 3),
            longer,
            Input((2, 1, 130), "int64"),
            dtype="bfloat16",
        ),
    ]


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


def _slices() -> list[Case]:
    return [
        Case("slices", "chain", sliced(4, (64, 64)), (Input((2, 77, 768), "float16"),)),
        Case("slices_one_batch", "chain", sliced(2, (64, 32)), (Input((1, 130, 320), "float16"),)),
        Case("slices_bfloat16", "chain", sliced(3, (32, 32)), (Input((3, 64, 288), "bfloat16"),)),
    ]


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


def _wide_gelu(x: Any) -> Any:
    return op.astype(op.nn.gelu(op.astype(x, "float32")), str(x.ty.dtype))


def _hard_swish(x: Any) -> Any:
    """Of comparisons in half precision, a quotient, and a choice of the hidden value itself."""
    dtype = str(x.ty.dtype)
    least, most, six = (constant(value, dtype) for value in (-3.0, 3.0, 6.0))
    inner = op.divide(op.multiply(x, op.add(x, most)), six)
    upper = op.where(op.greater(x, most), x, inner)
    return op.where(op.less(x, least), constant(0.0, dtype), upper)


def _images(x: Any, first: Any, before: Any, second: Any, behind: Any) -> Any:
    """Convolutions of 1 x 1, channels last."""
    options = {"data_layout": "NHWC", "kernel_layout": "OHWI", "out_dtype": "float32"}
    wide = op.nn.conv2d(x, first, **options)
    hidden = op.nn.relu(op.add(op.astype(wide, str(x.ty.dtype)), before))
    wide = op.nn.conv2d(hidden, second, **options)
    return op.add(op.astype(wide, str(x.ty.dtype)), behind)


def _feed_forwards() -> list[Case]:
    def case(
        name: str,
        body: Body,
        lead: tuple[int, ...],
        sizes: tuple[int, int, int],
        turned: tuple[bool, bool] = (False, False),
        dtype: str = "float16",
    ) -> Case:
        depth, hidden, columns = sizes
        pairs = (depth, hidden), (hidden, columns)
        first, second = (p[::-1] if t else p for p, t in zip(pairs, turned, strict=True))
        shapes = ((*lead, depth), first, (hidden,), second, (columns,))
        return Case(name, "chain", body, tuple(Input(shape, dtype) for shape in shapes))

    image = ((1, 3, 70, 32), (96, 1, 1, 32), (1, 1, 1, 96), (40, 1, 1, 96), (1, 1, 1, 40))
    leaky = feed_forward(op.nn.leakyrelu, turned=(True, False))
    return [
        case("feed_forward", feed_forward(op.nn.relu), (197,), (64, 256, 64)),
        case(
            "feed_forward_turned",
            feed_forward(_wide_gelu, turned=(True, True)),
            *((2, 65), (64, 136, 48), (True, True)),
        ),
        case("feed_forward_ragged", feed_forward(_hard_swish), (130,), (40, 72, 24)),
        case("feed_forward_half_turned", leaky, (3, 70), (48, 200, 16), (True, False), "bfloat16"),
        Case("feed_forward_image", "chain", _images, tuple(Input(s, "float16") for s in image)),
    ]


CHAIN_CASES = (*_slices(), *_sizes(), *_others(), *_causal(), *_positions(), *_feed_forwards())
