"""Random arrays that a model takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tvm_tile.graph.signature import Signature
from tvm_tile.runtime.arrays import numpy_dtype


def random_inputs(signatures: Sequence[Signature], seed: int = 0) -> list[np.ndarray]:
    """An array for each input: normally distributed floats, integers that are 0 or 1.

    These are in range whatever the integers mean: labels, token numbers, masks.
    """
    generator = np.random.default_rng(seed)
    values = []
    for signature in signatures:
        dtype = numpy_dtype(signature.dtype)
        assert dtype is not None, signature.dtype
        is_float = "float" in signature.dtype
        drawn: Any = (
            generator.standard_normal(signature.shape)
            if is_float
            else generator.integers(0, 2, signature.shape)
        )
        # Of no dimension, NumPy draws its own kind of number.
        values.append(np.asarray(drawn).astype(dtype))
    return values
