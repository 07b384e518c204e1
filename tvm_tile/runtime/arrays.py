"""Arrays of callers, in and out: NumPy, torch, and whatever else speaks DLPack.

Inputs reach the device without a copy where their memory allows it; outputs come back as
the kind that went in. A call costs a few microseconds an array, so the common case comes
first everywhere and error texts are made only once something is wrong.
"""

from __future__ import annotations

import functools
import importlib
import math
import sys
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from tvm_tile.errors import InputError
from tvm_tile.graph.signature import Signature
from tvm_tile.graph.tile_graph import element_size

# TVM allocates at 64 bytes; vector loads in kernels rely on 16.
ALIGNMENT = 16
_ROCM = 10  # kDLROCM


class ArrayKind(Protocol):
    """One library's arrays."""

    def describe(self, value: Any) -> tuple[str, tuple[int, ...]]:
        """The array's dtype, by TVM's name, and its shape."""

    def obstacle(self, value: Any) -> str:
        """Words for what keeps the array from being dense memory with strides; empty if nothing."""

    def fits(self, value: Any, signature: Signature) -> bool:
        """Whether a value is an array in plain memory, of the signature's very dtype and shape."""

    def to_device(self, value: Any, device: Any) -> Any:
        """A dense, aligned tensor on ``device`` for TVM's call; it shares memory if it can."""

    def from_device(self, tensor: Any, like: Any, *, copy: bool) -> Any:
        """A result as this kind, where ``like`` (an input) lives; ``copy`` forbids sharing."""

    def memory(self, value: Any) -> tuple[int, int]:
        """Addresses at which the array's elements begin and end."""

    def write_obstacle(self, value: Any) -> str:
        """Why nobody may write to it; empty where one may."""

    def write(self, value: Any, tensor: Any) -> None:
        """Give the array the elements of a result."""


def check_input(value: Any, signature: Signature) -> ArrayKind:
    """The kind of an input that fits its signature.

    Raises:
        InputError: the input is no array of plain memory, or has another dtype, rank or shape.
    """
    kind = _kind_of(value)
    if kind is None:
        raise InputError(
            f"input {signature} must be a NumPy, torch or DLPack array",
            f"a {type(value).__name__}",
            "wrap it, for example with numpy.asarray(value, dtype=...)",
        )
    if not kind.fits(value, signature):
        raise _misfit(kind, value, signature)
    return kind


def _kind_of(value: Any) -> ArrayKind | None:
    if isinstance(value, (np.ndarray, np.generic)):
        return NUMPY
    torch = sys.modules.get("torch")  # whoever has a torch tensor has imported torch
    if torch is not None and isinstance(value, torch.Tensor):
        return TORCH
    return DLPACK if hasattr(value, "__dlpack__") else None


def _misfit(kind: ArrayKind, value: Any, signature: Signature) -> InputError:
    if obstacle := kind.obstacle(value):
        return InputError(
            f"input {signature} must be an array of plain memory",
            obstacle,
            "convert it to one before the call",
        )
    dtype, shape = kind.describe(value)
    if dtype != signature.dtype:
        return InputError(
            f"input {signature} must have dtype {signature.dtype}",
            dtype,
            "convert it; nothing is cast silently",
        )
    if len(shape) != len(signature.shape):
        return InputError(
            f"input {signature} must have rank {len(signature.shape)}",
            f"rank {len(shape)}, shape {shape}",
            "reshape it, or compile the model for this rank",
        )
    return InputError(
        f"input {signature} must have shape {signature.shape}",
        str(shape),
        "resize or pad it, or compile the model for this shape",
    )


class _NumpyKind:
    def describe(self, value: Any) -> tuple[str, tuple[int, ...]]:
        return str(value.dtype), tuple(value.shape)

    def obstacle(self, value: Any) -> str:
        return "a masked array" if isinstance(value, np.ma.MaskedArray) else ""

    def fits(self, value: Any, signature: Signature) -> bool:
        if type(value) is not np.ndarray and self.obstacle(value):
            return False
        dtype = numpy_dtype(signature.dtype)
        return bool(value.dtype == dtype and value.shape == signature.shape)

    def to_device(self, value: Any, device: Any) -> Any:
        import tvm
        import tvm_ffi

        array = np.asarray(value, order="C")
        if (
            device == _cpu()
            # NumPy exports neither read-only arrays nor the dtypes of ml_dtypes.
            and array.flags.writeable
            and array.dtype.kind in "biufc"
            and array.ctypes.data % ALIGNMENT == 0
        ):
            return tvm_ffi.from_dlpack(array)
        return tvm.runtime.empty(array.shape, str(array.dtype), device).copyfrom(array)

    def from_device(self, tensor: Any, like: Any, *, copy: bool) -> Any:
        tensor = as_tvm(tensor)
        if not copy and tensor.device == _cpu() and _dlpack_in_numpy(str(tensor.dtype)):
            return np.from_dlpack(tensor)
        return tensor.numpy()

    def memory(self, value: Any) -> tuple[int, int]:
        first = last = value.ctypes.data
        for extent, stride in zip(value.shape, value.strides, strict=True):
            reach = max(extent - 1, 0) * stride
            first, last = first + min(reach, 0), last + max(reach, 0)
        return first, last + (value.itemsize if value.size else 0)

    def write_obstacle(self, value: Any) -> str:
        if not isinstance(value, np.ndarray):
            return "a number, which is no array"
        if not value.flags.writeable:
            return "a read-only array"
        return _broadcast(value.shape, value.strides)

    def write(self, value: Any, tensor: Any) -> None:
        np.copyto(value, as_tvm(tensor).numpy())


