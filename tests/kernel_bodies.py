"""Bodies of the small functions in ``kernel_cases``: products, convolutions, pools."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from kernels import Case, Input
from tvm import relax
from tvm.relax import op

Shape = tuple[int, ...]


def case(name: str, rules: str, body: Callable[..., Any], *inputs: Shape | Input) -> Case:
    specs = (entry if isinstance(entry, Input) else Input(entry) for entry in inputs)
    return Case(name, rules, body, tuple(specs))


def i64(*shape: int) -> Input:
    return Input(shape, "int64")


def i32(*shape: int) -> Input:
    return Input(shape, "int32")


def i8(*shape: int) -> Input:
    return Input(shape, "int8")


def boolean(*shape: int) -> Input:
    return Input(shape, "bool")


def scalar(value: float) -> Any:
    return relax.const(np.float32(value))


def mm(transposed: str, **options: Any) -> Callable[..., Any]:
    """A product whose operands are stored as ``transposed`` says: ``"NT"`` has B by columns."""

    def body(a: Any, b: Any) -> Any:
        left, right = (
            swap_last(x) if letter == "T" else x
            for x, letter in zip((a, b), transposed, strict=True)
        )
        return op.matmul(left, right, **options)

    return body


def swap_last(x: Any) -> Any:
    rank = len(x.ty.shape)
    return op.permute_dims(x, [*range(rank - 2), rank - 1, rank - 2])


def conv(**options: Any) -> Callable[..., Any]:
    return lambda x, w: op.nn.conv2d(x, w, **options)


def pool(kind: str, size: Any, **options: Any) -> Callable[..., Any]:
    return lambda x: getattr(op.nn, kind)(x, size, **options)


def along(name: str, axis: Any = None, **options: Any) -> Callable[..., Any]:
    return lambda x: getattr(op, name)(x, axis, **options)


def gelu(x: Any) -> Any:
    return op.nn.gelu(x)


def bias_relu(body: Callable[..., Any], *, shape: Shape) -> Callable[..., Any]:
    return lambda x, w, b: op.nn.relu(op.add(body(x, w), op.reshape(b, shape)))


def residual(body: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, w, r: op.nn.relu(op.add(body(x, w), r))


def shifted_windows(x: Any) -> Any:
    """Windows of 7 x 7 as three images again, whose last three rows come first."""
    windows = op.reshape(x, (3, 8, 8, 7, 7, 48))
    image = op.reshape(op.permute_dims(windows, [0, 1, 3, 2, 4, 5]), (3, 56, 56, 48))
    parts = ((53, 56), (0, 53))
    return op.concat(tuple(op.strided_slice(image, [1], [a], [b]) for a, b in parts), 1)
