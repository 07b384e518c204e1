"""Attention for CUDA cores: ``chain_cases.py`` in float32, and other operands."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from chain_bodies import attention
from chain_cases import CHAIN_CASES
from kernels import Case, Input
from tvm import relax
from tvm.relax import op

Body = Callable[..., Any]


def in_float32(case: Case) -> Case:
    """A case whose tensors of half precision are of float32."""
    inputs = (replace(i, dtype="float32") if "float" in i.dtype else i for i in case.inputs)
    return replace(case, rules="attention", inputs=tuple(inputs))


def known(value: Any) -> Any:
    """An expression whose type is known."""
    return relax.BlockBuilder.current().emit(value)


def by_heads(heads: int) -> Body:
    """As transformers have it: heads side by side in a row, of the output, too."""

    def split(x: Any) -> Any:
        batch, rows, width = (int(extent) for extent in x.ty.shape)
        each = op.reshape(x, (batch, rows, heads, width // heads))
        return known(op.permute_dims(each, [0, 2, 1, 3]))

    def body(q: Any, k: Any, v: Any) -> Any:
        out = attention(0.2)(split(q), split(k), split(v))
        out = known(op.permute_dims(out, [0, 2, 1, 3]))
        batch, rows, _, width = (int(extent) for extent in out.ty.shape)
        return op.reshape(out, (batch, rows, heads * width))

    return body


def turned(scale: float) -> Body:
    """All operands with the other axis contiguous."""

    def body(q: Any, k: Any, v: Any) -> Any:
        return attention(scale)(*(known(op.permute_dims(x, [0, 2, 1])) for x in (q, k, v)))

    return body


def _case(name: str, body: Body, *shapes: tuple[int, ...]) -> Case:
    return Case(name, "attention", body, tuple(Input(shape) for shape in shapes))


# Two kernels: queries of float32 are scaled by one of their own.
APART = ("feed_forward", "groups_one_head", "groups_both_scaled", "groups_prompt", "sunk_prompt")
FLOATS = (
    *(in_float32(case) for case in CHAIN_CASES if not case.name.startswith(APART)),
    _case("by_heads", by_heads(3), (2, 70, 144), (2, 45, 144), (2, 45, 144)),
    _case("by_heads_of_odd_width", by_heads(5), (2, 33, 35), (2, 45, 35), (2, 45, 35)),
    _case("turned", turned(0.3), (4, 40, 66), (4, 40, 97), (4, 24, 97)),
)