def _broadcast(shape: Sequence[int], strides: Sequence[int]) -> str:
    is_shared = any(n > 1 and not stride for n, stride in zip(shape, strides, strict=True))
    return "an array of which several elements are one" if is_shared else ""


@functools.cache
def numpy_dtype(name: str) -> np.dtype[Any] | None:
    """NumPy's dtype; None when NumPy, even with ml_dtypes, has none of that name."""
    try:
        return np.dtype(name)
    except TypeError:
        pass
    try:
        # Registers bfloat16 and the 8-bit floats with NumPy.
        return np.dtype(getattr(importlib.import_module("ml_dtypes"), name))
    except (ImportError, AttributeError, TypeError):
        return None


@functools.cache
def _dlpack_in_numpy(name: str) -> bool:
    dtype = numpy_dtype(name)
    return dtype is not None and dtype.kind in "biufc"


@functools.cache
def _cpu() -> Any:
    import tvm

    return tvm.cpu()


class _TorchKind:
    def describe(self, value: Any) -> tuple[str, tuple[int, ...]]:
        """The tensor's dtype, by the name that TVM and PyTorch share, and its shape."""
        return str(value.dtype).removeprefix("torch."), tuple(value.shape)

    def obstacle(self, value: Any) -> str:
        import torch

        if torch._C._functorch.is_functorch_wrapped_tensor(value):
            return "a tensor within torch.func, such as vmap"
        if value.is_nested or value.is_quantized or value.layout is not torch.strided:
            kind = "nested" if value.is_nested else "quantized" if value.is_quantized else ""
            return f"a {kind or str(value.layout).removeprefix('torch.')} tensor"
        own = type(value).__torch_dispatch__
        if own is not torch._C._disabled_torch_dispatch_impl:
            return f"a {type(value).__name__}, which has a meaning of its own"
        if value.is_meta or (value.numel() and not value._is_zerotensor() and not value.data_ptr()):
            return "a tensor without memory"
        return ""

    def fits(self, value: Any, signature: Signature) -> bool:
        return (
            not self.obstacle(value)
            and value.dtype is _torch_dtype(signature.dtype)
            and value.shape == signature.shape
        )

    def to_device(self, value: Any, device: Any) -> Any:
        tensor = value.detach() if value.requires_grad else value
        if tensor._is_zerotensor():
            tensor = tensor.clone()
        # Signs and conjugates that torch has not written to memory yet.
        tensor = tensor.resolve_conj().resolve_neg()
        place = _torch_device(device)
        if place is None:
            return DLPACK.to_device(tensor.cpu().contiguous(), device)
        if tensor.device != place:
            tensor = tensor.to(place)
        if not tensor.is_contiguous():
            tensor = tensor.contiguous()
        if tensor.data_ptr() % ALIGNMENT:
            tensor = tensor.clone()
        # TVM's call takes torch tensors as they are and, for these, runs on torch's own stream.
        return tensor

    def from_device(self, tensor: Any, like: Any, *, copy: bool) -> Any:
        import torch

        if isinstance(tensor, torch.Tensor):
            result = tensor
        elif _torch_device(tensor.device) is None:
            result = torch.from_dlpack(DLPACK.from_device(tensor, torch.empty(0), copy=True))
        else:
            result = torch.from_dlpack(tensor)
        if result.device != like.device:
            return result.to(like.device)
        return result.clone() if copy else result

    def memory(self, value: Any) -> tuple[int, int]:
        first = value.data_ptr()
        if not value.numel():
            return first, first
        steps = zip(value.shape, value.stride(), strict=True)
        reach = sum((extent - 1) * stride for extent, stride in steps)
        return first, first + (reach + 1) * value.element_size()

    def write_obstacle(self, value: Any) -> str:
        import torch

        if value.is_inference() and not torch.is_inference_mode_enabled():
            return "a tensor of torch.inference_mode, outside of it"
        if value.requires_grad and value.is_leaf and torch.is_grad_enabled():
            return "a leaf that requires gradients"
        if value.is_neg() or value.is_conj() or value._is_zerotensor():
            return "a tensor whose elements are not in memory as they are"
        return _broadcast(value.shape, value.stride())

    def write(self, value: Any, tensor: Any) -> None:
        import torch

        with torch.no_grad():
            value.copy_(self.from_device(tensor, value, copy=False))


