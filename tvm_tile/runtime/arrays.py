"""Arrays of callers, in and out: NumPy, torch, and whatever else speaks DLPack.

Inputs reach the device without a copy where their memory allows it; outputs come back as
the kind that went in.
"""

from __future__ import annotations

import sys
from typing import Any, Protocol

import numpy as np

from tvm_tile.errors import InputError
from tvm_tile.graph.signature import Signature

# TVM allocates at 64 bytes; kernels may use vector loads that rely on 16.
_ALIGNMENT = 16


class ArrayKind(Protocol):
    """One library's arrays."""

    def describe(self, value: Any) -> tuple[str, tuple[int, ...]]:
        """(dtype as TVM names it, shape)."""

    def to_device(self, value: Any, device: Any) -> Any:
        """A dense, aligned TVM tensor on ``device``; shares memory where it can."""

    def from_device(self, tensor: Any, like: Any, copy: bool) -> Any:
        """An array of this kind, where ``like`` (an input) lives; ``copy`` forbids sharing."""


def kind_of(value: Any) -> ArrayKind | None:
    """The kind of an array; None when it is no array."""
    if isinstance(value, (np.ndarray, np.generic)):
        return NUMPY
    torch = sys.modules.get("torch")  # whoever has a torch tensor has imported torch
    if torch is not None and isinstance(value, torch.Tensor):
        return TORCH
    return DLPACK if hasattr(value, "__dlpack__") else None


def check_input(value: Any, signature: Signature) -> ArrayKind:
    """The kind of an input that fits its signature.

    Raises:
        InputError: it is no array, or has another dtype, rank or shape.
    """
    kind = kind_of(value)
    if kind is None:
        raise InputError(
            f"input {signature} must be a NumPy, torch or DLPack array",
            f"a {type(value).__name__}",
            "wrap it, for example with numpy.asarray(value, dtype=...)",
        )
    dtype, shape = kind.describe(value)
    if dtype != signature.dtype:
        raise InputError(
            f"input {signature} must have dtype {signature.dtype}",
            dtype,
            "convert it; nothing is cast silently",
        )
    if len(shape) != len(signature.shape):
        raise InputError(
            f"input {signature} must have rank {len(signature.shape)}",
            f"rank {len(shape)}, shape {shape}",
            "reshape it, or compile the model for this rank",
        )
    if shape != signature.shape:
        raise InputError(
            f"input {signature} must have shape {signature.shape}",
            str(shape),
            "resize or pad it, or compile the model for this shape",
        )
    return kind


class _NumpyKind:
    def describe(self, value: Any) -> tuple[str, tuple[int, ...]]:
        return str(value.dtype), tuple(value.shape)

    def to_device(self, value: Any, device: Any) -> Any:
        import tvm
        import tvm_ffi

        array = np.ascontiguousarray(value).reshape(np.shape(value))
        on_cpu = device.dlpack_device_type() == tvm.cpu().dlpack_device_type()
        # NumPy exports neither read-only arrays nor the dtypes of ml_dtypes.
        shareable = array.flags.writeable and array.dtype.kind in "biufc"
        if on_cpu and shareable and array.ctypes.data % _ALIGNMENT == 0:
            return tvm_ffi.from_dlpack(array)
        return tvm.runtime.empty(array.shape, str(array.dtype), device).copyfrom(array)

    def from_device(self, tensor: Any, like: Any, copy: bool) -> Any:
        import tvm

        on_cpu = tensor.device.dlpack_device_type() == tvm.cpu().dlpack_device_type()
        if on_cpu and not copy and _in_numpy(tensor.dtype):
            return np.from_dlpack(tensor)
        return tensor.numpy()


def _in_numpy(dtype: Any) -> bool:
    try:
        return np.dtype(str(dtype)).kind in "biufc"
    except TypeError:
        return False


class _TorchKind:
    def describe(self, value: Any) -> tuple[str, tuple[int, ...]]:
        return str(value.dtype).removeprefix("torch."), tuple(value.shape)

    def to_device(self, value: Any, device: Any) -> Any:
        import tvm_ffi

        tensor = value.detach()
        place = _torch_place(device)
        if tensor.device.type == place and tensor.device.index in (None, device.index):
            tensor = tensor.contiguous()
        else:
            tensor = tensor.to(f"{place}:{device.index}").contiguous()
        if tensor.data_ptr() % _ALIGNMENT:
            tensor = tensor.clone()
        return tvm_ffi.from_dlpack(tensor)

    def from_device(self, tensor: Any, like: Any, copy: bool) -> Any:
        import torch

        result = torch.from_dlpack(tensor)
        if result.device != like.device:
            return result.to(like.device)
        return result.clone() if copy else result


def _torch_place(device: Any) -> str:
    return "cpu" if str(device).startswith("cpu") else "cuda"


class _DLPackKind:
    def describe(self, value: Any) -> tuple[str, tuple[int, ...]]:
        tensor = _import_dlpack(value)
        return str(tensor.dtype), tuple(tensor.shape)

    def to_device(self, value: Any, device: Any) -> Any:
        import tvm

        tensor = _import_dlpack(value)
        if tensor.device == device and tensor.data_ptr() % _ALIGNMENT == 0:
            return tensor
        return tvm.runtime.tensor(tensor, device)

    def from_device(self, tensor: Any, like: Any, copy: bool) -> Any:
        import tvm

        home = _import_dlpack(like).device
        if copy or home != tensor.device:
            return tvm.runtime.tensor(tensor, home)
        return tensor


def _import_dlpack(value: Any) -> Any:
    import tvm_ffi

    try:
        return tvm_ffi.from_dlpack(value, require_contiguous=True)
    except (ValueError, BufferError, RuntimeError) as error:
        raise InputError(
            "an input must be exportable through DLPack, dense in row-major order",
            f"{type(value).__name__}: {error}",
            "make it contiguous before the call",
        ) from error


NUMPY: ArrayKind = _NumpyKind()
TORCH: ArrayKind = _TorchKind()
DLPACK: ArrayKind = _DLPackKind()
