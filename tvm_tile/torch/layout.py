"""How tensors lie in memory where they come into a compiled program and leave it.

A compiled program takes and returns dense tensors in row-major order. A tensor that is dense in
another order, such as ``channels_last``, is handed over as the row-major tensor that lies so in
memory: nothing is copied, and what the other order costs is the program's to plan. A complex tensor
is handed over as the real one of which the last dimension holds the parts of each number.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from tvm_tile.runtime.arrays import ALIGNMENT


def memory_order(tensor: torch.Tensor) -> tuple[int, ...] | None:
    """The dimensions of a tensor from the outermost in memory to the innermost.

    Returns:
        None where the tensor is row-major as it is, or is not dense in any order.
    """
    if tensor.is_contiguous() or tensor.layout is not torch.strided:
        return None
    strides = tensor.stride()
    order = tuple(sorted(range(tensor.dim()), key=lambda dim: -strides[dim]))
    return order if tensor.permute(order).is_contiguous() else None


def lies_as_read(tensor: torch.Tensor) -> bool:
    """Whether kernels read a tensor where it lies, as far as a tensor without data tells."""
    is_dense = tensor.is_contiguous() or memory_order(tensor) is not None
    begins = tensor.storage_offset() * tensor.element_size() % ALIGNMENT == 0
    return is_dense and begins and not tensor.is_neg() and not tensor.is_conj()


def real_view(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor as real numbers, where it lies unless conjugates are yet to be written."""
    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor


def inverse(order: Sequence[int]) -> tuple[int, ...]:
    """The order that undoes an order of dimensions."""
    return tuple(order.index(dim) for dim in range(len(order)))


def is_row_major(tensor: torch.Tensor) -> bool:
    """Whether a tensor has the very strides that a new one of its shape has."""
    expected = 1
    for extent, stride in zip(reversed(tensor.shape), reversed(tensor.stride()), strict=True):
        if stride != expected:
            return False
        expected *= max(extent, 1)
    return True
