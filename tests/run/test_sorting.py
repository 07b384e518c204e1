"""Sorts, their places and their first elements on the emulated device, next to PyTorch's."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import tvm
from cuda_on_cpu import compile_for_cuda
from precompiled import COMPILER
from scan_cases import module_of, results
from tvm import relax
from tvm.relax import op

import tvm_tile

pytestmark = [
    pytest.mark.bank(6),
    pytest.mark.skipif(not find_spec("pyopencl"), reason="needs pyopencl"),
]
_NOT_CACHED = tvm_tile.Options(cache=False)


def drawn(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Many equal elements; of floating-point numbers NaN, infinities and both zeros, too."""
    rng = np.random.default_rng(len(shape))
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(dtype)
    x = rng.integers(0 if dtype[0] == "u" else -9, 10, shape)
    if not dtype.startswith("float"):
        return x.astype(dtype)
    special = rng.choice([np.nan, np.inf, -np.inf, -0.0], shape)
    return np.where(rng.random(shape) < 0.1, special, x).astype(dtype)


@pytest.mark.parametrize(
    ("shape", "axis", "dtype"),
    [
        ((1,), 0, "float32"),
        ((5, 7), 1, "float32"),
        ((33, 2, 2), 0, "int64"),
        ((3, 130), -1, "float64"),
        ((2, 4099), 1, "float32"),
        ((3, 20), 1, "bool"),
        ((3, 20), 1, "uint8"),
    ],
)
def test_sorts_are_pytorchs(shape: tuple[int, ...], axis: int, dtype: str) -> None:
    count = max(1, shape[axis] // 3)

    def body(builder: Any, inputs: list[Any]) -> list[Any]:
        (x,) = inputs
        first = builder.emit(op.topk(x, count, axis, "both", False, "int64"))
        last = builder.emit(op.topk(x, count, axis, "indices", True, "int32"))
        return [
            builder.emit(op.argsort(x, axis, True, "int64")),
            builder.emit(op.sort(x, axis)),
            builder.emit(relax.TupleGetItem(first, 0)),
            builder.emit(relax.TupleGetItem(first, 1)),
            last,
        ]

    compiled = tvm_tile.compile(
        module_of([(shape, dtype)], body), device="emulated", options=_NOT_CACHED
    )
    assert {kernel.rule for kernel in compiled.report.kernels} == {"sort"}
    x = drawn(shape, dtype)
    rising, falling = (
        torch.sort(torch.from_numpy(x), dim=axis, descending=down, stable=True)
        for down in (False, True)
    )
    kept = range(count)
    expected = [
        falling.indices.numpy(),
        rising.values.numpy(),
        rising.values.numpy().take(kept, axis),
        rising.indices.numpy().take(kept, axis),
        falling.indices.numpy().take(kept, axis),
    ]
    for got, want in zip(results(compiled, [x]), expected, strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.skipif(COMPILER is None, reason="needs a C++ compiler")
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "bool"])
@pytest.mark.parametrize("shape", [(5, 3), (9, 130), (2, 1025), (1, 4100)])
def test_shuffles_sort_as_pytorch_does(shape: tuple[int, int], dtype: str, tmp_path: Path) -> None:
    length = shape[1]
    wanted = [(1, True), (min(length, 16), False), (length // 2, True), (length, False)]

    def body(builder: Any, inputs: list[Any]) -> list[Any]:
        found = [
            builder.emit(op.topk(inputs[0], k, 1, "both", falls, "int64")) for k, falls in wanted
        ]
        return [builder.emit(relax.TupleGetItem(both, n)) for both in found for n in range(2)]

    call = compile_for_cuda(module_of([(shape, dtype)], body), "nvidia/h200", tmp_path)
    x = drawn(shape, dtype)
    found = iter(call(tvm.runtime.tensor(x)))
    for k, falls in wanted:
        for part in torch.sort(torch.from_numpy(x), dim=1, descending=falls, stable=True):
            np.testing.assert_array_equal(next(found).numpy(), part[:, :k].numpy())


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64", "bool"])
def test_the_first_of_equal_extremes_and_not_a_number_wins(dtype: str) -> None:
    x = drawn((6, 37), dtype)
    if dtype.startswith("float"):
        x[0], x[1] = np.nan, -np.inf
        x[2, 9::2], x[2, 10::2] = -np.nan, np.nextafter(np.array(np.inf, dtype), 0)
        x[3], x[4, ::2], x[4, 1::2] = np.inf, 0.0, -0.0
        bits = x.view(f"int{8 * x.itemsize}")
        bits[5, 7:] = bits[0, 7:] - np.arange(30) - 1  # NaN of other bits, without signs and with
        bits[5, 8::2] |= np.iinfo(bits.dtype).min
    mod = module_of(
        [(x.shape, dtype)],
        lambda builder, inputs: [
            builder.emit(find(inputs[0], axis))
            for find in (op.argmax, op.argmin)
            for axis in (0, 1, None)
        ],
    )
    compiled = tvm_tile.compile(mod, device="emulated", options=_NOT_CACHED)
    assert not compiled.report.fallbacks
    expected = [find(x, axis) for find in (np.argmax, np.argmin) for axis in (0, 1, None)]
    for got, want in zip(results(compiled, [x]), expected, strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("device", ["nvidia/h200", "amd/mi300x"])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_sorts_become_machine_code(device: str, dtype: str) -> None:
    mod = module_of(
        [((64, 4096), dtype)],
        lambda builder, inputs: [
            builder.emit(op.sort(inputs[0], 1)),
            builder.emit(op.topk(inputs[0], 10, 1, "indices")),
            builder.emit(op.argmax(inputs[0], 1)),
        ],
    )
    compiled = tvm_tile.compile(mod, device=device, options=_NOT_CACHED)
    assert not compiled.report.fallbacks
