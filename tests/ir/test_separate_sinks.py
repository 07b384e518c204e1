"""SeparateSinks: softmax with sinks as PyTorch's models write it, and what is none."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch
import tvm
from cpu_build import CPU
from normal_forms import behind, operators
from scheduled import relax_module
from tvm import relax
from tvm.relax import op

from tvm_tile.passes.operators.separate_sinks import SeparateSinks

KEYS = 9


def separated(body: Any, *shapes: tuple[int, ...], dtype: str = "float32") -> Any:
    return behind(SeparateSinks(), relax_module(body, shapes, dtype))


def known(value: Any) -> Any:
    return relax.BlockBuilder.current().emit(value)


def sunk(x: Any, sink: Any, *, is_safe: bool, wide: str = "float32") -> Any:
    """The weights of ``x``; its maximum is subtracted first if ``is_safe``."""
    axis, keys = int(x.ty.ndim) - 1, int(x.ty.shape[-1])
    both = known(op.concat((x, sink), axis))
    if is_safe:
        both = known(op.subtract(both, known(op.max(both, axis, keepdims=True))))
    weights = known(op.nn.softmax(known(op.astype(both, wide)), -1))
    return op.strided_slice(known(op.astype(weights, str(x.ty.dtype))), [axis], [0], [keys])


@pytest.mark.parametrize("seed", range(12))
def test_weights_are_pytorchs(seed: int) -> None:
    """Of any number of dimensions, with rows of minus infinity and sinks that are so."""
    rng = random.Random(seed)
    shape = (*(rng.randint(1, 4) for _ in range(rng.randint(1, 4))), rng.randint(1, 40))
    drawn = np.random.default_rng(seed)
    x, sink = (drawn.normal(size=own).astype("float32") * 9 for own in (shape, (*shape[:-1], 1)))
    x[drawn.random(shape) < 0.2] = -np.inf
    x[drawn.random(shape[:-1]) < 0.2] = -np.inf
    sink[drawn.random(sink.shape) < 0.3] = -np.inf
    after = separated(lambda x, s: sunk(x, s, is_safe=seed % 2 == 1), shape, sink.shape)
    assert operators(after) == ["relax.call_tir"]
    built = relax.VirtualMachine(tvm.compile(after, CPU), tvm.cpu())
    got = built["main"](*map(tvm.runtime.tensor, (x, sink))).numpy()
    both = torch.tensor(np.concatenate([x, sink], -1)).double()
    wanted = torch.softmax(both, -1)[..., :-1].numpy()
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_halves_are_computed_in_float32(dtype: str) -> None:
    shapes = (2, 3, KEYS), (2, 3, 1)
    for wide in ("float32", dtype):
        after = separated(lambda x, s: sunk(x, s, is_safe=True, wide=wide), *shapes, dtype=dtype)  # noqa: B023
        casts = ["relax.astype"] * 2
        assert operators(after) == [*casts, "relax.call_tir", "relax.astype"]


def _others() -> dict[str, Any]:
    def part(x: Any, begin: int, count: int, axis: int = -1, stride: int = 1) -> Any:
        return op.strided_slice(x, [axis], [begin], [begin + count], [stride])

    def both(x: Any, sink: Any) -> Any:
        return known(op.concat((x, sink), -1))

    def softmax(x: Any, axis: int = -1) -> Any:
        return known(op.nn.softmax(x, axis))

    def less(x: Any, axis: int) -> Any:
        return known(op.subtract(x, known(op.max(x, axis, keepdims=True))))

    return {
        "the first one dropped": lambda x, s: part(softmax(both(x, s)), 1, KEYS),
        "more are dropped": lambda x, s: part(softmax(both(x, s)), 0, KEYS - 1),
        "along other axes": lambda x, s: part(softmax(both(x, s), 1), 0, KEYS),
        "part of other axes": lambda x, s: part(softmax(both(x, s)), 0, 2, axis=1),
        "the sink first": lambda x, s: part(softmax(both(s, x)), 0, KEYS),
        "several sinks": lambda x, s: part(softmax(known(op.concat((x, s, s), -1))), 0, KEYS),
        "less other maxima": lambda x, s: part(softmax(less(both(x, s), 1)), 0, KEYS),
        "of other numbers": lambda x, s: part(known(op.exp(both(x, s))), 0, KEYS),
    }


@pytest.mark.parametrize("name", _others())
def test_what_has_no_sink_stays(name: str) -> None:
    mod = relax_module(_others()[name], ((2, 3, KEYS), (2, 3, 1)))
    assert operators(behind(SeparateSinks(), mod))[-1] == "relax.strided_slice"
