"""Scans on the emulated device: each kernel is the rule's, and right."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import tvm
from cuda_on_cpu import compile_for_cuda
from precompiled import COMPILER
from scan_cases import Wanted, model, module_of, results
from tvm.relax import op

import tvm_tile
from tvm_tile.graph.rowwise import Combine

pytestmark = [
    pytest.mark.bank(4),
    pytest.mark.skipif(not find_spec("pyopencl"), reason="needs pyopencl"),
]
_NOT_CACHED = tvm_tile.Options(cache=False)
_SUM, _PRODUCT, _LOG = Combine.SUM, Combine.PRODUCT, Combine.LOG_SUM_EXP
_LARGEST, _SMALLEST = Combine.LARGEST, Combine.SMALLEST

# Rows that are neighbours and rows whose elements are; one element, primes, several rows a block,
# rows in chunks, rows in parts.
SUMS = [
    Wanted(_SUM, (1,), 0),
    Wanted(_SUM, (), None),
    Wanted(_SUM, (3, 5), 1),
    Wanted(_SUM, (3, 5), None),
    Wanted(_SUM, (2, 3, 37), -1, is_reversed=True),
    Wanted(_SUM, (40, 130), 1, is_exclusive=True),
    Wanted(_SUM, (300, 1031), 1),
    Wanted(_SUM, (1, 9004), 1, is_exclusive=True, is_reversed=True),
    Wanted(_SUM, (7, 1, 33), 0),
    Wanted(_SUM, (2, 97, 5), 1, is_exclusive=True),
    Wanted(_SUM, (5000, 3), 0, is_reversed=True),
]
TYPES = [
    Wanted(_SUM, (3, 40), 1, "int32", "int64"),
    Wanted(_SUM, (40, 3), 0, "bool", "int64", is_reversed=True),
    Wanted(_SUM, (3, 40), 1, "bool", "int64", is_reversed=True),
    Wanted(_SUM, (2, 4099), 1, "int64"),
    Wanted(_SUM, (9, 33), 1, "int8", "int32"),
    Wanted(_SUM, (9, 33), 1, "float64"),
    Wanted(_PRODUCT, (9, 36), 1, is_exclusive=True),
    Wanted(_PRODUCT, (36, 9), 0, "int32"),
    Wanted(_LOG, (9, 36), 1),
    Wanted(_LOG, (36, 9), 0, is_reversed=True),
]
EXTREMES = [
    Wanted(_LARGEST, (9, 260), 1),
    Wanted(_SMALLEST, (260, 9), 0),
    Wanted(_LARGEST, (2, 4099), 1, "int32"),
    Wanted(_SMALLEST, (3, 40), 1, "int64"),
    Wanted(_LARGEST, (40, 3), 0, "float64"),
    Wanted(_SMALLEST, (2, 40), 1, "uint8"),
]


@pytest.mark.parametrize("wanted", [SUMS, TYPES, EXTREMES], ids=["sums", "types", "extremes"])
def test_scans_are_right(wanted: list[Wanted]) -> None:
    compiled = tvm_tile.compile(model(wanted), device="emulated", options=_NOT_CACHED)
    assert {kernel.rule for kernel in compiled.report.kernels} == {"scan"}
    rng = np.random.default_rng(0)
    arrays = [own.drawn(rng) for own in wanted]
    found = iter(results(compiled, arrays))
    for own, x in zip(wanted, arrays, strict=True):
        for expected in own.expected(x):
            got = next(found)
            assert got.dtype == np.dtype(own.result or own.source) or own.has_places
            tolerance = 1e-5 * np.sqrt(x.size) if got.dtype.kind == "f" else 0
            np.testing.assert_allclose(got, expected, tolerance, tolerance, err_msg=str(own))


@pytest.mark.skipif(COMPILER is None, reason="needs a C++ compiler")
@pytest.mark.parametrize("wanted", [SUMS, TYPES, EXTREMES], ids=["sums", "types", "extremes"])
def test_shuffles_scan_as_numpy_does(wanted: list[Wanted], tmp_path: Path) -> None:
    call = compile_for_cuda(model(wanted), "nvidia/h200", tmp_path)
    rng = np.random.default_rng(1)
    arrays = [own.drawn(rng) for own in wanted]
    found = iter(call(*map(tvm.runtime.tensor, arrays)))
    for own, x in zip(wanted, arrays, strict=True):
        for expected in own.expected(x):
            tolerance = 1e-5 * np.sqrt(x.size) if expected.dtype.kind == "f" else 0
            got = next(found).numpy()
            np.testing.assert_allclose(got, expected, tolerance, tolerance, err_msg=str(own))


def test_infinities_are_no_numbers_only_where_they_meet() -> None:
    x = np.array([1, np.inf, 2, -np.inf, 3], "float32")
    wanted = [Wanted(_SUM, (5,), 0), Wanted(_LOG, (5,), 0)]
    compiled = tvm_tile.compile(model(wanted), device="emulated", options=_NOT_CACHED)
    sums, logs = results(compiled, [x, x])
    np.testing.assert_array_equal(sums, [1, np.inf, np.inf, np.nan, np.nan])
    np.testing.assert_array_equal(logs, [1, np.inf, np.inf, np.inf, np.inf])


@pytest.mark.parametrize("axis", [0, 1])
def test_cumsum_of_more_than_eight_elements_is_right(axis: int) -> None:
    x = np.random.default_rng(0).standard_normal((67, 65)).astype("float32")
    mod = module_of([((67, 65), "float32")], lambda b, x: [b.emit(op.cumsum(x[0], axis))])
    (found,) = results(tvm_tile.compile(mod, device="emulated", options=_NOT_CACHED), [x])
    np.testing.assert_allclose(found, np.cumsum(x.astype("float64"), axis), 1e-4, 1e-4)


@pytest.mark.parametrize("device", ["nvidia/h200", "amd/mi300x"])
def test_scans_become_machine_code(device: str) -> None:
    wanted = [
        Wanted(combine, (300, 4000)[::order], axis, dtype)
        for combine, dtype in [(_SUM, "float16"), (_SUM, "float32"), (_LARGEST, "float16")]
        for order, axis in [(1, 1), (-1, 0)]
    ]
    compiled = tvm_tile.compile(model(wanted), device=device, options=_NOT_CACHED)
    assert {kernel.rule for kernel in compiled.report.kernels} == {"scan"}
