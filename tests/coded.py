"""Random tensors that are kept as codes, of all kinds."""

from __future__ import annotations

from itertools import product

import numpy as np

from tvm_tile.graph.codes import Coded, numpy_dtype, pack
from tvm_tile.graph.tensor_format import (
    E2M1,
    E4M3,
    E5M2,
    E8M0,
    Code,
    Entries,
    Floats,
    Integers,
    Shared,
    TensorFormat,
)

CODES: tuple[Code, ...] = (
    *(Integers(bits, is_signed) for bits, is_signed in product(range(1, 9), (False, True))),
    *(E2M1, E4M3, E5M2, E8M0),
    *(Entries(1), Entries(4), Entries(8)),
)


def random_coded(form: TensorFormat, shape: tuple[int, ...], seed: int = 0) -> Coded:
    """Random codes, each of them at least once if there is room, and random operands."""
    rng = np.random.default_rng(seed)
    count = int(np.prod(shape))
    patterns = np.resize(np.arange(1 << form.code.bits), max(count, 1 << form.code.bits))
    patterns = rng.permutation(patterns)[:count].reshape(shape).astype(np.uint8)
    table = None
    if isinstance(form.code, Entries):
        table = rng.standard_normal(1 << form.code.bits).astype(numpy_dtype(form.entry))
    shared = tuple(_random(rng, own, shape) for own in form.shared)
    return Coded(form, shape, pack(patterns, form.code.bits), table, shared)


def _random(rng: np.random.Generator, own: Shared, shape: tuple[int, ...]) -> np.ndarray:
    boxes = own.shape(shape)
    if isinstance(own.stored, Floats):
        return rng.integers(100, 150, boxes).astype(np.uint8)
    if "int" in own.stored:
        return rng.integers(0, 16, boxes).astype(own.stored)
    return rng.standard_normal(boxes).astype(numpy_dtype(own.stored))


def formats(dtype: str) -> list[TensorFormat]:
    """Formats of two dimensions: each code, and each kind of step."""
    scale, zero = Shared((1, 32), dtype, dtype), Shared((1, 32), "uint8", "int32")
    wide = Shared((8, 16), "float32", "float32")
    power = Shared((1, 32), E8M0, "float32")
    whole = Shared((1 << 20, 1 << 20), "float32", "float32")
    entry = {code: dtype if isinstance(code, Entries) else "float32" for code in CODES}
    entry |= {code: "int32" for code in CODES if isinstance(code, Integers)}
    four = Integers(4, False)
    return [
        *(TensorFormat(code, entry[code], dtype, None, (scale,)) for code in CODES),
        TensorFormat(four, "int32", dtype),
        TensorFormat(four, "int32", dtype, zero, (scale,)),
        TensorFormat(four, "int32", dtype, zero, (wide,)),
        TensorFormat(four, "int32", dtype, Shared((1, 32), dtype, dtype), (wide, whole)),
        TensorFormat(E2M1, "float32", dtype, None, (power, whole)),
        TensorFormat(four, "int32", dtype, None, (), scale),
        TensorFormat(
            four, "int32", "float32", None, (Shared((1, 8), "float16", "float16"),), scale
        ),
    ]
