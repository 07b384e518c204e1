"""Which nodes of a graph of PyTorch's operators can be compiled, and why others cannot."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload

from tvm_tile.frontend.torch.convert import given_arguments, results
from tvm_tile.frontend.torch.decompose import broken_down_by_us
from tvm_tile.frontend.torch.emit import Refusal, dtype_name
from tvm_tile.frontend.torch.operators import CONVERTERS
from tvm_tile.frontend.torch.pairs.pair import real_type
from tvm_tile.frontend.torch.pairs.pairing import has_rule

_ATEN = torch.ops.aten
# What it reads depends on where its operand's memory begins, which is known to PyTorch alone.
_STRIDED = _ATEN.as_strided.default
# What PyTorch's schemas call the switches of operators that draw random numbers in training.
_TRAINING = frozenset({"train", "training"})
_PROBABILITIES = frozenset({"p", "dropout", "dropout_p"})


def why_eager(node: fx.Node, place: torch.device) -> str | None:
    """Why PyTorch must run a node; None where it can be compiled.

    Args:
        node: node of a graph without side effects, whose nodes' ``val`` are tensors without data.
        place: torch device of all tensors of a compiled program.
    """
    if node.op != "call_function" or not isinstance(node.target, OpOverload):
        return f"no operator: {node.op} {node.target}"
    if node.target._schema.is_mutable:
        return "writes into its operands"
    if node.target is _STRIDED and not keeps_elements(node):
        return "depends on where its operand lies in memory"
    if _draws(node):
        return "random numbers, which are to be those of PyTorch's generators"
    try:
        tensors = [*results(node), *_operands(node)]
        is_complex = any(tensor.is_complex() for tensor in tensors)
        for tensor in tensors:
            dtype_name(real_type(tensor.dtype) if tensor.is_complex() else tensor.dtype)
    except Refusal as refusal:
        return str(refusal)
    is_known = has_rule(node.target) if is_complex else node.target in CONVERTERS
    if not is_known and node.target not in broken_down_by_us():
        return "no converter"
    elsewhere = {str(tensor.device) for tensor in tensors if tensor.device != place}
    return f"on {', '.join(sorted(elsewhere))}, not {place}" if elsewhere else None


def _draws(node: fx.Node) -> bool:
    """Whether an operator draws random numbers, as dropout does in training."""
    if torch.Tag.nondeterministic_seeded not in node.target.tags:
        return False
    given = given_arguments(node)
    schema = node.target._schema.arguments
    values = {
        argument.name: given.get(argument.name, argument.default_value) for argument in schema
    }
    is_off = any(values[name] is False for name in _TRAINING & values.keys())
    return not is_off and all(values[name] != 0 for name in _PROBABILITIES & values.keys())


def _operands(node: fx.Node) -> Iterator[torch.Tensor]:
    """Tensors that a node reads; raises for those that cannot be compiled."""
    for other in node.all_input_nodes:
        value = other.meta.get("val")
        for item in value if isinstance(value, tuple | list) else (value,):
            if not isinstance(item, torch.Tensor):
                raise Refusal(f"{other.name}, an argument that only a call decides")
            if item.layout is not torch.strided:
                raise Refusal(f"layout {item.layout}")
            if not all(isinstance(extent, int) for extent in item.shape):
                raise Refusal(f"shape {tuple(item.shape)} that only the data decide")
            yield item


def keeps_elements(node: fx.Node) -> bool:
    """Whether a node, which lays a tensor out by strides, leaves each element in its place: PyTorch
    writes such to settle the strides of dimensions of one element."""
    found, given = node.meta["val"], node.all_input_nodes[0].meta["val"]
    if found.shape != given.shape or found.storage_offset() != given.storage_offset():
        return False
    strides = zip(found.shape, found.stride(), given.stride(), strict=True)
    return all(ours == theirs for extent, ours, theirs in strides if extent > 1)


def is_view(node: fx.Node) -> bool:
    """Whether the tensors that a node returns lie in the memory of the first that it takes."""
    if node.op != "call_function" or not node.all_input_nodes:
        return False
    (memory, *_), own = _memory(node.all_input_nodes[0]) or [None], _memory(node)
    return bool(own) and all(item == memory for item in own)


def is_item(node: fx.Node) -> bool:
    """Whether a node takes one of several results."""
    return node.target is operator.getitem and isinstance(node.args[0], fx.Node)


def _memory(node: fx.Node) -> list[Any]:
    """Keys that tell the memories of a node's tensors apart."""
    value = node.meta.get("val")
    values = value if isinstance(value, tuple | list) else (value,)
    tensors = [item for item in values if isinstance(item, torch.Tensor)]
    return [t.untyped_storage()._cdata for t in tensors if t.layout is torch.strided]
