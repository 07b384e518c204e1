"""PyTorch's operators of quantized models: products of codes, and what makes codes and numbers.

The latter are broken down as PyTorch defines them (``torch.ao.quantization.fx._decomposed``), but
for those that PyTorch writes with numbers read from the device.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from tvm import relax

from tvm_tile.frontend.torch.convert import Converters
from tvm_tile.frontend.torch.emit import Emit, Refusal, dtype_of, shape_of


def _scaled_mm(
    emit: Emit,
    x: relax.Expr,
    mat2: relax.Expr,
    scale_a: relax.Expr,
    scale_b: relax.Expr,
    bias: relax.Expr | None,
    scale_result: relax.Expr | None,
    out_dtype: torch.dtype | None,
    use_fast_accum: bool,
) -> relax.Expr:
    """A product of 8-bit floats, summed in float32 as far as the matrix units do."""
    rows, columns = emit.shape
    if scale_result is not None or emit.dtype.itemsize == 1:
        raise Refusal("a product that is scaled to 8 bits")
    total = emit(relax.op.matmul(x, mat2, out_dtype="float32"))
    for scale, shape in ((scale_a, (rows, 1)), (scale_b, (1, columns))):
        if dtype_of(scale) != torch.float32:
            raise Refusal(f"scales of {dtype_of(scale)}")
        if math.prod(shape_of(scale)) == 1:
            scale = emit(relax.op.reshape(scale, ()))
        elif shape_of(scale) != shape:
            raise Refusal(f"scales of shape {list(shape_of(scale))}")
        total = emit(relax.op.multiply(total, scale))
    if bias is not None:
        total = emit(relax.op.add(total, emit.cast(bias, torch.float32)))
    return emit.cast(total, emit.dtype)


def decompositions_of_codes() -> dict[Any, Callable[..., Any]]:
    """What operators of ``quantized_decomposed`` are, which PyTorch defines, but not as such."""
    try:
        from torch.ao.quantization.fx import _decomposed
    except ImportError:  # PyTorch means to drop it, and what these operators are for
        return {}
    library = torch.ops.quantized_decomposed
    of_pytorch = (
        *("quantize_per_tensor", "quantize_per_channel", "quantize_per_channel_group"),
        *("dequantize_per_tensor", "dequantize_per_channel", "dequantize_per_channel_group"),
        *("quantize_per_token", "dequantize_per_token", "choose_qparams_per_token"),
    )
    return {
        **{getattr(library, name).default: getattr(_decomposed, name) for name in of_pytorch},
        library.quantize_per_tensor.tensor: _quantize,
        library.quantize_per_tensor.tensor2: _quantize,
        library.dequantize_per_tensor.tensor: _dequantize,
        library.dequantize_per_tensor.tensor2: _dequantize,
        library.choose_qparams.tensor: _choose,
        library.choose_qparams_symmetric.tensor: _choose_symmetric,
        library.choose_qparams_per_token_asymmetric.default: (
            _decomposed._choose_qparams_per_token_asymmetric_impl
        ),
    }


def _quantize(
    input: torch.Tensor,
    scale: torch.Tensor,
    zero_point: torch.Tensor,
    quant_min: Any,
    quant_max: Any,
    dtype: torch.dtype,
) -> torch.Tensor:
    """By one scale and one zero point that are known at run time."""
    inverse = (1.0 / scale.double()).float().reshape(())
    rounded = torch.round(input.float() * inverse) + zero_point.float().reshape(())
    return torch.clamp(rounded, quant_min, quant_max).to(dtype)


def _dequantize(
    input: torch.Tensor,
    scale: torch.Tensor,
    zero_point: torch.Tensor,
    quant_min: Any,
    quant_max: Any,
    dtype: torch.dtype,
    *,
    out_dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """By one scale and one zero point that are known at run time."""
    wide = out_dtype or torch.float32
    shifted = input.to(wide) - zero_point.to(wide).reshape(())
    return shifted * scale.to(wide).reshape(())


def _choose(
    input: torch.Tensor, quant_min: int, quant_max: int, eps: float, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    """Scale and zero point with which the extremes of a tensor, and 0, have codes."""
    low, high = _extremes(input)
    scale = torch.clamp((high - low) / float(quant_max - quant_min), min=eps)
    zero = torch.clamp(quant_min - torch.round(low / scale), quant_min, quant_max)
    return scale.double().reshape(1), zero.to(torch.int64).reshape(1)


def _choose_symmetric(
    input: torch.Tensor, quant_min: int, quant_max: int, eps: float, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    """Choose a scale, and a zero point that is the middle of all codes."""
    low, high = _extremes(input)
    largest = torch.maximum(-low, high)
    scale = torch.clamp(largest / (float(quant_max - quant_min) / 2), min=eps)
    middle = 128 if dtype == torch.uint8 else 0
    zero = torch.full((1,), middle, dtype=torch.int64, device=input.device)
    return scale.double().reshape(1), zero


def _extremes(input: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    zero = torch.zeros((), dtype=input.dtype, device=input.device)
    return torch.minimum(input.amin(), zero), torch.maximum(input.amax(), zero)


CONVERTERS: Converters = {
    torch.ops.aten._int_mm.default: lambda emit, x, mat2: relax.op.matmul(
        x, mat2, out_dtype="int32"
    ),
    torch.ops.aten._scaled_mm.default: _scaled_mm,
}
