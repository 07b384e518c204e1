"""What the user's ONNX model calls its nodes, whatever becomes of its graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import onnx

from tvm_tile.frontend.onnx.rewrite import graphs_of, walk_nodes


@dataclass(frozen=True, slots=True)
class NodeNames:
    """The names of a model's nodes.

    Attributes:
        makers: tensor -> the name of the node that makes it; a node without one is called as its
            first output.
    """

    makers: Mapping[str, str]

    @classmethod
    def of(cls, model: onnx.ModelProto) -> NodeNames:
        """Take the names from a model as the user has it."""
        return cls(
            {
                output: node.name or node.output[0]
                for node in walk_nodes(model.graph)
                for output in node.output
                if output
            }
        )

    def name_nodes(self, graph: onnx.GraphProto) -> None:
        """Name the nodes of a graph that was rewritten as the user's nodes.

        A node that makes what the user's model makes is called as there, and so are copies of the
        user's nodes; one that is of another's definition, as the nodes that read what it makes.
        """
        known = set(self.makers.values())
        readers: dict[str, str] = {}
        for node in reversed(graph.node):
            made = [self.makers[name] for name in node.output if name in self.makers]
            read = [readers[name] for name in node.output if name in readers]
            if made or node.name not in known:
                node.name = next(iter((*made, *read)), "")
            for name in node.input:
                readers.setdefault(name, node.name)
            for attribute in node.attribute:
                for inner in graphs_of(attribute):
                    self.name_nodes(inner)
