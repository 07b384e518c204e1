"""Weights that a program knows by several names become one input of it."""

from __future__ import annotations

from typing import Any

import torch
from torch.export import ExportedProgram

from tvm_tile.frontend.torch.exported import WEIGHTS, copied_graph, weight_of, with_graph

_PLAIN = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)


def with_one_of_each(program: ExportedProgram) -> ExportedProgram:
    """The same program, in which each weight is one input, whatever it is called.

    A trace that does not follow Python's code (``strict=False``) takes a buffer that it also finds
    in an object of Python, such as a cache, for a constant besides. Where the model writes to one
    of the two, PyTorch cannot break the program down, and the other would keep its old value::

        b_key: BUFFER, c_key: CONSTANT, of the same memory; index_copy_(c_key, ...)
        =>   b_key: BUFFER;  index_copy_(b_key, ...)
    """
    names: dict[Any, str] = {}
    twins: dict[str, str] = {}
    for spec in program.graph_signature.input_specs:
        tensor = _tensor(program, spec)
        if tensor is not None and tensor.numel():
            first = names.setdefault(_memory(tensor), spec.arg.name)
            if first != spec.arg.name:
                twins[spec.arg.name] = first
    return _merged(program, twins) if twins else program


def _tensor(program: ExportedProgram, spec: Any) -> torch.Tensor | None:
    """The weight of an input, if it is one that lies in plain memory."""
    if spec.kind not in WEIGHTS:
        return None
    tensor = weight_of(program, spec.target)
    is_plain = type(tensor) in _PLAIN and tensor.layout == torch.strided and not tensor.is_meta
    return tensor if is_plain else None


def _memory(tensor: torch.Tensor) -> Any:
    kind = tensor.dtype, tensor.device, tensor.is_neg(), tensor.is_conj()
    return tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), kind


def _merged(program: ExportedProgram, twins: dict[str, str]) -> ExportedProgram:
    graph = copied_graph(program)
    places = {node.name: node for node in graph.find_nodes(op="placeholder")}
    for name, first in twins.items():
        places[name].replace_all_uses_with(places[first])
        graph.erase_node(places[name])
    return with_graph(program, graph)
