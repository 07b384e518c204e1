"""Tensors as TVM's runtime saves them, alone and by name. Knows no TVM."""

from __future__ import annotations

import math
import struct

import ml_dtypes
import numpy as np

from tvm_tile.errors import ModelFileError

_ARRAY_MAGIC = 0xDD5E40F096B4A13F
_PARAMETERS_MAGIC = 0xF7E58D4F05049CB7
_MOST_DIMENSIONS = 32

# By the code and the number of bits that TVM's runtime has for a type.
_ELEMENT_TYPES: dict[tuple[int, int], np.dtype] = {
    **{(0, bits): np.dtype(f"int{bits}") for bits in (8, 16, 32, 64)},
    **{(1, bits): np.dtype(f"uint{bits}") for bits in (8, 16, 32, 64)},
    **{(2, bits): np.dtype(f"float{bits}") for bits in (16, 32, 64)},
    (1, 1): np.dtype(bool),
    (4, 16): np.dtype(ml_dtypes.bfloat16),
    (6, 8): np.dtype(ml_dtypes.float8_e4m3fn),
    (7, 8): np.dtype(ml_dtypes.float8_e5m2),
}
_NAMES = {str(element): str(element) for element in _ELEMENT_TYPES.values()} | {
    "uint1": "bool",
    "e4m3_float8": "float8_e4m3fn",
    "e5m2_float8": "float8_e5m2",
}


def element_type(name: str) -> str:
    """NumPy's (or ``ml_dtypes``') name of an element type that Relay calls ``name``.

    Raises:
        ValueError: no tensor here can have it, such as ``int4`` or ``float32x4``.
    """
    if name not in _NAMES:
        raise ValueError(f"the element type {name[:40]!r}, which no tensor here can have")
    return _NAMES[name]


def read_array(data: bytes) -> np.ndarray:
    """A tensor that TVM's runtime saved, with nothing behind it.

    Raises:
        ValueError: it is something else, cut, or of elements that NumPy lacks.
    """
    cursor = _Cursor(data)
    array = cursor.array()
    cursor.finish()
    return array


def read_params(data: bytes, source: str) -> dict[str, np.ndarray]:
    """Weights by name, as ``relay.save_param_dict`` and ``runtime.save_param_dict`` save them.

    Args:
        data: the whole file.
        source: names it in messages.

    Raises:
        ModelFileError: it is something else, damaged, or names a tensor twice.
    """
    try:
        return _parameters(_Cursor(data))
    except ValueError as error:
        raise ModelFileError(
            "weights must be what relay.save_param_dict or runtime.save_param_dict saved, whole",
            f"{source}: {error}",
            "save them again with tvm.runtime.save_param_dict, or copy the file again",
        ) from error


def is_params(data: bytes) -> bool:
    """Whether the bytes begin as saved weights do."""
    return data[:8] == _PARAMETERS_MAGIC.to_bytes(8, "little")


def _parameters(cursor: _Cursor) -> dict[str, np.ndarray]:
    if cursor.number("Q") != _PARAMETERS_MAGIC:
        raise ValueError("it does not begin as saved weights do")
    cursor.number("Q")
    # However many there should be: each takes bytes, so that a false count ends with the data.
    names = [cursor.text() for _ in range(cursor.number("Q"))]
    count = cursor.number("Q")
    if count != len(names):
        raise ValueError(f"{len(names)} names for {count} tensors")
    arrays: dict[str, np.ndarray] = {}
    for name in names:
        if name in arrays:
            raise ValueError(f"the name {name[:80]!r} occurs twice")
        arrays[name] = cursor.array()
    cursor.finish()
    return arrays


class _Cursor:
    """A place in bytes; reading moves it, and raises ValueError where they end."""

    def __init__(self, data: bytes) -> None:
        self._data = memoryview(data)
        self._at = 0

    def take(self, size: int) -> memoryview:
        if size > len(self._data) - self._at:
            raise ValueError(f"it is cut: {size} bytes are missing at byte {self._at}")
        self._at += size
        return self._data[self._at - size : self._at]

    def number(self, kind: str) -> int:
        form = f"<{kind}"
        value: int = struct.unpack(form, self.take(struct.calcsize(form)))[0]
        return value

    def text(self) -> str:
        return str(self.take(self.number("Q")), "utf-8")

    def finish(self) -> None:
        if self._at != len(self._data):
            raise ValueError(f"{len(self._data) - self._at} bytes more than there should be")

    def array(self) -> np.ndarray:
        if self.number("Q") != _ARRAY_MAGIC:
            raise ValueError(f"no tensor begins at byte {self._at - 8}")
        self.number("Q")
        self.take(8)  # the device that it was on
        rank = self.number("i")
        code, bits, lanes = self.number("B"), self.number("B"), self.number("H")
        element = _ELEMENT_TYPES.get((code, bits))
        if element is None or lanes != 1:
            raise ValueError(f"elements of type {code} with {bits} bits and {lanes} lanes")
        if not 0 <= rank <= _MOST_DIMENSIONS:
            raise ValueError(f"a tensor of {rank} dimensions")
        shape = tuple(self.number("q") for _ in range(rank))
        size = self.number("q")
        if min(shape, default=0) < 0 or math.prod(shape) * element.itemsize != size:
            raise ValueError(f"{size} bytes for a tensor of shape {shape}")
        flat = np.frombuffer(self.take(size), np.dtype("uint8"))
        if element == np.dtype(bool):
            return (flat != 0).reshape(shape)
        return flat.copy().view(element).reshape(shape)
