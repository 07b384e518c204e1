"""Complex tensors as pairs of real ones, which PyTorch's own code takes for complex tensors."""

from __future__ import annotations

from typing import Any

import torch

from tvm_tile.frontend.torch.emit import Refusal

_COMPLEX = {torch.float32: torch.complex64, torch.float64: torch.complex128}
_REAL = {whole: part for part, whole in _COMPLEX.items()}


class Pair(torch.Tensor):
    """A tensor without memory of its own, of a complex type, that has two real tensors.

    Operators that PyTorch has written by others, such as ``einsum``, go through PyTorch's code down
    to these others, which ``Pairing`` computes; nobody else can compute with it.

    Args:
        re: real part, float32 or float64.
        im: imaginary part, of the same shape and type.
    """

    re: torch.Tensor
    im: torch.Tensor

    @staticmethod
    def __new__(cls, re: torch.Tensor, im: torch.Tensor) -> Pair:  # noqa: D102, the class says it
        assert re.shape == im.shape, f"parts of shapes {re.shape} and {im.shape}"
        made: Pair = torch.Tensor._make_wrapper_subclass(
            cls, re.shape, strides=re.stride(), dtype=_COMPLEX[re.dtype], device=re.device
        )
        made.re, made.im = re, im
        return made

    @classmethod
    def __torch_dispatch__(cls, *_: Any, **__: Any) -> Any:
        """Refuse: only :class:`Pairing` computes with pairs."""
        return NotImplemented


def real_type(dtype: torch.dtype) -> torch.dtype:
    """The type of the parts of a complex type.

    Raises:
        Refusal: TVM has no such numbers.
    """
    if dtype not in _REAL:
        raise Refusal(f"element type {dtype}")
    return _REAL[dtype]


def parts(value: Any) -> tuple[Any, Any]:
    """The real and the imaginary part of a pair or a number; the latter is ``None`` of real
    tensors and numbers."""
    if isinstance(value, Pair):
        return value.re, value.im
    return (value.real, value.imag) if isinstance(value, complex) else (value, None)
