"""Half-precision models: add up in float32, round once at the end.

Both importers leave the arithmetic type of a float16 or bfloat16 operator open, and TVM then
adds up in the storage type, which loses digits with every term. GPU libraries and PyTorch
accumulate in float32 instead. This pass states that in the program, so that every later
stage (matrix instructions included) sees it::

    matmul(x: f16, w: f16) -> f16    =>   astype(matmul(x, w, out_dtype=f32), f16)
    matmul(astype(x: f16, f32), astype(w: f16, f32))    =>   matmul(x, w, out_dtype=f32)
    softmax(x: f16) -> f16           =>   astype(softmax(astype(x, f32)), f16)
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax

from tvm_tile.graph.functions import mutated

HALF_DTYPES = frozenset({"float16", "bfloat16"})

_CONVOLUTION_ATTRS = ("strides", "padding", "dilation", "groups", "data_layout", "kernel_layout")
_FORWARD = (*_CONVOLUTION_ATTRS, "out_layout")
_TRANSPOSED = (*_FORWARD, "output_padding")
_CONVOLUTIONS: dict[str, tuple[str, ...]] = {
    **{f"relax.nn.conv{rank}d": _FORWARD for rank in (1, 2, 3)},
    **{f"relax.nn.conv{rank}d_transpose": _TRANSPOSED for rank in (1, 2, 3)},
}

# Reductions, and functions whose half-precision forms are inexact or missing on some devices. Not
# scans and norms of groups and instances: their loops compute in float32 by themselves.
_COMPUTE_IN_FLOAT32 = frozenset(
    f"relax.{name}"
    for name in (
        *("sum", "mean", "prod", "variance", "std"),
        *("nn.softmax", "nn.log_softmax"),
        *("nn.layer_norm", "nn.rms_norm", "nn.batch_norm"),
        *(f"nn.avg_pool{rank}d" for rank in (1, 2, 3)),
        *(f"nn.adaptive_avg_pool{rank}d" for rank in (1, 2, 3)),
        *("exp", "log", "log_add_exp", "erf", "power", "sqrt", "rsqrt", "sigmoid", "tanh"),
        *("sin", "cos", "tan", "sinh", "cosh", "asin", "acos", "atan", "asinh", "acosh", "atanh"),
        *("nn.gelu", "nn.gelu_tanh", "nn.silu", "nn.selu", "nn.softplus"),
        *("image.resize2d", "image.resize3d", "image.grid_sample"),
    )
)

# Of bfloat16 TVM has none.
_ASK_IN_FLOAT32 = frozenset(f"relax.{name}" for name in ("isfinite", "isinf", "isnan"))


def accumulate_in_float32(mod: tvm.IRModule) -> tvm.IRModule:
    """Make half-precision sums, products and special functions compute in float32.

    Args:
        mod: Relax operators. Shapes and element types of all values stay as they are.

    Returns:
        The rewritten module; one without float16 or bfloat16 comes back as it was.
    """
    return mutated(mod, _Accumulate(mod))


@relax.expr_functor.mutator
class _Accumulate(relax.PyExprMutator):
    def visit_call_(self, call: relax.Call) -> relax.Expr:
        # The type is the original's: operands are rebuilt and may not be normalized yet.
        half = _half_dtype(call.ty)
        call = self.visit_expr_post_order(call)
        name = getattr(call.op, "name", None)
        if name in _ASK_IN_FLOAT32:
            return relax.Call(call.op, [self._widen(argument) for argument in call.args])
        if name == "relax.matmul" and half is None:
            return self._of_halves(call)
        if half is None or name is None:
            return call
        if name == "relax.matmul":
            return self._narrow(relax.op.matmul(*call.args, out_dtype="float32"), half)
        if name in _CONVOLUTIONS:
            return self._narrow(_float32_convolution(name, call), half)
        if name in _COMPUTE_IN_FLOAT32:
            arguments = [self._widen(argument) for argument in call.args]
            return self._narrow(relax.Call(call.op, arguments, call.attrs), half)
        return call

    def _of_halves(self, product: relax.Call) -> relax.Call:
        """A product of widened halves as one of halves, which is as exact."""
        halves = [self._half(argument) for argument in product.args]
        dtypes = {_half_dtype(half.ty) for half in halves if half is not None}
        if None in halves or len(dtypes) > 1 or None in dtypes:
            return product
        return relax.op.matmul(*halves, out_dtype="float32")

    def _half(self, value: relax.Expr) -> relax.Expr | None:
        """What was widened to float32 to become a value; ``None`` of anything else."""
        made = self.lookup_binding(value) if isinstance(value, relax.Var) else value
        is_wide = isinstance(made, relax.Call) and str(value.ty.dtype) == "float32"
        is_cast = is_wide and getattr(made.op, "name", "") == "relax.astype"
        return made.args[0] if is_cast else None

    def _widen(self, argument: relax.Expr) -> relax.Expr:
        if _half_dtype(argument.ty) is None:
            return argument
        return self.builder_.emit(relax.op.astype(argument, "float32"))

    def _narrow(self, call: relax.Call, dtype: str) -> relax.Expr:
        result = self.builder_.emit(call)
        if isinstance(result.ty, relax.TupleType):
            fields = [relax.TupleGetItem(result, i) for i in range(len(result.ty.fields))]
            return relax.Tuple([relax.op.astype(self.builder_.emit(f), dtype) for f in fields])
        return relax.op.astype(result, dtype)


def _half_dtype(ty: Any) -> str | None:
    """The half-precision type of a tensor (or of a tuple's first tensor), else ``None``."""
    if isinstance(ty, relax.TupleType) and len(ty.fields) > 0:
        ty = ty.fields[0]
    if not isinstance(ty, relax.TensorType):
        return None
    dtype = str(ty.dtype)
    return dtype if dtype in HALF_DTYPES else None


def _float32_convolution(name: str, call: relax.Call) -> relax.Call:
    settings = {attr: getattr(call.attrs, attr) for attr in _CONVOLUTIONS[name]}
    return getattr(relax.op.nn, name.removeprefix("relax.nn."))(
        *call.args, **settings, out_dtype="float32"
    )
