"""Tensors on a device that share memory with others, or are copied to or from them."""

from __future__ import annotations

from typing import Any

from tvm_tile.runtime.arrays import is_torch


def borrowed_torch(tensor: Any) -> Any:
    """A dense torch tensor as TVM's, which does not keep its memory: for use while others do."""
    import torch
    import tvm_ffi

    tensor = tensor.detach()
    if tensor.numel():
        place = tensor.data_ptr(), tensor.device, tensor.numel() * tensor.element_size()
        storage = torch._C._construct_storage_from_data_pointer(*place)
        empty = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
        tensor = empty.set_(storage, 0, tensor.shape)
    return tvm_ffi.from_dlpack(tensor)


def copy_into(place: Any, value: Any, *, wait: bool) -> None:
    """Copy a tensor into another of TVM's, of the same shape and type.

    Args:
        place: tensor that is written.
        value: torch's, copied on torch's current stream, or TVM's.
        wait: whether a copy on torch's stream must have ended, for others do not wait for it.
    """
    if not is_torch(value):
        place.copyfrom(value)
        return
    import torch

    torch.from_dlpack(place).copy_(value.detach())
    if wait and value.is_cuda:
        torch.cuda.current_stream(value.device).synchronize()


def clone(tensor: Any) -> Any:
    """A result in memory of its own, on its device."""
    if is_torch(tensor):
        return tensor.clone()
    import tvm

    return tvm.runtime.empty(tensor.shape, str(tensor.dtype), tensor.device).copyfrom(tensor)
