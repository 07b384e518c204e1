"""Weights of an exported program as tensors of TVM's."""

from __future__ import annotations

from typing import Any

import torch
import tvm
from torch._subclasses.fake_tensor import FakeTensor
from torch.export import ExportedProgram
from tvm import relax

from tvm_tile.errors import ModelError, UnsupportedOperatorError
from tvm_tile.frontend.torch.emit import Refusal, dtype_name
from tvm_tile.frontend.torch.exported import weight_of

_ALIGNMENT = 64  # bytes, what TVM asks of a constant's memory


def tensor_of(program: ExportedProgram, name: str) -> torch.Tensor:
    """A weight that TVM can hold."""
    tensor = weight_of(program, name)
    if isinstance(tensor, FakeTensor) or tensor.is_quantized:
        raise unsupported(f"weight {name!r} is a {type(tensor).__name__} without plain data")
    if tensor.layout != torch.strided:
        raise unsupported(f"weight {name!r} has the layout {tensor.layout}")
    try:
        dtype_name(tensor.dtype)
    except Refusal as refusal:
        raise unsupported(f"weight {name!r} has the {refusal}") from None
    assert isinstance(tensor, torch.Tensor)
    return tensor


def constant_of(tensor: torch.Tensor, known: dict[Any, relax.Expr]) -> relax.Expr:
    """The constant of a weight; tensors that share their memory share a constant."""
    kind = (tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype, tensor.is_neg())
    if kind not in known:
        known[kind] = relax.const(held(tensor))
    return known[kind]


def held(tensor: torch.Tensor) -> Any:
    """A weight as a tensor of TVM's, which has values."""
    if tensor.is_meta:
        raise ModelError(
            "weights must have values, unless a model is only to be predicted",
            f"one of shape {tuple(tensor.shape)} is on PyTorch's device 'meta'",
            "load the weights; or call tvm_tile.predict",
        )
    data = tensor.detach().cpu().resolve_neg().contiguous()
    if data.data_ptr() % _ALIGNMENT:
        data = data.clone()
    if not data.numel():  # PyTorch's strides of no elements are others than TVM's
        return tvm.runtime.empty(tuple(data.shape), dtype_name(data.dtype))
    return tvm.runtime.from_dlpack(data)


def unsupported(found: str, nodes: tuple[str, ...] = ()) -> UnsupportedOperatorError:
    """The error that names what the importer does not know, and the nodes that have it."""
    return UnsupportedOperatorError(
        "every operator and every type of a model must be one that the PyTorch importer knows",
        found,
        "rewrite the module without these",
        nodes,
    )
