"""What an exported program is, as a sum: programs of equal sums compile to the same model."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from operator import attrgetter
from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from tvm_tile.frontend.torch.node_names import module_of, sources


def digest_of_program(program: ExportedProgram) -> bytes | None:
    """A sum of all that a program computes, of its weights and of what its nodes are called.

    Returns:
        The sum; ``None`` where a tensor has no memory of its own, such as one that is sparse.
    """
    total = hashlib.sha256()
    said = program.graph_signature, program.call_spec, program.range_constraints
    for text in (*map(str, said), *_texts(program.graph_module)):
        total.update(f"{len(text)}\0{text}".encode())
    places: dict[int, int] = {}
    for name, value in _values(program):
        for inner in _parts(value):
            if isinstance(inner, torch.Tensor):
                # Whether two names are of one memory matters where one of them is written to.
                place = places.setdefault(inner.data_ptr(), len(places))
                told = f"{name} {inner.dtype} {tuple(inner.shape)} {inner.stride()} {place}"
                data = inner.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
                total.update(f"{told}\0".encode())
                total.update(data)
            elif inner is None:
                return None
            else:
                total.update(f"{name} {inner}\0".encode())
    return total.digest()


def _texts(module: fx.GraphModule) -> Iterator[str]:
    """Each node of a program and of the graphs inside it, with its result and its names."""
    for path, inner in module.named_modules():
        if not isinstance(inner, fx.GraphModule):
            continue
        yield path
        for node in inner.graph.nodes:
            yield f"{node.op} {node.target} {node.name} {node.args!r} {node.kwargs!r}"
            yield f"{module_of(node)} {sources(node)}"
            yield str(pytree.tree_map(_signature, node.meta.get("val")))


def _signature(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    return value.dtype, tuple(value.shape), value.stride(), value.device


def _values(program: ExportedProgram) -> Iterator[tuple[str, Any]]:
    state: Mapping[str, Any] = program.state_dict
    yield from sorted(state.items())
    yield from sorted(program.constants.items())
    for path, inner in program.graph_module.named_modules():  # regions have tensors of their own
        nodes = inner.graph.find_nodes(op="get_attr") if isinstance(inner, fx.GraphModule) else ()
        for node in nodes:
            value = attrgetter(str(node.target))(inner)
            if not isinstance(value, torch.nn.Module):
                yield f"{path} {node.target}", value


def _parts(value: Any) -> Iterator[Any]:
    """A tensor, or those that it is made of and the text of what else it has; ``None`` for what
    cannot be told."""
    if not isinstance(value, torch.Tensor):
        yield None
    elif hasattr(value, "__tensor_flatten__"):
        names, context = value.__tensor_flatten__()
        yield f"{type(value).__qualname__} {names} {context!r}"
        for name in names:
            yield from _parts(getattr(value, name))
    elif type(value) in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer):
        yield value if value.layout == torch.strided and not value.is_quantized else None
    else:
        yield None
