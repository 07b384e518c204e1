"""Define ONNX Runtime's activations, and products with what is beside them."""

from __future__ import annotations

import math
from typing import Any

from tvm_tile.frontend.onnx.microsoft.function_body import FunctionBody

_GELU_SINCE = 20  # opset
# Activations of fused products, with the names of their parameters.
_ACTIVATIONS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("Relu", "Sigmoid", "Softplus", "Softsign", "Tanh"), ()),
    **dict.fromkeys(("Elu", "LeakyRelu", "ThresholdedRelu"), ("alpha",)),
    "HardSigmoid": ("alpha", "beta"),
    "Selu": ("alpha", "gamma"),
}


def gelu(b: FunctionBody, x: str, approximate: str = "none") -> tuple[str, ...]:
    """``x`` times the share of a normal distribution below it, ``approximate`` as ONNX has it."""
    if b.opset >= _GELU_SINCE:
        return (b("Gelu", x, approximate=approximate),)
    if approximate == "none":
        share = b("Erf", b("Mul", x, math.sqrt(0.5)))
    else:
        cube = b("Mul", b("Mul", b("Mul", x, x), x), 0.044715)
        share = b("Tanh", b("Mul", b("Add", x, cube), math.sqrt(2 / math.pi)))
    return (b("Mul", b("Mul", x, 0.5), b("Add", share, 1.0)),)


def write_gelu(b: FunctionBody) -> tuple[str, ...]:
    """Gelu and BiasGelu, by the error function."""
    return gelu(b, b.add(*b.inputs(2)))


def write_fast_gelu(b: FunctionBody) -> tuple[str, ...]:
    """FastGelu, by the hyperbolic tangent."""
    return gelu(b, b.add(*b.inputs(2)), "tanh")


def write_quick_gelu(b: FunctionBody) -> tuple[str, ...]:
    """QuickGelu: ``x * sigmoid(alpha * x)``."""
    x = b.input(0)
    return (b("Mul", x, b("Sigmoid", b("Mul", x, b.attribute("alpha", 1.702)))),)


def write_fused_matmul(b: FunctionBody) -> tuple[str, ...]:
    """FusedMatMul: a product of turned factors, times ``alpha``."""
    product = b("MatMul", *(_turned(b, b.input(place), "AB"[place]) for place in range(2)))
    alpha = b.attribute("alpha", 1.0)
    return (product if alpha == 1 else b("Mul", product, alpha),)


def _turned(b: FunctionBody, x: str, name: str) -> str:
    order = list(range(len(b.shape(x))))
    if b.attribute(f"transBatch{name}", 0):
        order = [*order[1:-1], order[0], order[-1]]
    if b.attribute(f"trans{name}", 0):
        order = [*order[:-2], *reversed(order[-2:])]
    return x if order == sorted(order) else str(b("Transpose", x, perm=order))


def write_fused_conv(b: FunctionBody) -> tuple[str, ...]:
    """FusedConv: a convolution, a summand, and an activation."""
    x, weight, bias, summand = b.inputs(4)
    names = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")
    y = b.add(b("Conv", x, weight, bias, **b.attributes(*names)), summand)
    return (_activated(b, y, b.attribute("activation_params", ())),)


def write_fused_gemm(b: FunctionBody) -> tuple[str, ...]:
    """FusedGemm: a linear layer and an activation."""
    names = ("alpha", "beta", "transA", "transB")
    y = b("Gemm", *b.inputs(3), **b.attributes(*names))
    greek = ("activation_alpha", "activation_beta", "activation_gamma")
    return (_activated(b, y, [v for v in b.attributes(*greek).values() if v is not None]),)


def _activated(b: FunctionBody, x: str, parameters: Any) -> str:
    activation = b.attribute("activation", "")
    if not activation:
        return x
    if activation == "Clip":
        return str(b("Clip", x, *(float(bound) for bound in parameters)))
    if activation == "HardSwish":
        return str(b("Mul", x, b("HardSigmoid", x, alpha=1 / 6, beta=0.5)))
    if activation not in _ACTIVATIONS:
        raise NotImplementedError(f"the activation {activation}")
    named = zip(_ACTIVATIONS[activation], parameters, strict=False)
    return str(b(activation, x, **dict(named)))


def write_matmul_bits(b: FunctionBody) -> tuple[str, ...]:
    """MatMulNBits, which is taken for a standard operator; and its type, which nobody infers."""
    x, *others = b.inputs(6)
    product = b("MatMulNBits", x, *others, **b.attributes("K", "N", "bits", "block_size"))
    extents = [*b.shape(x)[:-1], b.integer("N")]
    return (b("Reshape", b.cast(product, b.dtype(x)), extents),)


def write_matmul_integer16(b: FunctionBody) -> tuple[str, ...]:
    """MatMulInteger16: a product of integers, which wraps in 32 bits."""
    is_unsigned = all(b.dtype(name).kind == "u" for name in b.inputs(2))
    dtype = "uint32" if is_unsigned else "int32"
    return (b("MatMul", *(b.cast(name, dtype) for name in b.inputs(2))),)
