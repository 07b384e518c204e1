"""One graph of PyTorch's operators becomes a function: parts that are compiled, and the rest."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import fx
from torch.utils._python_dispatch import _disable_current_modes

from tvm_tile import compiling
from tvm_tile.device import Device
from tvm_tile.errors import ModelError, UnsupportedOperatorError
from tvm_tile.frontend.torch.decompose import broken_down_by_us
from tvm_tile.frontend.torch.flex_attention import put_plain_attention
from tvm_tile.options import Options
from tvm_tile.runtime import CompiledModel
from tvm_tile.torch.assemble import assemble
from tvm_tile.torch.calls import PartCall, program_call
from tvm_tile.torch.cut import Cut, GraphPart, cut
from tvm_tile.torch.direct import is_plain
from tvm_tile.torch.freeze import FrozenCall, freezable
from tvm_tile.torch.layout import lies_as_read
from tvm_tile.torch.report import CompiledPart, EagerOperator, GraphKind, GraphReport, code_line
from tvm_tile.torch.sizes import BoxedCall, PerSize, has_open_sizes

LOG = logging.getLogger(__name__)

Tell = Callable[[GraphReport], None]
AnyCall = PartCall | FrozenCall


@dataclass(frozen=True, slots=True)
class GraphCompiler:
    """Compiles the graphs that AOTAutograd makes of one graph of Dynamo's.

    Attributes:
        device: the device that is compiled for.
        place: torch device of all tensors of a compiled program.
        options: how to compile.
        tell: called with the report of each graph.
        inputs: number of inputs that Dynamo's graph takes.
        captured: the tensors that it was captured with, whose weights are compiled in; empty where
            weights are read at each call.
        plain: called with the function of a graph that may be called without AOTAutograd.
    """

    device: Device
    place: torch.device
    options: Options
    tell: Tell
    inputs: int
    captured: tuple[Any, ...]
    plain: Callable[[BoxedCall], None]

    def compiler(self, kind: GraphKind) -> Callable[[fx.GraphModule, Any], Any]:
        """A compiler of graphs of one kind, as AOTAutograd takes it."""

        def compile_graph(graph_module: fx.GraphModule, _: Any) -> Any:
            weights = () if kind is GraphKind.BACKWARD else _weights()
            if has_open_sizes(graph_module.graph):
                compiled = partial(self._compiled, kind=kind, weights=weights, fixed={})
                return _boxed(PerSize(graph_module, compiled))
            fixed = freezable(graph_module.graph, weights, self.captured)
            call = self._compiled(graph_module, kind, weights, fixed)
            if kind is GraphKind.INFERENCE and is_plain(self.inputs):
                self.plain(call)
            return _boxed(call)

        return compile_graph

    def _compiled(
        self,
        graph_module: fx.GraphModule,
        kind: GraphKind,
        weights: Sequence[int],
        fixed: Mapping[fx.Node, torch.Tensor],
    ) -> BoxedCall:
        """A function of a graph without open sizes; ``weights`` are positions of its inputs, and
        ``fixed`` values of some that are compiled in."""
        # Whatever PyTorch is at, such as tracing, or watching a first call, must not see this.
        with _disable_current_modes(), torch._guards.tracing(None):
            graph_module = _with_plain_attention(graph_module)
            found, calls = self._cut(graph_module.graph, weights, fixed)
        self.tell(_report(kind, found, calls))
        return assemble(graph_module, found.order, calls).forward

    def _cut(
        self, graph: fx.Graph, weights: Sequence[int], fixed: Mapping[fx.Node, torch.Tensor]
    ) -> tuple[Cut, dict[GraphPart, AnyCall]]:
        """Cut the graph into parts that compile; what fails is refused, and the graph cut again.

        Args:
            graph: graph of PyTorch's operators.
            weights: positions of those of its inputs that are.
            fixed: values of some that are compiled in.
        """
        inputs = enumerate(graph.find_nodes(op="placeholder"))
        own = frozenset(
            node
            for position, node in inputs
            if position in weights and lies_as_read(node.meta["val"])
        )
        refused: dict[fx.Node, str] = {}
        known: dict[Any, AnyCall] = {}
        while True:
            found = cut(graph, self.place, refused, own)
            failed: dict[fx.Node, str] = {}
            for part in found.parts:
                if part.key not in known and not failed:
                    made = self._part(part, fixed)
                    if isinstance(made, dict):
                        failed = made
                    else:
                        known[part.key] = made
            if not failed:
                return found, {part: known[part.key] for part in found.parts}
            refused |= failed

    def _part(
        self, part: GraphPart, fixed: Mapping[fx.Node, torch.Tensor]
    ) -> AnyCall | dict[fx.Node, str]:
        """A compiled part, or its nodes that failed, all where it is unknown which, and why."""
        try:
            return self._call(part, fixed)
        except ModelError as error:
            names = error.nodes if isinstance(error, UnsupportedOperatorError) else ()
            named = [node for node in part.makers if node.name in names]
            # What is broken down while it is imported has other names then, or fails at that.
            named = named or [node for node in part.makers if node.target in broken_down_by_us()]
            return dict.fromkeys(named or part.makers, error.current)
        except Exception as error:  # whatever it is, PyTorch can run the part
            LOG.warning("a part of %d operators is not compiled: %s", len(part.makers), error)
            LOG.debug("its traceback", exc_info=error)
            why = getattr(error, "current", "") or f"{type(error).__name__}: {error}"
            return dict.fromkeys(part.makers, why.partition("\n")[0])

    def _call(self, part: GraphPart, fixed: Mapping[fx.Node, torch.Tensor]) -> AnyCall:
        """The call of a part, some of whose weights may be compiled in."""
        values = {node: fixed[node] for node in part.inputs if node in fixed}
        others = tuple(node for node in part.inputs if node not in values)
        if not values or not others:
            return program_call(part, self._model, {})
        last = len(part.inputs) - part.weights
        weights = sum(node not in values for node in part.inputs[last:])
        reduced = replace(part, inputs=others, weights=min(weights, len(others) - 1))
        frozen = program_call(reduced, self._model, values)
        return FrozenCall(part, values, frozen, partial(self._thawed, part))

    def _thawed(self, part: GraphPart) -> PartCall:
        """A part that reads all its weights; compiled in the midst of a call."""
        with _disable_current_modes(), torch._guards.tracing(None):
            return program_call(part, self._model, {})

    def _model(self, program: Any, weights: int) -> CompiledModel:
        """Compile a program with the options of this backend."""
        return compiling.compile(program, self.device, weights=weights, options=self.options)


def _with_plain_attention(graph_module: fx.GraphModule) -> fx.GraphModule:
    """The graph with plain operators in place of those that PyTorch's FlexAttention is."""
    graph = graph_module.graph

    def held(name: str, tensor: torch.Tensor) -> fx.Node:
        name = f"{name}_{len(graph.nodes)}"
        graph_module.register_buffer(name, tensor, persistent=False)
        return graph.get_attr(name)

    put_plain_attention(graph, graph_module, held)
    return graph_module


def _weights() -> tuple[int, ...]:
    """Positions of parameters and buffers among the inputs of the graph that PyTorch hands over,
    and of what else users have marked as being of one memory."""
    context = torch._guards.TracingContext.try_get()
    found = None if context is None else context.fw_metadata
    return () if found is None else tuple(found.static_input_indices)


def _boxed(call: BoxedCall) -> BoxedCall:
    """A function that AOTAutograd knows to take a list."""

    def run(args: list[Any]) -> Any:
        return call(args)

    run.__dict__["_boxed_call"] = True
    return run


def _report(kind: GraphKind, found: Cut, calls: dict[GraphPart, AnyCall]) -> GraphReport:
    """The report of a graph that was cut."""
    parts = tuple(CompiledPart(len(part.makers), call.model) for part, call in calls.items())
    eager = tuple(
        EagerOperator(str(node.target), found.eager[node], code_line(node.stack_trace))
        for node in found.order
        if isinstance(node, fx.Node)
    )
    return GraphReport(kind, parts, eager)
