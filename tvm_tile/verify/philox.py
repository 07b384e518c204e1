"""Philox 4x32-10 in NumPy, as Salmon and others describe it."""

from __future__ import annotations

import numpy as np

from tvm_tile.verify.compare import Array

_FACTORS = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_STEPS = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)  # of the key
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


def philox(block: Array, stream: Array, seed: Array, calls: Array, word: Array) -> Array:
    """Words of blocks of random numbers, uint32.

    Args:
        block: int32, the first word of counters.
        stream: int64: the second word of counters, and what changes the second word of keys.
        seed: int64: keys.
        calls: int64: the last two words of counters.
        word: int32, which of the four words of a block.
    """
    stream, seed, calls = (array.astype(np.uint64) for array in (stream, seed, calls))
    counter = [
        block.astype(np.uint32).astype(np.uint64),
        stream & _LOW,
        calls & _LOW,
        calls >> _HALF,
    ]
    key = [seed & _LOW, (seed ^ stream) >> _HALF]
    for _ in range(10):
        left, right = counter[0] * _FACTORS[0], counter[2] * _FACTORS[1]
        counter = [
            (right >> _HALF) ^ counter[1] ^ key[0],
            right & _LOW,
            (left >> _HALF) ^ counter[3] ^ key[1],
            left & _LOW,
        ]
        key = [(k + step) & _LOW for k, step in zip(key, _STEPS, strict=True)]
    found: Array = np.choose(word, np.broadcast_arrays(*counter)).astype(np.uint32)
    return found
