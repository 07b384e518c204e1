"""Codes of a few bits: what each means, how they are packed, and what values they decode to."""

from __future__ import annotations

import math
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
from coded import formats, random_coded
from hypothesis import given
from hypothesis import strategies as st

from tvm_tile.files.json_data import revived, text_of
from tvm_tile.graph.codes import Coded, numbers_of, numpy_dtype, pack, spread, stacked, unpack
from tvm_tile.graph.tensor_format import (
    E2M1,
    E4M3,
    E5M2,
    E8M0,
    Entries,
    Floats,
    Integers,
    Shared,
    TensorFormat,
)

FLOATS = {
    E2M1: ml_dtypes.float4_e2m1fn,
    E4M3: ml_dtypes.float8_e4m3fn,
    E5M2: ml_dtypes.float8_e5m2,
    E8M0: ml_dtypes.float8_e8m0fnu,
}


@pytest.mark.parametrize("code", FLOATS, ids=str)
def test_floats_are_those_of_ml_dtypes(code: Floats) -> None:
    patterns = np.arange(1 << code.bits, dtype=np.uint8)
    expected = patterns.view(FLOATS[code]).astype(np.float32)
    found = numbers_of(code)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, expected)
    is_number = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(found)[is_number], np.signbit(expected)[is_number])


@pytest.mark.parametrize("bits", range(1, 9))
def test_integers_are_in_order(bits: int) -> None:
    np.testing.assert_array_equal(numbers_of(Integers(bits, False)), np.arange(1 << bits))
    half = 1 << (bits - 1)
    signed = [*range(half), *range(-half, 0)]
    np.testing.assert_array_equal(numbers_of(Integers(bits, True)), signed)


def test_integers_of_four_bits_are_those_of_ml_dtypes() -> None:
    patterns = np.arange(16, dtype=np.uint8)
    for is_signed, dtype in ((True, ml_dtypes.int4), (False, ml_dtypes.uint4)):
        expected = patterns.view(dtype).astype(np.int32)
        np.testing.assert_array_equal(numbers_of(Integers(4, is_signed)), expected)


@pytest.mark.parametrize("bits", [0, 9])
def test_codes_are_of_one_to_eight_bits(bits: int) -> None:
    for make in (lambda: Integers(bits, False), lambda: Entries(bits)):
        with pytest.raises(ValueError, match=f"not {bits}"):
            make()


def test_entries_have_no_numbers_of_their_own() -> None:
    with pytest.raises(ValueError, match="only a table"):
        numbers_of(Entries(4))


def test_the_first_of_two_codes_is_the_low_half_of_a_byte() -> None:
    packed = pack(np.array([[1, 2, 3], [4, 5, 6]], np.uint8), 4)
    np.testing.assert_array_equal(packed, [[0x21, 0x03], [0x54, 0x06]])


@given(st.integers(1, 8), st.lists(st.integers(1, 9), min_size=1, max_size=3), st.integers(0, 99))
def test_packing_loses_nothing(bits: int, shape: list[int], seed: int) -> None:
    generator = np.random.default_rng(seed)
    patterns = generator.integers(0, 1 << bits, shape).astype(np.uint8)
    packed = pack(patterns, bits)
    form = TensorFormat(Integers(bits, False), "int32", "float32")
    assert packed.shape == form.packed_shape(tuple(shape))
    np.testing.assert_array_equal(unpack(packed, bits, shape[-1]), patterns)
    # Little end first, as Python reads numbers.
    row = patterns.reshape(-1, shape[-1])[0].tolist()
    number = int.from_bytes(packed.reshape(-1, packed.shape[-1])[0].tobytes(), "little")
    assert [(number >> (place * bits)) % (1 << bits) for place in range(len(row))] == row


def test_bytes_are_those_of_all_that_is_kept() -> None:
    shape = (256, 1000)
    scale, zero = Shared((1, 128), "float16", "float16"), Shared((1, 128), "uint8", "int32")
    form = TensorFormat(Integers(4, False), "int32", "float16", zero, (scale,))
    assert form.bytes(shape) == 256 * 500 + 256 * 8 * (2 + 1)
    assert form.value_bytes(shape) == 256 * 1000 * 2
    table = TensorFormat(
        Entries(4), "float32", "float32", None, (Shared((1, 64), E8M0, "float32"),)
    )
    assert table.bytes((8, 64)) == 8 * 32 + 16 * 4 + 8


