"""Persistent kernels in half precision on the CPU: the bits of the same kernels by themselves."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tvm
from persistent_runs import Emulation, Kernels
from precompiled import COMPILER
from tvm import relax
from tvm.relax import op

from tvm_tile.device import Device, find_device
from tvm_tile.device.times import StreamTimes

pytestmark = [pytest.mark.bank(8), pytest.mark.skipif(not COMPILER, reason="needs g++")]
SEEDS = range(6)  # orders in which blocks go on
TYPES = {"float16": np.dtype(np.float16), "bfloat16": np.dtype(ml_dtypes.bfloat16)}
HIDDEN, WIDE = 128, 192


def device(processors: int) -> Device:
    """One where half precision pays, whose cores do all of it, and that asks for weights ahead."""
    gpu = find_device("nvidia/h200")
    stream = StreamTimes("made up", 0.9, 4000.0, 40_000)
    persistent = replace(gpu.times.persistent, half_precision_pays=True, stream=stream)
    times = replace(gpu.times, persistent=persistent)
    return replace(gpu, multi_processor_count=processors, matrix_instructions=(), times=times)


class Decoder:
    """A layer of products with a vector or a few, between which are a norm, a gate and softmax.

    Args:
        dtype: of all of it.
        rows: how many vectors.
        transposed: whether sums run along what is contiguous in the weights.
    """

    def __init__(self, dtype: str, rows: int, *, transposed: bool) -> None:
        self._dtype, self._transposed = dtype, transposed
        self._numbers = np.random.default_rng(0)
        self.x = self._numbers.standard_normal((rows, HIDDEN)).astype(TYPES[dtype])
        builder = relax.BlockBuilder()
        x = relax.Var("x", relax.TensorType((rows, HIDDEN), dtype))
        with builder.function("main", [x]):
            with builder.dataflow():
                result = builder.emit_output(builder.normalize(op.nn.softmax(self._layer(x))))
            builder.emit_func_output(result)
        self.mod = builder.get()

    def _weights(self, *shape: int) -> Any:
        drawn = self._numbers.standard_normal(shape) / np.sqrt(HIDDEN)
        return relax.const(tvm.runtime.tensor(drawn.astype(TYPES[self._dtype])))

    def _product(self, x: Any, depth: int, width: int) -> Any:
        if self._transposed:
            return op.matmul(x, op.permute_dims(self._weights(width, depth)))
        return op.matmul(x, self._weights(depth, width))

    def _layer(self, x: Any) -> Any:
        own = op.nn.rms_norm(x, op.add(self._weights(HIDDEN), relax.const(1, self._dtype)), [-1])
        gate, up = (self._product(own, HIDDEN, WIDE) for _ in range(2))
        return op.add(x, self._product(op.multiply(op.nn.silu(gate), up), WIDE, HIDDEN))


@pytest.mark.parametrize("transposed", [False, True], ids=["columns", "rows"])
@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("dtype", TYPES)
def test_a_decoder_has_the_bits_of_its_kernels_apart(
    dtype: str, rows: int, transposed: bool, tmp_path: Path
) -> None:
    net = Decoder(dtype, rows, transposed=transposed)
    kernels = Kernels(net.mod, device(3))
    (wanted,) = Emulation(kernels.apart(), tmp_path)(net.x)
    assert np.isfinite(wanted.astype(np.float32)).all()
    for uses_flags in (False, True):
        model = kernels.joined(uses_flags=uses_flags)
        (made,) = model.made
        assert len(made.operators) >= 3
        assert any(made.plan.ahead)
        run = Emulation(model, tmp_path)
        for seed in SEEDS:
            (found,) = run(net.x, seed=seed)
            np.testing.assert_array_equal(found.view(np.uint16), wanted.view(np.uint16))


def test_half_precision_stays_apart_where_it_was_not_measured_to_pay() -> None:
    net = Decoder("bfloat16", 1, transposed=False)
    made: list[Any] = []
    unmeasured = replace(find_device("nvidia/h200"), matrix_instructions=())
    Kernels(net.mod, unmeasured).coscheduled(made.append)
    assert not made
