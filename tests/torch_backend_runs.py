"""Models through our backend of `torch.compile`, and whether what they return is PyTorch's."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch_backend_models import Output

from tvm_tile.device import Device
from tvm_tile.stages.forced import Forced
from tvm_tile.torch import GraphReport
from tvm_tile.torch.backend import compiled
from tvm_tile.torch.options import BackendOptions

EMULATED = {"device": "emulated", "options": Forced(weld=False)}


def backend(
    tell: Callable[[GraphReport], None], device: Device | str = "emulated"
) -> Callable[..., Any]:
    """Our backend for an emulated device, which tells a test what became of each graph."""
    chosen = BackendOptions.of({**EMULATED, "device": device})
    return lambda graph, inputs: compiled(graph, inputs, chosen, tell)


def leaves(value: Any) -> list[Any]:
    """Everything in some outputs, in order."""
    if isinstance(value, Output):
        value = dataclasses.asdict(value)
    return pytree.tree_leaves(value)


def memories(values: Sequence[Any]) -> list[int]:
    """For each tensor the first that lies in the same memory."""
    tensors = [value for value in values if isinstance(value, Tensor)]
    places = [t.untyped_storage().data_ptr() if t.numel() else -i for i, t in enumerate(tensors)]
    return [places.index(place) for place in places]


def assert_same(found: Sequence[Any], wanted: Sequence[Any], tolerance: float = 1e-5) -> None:
    """Equal in all that can be seen: kinds, values, strides, and which share their memory."""
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        assert type(one) is type(other)
        if isinstance(other, Tensor):
            assert _described(one) == _described(other)
            bounds = {"rtol": 10 * tolerance, "atol": tolerance}
            torch.testing.assert_close(one, other, **bounds, equal_nan=True)
        else:
            assert one == (pytest.approx(other, rel=1e-4) if isinstance(other, float) else other)
    assert memories(found) == memories(wanted)


def _described(tensor: Tensor) -> tuple[Any, ...]:
    layout = tensor.shape, tensor.stride(), tensor.storage_offset(), tensor.dtype
    return *layout, tensor.requires_grad, tensor.is_inference()