def test_steps_round_one_by_one() -> None:
    codes = np.array([[3, 250]], np.uint8)
    scale = np.array([[0.1]], np.float16)
    form = TensorFormat(
        Integers(8, False),
        "int32",
        "float32",
        Shared((1, 2), "uint8", "int32"),
        (Shared((1, 2), "float16", "float16"),),
        Shared((1, 2), "float32", "float32"),
    )
    shared = np.array([[7]], np.uint8), scale, np.array([[1.5]], np.float32)
    values = Coded(form, (1, 2), pack(codes, 8), None, shared).values()
    products = (np.array([[-4, 243]], np.float16) * scale).astype(np.float32)
    np.testing.assert_array_equal(values, products + np.float32(1.5))
    assert values.dtype == np.float32


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_decoding_is_what_numpy_computes(dtype: str) -> None:
    generator = np.random.default_rng(1)
    shape, box = (6, 70), (2, 32)
    wide = numpy_dtype(dtype)
    table = generator.standard_normal(16).astype(wide)
    patterns = generator.integers(0, 16, shape).astype(np.uint8)
    form = TensorFormat(Entries(4), dtype, dtype, None, (Shared(box, dtype, dtype),))
    scales = generator.standard_normal(form.scales[0].shape(shape)).astype(wide)
    coded = Coded(form, shape, pack(patterns, 4), table, (scales,))
    blocks = np.repeat(np.repeat(scales, 2, 0), 32, 1)[:, :70]
    np.testing.assert_array_equal(coded.values(), table[patterns] * blocks)
    assert coded.nbytes == form.bytes(shape) == sum(array.nbytes for array in coded.arrays)


def test_powers_of_two_are_spread_over_their_boxes() -> None:
    patterns = np.array([[127, 128, 0]], np.uint8)
    spread_ = spread(Shared((2, 2), E8M0, "float32"), patterns, (2, 5))
    np.testing.assert_array_equal(spread_, [[1, 1, 2, 2, math.ldexp(1, -127)]] * 2)


@pytest.mark.parametrize("code", [Integers(3, True), E4M3, Entries(2)], ids=str)
def test_formats_are_told_as_json(code: Integers | Floats | Entries) -> None:
    import json

    scale = Shared((1, 32), E8M0, "float32")
    form = TensorFormat(code, "float32", "float16", None, (scale,), Shared((1, 8), "int8", "int32"))
    assert revived(TensorFormat, json.loads(text_of(form))) == form


def test_formats_say_what_they_are() -> None:
    scale = Shared((1, 128), "float16", "float32")
    form = TensorFormat(Integers(4, True), "int32", "float16", None, (scale,))
    assert str(form) == "int4, scale float16 for each 1 x 128"
    assert str(TensorFormat(Entries(4), "float32", "float32")) == "table of 16 of float32"
    assert str(TensorFormat(E4M3, "float32", "float32")) == "float8 e4m3"


@pytest.mark.parametrize("form", formats("float16"), ids=str)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=4))
def test_stacked_matrices_decode_to_the_bits_of_each(form: TensorFormat, rows: list[int]) -> None:
    parts = [random_coded(form, (own, 80), seed) for seed, own in enumerate(rows)]
    parts = [replace(part, table=parts[0].table) for part in parts]
    whole = stacked(parts)
    assert whole is not None
    assert [array.shape for array in whole.shared] == [
        own.shape(whole.shape) for own in whole.format.shared
    ]
    expected = np.concatenate([part.values() for part in parts])
    assert whole.values().tobytes() == expected.tobytes()


def test_matrices_are_stacked_whatever_rows_their_boxes_have() -> None:
    def part(rows: int, side: int) -> Coded:
        form = TensorFormat(Integers(4, True), "int32", "float16")
        scale = Shared((side, 16), "float16", "float16")
        return random_coded(replace(form, scales=(scale,)), (rows, 64), rows)

    for parts, side in (
        ([part(64, 64), part(32, 32), part(16, 16)], 32),
        ([part(64, 64), part(64, 1)], 1),
        ([part(64, 32), part(48, 16)], 16),
        ([part(64, 8), part(20, 8)], 8),
        ([part(60, 8), part(20, 8)], 4),
        ([part(60, 60)], 60),
    ):
        whole = stacked(parts)
        assert whole is not None
        assert whole.format.scales[0].box == (side, 16)
        expected = np.concatenate([own.values() for own in parts])
        assert whole.values().tobytes() == expected.tobytes()


def test_matrices_of_other_formats_depths_or_tables_are_not_stacked() -> None:
    scale = Shared((1, 16), "float16", "float16")
    four = TensorFormat(Integers(4, True), "int32", "float16", None, (scale,))
    others = (
        replace(four, code=Integers(4, False)),
        replace(four, dtype="bfloat16"),
        replace(four, zero=Shared((1, 16), "uint8", "float16")),
        replace(four, scales=(replace(scale, stored="float32"),)),
        replace(four, scales=(replace(scale, box=(1, 32)),)),
    )
    first = random_coded(four, (8, 64))
    assert all(stacked([first, random_coded(other, (8, 64))]) is None for other in others)
    assert stacked([first, random_coded(four, (8, 32))]) is None
    table = TensorFormat(Entries(4), "float16", "float16")
    tables = [random_coded(table, (8, 64), seed) for seed in range(2)]
    assert stacked(tables) is None
    assert stacked([tables[0], replace(tables[1], table=tables[0].table)]) is not None
