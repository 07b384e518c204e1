"""Relay's quantised operators, against integers of Python and fractions."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from relay_calls import call
from relay_operators import Known, equal

pytestmark = pytest.mark.bank(6)

_RNG = np.random.default_rng(4)


def scale(*numbers: float) -> Known:
    return Known(numbers if len(numbers) > 1 else numbers[0], "float32")


def zero(*numbers: int) -> Known:
    return Known(numbers if len(numbers) > 1 else numbers[0], "int32")


def drawn(*shape: int, dtype: str = "int8") -> np.ndarray:
    bounds = np.iinfo(dtype)
    return _RNG.integers(bounds.min, bounds.max, shape, endpoint=True).astype(dtype)


def within(number: int, dtype: str) -> int:
    bounds = np.iinfo(dtype)
    return int(min(max(number, bounds.min), bounds.max))


def fixed(number: int, ratio: float, rounding: str = "UPWARD") -> int:
    """``number * ratio`` with a ratio of 31 bits."""
    mantissa, exponent = math.frexp(ratio)
    exact = number * Fraction(math.floor(mantissa * 2**31 + 0.5), 2**31) * Fraction(2) ** exponent
    if rounding == "UPWARD" or exact >= 0:
        return math.floor(exact + Fraction(1, 2))
    return -math.floor(-exact + Fraction(1, 2))


def ratio(old: float, new: float) -> float:
    return float(np.float32(old)) / float(np.float32(new))


_NUMBERS = np.array([-70000, -51, -50, -3, -2, -1, 0, 1, 2, 3, 50, 51, 70000], "int32")


@pytest.mark.parametrize("rounding", ["UPWARD", "TONEAREST", "None"])
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int16"])
@pytest.mark.parametrize(("old", "new"), [(0.5, 1.0), (0.01, 0.37), (1.7, 0.3), (0.25, 0.25)])
def test_requantize(rounding: str, dtype: str, old: float, new: float) -> None:
    found = call(
        "qnn.requantize", _NUMBERS, scale(old), zero(3), scale(new), zero(-2),
        rounding=rounding, out_dtype=dtype,
    )  # fmt: skip
    rounding = "UPWARD" if rounding == "None" else rounding
    moved = [fixed(int(x) - 3, ratio(old, new), rounding) - 2 for x in _NUMBERS]
    equal(found, np.array([within(x, dtype) for x in moved], dtype))


@pytest.mark.parametrize("rounding", ["UPWARD", "TONEAREST"])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_requantize_each_channel(rounding: str, axis: int) -> None:
    x = _RNG.integers(-3000, 3000, (3, 3)).astype("int32")
    olds, zeros = (0.01, 0.5, 1.25), (0, -7, 3)
    found = call(
        "qnn.requantize", x, scale(*olds), zero(*zeros), scale(0.5), zero(1),
        rounding=rounding, axis=axis, out_dtype="int8",
    )  # fmt: skip
    expected = np.zeros((3, 3), "int8")
    for at in np.ndindex(3, 3):
        own = at[axis]
        moved = fixed(int(x[at]) - zeros[own], ratio(olds[own], 0.5), rounding) + 1
        expected[at] = within(moved, "int8")
    equal(found, expected)


@pytest.mark.parametrize(("rounding", "halves"), [("UPWARD", [-1, 0, 1, 2]), ("TONEAREST", [-2, -1, 1, 2])])  # fmt: skip  # noqa: E501
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_requantize_in_floats(rounding: str, halves: list[int], dtype: str) -> None:
    x = np.array([-3, -1, 1, 3], "int32")
    found = call(
        "qnn.requantize", x, scale(0.5), zero(0), scale(1.0), zero(0),
        rounding=rounding, compute_dtype=dtype, out_dtype="int32",
    )  # fmt: skip
    equal(found, np.array(halves, "int32"))


def test_scales_that_are_refused() -> None:
    x = np.zeros((2, 3), "int32")
    with pytest.raises(NotImplementedError, match="a scale that is known only at run time"):
        call("qnn.requantize", x, np.float32(1), zero(0), scale(1), zero(0))
    with pytest.raises(ValueError, match="for an axis of 3"):
        call("qnn.requantize", x, scale(1, 2), zero(0), scale(1), zero(0))
    with pytest.raises(ValueError, match="scales"):
        call("qnn.requantize", x, scale(0), zero(0), scale(1), zero(0))
    with pytest.raises(NotImplementedError, match="for each channel"):
        call("qnn.requantize", x, scale(1), zero(0), scale(1, 2, 3), zero(0))


def test_quantize_rounds_halves_away_from_zero_before_the_zero_point() -> None:
    x = np.array([[-1.25, -0.75, -0.25, 0.25, 0.75, 1.25, 1000, -1000]], "float32")
    found = call("qnn.quantize", x, scale(0.5), zero(-1), out_dtype="int8")
    equal(found, np.array([[-4, -3, -2, 0, 1, 2, 127, -128]], "int8"))
    scales, zeros = scale(*[0.5, 0.25] * 4), zero(*range(8))
    found = call("qnn.quantize", x, scales, zeros, out_dtype="uint8", axis=1)
    equal(found, np.array([[0, 0, 1, 4, 6, 10, 255, 0]], "uint8"))


def test_dequantize() -> None:
    x = drawn(2, 3, 4)
    steps, zeros = np.array([0.5, 0.1, 2], "float32"), np.array([3, -128, 127], "int32")
    found = call("qnn.dequantize", x, steps, zeros, axis=1, out_dtype="float32")
    whole = x.astype("int32") - zeros[:, None]
    equal(found, whole.astype("float32") * steps[:, None])


@pytest.mark.parametrize("name", ["qnn.add", "qnn.subtract", "qnn.mul"])
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("new", [(0.1, 2), (0.07, -1)])
def test_arithmetic(name: str, dtype: str, new: tuple[float, int]) -> None:
    left, right = drawn(4, 50, dtype=dtype), drawn(50, dtype=dtype)
    ends = scale(new[0]), zero(new[1])
    found = call(name, left, right, scale(0.1), zero(2), scale(0.04), zero(5), *ends)
    expected = np.zeros((4, 50), dtype)
    for at in np.ndindex(4, 50):
        a, b = int(left[at]) - 2, int(right[at[1]]) - 5
        if name == "qnn.mul":
            both = float(np.float32(0.1) * np.float32(0.04))
            total = fixed(a * b, ratio(both, new[0])) + new[1]
        else:
            own = a if new == (0.1, 2) else fixed(a, ratio(0.1, new[0]))
            other = fixed(b, ratio(0.04, new[0]))
            total = (own + other if name == "qnn.add" else own - other) + new[1]
        expected[at] = within(total, dtype)
    equal(found, expected)


def test_concatenate() -> None:
    x, y = drawn(2, 3), drawn(2, 4)
    scales, zeros = [scale(0.1), scale(0.25)], [zero(1), zero(2)]
    found = call("qnn.concatenate", [x, y], scales, zeros, scale(0.25), zero(2), axis=1)
    moved = [within(fixed(int(n) - 1, ratio(0.1, 0.25)) + 2, "int8") for n in x.ravel()]
    equal(found, np.concatenate([np.array(moved, "int8").reshape(2, 3), y], 1))


@pytest.mark.parametrize("types", [("int8", "int8"), ("uint8", "int8"), ("uint8", "uint8")])
@pytest.mark.parametrize("zeros", [(0, 0), (3, 0), (0, 5), (3, 5)])
def test_products(types: tuple[str, str], zeros: tuple[int, int]) -> None:
    x, w = drawn(4, 6, dtype=types[0]), drawn(5, 6, dtype=types[1])
    ends = zero(zeros[0]), zero(zeros[1]), scale(0.1), scale(0.2)
    a, b = x.astype("int32") - zeros[0], w.astype("int32") - zeros[1]
    equal(call("qnn.dense", x, w, *ends, units=5, out_dtype="int32"), a @ b.T)
    found = call("qnn.batch_matmul", x[None], w[None], *ends, transpose_b=True, out_dtype="int32")
    equal(found, (a @ b.T)[None])
    packed = np.ascontiguousarray(w[:4].reshape(1, 4, 6).transpose(0, 2, 1))
    settings = {"units": 4, "weight_layout": "NC4n", "out_dtype": "int32"}
    equal(call("qnn.contrib_dense_pack", x, packed, *ends, **settings), a @ b[:4].T)


@pytest.mark.parametrize("known", [True, False])
def test_zero_points_of_each_channel(known: bool) -> None:
    x, w = drawn(4, 6), drawn(5, 6)
    points = np.array([1, -2, 0, 3, 127], "int32")
    last = Known(points) if known else points
    found = call("qnn.dense", x, w, zero(7), last, scale(1), scale(1), units=5, out_dtype="int32")
    equal(found, (x.astype("int32") - 7) @ (w.astype("int32") - points[:, None]).T)


@pytest.mark.parametrize("name", ["qnn.conv2d", "qnn.conv2d_transpose"])
@pytest.mark.parametrize("zeros", [(0, 0), (3, 0), (3, 5)])
def test_padding_is_of_zero_points(name: str, zeros: tuple[int, int]) -> None:
    x, w = drawn(1, 3, 5, 6), drawn(3, 3, 2, 3)
    ends = zero(zeros[0]), zero(zeros[1]), scale(0.1), scale(0.2)
    found = call(name, x, w, *ends, padding=(1, 1), out_dtype="int32")
    a, b = x.astype("int32") - zeros[0], w.astype("int32") - zeros[1]
    expected = call(name.removeprefix("qnn.").replace("conv", "nn.conv"), a, b, padding=(1, 1))
    equal(found, expected)


_FUNCTIONS = {
    "qnn.abs": abs,
    "qnn.erf": math.erf,
    "qnn.exp": math.exp,
    "qnn.hardswish": lambda x: x * min(max(x + 3, 0), 6) / 6,
    "qnn.sigmoid": lambda x: 1 / (1 + math.exp(-x)),
    "qnn.tanh": math.tanh,
    "qnn.log": lambda x: math.log(x) if x > 0 else -math.inf,
    "qnn.sqrt": math.sqrt,
    "qnn.rsqrt": lambda x: 1 / math.sqrt(x) if x else math.inf,
}


@pytest.mark.parametrize("name", list(_FUNCTIONS))
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_functions(name: str, dtype: str) -> None:
    bounds = np.iinfo(dtype)
    positive = name in ("qnn.log", "qnn.sqrt", "qnn.rsqrt")
    x = np.arange(bounds.min, bounds.max + 1).astype(dtype)
    point = bounds.min if positive else 3
    found = call(name, x, scale(0.05), zero(point), scale(0.02), zero(-1))
    step = float(np.float32(0.05))
    numbers = [_FUNCTIONS[name](step * (int(n) - point)) / float(np.float32(0.02)) - 1 for n in x]
    exact = np.clip(numbers, bounds.min, bounds.max)
    # Of what lies between two integers either is right to half of one, but for float32.
    assert found.dtype == dtype
    assert np.abs(found - exact).max() <= 0.5 + 1e-3


def test_leaky_relu() -> None:
    x = np.arange(-128, 128).astype("int8")
    ends = scale(0.1), zero(2), scale(0.08), zero(1)
    found = call("qnn.leaky_relu", x, *ends, alpha=0.1)
    moved = [fixed(int(n) - 2, ratio(0.1, 0.08)) + 1 for n in x]
    below = [fixed(m, 0.1) + fixed(1, 0.9) for m in moved]
    chosen = [b if n < 2 else m for n, b, m in zip(x, below, moved, strict=True)]
    equal(found, np.array([within(n, "int8") for n in chosen], "int8"))


def shares(row: list[int], unit: int) -> list[int]:
    """Relay's softmax of integers, of which ``unit`` stands for 1, in 128ths."""
    powers = []
    for x in (n - max(row) for n in row):
        power = -(x + (x >> 1) - (x >> 4))
        shift = 8 - power // unit
        powers.append((-(power % unit) // 2 + unit) << shift if shift >= 0 else 0)
    return [((1 << 30) // sum(powers) * p) >> 23 for p in powers]


@pytest.mark.parametrize(("old", "unit"), [(0.05, 20), (0.4, 3)])
def test_softmax(old: float, unit: int) -> None:
    rows = np.concatenate(
        [drawn(4, 5), np.array([[127, -128, 126, 100, 0], [3, 3, 3, 3, 3]], "int8")]
    )
    found = call("qnn.softmax", rows, scale(old), zero(3), scale(1 / 256), zero(-128), axis=-1)
    wanted = [[within(2 * n - 128, "int8") for n in shares(row, unit)] for row in rows.tolist()]
    equal(found, np.array(wanted, "int8"))
    with pytest.raises(NotImplementedError, match="softmax of int8 with a scale of 3"):
        call("qnn.softmax", rows, scale(3), zero(3), scale(1 / 256), zero(-128), axis=-1)


@pytest.mark.parametrize("new", [(0.1, 2), (0.2, -3)])
def test_avg_pool2d(new: tuple[float, int]) -> None:
    x = drawn(1, 2, 4, 4)
    ends = scale(0.1), zero(2), scale(new[0]), zero(new[1])
    found = call("qnn.avg_pool2d", x, *ends, pool_size=(2, 2), strides=(2, 2))
    own = x.astype("int32")
    if new != (0.1, 2):
        moved = [fixed(int(n) - 2, ratio(0.1, new[0])) + new[1] for n in x.ravel()]
        own = np.array(moved).reshape(x.shape)
    total = own.reshape(1, 2, 2, 2, 2, 2).sum((3, 5))
    equal(found, (np.sign(total) * (abs(total) // 4)).astype("int8"))
