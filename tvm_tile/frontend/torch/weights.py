"""Weights of an exported program as tensors of TVM's."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator, Set
from typing import Any

import torch
import tvm
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor
from torch.export import ExportedProgram
from torch.export.passes import move_to_device_pass
from torch.utils import _pytree
from tvm import relax

from tvm_tile.errors import UnsupportedOperatorError
from tvm_tile.frontend.torch.emit import Refusal, dtype_name
from tvm_tile.frontend.torch.exported import weight_of

_ALIGNMENT = 64  # bytes, what TVM asks of a constant's memory


def tensor_of(program: ExportedProgram, name: str) -> torch.Tensor:
    """A weight that TVM can hold."""
    tensor = weight_of(program, name)
    if isinstance(tensor, FakeTensor) or tensor.is_meta or tensor.is_quantized:
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
    """A weight as a tensor of TVM's."""
    data = tensor.detach().cpu().resolve_neg().contiguous()
    if data.data_ptr() % _ALIGNMENT:
        data = data.clone()
    if not data.numel():  # PyTorch's strides of no elements are others than TVM's
        return tvm.runtime.empty(tuple(data.shape), dtype_name(data.dtype))
    return tvm.runtime.from_dlpack(data)


def with_memory(program: ExportedProgram) -> tuple[ExportedProgram, frozenset[str]]:
    """A program whose weights without values, on the device ``meta``, have memory on the CPU, and
    the names of these.

    Nobody writes to that memory, so that the operating system hands out none of it. What is on the
    device ``meta`` otherwise, inputs and constants of the graph, is on the CPU, too, where the
    operators are broken down.

    Returns:
        The program itself where all of its weights have values.
    """
    held = {**program.state_dict, **program.constants}
    bare = frozenset(
        name for name, own in held.items() if isinstance(own, torch.Tensor) and own.is_meta
    )
    if not bare:
        return program, bare
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecations inside PyTorch
        return move_to_device_pass(_with_memory(_copied(program), bare), "cpu"), bare


def _copied(program: ExportedProgram) -> ExportedProgram:
    """A copy of a program, its values named alike: PyTorch's own has others for names that Python
    knows, such as ``input``, and is refused then, as its signature has the former ones."""
    copied = copy.deepcopy(program)
    for own, other in zip(_nodes(program), _nodes(copied), strict=True):
        other.name = own.name
    return copied


def _nodes(program: ExportedProgram) -> Iterator[fx.Node]:
    """The nodes of a program's graph, and of those of its branches and loops."""
    for module in program.graph_module.modules():
        if isinstance(module, fx.GraphModule):
            yield from module.graph.nodes


def _with_memory(program: ExportedProgram, bare: Set[str]) -> ExportedProgram:
    """The very program, with memory for some of its weights and for its example inputs."""
    for own in (program._state_dict, program._constants):
        for name in bare & own.keys():
            given = own[name]
            data = torch.empty_like(given, device="cpu", requires_grad=False)
            is_parameter = isinstance(given, torch.nn.Parameter)
            own[name] = torch.nn.Parameter(data, given.requires_grad) if is_parameter else data
    if program.example_inputs is not None:
        program._example_inputs = _pytree.tree_map_only(
            torch.Tensor, lambda own: torch.empty_like(own, device="cpu"), program.example_inputs
        )
    for node in _nodes(program):
        node.meta["val"] = _pytree.tree_map_only(FakeTensor, _on_cpu, node.meta.get("val"))
    return program


def _on_cpu(value: Any) -> Any:
    """A tensor without data on the CPU like one of fixed sizes on the device ``meta``; PyTorch's
    own copy of it takes 100 us."""
    sizes = (*value.shape, *value.stride())
    if value.device.type != "meta" or not all(isinstance(extent, int) for extent in sizes):
        return value
    like = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")
    return FakeTensor(value.fake_mode, like, torch.device("cpu"))


def unsupported(found: str, nodes: tuple[str, ...] = ()) -> UnsupportedOperatorError:
    """The error that names what the importer does not know, and the nodes that have it."""
    return UnsupportedOperatorError(
        "every operator and every type of a model must be one that the PyTorch importer knows",
        found,
        "rewrite the module without these",
        nodes,
    )
