"""Relay programs that ``tvm.ir.save_json`` wrote, TVM 0.6 to 0.19."""

from __future__ import annotations

from typing import Any

from tvm_tile.errors import ModelFileError
from tvm_tile.frontend.relay.json_graph import Graph
from tvm_tile.frontend.relay.json_nodes import Module, Nodes
from tvm_tile.frontend.relay.program import Function, Global, Program


def read_json(data: str | bytes, source: str) -> Program:
    """A program that was saved as JSON.

    Args:
        data: the whole file.
        source: names it in messages.

    Raises:
        ModelFileError: it is something else than a program of Relay's, or damaged.
        UnsupportedOperatorError: an operator has attributes that no TVM with Relay gave it.
    """
    try:
        graph = Graph(data)
        nodes = Nodes(graph)
        return _program(graph.evaluated(nodes.references, nodes.make))
    except ValueError as error:
        raise ModelFileError(
            "a program must be what tvm.ir.save_json of TVM 0.6 to 0.19 wrote of Relay, whole",
            f"{source}: {error}",
            "save the module again, with the TVM that made it, or copy the file again",
        ) from error


def _program(root: Any) -> Program:
    if isinstance(root, Function):
        return Program({"main": root})
    if not isinstance(root, Module):
        raise ValueError("the root is neither a module nor a function")
    functions: dict[str, Function] = {}
    for name, function in root.functions:
        if isinstance(name, Global) and isinstance(function, Function):
            if name.name in functions:
                raise ValueError(f"two functions are called {name.name[:40]}")
            functions[name.name] = function
    if "main" not in functions:
        raise ValueError("it has no Relay function main")
    return Program(functions)
