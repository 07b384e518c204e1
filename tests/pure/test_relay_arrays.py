"""Tensors and weights as TVM's runtime saves them."""

from __future__ import annotations

import struct

import ml_dtypes
import numpy as np
import pytest
import relay_corpus

from tvm_tile.errors import ModelFileError
from tvm_tile.frontend.relay.arrays import element_type, read_array, read_params

_CODES = {"i": 0, "u": 1, "f": 2}


def saved_array(array: np.ndarray) -> bytes:
    kinds = {"bool": (1, 1), "bfloat16": (4, 16), "float8_e4m3fn": (6, 8)}
    name = str(array.dtype)
    code, bits = kinds.get(name, (_CODES.get(array.dtype.kind, 0), array.dtype.itemsize * 8))
    head = struct.pack("<QQiiiBBH", 0xDD5E40F096B4A13F, 0, 1, 0, array.ndim, code, bits, 1)
    shape = struct.pack(f"<{array.ndim}q", *array.shape)
    return head + shape + struct.pack("<q", array.nbytes) + array.tobytes()


def saved_params(arrays: list[tuple[str, np.ndarray]]) -> bytes:
    count = struct.pack("<Q", len(arrays))
    names = [struct.pack("<Q", len(name.encode())) + name.encode() for name, _ in arrays]
    tensors = [saved_array(array) for _, array in arrays]
    head = struct.pack("<QQ", 0xF7E58D4F05049CB7, 0)
    return head + count + b"".join(names) + count + b"".join(tensors)


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype="float32").reshape(2, 3),
        np.array(7, dtype="int64"),
        np.array([True, False]),
        np.zeros((0, 3), dtype="uint8"),
        np.array([1.5, -2], dtype=ml_dtypes.bfloat16),
        np.array([0.5], dtype=ml_dtypes.float8_e4m3fn),
        np.array([1, 2], dtype="float16"),
    ],
    ids=lambda array: str(array.dtype),
)
def test_a_tensor_comes_back(array: np.ndarray) -> None:
    found = read_array(saved_array(array))
    assert found.dtype == array.dtype
    assert found.shape == array.shape
    assert found.tobytes() == array.tobytes()
    assert found.flags.writeable


def test_truth_is_zero_or_one() -> None:
    saved = saved_array(np.array([True, False]))
    assert read_array(saved[:-2] + b"\x07\x00").tobytes() == b"\x01\x00"


def test_weights_come_back_by_name() -> None:
    weights = [("conv/weight:0", np.ones((2, 2), "float32")), ("名", np.array([3], "int8"))]
    found = read_params(saved_params(weights), "w")
    assert list(found) == ["conv/weight:0", "名"]
    assert found["名"].tolist() == [3]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (saved_params([("a", np.ones(1)), ("a", np.ones(1))]), "'a' occurs twice"),
        (saved_params([("a", np.ones(2))])[:-1], "cut: 16 bytes are missing"),
        (saved_params([("a", np.ones(2))]) + b"x", "1 bytes more"),
        (saved_params([])[:16] + struct.pack("<Q", 2**60), "cut"),
        (saved_params([])[:16] + struct.pack("<QQ", 1, 2**63), "cut"),
        (saved_params([])[:16] + struct.pack("<QQ", 0, 2**63), "0 names for"),
        (b"", "cut"),
        (b"PK" + bytes(40), "does not begin as"),
        (saved_params([("a", np.ones(2))]).replace(b"a", b"\xff"), "utf-8"),
    ],
)
def test_bad_weights_are_refused(data: bytes, said: str) -> None:
    with pytest.raises(ModelFileError, match=said):
        read_params(data, "w")


@pytest.mark.parametrize(
    ("head", "said"),
    [
        ((2, 2, 32, 1, 2**31, 2**31, 4), "4 bytes for a tensor of shape"),
        ((2, 2, 32, 1, 2**62, 0, 2**40), "bytes for a tensor"),
        ((2, 2, 32, 1, -1, -1, 4), "bytes for a tensor"),
        ((2, 0, 4, 1, 1, 1, 1), "elements of type 0 with 4 bits"),
        ((2, 2, 32, 4, 1, 1, 16), "4 lanes"),
        ((-1, 2, 32, 1, 0, 0, 0), "a tensor of -1 dimensions"),
        ((2**30, 2, 32, 1, 0, 0, 0), "a tensor of 1073741824 dimensions"),
    ],
)
def test_absurd_tensors_are_refused_before_they_are_made(head: tuple[int, ...], said: str) -> None:
    saved = struct.pack("<QQiiiBBHqqq", 0xDD5E40F096B4A13F, 0, 1, 0, *head)
    with pytest.raises(ValueError, match=said):
        read_array(saved)


def test_names_of_element_types() -> None:
    assert element_type("uint1") == "bool"
    assert element_type("bfloat16") == "bfloat16"
    assert element_type("e4m3_float8") == "float8_e4m3fn"
    with pytest.raises(ValueError, match="int4"):
        element_type("int4")


def test_every_tensor_of_the_corpus_is_sound() -> None:
    for case in relay_corpus.CASES.values():
        assert all(array.flags.c_contiguous for array in case.params.values())
