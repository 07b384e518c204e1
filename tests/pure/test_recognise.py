"""What is found in the values of tensors that are computed of codes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from coded import CODES, formats, random_coded
from hypothesis import given
from hypothesis import strategies as st

from tvm_tile.graph.codes import Coded, numbers_of, numpy_dtype, spread, unpack
from tvm_tile.graph.recognise import encoded, is_exact
from tvm_tile.graph.tensor_format import (
    E2M1,
    E4M3,
    E5M2,
    E8M0,
    Entries,
    Floats,
    Integers,
    TensorFormat,
)
from tvm_tile.graph.traced import Traced

RNG = np.random.default_rng(0)
ARRIVING: dict[Floats, type] = {
    E2M1: ml_dtypes.float8_e4m3fn,
    E4M3: ml_dtypes.float8_e4m3fn,
    E5M2: ml_dtypes.float8_e5m2,
}
RECOGNISED = [code for code in CODES if code != E8M0]


def traced(coded: Coded) -> Traced:
    """A tensor as a model would compute it: the codes in whole bytes, operands at full length."""
    form, shape = coded.format, coded.shape
    patterns = unpack(coded.packed, form.code.bits, shape[-1])
    if isinstance(form.code, Entries):
        value = Traced.of(patterns.astype(np.int64), form.entry, coded.table)
    elif isinstance(form.code, Floats):
        codes = numbers_of(form.code)[patterns].astype(ARRIVING[form.code])
        value = Traced.of(codes, "float32")
    else:
        value = Traced.of(numbers_of(form.code)[patterns], "int32")
    steps = ["less"] * (form.zero is not None) + ["times"] * len(form.scales)
    steps += ["plus"] * (form.offset is not None)
    for step, shared, array in zip(steps, form.shared, coded.shared, strict=True):
        values = np.array(spread(shared, array, shape)).astype(numpy_dtype(shared.dtype))
        found = getattr(value.cast(shared.dtype), step)(values)
        assert found is not None
        value = found
    return value.cast(form.dtype)


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    whole = f"uint{a.itemsize * 8}"
    is_same = (a.view(whole) == b.view(whole)) | (np.isnan(a) & np.isnan(b))
    return a.dtype == b.dtype and bool(is_same.all())


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_what_was_computed_is_found_again(dtype: str) -> None:
    for form in formats(dtype):
        if form.code == E8M0:
            continue
        coded = random_coded(form, (16, 96), seed=5)
        value = traced(coded)
        found = encoded(value)
        assert found is not None
        assert same_bits(found.values(), coded.values()), str(form)
        assert same_bits(value.values(), coded.values()), str(form)
        assert is_exact(value, found), str(form)
        assert found.nbytes <= coded.nbytes, f"{form} became {found.format}"


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_values_of_large_boxes_are_those_of_their_steps(dtype: str) -> None:
    """They are picked of what each code means in each box, 2048 elements here."""
    for form in formats(dtype):
        if form.code != E8M0:
            large = form.with_boxes([(32, 64) for _ in form.shared])
            coded = random_coded(large, (64, 128), seed=6)
            assert same_bits(coded.values(), traced(coded).values()), str(large)


@pytest.mark.parametrize("code", RECOGNISED, ids=str)
def test_codes_are_of_as_few_bits_as_their_values_need(code: Integers | Floats | Entries) -> None:
    entry = "int32" if isinstance(code, Integers) else "float32"
    coded = random_coded(TensorFormat(code, entry, "float32"), (32, 64))
    found = encoded(traced(coded))
    assert found is not None
    assert found.format == TensorFormat(code, entry, "float32")
    assert same_bits(found.values(), coded.values())


def test_boxes_are_found_in_values() -> None:
    codes = RNG.integers(-8, 8, (12, 70)).astype(np.int8)
    scales = RNG.random((6, 3)).astype(np.float32)
    spread_ = np.repeat(np.repeat(scales, 2, 0), 32, 1)[:, :70]
    value = Traced.of(codes, "float32").times(spread_)
    assert value is not None
    found = encoded(value)
    assert found is not None
    assert [shared.box for shared in found.format.shared] == [(2, 32)]
    np.testing.assert_array_equal(found.shared[0], scales)


@pytest.mark.parametrize(("side", "found"), [(24, 24), (20, 4), (32, 32), (7, 1)])
def test_boxes_that_divide_nothing_are_powers_of_two(side: int, found: int) -> None:
    scales = np.repeat(RNG.random((1, 96)).astype(np.float32), side, 1)[:, :72]
    value = Traced.of(RNG.integers(0, 16, (2, 72)), "float32").times(scales)
    assert value is not None
    coded = encoded(value)
    assert coded is not None
    assert coded.format.scales[0].box == (2, found)
    assert same_bits(coded.values(), value.codes.astype(np.float32) * scales)


def test_moved_elements_take_their_operands_along() -> None:
    codes = RNG.integers(0, 16, (4, 8, 16)).astype(np.uint8)
    value = Traced.of(codes, "float32").times(RNG.random((4, 8, 1)).astype(np.float32))
    assert value is not None
    moved = value.moved(lambda array: array.reshape(4, 128))
    assert moved is not None
    turned = moved.moved(np.transpose)
    assert turned is not None
    found = encoded(turned)
    assert found is not None
    assert found.format.scales[0].box == (16, 1)
    assert found.shape == (128, 4)
    assert value.moved(lambda array: None) is None


@pytest.mark.parametrize(
    ("operand", "dtype", "stored"),
    [
        (np.float32([[0.5], [8]]), "float32", E8M0),
        (np.float32([[3], [8]]), "float32", "uint8"),
        (np.float32([[-3], [8]]), "float32", "int8"),
        (np.float32([[-0.0], [8]]), "float32", "float32"),
        (np.float32([[0.1], [8]]), "float32", "float32"),
        (np.float32([[0.75], [8]]), "float32", "float32"),
        (np.float32([[0.75], [8]]), "float16", "float16"),
        (np.float32([[0.75], [2**-100]]), "float16", "bfloat16"),
        (np.float32([[0.75], [8]]), "bfloat16", "bfloat16"),
        (np.float32([[0.1], [8]]), "bfloat16", "float32"),
    ],
)
def test_operands_are_kept_in_the_narrowest_type(
    operand: np.ndarray, dtype: str, stored: str | Floats
) -> None:
    value = Traced.of(RNG.integers(0, 16, (2, 64)), "float32").times(operand)
    assert value is not None
    found = encoded(replace(value, dtype=dtype))
    assert found is not None
    assert found.format.scales[0].stored == stored
    back = spread(found.format.scales[0], found.shared[0], (2, 64)).astype(np.float32)
    np.testing.assert_array_equal(back[:, :1], operand)


def test_powers_of_two_that_halves_are_multiplied_by_are_bytes() -> None:
    value = Traced.of(RNG.integers(0, 16, (2, 64)), "bfloat16")
    scales = np.array([[0.5], [8]], ml_dtypes.bfloat16)
    found = encoded(value.times(scales))
    assert found is not None
    assert found.format.scales[0].stored == E8M0
    assert is_exact(value.times(scales), found)


def test_a_table_of_all_floats_of_four_bits_is_no_table() -> None:
    numbers = numbers_of(E2M1)
    codes = RNG.integers(0, 16, (4, 64))
    for table, code in ((numbers, E2M1), (numbers[::-1], Entries(4)), (abs(numbers), Entries(4))):
        value = Traced.of(codes, "float32", table=table)
        found = encoded(value)
        assert found is not None
        assert found.format.code == code
        assert is_exact(value, found)


def grouped() -> tuple[Traced, Coded]:
    """Codes of 4 bits whose scales and zeros are one for 32 of a row."""
    codes = RNG.integers(0, 16, (8, 128)).astype(np.uint8)
    zeros, scales = (RNG.random((8, 4, 1)).astype(np.float16) + own for own in (3, 1))
    value = Traced.of(codes.reshape(8, 4, 32), "float16").less(zeros)
    value = value and value.times(scales)
    value = value and value.moved(lambda own: own.reshape(8, 128))
    assert value is not None
    found = encoded(value)
    assert found is not None
    return value, found


def test_whether_codes_are_exact_is_seen_without_the_whole_tensor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    value, found = grouped()
    computed: list[int] = []
    for kind in (Traced, Coded):
        of_each: Any = kind.of_each

        def counted(own: Any, *of: Any, of_each: Any = of_each) -> np.ndarray:
            made: np.ndarray = of_each(own, *of)
            computed.append(made.size)
            return made

        monkeypatch.setattr(kind, "of_each", counted)
        monkeypatch.setattr(kind, "values", lambda own: pytest.fail("all of it was computed"))
    assert is_exact(value, found)
    assert computed == [16 * 8 * 4] * 2


def test_what_is_not_exact_is_seen() -> None:
    value, found = grouped()
    other = found.packed.copy()
    other[-1, -1] ^= 16
    assert not is_exact(value, replace(found, packed=other))
    for place in range(2):
        array = found.shared[place].copy()
        array[-1, -1] = np.nextafter(array[-1, -1], np.float16(9))
        shared = (*found.shared[:place], array, *found.shared[place + 1 :])
        assert not is_exact(value, replace(found, shared=shared))
        step = value.steps[place + 1]
        assert step.operand is not None
        operand = step.operand.copy()
        operand[3, 40] += 1  # within a box
        steps = (*value.steps[: place + 1], replace(step, operand=operand))
        assert not is_exact(replace(value, steps=(*steps, *value.steps[place + 2 :])), found)


def test_codes_that_are_nowhere_may_mean_anything() -> None:
    codes = np.uint8([[0, 1, 2, 255] * 64, [0, 1, 2, 3] * 64])
    scales = np.float16([[200], [300]])  # 255 * 300 is more than a half can be
    value = Traced.of(codes, "float32").times(scales.astype(np.float32))
    assert value is not None
    found = encoded(value.cast("float16"))
    assert found is not None
    assert is_exact(value.cast("float16"), found)


@pytest.mark.parametrize(
    ("zero", "code", "is_kept"),
    [(0, "uint4", False), (8, "int4", False), (3, "uint4", True), (0.5, "uint4", True)],
)
def test_one_zero_point_goes_into_the_codes(zero: float, code: str, is_kept: bool) -> None:
    codes = np.arange(64).reshape(4, 16) % 16
    value = Traced.of(codes, "float32").less(np.float32([[zero]]))
    assert value is not None
    found = encoded(value)
    assert found is not None
    assert str(found.format.code) == code
    assert (found.format.zero is not None) == is_kept
    np.testing.assert_array_equal(found.values(), codes.astype(np.float32) - np.float32(zero))


def test_zero_points_of_integers_do_not_wrap_around() -> None:
    codes, zeros = np.uint8([[0, 255]]), np.uint8([[200], [9]])
    value = Traced.of(np.repeat(codes, 2, 0), "uint8").less(zeros)
    assert value is not None
    found = encoded(value.cast("float32"))
    assert found is not None
    np.testing.assert_array_equal(found.values(), [[-200, 55], [-9, 246]])


@pytest.mark.parametrize("wide", [np.int32([[0, 256]]), np.int64([[-129, 4]])])
def test_wider_codes_are_none(wide: np.ndarray) -> None:
    assert encoded(Traced.of(wide, "float32")) is None
    assert encoded(Traced.of(np.int64([[-1, 2]]), "float32", np.float32([1, 2, 3]))) is None
    assert encoded(Traced.of(np.int64([[0, 3]]), "float32", np.float32([1, 2, 3]))) is None


def test_steps_that_no_format_has() -> None:
    ones = np.float32([[1.5]])
    scaled = Traced.of(np.int8([[1, 2]]), "float32").times(ones)
    assert scaled is not None
    # A compiler may fuse the product into the sum.
    assert scaled.plus(ones) is None
    assert scaled.less(ones) is None
    rounded = scaled.cast("float16").cast("float32")
    added = rounded.plus(ones)
    assert added is not None
    assert added.plus(ones) is None
    assert added.times(ones) is None
    assert Traced.of(np.int8([[1, 2]]), "int8").times(np.int8([[2]])) is None
    moved = Traced.of(np.int8([[1, 2]]), "int8").plus(np.int8([[2]]))
    assert moved is not None
    assert moved.plus(np.int8([[2]])) is None


def test_truth_values_and_other_floats_are_codes() -> None:
    truths = Traced.of(np.array([[True, False, True]]), "float32")
    found = encoded(truths)
    assert found is not None
    assert str(found.format) == "uint1"
    np.testing.assert_array_equal(found.values(), [[1, 0, 1]])
    others = np.arange(128, dtype=np.uint8).reshape(2, 64).view(ml_dtypes.float8_e4m3fnuz)
    found = encoded(Traced.of(others, "float32"))
    assert found is not None
    assert found.format.code == Entries(7)
    np.testing.assert_array_equal(found.values(), others.astype(np.float32))


@given(st.integers(1, 8), st.integers(1, 5), st.integers(1, 40), st.integers(0, 99))
def test_random_codes_and_scales(bits: int, rows: int, columns: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    codes = rng.integers(-(1 << (bits - 1)), 1 << (bits - 1), (rows, columns))
    side = int(rng.integers(1, columns + 1))
    scales = rng.standard_normal((rows, -(-columns // side))).astype(np.float32)
    long = np.repeat(scales, side, 1)[:, :columns]
    value = Traced.of(codes, "float32").times(long)
    assert value is not None
    found = encoded(value)
    assert found is not None
    assert same_bits(found.values(), codes.astype(np.float32) * long)
