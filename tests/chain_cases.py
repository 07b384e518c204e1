"""Two products with something between them, which one kernel should compute."""

from __future__ import annotations

import numpy as np
from chain_bodies import (
    Body,
    added,
    attention,
    biased,
    feed_forward,
    hard_swish,
    hidden,
    images,
    in_groups,
    kept,
    masked,
    padded,
    sliced,
    sunk,
    turned_keys,
    up_to,
    wide_gelu,
    windowed,
)
from kernels import Case, Input
from tvm.relax import op


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
        Case(
            "keys_of_all_heads",
            "chain",
            attention(0.125),
            tuple(Input(shape, "float16") for shape in ((2, 3, 72, 64), *((2, 1, 88, 64),) * 2)),
        ),
        Case(
            "keys_and_values_turned",
            "chain",
            turned_keys,
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


def _groups() -> list[Case]:
    """Heads that share keys; transformers' prompts, whose queries are scaled, too."""

    def case(
        name: str,
        body: Body,
        heads: tuple[int, int],
        sizes: tuple[int, int, int, int],
        *others: Input,
        dtype: str = "float16",
    ) -> Case:
        rows, keys, depth, columns = sizes
        of_heads = ((heads[0], rows, depth), (heads[1], keys, depth), (heads[1], keys, columns))
        inputs = (Input((2, *shape), dtype) for shape in of_heads)
        return Case(name, "chain", body, (*inputs, *others))

    square, bare = (129, 129, 64, 64), attention(1.0, kept((129, 129)))
    prompt, rows = attention(1.0, up_to(100, 30, window=200)), Input((130,), "int64")
    padding = Input((2, 1, 1, 330), "bool")
    return [
        case("groups", in_groups(attention(0.125, kept((129, 129)))), (8, 2), square),
        case("groups_one_head", in_groups(bare, (0.25,)), (8, 1), square, dtype="bfloat16"),
        case("groups_both_scaled", in_groups(bare, (0.3, 0.7)), (6, 3), square),
        case(
            "groups_prompt",
            in_groups(prompt, (80**-0.5,)),
            (8, 2),
            (130, 330, 80, 80),
            *(rows, padding),
            dtype="bfloat16",
        ),
    ]


def _slices() -> list[Case]:
    return [
        Case("slices", "chain", sliced(4, (64, 64)), (Input((2, 77, 768), "float16"),)),
        Case("slices_one_batch", "chain", sliced(2, (64, 32)), (Input((1, 130, 320), "float16"),)),
        Case("slices_bfloat16", "chain", sliced(3, (32, 32)), (Input((3, 64, 288), "bfloat16"),)),
    ]


def _sinks() -> list[Case]:
    """Each head with a sink: rows without a key among them, heads that share keys."""
    shorter, longer = (150, 90), (130, 330, 64, 64)
    heads, padding = Input((3,), "float16"), Input((2, 1, 1, 88), "bool")
    band = sunk(0.125, kept(shorter, upper=-60, fill=-65504), is_constant=True)
    nowhere = sunk(0.125, kept(shorter, upper=-60))
    steep = sunk(4.0, kept((130, 210), upper=80), rounded=False)
    prompt = in_groups(sunk(1.0, up_to(100, 30, window=200)), (80**-0.5,))
    of_heads = ((8, 130, 80), (2, 330, 80), (2, 330, 80))
    return [
        _case("sunk", sunk(0.125), (2, 3), (72, 88, 64, 64), heads),
        _case("sunk_masked", sunk(0.125, masked), (2, 3), (72, 88, 64, 40), padding, heads),
        _case("sunk_no_key", nowhere, (2, 3), (*shorter, 64, 64), heads),
        _case("sunk_steep", steep, (2, 3), (130, 210, 64, 64), heads),
        _case(
            "sunk_positions", sunk(0.125, up_to(9)), (2, 3), longer, Input((130,), "int64"), heads
        ),
        _case(
            "sunk_number",
            sunk(0.125, up_to(9, -80, window=70, is_added=True, fill=-65504), is_constant=True),
            (2, 3),
            longer,
            Input((130,), "int64"),
        ),
        _case("sunk_band", band, (2, 3), (*shorter, 64, 64)),
        Case(
            "sunk_prompt",
            "chain",
            prompt,
            (
                *(Input((2, *shape), "bfloat16") for shape in of_heads),
                Input((130,), "int64"),
                Input((8,), "bfloat16"),
            ),
        ),
    ]


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
            feed_forward(wide_gelu, turned=(True, True)),
            *((2, 65), (64, 136, 48), (True, True)),
        ),
        case("feed_forward_ragged", feed_forward(hard_swish), (130,), (40, 72, 24)),
        case("feed_forward_half_turned", leaky, (3, 70), (48, 200, 16), (True, False), "bfloat16"),
        Case("feed_forward_image", "chain", images, tuple(Input(s, "float16") for s in image)),
    ]


CHAIN_CASES = (
    *(*_slices(), *_sizes(), *_others(), *_causal(), *_positions(), *_groups()),
    *(*_sinks(), *_feed_forwards()),
)
