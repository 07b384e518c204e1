"""Random words are those of Philox 4x32-10, and what is made of them stays within its bounds."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import tvm
from tvm import relax, te

import tvm_tile
from tvm_tile.loops.random import Draw, exponential, integers, normal, uniform
from tvm_tile.registered import philox
from tvm_tile.verify.philox import philox as philox_in_numpy

# Random123's known answers (kat_vectors): four words of a counter, two of a key, four random ones.
KNOWN = (
    "00000000 00000000 00000000 00000000 00000000 00000000 6627e8d5 e169c58d bc57ac4c 9b00dbd8",
    "ffffffff ffffffff ffffffff ffffffff ffffffff ffffffff 408f276d 41c83b0e a20bc7c6 6d5451fd",
    "243f6a88 85a308d3 13198a2e 03707344 a4093822 299f31d0 d16cfe09 94fdcceb 5001e420 24126ea1",
)
LONG = ("stream", "int64"), ("seed", "int64"), ("calls", "int64")
ARGUMENTS = (("block", "int32"), *LONG, ("word", "int32"))


def signed(value: int, dtype: str) -> np.ndarray:
    """An unsigned integer as the signed one of the same bits."""
    return np.array(value, f"u{dtype}").view(dtype)


def known_arguments() -> tuple[list[np.ndarray], np.ndarray]:
    """Arguments of all known words, and these."""
    rows, words = [], []
    for text in KNOWN:
        c0, c1, c2, c3, k0, k1, *wanted = (int(word, 16) for word in text.split())
        values = c0, c1, k0 | k1 << 32, c2 | c3 << 32
        for number, word in enumerate(wanted):
            pairs = zip((*values, number), ARGUMENTS, strict=True)
            rows.append([signed(value, dtype) for value, (_, dtype) in pairs])
            words.append(word)
    return [np.array(column) for column in zip(*rows, strict=True)], np.array(words, np.uint32)


def in_a_kernel(arguments: list[np.ndarray]) -> np.ndarray:
    """Words that a model computes on the emulated device."""
    builder = relax.BlockBuilder()
    count = len(arguments[0])
    given = [relax.Var(name, relax.TensorType((count,), dtype)) for name, dtype in ARGUMENTS]

    def loops(*tensors: te.Tensor) -> te.Tensor:
        return te.compute((count,), lambda i: philox(*(tensor(i) for tensor in tensors)), "words")

    with builder.function("main", given):
        with builder.dataflow():
            made = builder.emit_output(builder.emit_te(loops, *given))
        builder.emit_func_output(made)
    model = tvm_tile.compile(builder.get(), "emulated")
    return np.asarray(model(*arguments))


def test_known_answers() -> None:
    arguments, wanted = known_arguments()
    assert (philox_in_numpy(*arguments) == wanted).all()
    assert (in_a_kernel(arguments) == wanted).all()


def test_words_are_equal_bit_by_bit() -> None:
    rng = np.random.default_rng(0)
    arguments = [
        rng.integers(0, 4, 5000, dtype)
        if name == "word"
        else rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, 5000, dtype, endpoint=True)
        for name, dtype in ARGUMENTS
    ]
    found = in_a_kernel(arguments)
    assert (found == philox_in_numpy(*arguments)).all()
    assert len(np.unique(found)) > 4990


def drawn(draw: Draw, state: tuple[int, int] = (1, 2), stream: int = 3) -> np.ndarray:
    """What TVM's build for the CPU draws."""
    given = te.placeholder((2,), "int64", "state"), te.placeholder((), "int64", "stream")
    made = draw(*given)
    func = te.create_prim_func([*given, made]).with_attr("global_symbol", "draw")
    built = tvm.compile(tvm.IRModule({"draw": func}), target="llvm")
    out = tvm.runtime.empty(tuple(map(int, made.shape)), str(made.dtype))
    built["draw"](*(tvm.runtime.tensor(np.array(v, np.int64)) for v in (state, stream)), out)
    return out.numpy()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_uniform_numbers_are_below_one(dtype: str) -> None:
    found = drawn(uniform((300, 333), dtype)).astype(np.float64)
    digits = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}[dtype]
    assert found.min() >= 0
    assert found.max() < 1
    assert (found * 2.0**digits % 1 == 0).all()
    assert abs(found.mean() - 0.5) < 0.01
    if digits < 12:  # all that there are
        assert len(np.unique(found)) == 2**digits


def test_uniform_numbers_are_made_of_one_word_each() -> None:
    """Of half precision, too, they are the upper bits of the words that float32 is made of."""
    wide, half = (drawn(uniform((1000,), dtype)) for dtype in ("float32", "float16"))
    assert (np.floor(wide * 2048) / 2048 == half).all()
    place = np.arange(1000)
    counter = [np.full(1000, value, np.int64) for value in (3, 1, 2)]
    own = philox_in_numpy((place // 4).astype(np.int32), *counter, (place % 4).astype(np.int32))
    assert ((own >> 8) * 2.0**-24 == wide).all()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_normal_and_exponential_numbers_are_finite(dtype: str) -> None:
    deviations = drawn(normal((100, 1001), dtype)).astype(np.float64)
    times = drawn(exponential((100, 1001), dtype)).astype(np.float64)
    assert np.isfinite([deviations, times]).all()
    assert abs(deviations.std() - 1) < 0.02
    assert abs(times.mean() - 1) < 0.02
    assert (times > 0).all()


@pytest.mark.parametrize(("low", "high"), [(0, 2), (-5, 8), (0, 2**63 - 1), (-(2**63), 2**63)])
def test_integers_fill_their_range(low: int, high: int) -> None:
    found = drawn(integers((4000,), "int64", low, high))
    assert found.min() >= low
    assert found.max() < high
    middle = low + (high - low) / 2
    assert abs(np.mean(found.astype(np.float64) >= middle) - 0.5) < 0.05 or high - low == 13


def test_integers_of_no_range_are_refused() -> None:
    for low, high in ((3, 3), (-(2**63), 2**63 - 1)):
        with pytest.raises(ValueError, match="integers from"):
            integers((4,), "int64", low, high)


def test_streams_seeds_and_calls_differ() -> None:
    draws = [
        drawn(uniform((1000,), "float32"), state, stream)
        for state, stream in (((0, 0), 0), ((1, 0), 0), ((0, 1), 0), ((0, 0), 1), ((0, 0), 1 << 32))
    ]
    correlations = np.corrcoef(draws) - np.eye(5)
    assert np.abs(correlations).max() < 0.15


def test_bfloat16_is_numpys() -> None:
    assert drawn(uniform((4,), "bfloat16")).dtype == ml_dtypes.bfloat16
