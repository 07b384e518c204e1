"""Constants' elements where they lie, and constants made of parts."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import tvm
from tvm import relax

from tvm_tile.graph.constant_tensors import bytes_of, constant_of_parts, elements_of, transposed

DTYPES = ["float32", "float16", "bfloat16", "float8_e4m3fn", "int8", "int64", "bool"]


def _array(shape: tuple[int, ...], dtype: str, seed: int = 0) -> np.ndarray:
    drawn = np.random.default_rng(seed).integers(0, 7, shape)
    return drawn.astype(np.dtype(getattr(ml_dtypes, dtype, dtype)))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0, 3), (5,), (3, 4)])
def test_elements_are_those_that_were_given(dtype: str, shape: tuple[int, ...]) -> None:
    array = _array(shape, dtype)
    found = elements_of(relax.const(array, dtype))
    assert found.shape == shape
    assert found.dtype == array.dtype
    assert found.tobytes() == array.tobytes()


def test_elements_of_half_a_byte_are_unpacked() -> None:
    array = np.array([0.5, 1, 6, -2], ml_dtypes.float4_e2m1fn)
    constant = relax.const(tvm.runtime.empty((4,), "float4_e2m1fn").copyfrom(array))
    assert elements_of(constant).astype(float).tolist() == [0.5, 1, 6, -2]


def test_elements_are_no_copy_and_outlive_the_constant() -> None:
    constant = relax.const(_array((64, 64), "bfloat16"), "bfloat16")
    elements, address = elements_of(constant), constant.value.data_ptr()
    assert elements.__array_interface__["data"] == (address, True)
    assert bytes_of(constant.value).__array_interface__["data"] == (address, True)
    with pytest.raises(ValueError, match="read-only"):
        elements[0, 0] = 1
    del constant
    others = [tvm.runtime.tensor(np.full((64, 64), 9.0, "float16")) for _ in range(20)]
    assert len(others) == 20
    assert (elements == _array((64, 64), "bfloat16")).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("is_turned", [False, True])
def test_parts_stand_one_behind_the_other(dtype: str, axis: int, *, is_turned: bool) -> None:
    parts = [_array((6, 6), dtype, seed) for seed in range(3)]
    parts = [part.T if is_turned else part for part in parts]
    made = constant_of_parts(parts, axis, dtype)
    assert str(made.ty.dtype) == dtype
    assert elements_of(made).tobytes() == np.concatenate(parts, axis=axis).tobytes()


@pytest.mark.parametrize("shape", [(300, 7), (7, 300), (2, 130, 5), (1, 1)])
def test_a_transposed_constant_has_its_last_axes_exchanged(shape: tuple[int, ...]) -> None:
    array = _array(shape, "float16")
    assert (
        elements_of(transposed(relax.const(array, "float16"))) == np.swapaxes(array, -1, -2)
    ).all()
