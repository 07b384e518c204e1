"""Relay's products of matrices, against NumPy in float64 and in integers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from relay_calls import call
from relay_operators import equal, run

_RNG = np.random.default_rng(0)
_TOLERANCES = {"float16": 2e-2, "float32": 1e-5, "float64": 1e-12}


def drawn(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    if "int" in dtype:
        bounds = np.iinfo(dtype)
        return _RNG.integers(max(bounds.min, -300), min(bounds.max, 300), shape).astype(dtype)
    return _RNG.standard_normal(shape).astype(dtype)


@pytest.mark.parametrize(
    ("left", "right", "out"),
    [
        ("float16", "float16", "float32"),
        ("float32", "float32", ""),
        ("float64", "float64", ""),
        ("int8", "int8", "int32"),
        ("int8", "int8", ""),
        ("uint8", "int8", "int32"),
        ("int16", "int16", "int32"),
        ("int32", "int32", "int64"),
    ],
)
def test_dense(left: str, right: str, out: str) -> None:
    x, weight = drawn((3, 7), left), drawn((5, 7), right)
    wide = "int64" if "int" in left else "float64"
    expected = (x.astype(wide) @ weight.astype(wide).T).astype(out or left)
    equal(call("nn.dense", x, weight, units=5, out_dtype=out), expected, _TOLERANCES.get(left, 0))


def test_dense_of_a_batch() -> None:
    x, weight = drawn((2, 3, 7), "float32"), drawn((5, 7), "float32")
    equal(call("nn.dense", x, weight, units=None), x @ weight.T, 1e-5)


@pytest.mark.parametrize("layout", ["NC4n", "NC"])
def test_packed_dense(layout: str) -> None:
    x, weight = drawn((3, 7), "float32"), drawn((8, 7), "float32")
    packed = weight.reshape(2, 4, 7).transpose(0, 2, 1)
    found = call("nn.contrib_dense_pack", x, packed, units=8, weight_layout=layout)
    equal(found, x @ weight.T, 1e-5)


@pytest.mark.parametrize("name", ["nn.matmul", "nn.batch_matmul"])
@pytest.mark.parametrize("turned", [(False, False), (True, False), (False, True), (True, True)])
def test_matmul(name: str, turned: tuple[bool, bool]) -> None:
    lead = (2,) if "batch" in name else ()
    a, b = drawn((*lead, 3, 7), "float32"), drawn((*lead, 7, 5), "float32")
    given = [np.swapaxes(m, -1, -2) if flag else m for m, flag in zip((a, b), turned, strict=True)]
    flags = dict(zip(("transpose_a", "transpose_b"), turned, strict=True))
    units = {} if lead else {"units": None}
    equal(call(name, *map(np.ascontiguousarray, given), **flags, **units), a @ b, 1e-5)


@pytest.mark.parametrize("batches", [(1, 4), (4, 1)])
def test_batches_broadcast(batches: tuple[int, int]) -> None:
    a, b = drawn((batches[0], 3, 7), "float32"), drawn((batches[1], 5, 7), "float32")
    equal(call("nn.batch_matmul", a, b, transpose_b=True), a @ b.transpose(0, 2, 1), 1e-5)


def test_up_to_tvm_0_7_the_second_factor_is_transposed() -> None:
    a, b = drawn((2, 3, 7), "float32"), drawn((2, 5, 7), "float32")
    equal(run("nn.batch_matmul", a, b), a @ b.transpose(0, 2, 1), 1e-5)


@pytest.mark.parametrize("equation", ["ij,jk->ik", "ij,jk->ki", "ij,jk->", "ij,jk->ijk"])
def test_einsum(equation: str) -> None:
    a, b = drawn((2, 3), "float32"), drawn((3, 4), "float32")
    equal(call("einsum", [a, b], equation=equation), np.einsum(equation, a, b), 1e-5)


@pytest.mark.parametrize(
    ("name", "shapes", "attributes", "reason"),
    [
        ("nn.dense", [(3, 7), (5, 6)], {"units": 5}, "a product of"),
        ("nn.dense", [(3, 7), (5, 7, 1)], {"units": 5}, "a layer of"),
        ("nn.batch_matmul", [(2, 3, 7), (3, 7, 5)], {}, "broadcast"),
        ("nn.matmul", [(7,), (7, 5)], {"units": None}, "1 dimensions"),
    ],
)
def test_shapes_that_do_not_fit(
    name: str, shapes: list[tuple[int, ...]], attributes: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ValueError, match=reason):
        call(name, *(drawn(shape, "float32") for shape in shapes), **attributes)


def test_an_equation_without_a_result_has_what_occurs_once() -> None:
    x, y = drawn((3, 4), "float32"), drawn((4, 2), "float32")
    for equation, order in (("ij,jk", "ij,jk->ik"), ("zj,ja", "zj,ja->az")):
        found = call("einsum", [x, y], equation=equation)
        np.testing.assert_allclose(found, np.einsum(order, x, y), rtol=1e-5)


@pytest.mark.parametrize("equation", ["ii,ij->j", "...i,ij->...j"])
def test_equations_that_are_refused(equation: str) -> None:
    with pytest.raises(NotImplementedError):
        call("einsum", [drawn((3, 3), "float32")] * 2, equation=equation)