def ready_torch(tensor: Any, device: Any) -> Any:
    """A torch tensor as TVM's call takes it, of whatever shape and type; mostly the tensor itself.

    It tells within a microsecond that nothing is to be done, and sees to the rest.
    """
    if tensor.requires_grad:
        tensor = tensor.detach()
    if (
        tensor.device == _torch_device(device)
        and tensor.is_contiguous()
        and not tensor.data_ptr() % ALIGNMENT
        and not tensor.is_neg()
        and not tensor.is_conj()
        and not tensor._is_zerotensor()
    ):
        return tensor
    return TORCH.to_device(tensor, device)


def own_torch(result: Any, like: Any, *, copy: bool) -> Any:
    """A result as a torch tensor of the caller's own; with torch's among its inputs, TVM's call
    mostly returns just that."""
    if type(result) is type(like) and not copy and result.device == like.device:
        return result
    return TORCH.from_device(result, like, copy=copy)


def is_torch(value: Any) -> bool:
    """Whether an array is a tensor of PyTorch's."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


@functools.cache
def _torch_dtype(name: str) -> Any:
    import torch

    return getattr(torch, name, None)


@functools.cache
def _torch_device(device: Any) -> Any:
    """The device as torch names it; None for one that this torch was not built for."""
    import torch

    if device == _cpu():
        return torch.device("cpu")
    is_amd = device.dlpack_device_type() == _ROCM
    if (torch.version.hip if is_amd else torch.version.cuda) is None:
        return None
    # torch calls AMD's GPUs "cuda" too.
    return torch.device("cuda", device.index)


class _DLPackKind:
    def describe(self, value: Any) -> tuple[str, tuple[int, ...]]:
        tensor = _import_dlpack(value)
        return str(tensor.dtype), tuple(tensor.shape)

    def obstacle(self, value: Any) -> str:
        return ""  # whatever DLPack can say is plain memory

    def fits(self, value: Any, signature: Signature) -> bool:
        return self.describe(value) == (signature.dtype, signature.shape)

    def to_device(self, value: Any, device: Any) -> Any:
        import tvm

        tensor = _import_dlpack(value)
        if tensor.device == device and tensor.data_ptr() % ALIGNMENT == 0:
            return tensor
        return tvm.runtime.empty(tensor.shape, str(tensor.dtype), device).copyfrom(tensor)

    def from_device(self, tensor: Any, like: Any, *, copy: bool) -> Any:
        import tvm

        tensor = as_tvm(tensor)
        home = _import_dlpack(like).device
        if not copy and home == tensor.device:
            return tensor
        return tvm.runtime.empty(tensor.shape, str(tensor.dtype), home).copyfrom(tensor)

    def memory(self, value: Any) -> tuple[int, int]:
        tensor = _import_dlpack(value)
        first = tensor.data_ptr()
        return first, first + math.prod(tensor.shape) * element_size(str(tensor.dtype))

    def write_obstacle(self, value: Any) -> str:
        import tvm

        # DLPack does not tell of every library whether its arrays may change.
        return "" if isinstance(value, tvm.runtime.Tensor) else f"a {type(value).__name__}"

    def write(self, value: Any, tensor: Any) -> None:
        value.copyfrom(as_tvm(tensor))


def as_tvm(tensor: Any) -> Any:
    """A result as a TVM tensor; with any torch tensor among its inputs TVM returns torch's."""
    import tvm
    import tvm_ffi

    return tensor if isinstance(tensor, tvm.runtime.Tensor) else tvm_ffi.from_dlpack(tensor)


def _import_dlpack(value: Any) -> Any:
    import tvm_ffi

    try:
        return tvm_ffi.from_dlpack(value, require_contiguous=True)
    except Exception as error:  # libraries of arrays raise what they like
        raise InputError(
            "an input must be exportable through DLPack, dense in row-major order",
            f"{type(value).__name__}: {error}",
            "make it contiguous before the call",
        ) from error


NUMPY: ArrayKind = _NumpyKind()
TORCH: ArrayKind = _TorchKind()
DLPACK: ArrayKind = _DLPackKind()
