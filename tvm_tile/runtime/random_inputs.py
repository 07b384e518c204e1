"""Random arrays that a model takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tvm_tile.errors import InputError
from tvm_tile.graph.signature import Signature
from tvm_tile.runtime.arrays import numpy_dtype
from tvm_tile.runtime.extents import settled

Extents = Mapping[str, int]
"""Names of open extents -> values; those that are not named have their greatest ones."""


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


def random_inputs_at(
    signatures: Sequence[Signature], extents: Extents, given: Sequence[Any] = ()
) -> list[np.ndarray]:
    """Random arrays for inputs at values of their open extents, in the place of given ones.

    Raises:
        InputError: inputs were given, too, or as of :func:`settled`.
    """
    if given:
        raise InputError(
            "extents= are of random inputs", "inputs were given, too", "leave one of them out"
        )
    return random_inputs(settled(signatures, extents))
