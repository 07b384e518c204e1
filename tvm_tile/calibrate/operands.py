"""Numbers for the arithmetic kernels: random ones to time, ones to check with.

The power that multiplying takes, and with it the sustained clock, depends on the bits: zeros run
faster than any real data.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

# The storage of one number of a dtype that NumPy lacks, and the bits of 1.
_STORAGE = {
    "bfloat16": (np.uint16, 0x3F80),
    "float16": (np.float16, 1),
    "float32": (np.float32, 1),
    "float64": (np.float64, 1),
    "float8_e4m3": (np.uint8, 0x38),
    "int8": (np.int8, 1),
    "tf32": (np.float32, 1),
}


def ones(dtype: str, size: int) -> Array:
    """``size`` bytes of ones."""
    storage, one = _STORAGE[dtype]
    return np.full(size // np.dtype(storage).itemsize, one, storage)


def normal(dtype: str, size: int) -> Array:
    """``size`` bytes: unit normal, of integers any value; no infinities, no denormals."""
    generator = np.random.default_rng(0)
    count = size // np.dtype(_STORAGE[dtype][0]).itemsize
    if dtype == "int8":
        return generator.integers(-128, 128, count, np.int8)
    if dtype == "float8_e4m3":
        # A sign, exponents from 2^-3 to 2^2, any mantissa.
        sign, exponent = generator.integers(0, 2, count), generator.integers(4, 10, count)
        mantissa = generator.integers(0, 8, count)
        return (sign << 7 | exponent << 3 | mantissa).astype(np.uint8)
    values = generator.standard_normal(count)
    return _narrow(np.copysign(np.maximum(np.abs(values), 2.0**-10), values), dtype)


def contractions(dtype: str, multipliers: int, addends: int) -> Array:
    """Bytes of multipliers, less than one in magnitude, then of addends, about one.

    Integers are any: their sums wrap around.
    """
    if dtype == "int8":
        return normal(dtype, multipliers + addends)
    generator = np.random.default_rng(0)
    size = np.dtype(_STORAGE[dtype][0]).itemsize
    factors = generator.uniform(0.5, 0.9, multipliers // size)
    terms = generator.uniform(0.5, 1.5, addends // size)
    values = np.concatenate([factors, terms])
    return _narrow(values * generator.choice([-1.0, 1.0], len(values)), dtype)


def widen(words: Array, dtype: str) -> Array:
    """Sums of CUDA cores, as float64; ``words`` holds their bytes."""
    storage = np.int32 if dtype == "int8" else _STORAGE[dtype][0]
    values = words.view(storage)
    if dtype == "bfloat16":
        values = (values.astype(np.uint32) << 16).view(np.float32)
    return values.astype(np.float64)


def _narrow(values: npt.NDArray[np.float64], dtype: str) -> Array:
    """Values in a narrow type, as the kernels take them."""
    if dtype in ("bfloat16", "tf32"):
        # Cut: that the mean moves by a part of the last bit does not matter here.
        bits = values.astype(np.float32).view(np.uint32)
        if dtype == "bfloat16":
            return (bits >> 16).astype(np.uint16)
        return (bits & np.uint32(0xFFFFE000)).view(np.float32)
    return values.astype(_STORAGE[dtype][0])
