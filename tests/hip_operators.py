"""Single operators of all kinds and data types as models, for builds of AMD kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.relax import op

SHAPE = (6, 32)
CHIPS = ("amd/mi250x", "amd/mi300x", "amd/mi355x", "amd/rx7900xtx", "amd/rx9070xt")
FLOATS = ("float16", "bfloat16", "float32", "float64")
DTYPES = (
    *FLOATS,
    *("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "bool"),
    *("float8_e4m3fn", "float8_e5m2"),
)

Body = Callable[..., Any]
_ROWS = [[1, 3, 0]] * SHAPE[0]
_IMAGE, _WINDOWS = (1, 3, 8, 8), (4, 3, 3, 3)


def _first_row(x: Any) -> Any:
    return op.reshape(op.strided_slice(x, [0], [0], [1]), (SHAPE[1],))


def _indices(values: Any) -> Any:
    return relax.const(np.array(values, "int64"))


def _image(x: Any) -> Any:
    return op.reshape(x, _IMAGE)


def _windows(x: Any) -> Any:
    count = int(np.prod(_WINDOWS))
    return op.reshape(op.strided_slice(op.flatten(x), [0], [0], [count]), _WINDOWS)


def _along(name: str, axis: int) -> Body:
    return lambda x: getattr(op, name)(x, axis=axis)


# Defined for floating-point numbers, every one of which must become a kernel.
OF_FLOATS: dict[str, tuple[int, Body]] = {
    **{
        name: (1, getattr(op, name))
        for name in (
            *("abs", "acos", "acosh", "asin", "asinh", "atan", "atanh", "ceil", "cos", "cosh"),
            *("erf", "exp", "floor", "isfinite", "isinf", "isnan", "log", "negative", "round"),
            *("rsqrt", "sigmoid", "sign", "sin", "sinh", "sqrt", "square", "tan", "tanh", "trunc"),
        )
    },
    **{
        f"nn.{name}": (1, getattr(op.nn, name))
        for name in (
            *("gelu", "gelu_tanh", "leakyrelu", "log_softmax", "relu", "relu6", "selu", "silu"),
            *("softmax", "softplus"),
        )
    },
    **{
        name: (2, getattr(op, name))
        for name in (
            *("add", "atan2", "divide", "equal", "floor_divide", "greater", "greater_equal"),
            *("less", "less_equal", "log_add_exp", "maximum", "minimum", "mod", "multiply"),
            *("not_equal", "power", "subtract"),
        )
    },
    "clip": (1, lambda x: op.clip(x, 0, 3)),
    "hard_sigmoid": (1, lambda x: op.clip(x / relax.const(6.0, x.ty.dtype), 0, 1)),
    "mish": (1, lambda x: x * op.tanh(op.nn.softplus(x))),
    "reciprocal": (1, lambda x: relax.const(1.0, x.ty.dtype) / x),
    "where": (2, lambda x, y: op.where(op.greater(x, y), x, y)),
    **{
        f"{name}{axis}": (1, _along(name, axis))
        for name in ("sum", "mean", "max", "min", "prod", "std", "variance", "cumsum")
        for axis in (0, 1)
    },
    **{f"astype_{dtype}": (1, lambda x, to=dtype: op.astype(x, to)) for dtype in DTYPES[:-2]},
    "matmul": (2, lambda x, y: op.matmul(x, op.permute_dims(y))),
    "conv": (2, lambda x, y: op.nn.conv2d(_image(x), _windows(y), padding=1)),
    "max_pool": (1, lambda x: op.nn.max_pool2d(_image(x), (2, 2), (2, 2))),
    "avg_pool": (1, lambda x: op.nn.avg_pool2d(_image(x), (2, 2), (2, 2))),
    "resize": (1, lambda x: op.image.resize2d(_image(x), (5, 11), method="linear")),
}

# Defined for integers or for some types only, or scheduled by hand: a kernel or a typed error.
OF_OTHERS: dict[str, tuple[int, Body]] = {
    **{name: (1, getattr(op, name)) for name in ("bitwise_not", "logical_not")},
    **{
        name: (2, getattr(op, name))
        for name in (
            *("bitwise_and", "bitwise_or", "bitwise_xor", "left_shift", "right_shift"),
            *("floor_mod", "logical_and", "logical_or", "logical_xor"),
        )
    },
    **{
        f"{name}{axis}": (1, _along(name, axis))
        for name in ("argmax", "argmin", "cumprod", "sort", "argsort")
        for axis in (0, 1)
    },
    # TVM has none of float64.
    "layer_norm": (
        3,
        lambda x, y, z: op.nn.layer_norm(x, _first_row(y), _first_row(z), axes=[-1]),
    ),
    "topk": (1, lambda x: op.topk(x, k=4)),
    "take": (1, lambda x: op.take(x, _indices([1, 3, 0]), axis=0)),
    "gather": (1, lambda x: op.gather_elements(x, _indices(_ROWS), axis=1)),
    "gather_nd": (1, lambda x: op.gather_nd(x, _indices([[1], [3]]))),
    **{
        f"scatter_{kind}": (
            2,
            lambda x, y, kind=kind: op.scatter_elements(
                x,
                _indices(_ROWS),
                op.strided_slice(y, [1], [0], [3]),
                axis=1,
                reduction=kind,
            ),
        )
        for kind in ("update", "add", "mul", "max", "min")
    },
    "tril": (1, op.tril),
    "flip": (1, lambda x: op.flip(x, axis=1)),
    "concat": (2, lambda x, y: op.concat([x, y], axis=1)),
    **{f"astype_{dtype}": (1, lambda x, to=dtype: op.astype(x, to)) for dtype in DTYPES[-2:]},
}


def model(name: str, dtype: str) -> tvm.IRModule:
    """``main(x0, ...)``, one operator of inputs of ``SHAPE``.

    Raises:
        Exception: TVM's, where it defines the operator for no such type.
    """
    arity, body = (OF_FLOATS | OF_OTHERS)[name]
    builder = relax.BlockBuilder()
    inputs = [relax.Var(f"x{i}", relax.TensorType(SHAPE, dtype)) for i in range(arity)]
    with builder.function("main", inputs):
        builder.emit_func_output(builder.emit(body(*inputs)))
    return builder.get()
