"""Queries, keys and values as one product on an H200: attention reads its slices in place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from scheduled import relax_module
from tvm import relax
from tvm.relax import op

from tvm_tile.device import find_device
from tvm_tile.passes import FirstChoices, schedule_module
from tvm_tile.report.compiled import KernelReport
from tvm_tile.stages.fusing import fuse
from tvm_tile.tile.weld.connect import Decision

pytestmark = pytest.mark.bank(6)

H200 = find_device("nvidia/h200")
FIRST = FirstChoices(H200)
KINDS = {
    **dict.fromkeys(("wgmma", "mma"), "product"),
    **dict.fromkeys(("chain", "warp_attention"), "attention"),
}
RNG = np.random.default_rng(0)


def linear(x: Any, columns: int, *, bias: bool = False) -> Any:
    dtype, depth = str(x.ty.dtype), int(x.ty.shape[-1])
    weights = relax.const((RNG.standard_normal((depth, columns)) / depth**0.5).astype(dtype))
    sums = op.matmul(x, weights, out_dtype="float32")
    emit = relax.BlockBuilder.current().emit
    value = emit(op.astype(sums, dtype))
    added = relax.const(RNG.standard_normal(columns).astype(dtype))
    return emit(op.add(value, added)) if bias else value


def attention(x: Any, heads: int, *, bias: bool = True) -> Any:
    batch, tokens, width = map(int, x.ty.shape)
    depth, dtype = width // heads, str(x.ty.dtype)

    def split(value: Any) -> Any:
        return op.permute_dims(op.reshape(value, (batch, tokens, heads, depth)), [0, 2, 1, 3])

    q, k, v = (split(linear(x, width, bias=bias)) for _ in range(3))
    q = op.multiply(q, relax.const(depth**-0.5, dtype))
    scores = op.matmul(q, op.permute_dims(k, [0, 1, 3, 2]), out_dtype="float32")
    weights = op.astype(op.nn.softmax(scores), dtype)
    own = op.astype(op.matmul(weights, v, out_dtype="float32"), dtype)
    return op.reshape(op.permute_dims(own, [0, 2, 1, 3]), (batch, tokens, width))


def compiled(
    body: Any, shape: tuple[int, ...], dtype: str
) -> tuple[tuple[KernelReport, ...], tuple[Decision, ...]]:
    """Kernels on an H200, and what was decided."""
    fused = fuse(relax_module(body, (shape,), dtype), H200, FIRST)
    return schedule_module(fused.mod, H200)[1], fused.decisions


def kinds_of(kernels: Sequence[KernelReport]) -> list[str]:
    """What kernels compute, sorted; rules that contend for the same have one name."""
    return sorted(KINDS.get(kernel.rule, kernel.rule) for kernel in kernels)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("batch", [1, 64])
@pytest.mark.parametrize("bias", [False, True])
def test_an_attention_is_a_product_and_a_chain(dtype: str, batch: int, bias: bool) -> None:
    kernels, decisions = compiled(lambda x: attention(x, 12, bias=bias), (batch, 128, 768), dtype)
    (own,) = [d for d in decisions if d.rule == "side by side" and not d.reason]
    apart = 3 - len(own.functions)
    assert set(own.functions) == {"matmul_768"}
    # Of 8,192 rows two products side by side and one alone may take as long as all three.
    assert apart <= (batch > 1)
    assert kinds_of(kernels) == ["attention", "product", *["product"] * apart]


def test_a_narrow_product_that_would_shift_the_others_stays_alone() -> None:
    """Behind its 4 columns, slices begin where no copy of a tile can."""

    def body(x: Any) -> Any:
        return op.sigmoid(linear(x, 4)), attention(x, 8)

    kernels, decisions = compiled(body, (4, 256, 512), "float16")
    assert kinds_of(kernels).count("attention") == 1
    whole = [d for d in decisions if d.rule == "side by side" and not d.reason]
    assert [d.functions for d in whole] == [("matmul_512",) * 3]


@pytest.mark.parametrize("rows", [128, 4096])
def test_a_gated_unit_still_ends_in_its_second_product(rows: int) -> None:
    def body(x: Any) -> Any:
        gate, up = linear(x, 1024), linear(x, 1024)
        return op.multiply(op.nn.silu(gate), up)

    kernels, decisions = compiled(body, (rows, 512), "float16")
    assert {kernel.rule for kernel in kernels} <= {"wgmma", "mma"}
    assert len(kernels) == 2
    (own,) = [decision for decision in decisions if decision.rule == "side by side"]
    assert "more would be written" in own.reason


def test_attention_and_gated_unit_of_one_value() -> None:
    """Of five products four become one: the last one still ends in the gated unit."""

    def body(x: Any) -> Any:
        own = attention(x, 8, bias=False)
        gate, up = linear(x, 2048), linear(x, 2048)
        return own, op.multiply(op.nn.silu(gate), up)

    kernels, decisions = compiled(body, (4, 256, 512), "float16")
    assert kinds_of(kernels) == ["attention", "product", "product"]
    whole = [d for d in decisions if d.rule == "side by side" and not d.reason]
    assert [d.functions for d in whole] == [("matmul_512",) * 3 + ("matmul_2048",)]


def test_float32_is_left_to_the_model() -> None:
    kernels, decisions = compiled(lambda x: attention(x, 12), (1, 128, 768), "float32")
    assert not any(kernel.fallback for kernel in kernels)
    assert any(decision.functions == ("matmul_768",) * 3 for decision in decisions)
