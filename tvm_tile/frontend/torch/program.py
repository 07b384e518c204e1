"""An exported program becomes a Relax function: its inputs, weights, operators and outputs."""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import tvm
from torch import fx
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind
from torch.fx.node import map_aggregate
from torch.utils import _pytree as pytree
from tvm import relax

from tvm_tile.errors import ModelError, UnsupportedOperatorError
from tvm_tile.frontend.imported import NUM_INPUT, with_parameters
from tvm_tile.frontend.open_blocks import ending_blocks
from tvm_tile.frontend.random_state import STATE, Draws, random_state
from tvm_tile.frontend.torch.convert import (
    Converter,
    Values,
    convert,
    examples,
    require_like,
    results,
    wanted,
)
from tvm_tile.frontend.torch.effects import MUTATIONS, Changes, changes_of, states_of
from tvm_tile.frontend.torch.emit import Emit, Refusal, dtype_name
from tvm_tile.frontend.torch.exported import WEIGHTS
from tvm_tile.frontend.torch.node_names import NodeNames
from tvm_tile.frontend.torch.operators import CONVERTERS
from tvm_tile.frontend.torch.operators.higher_order import HIGHER_ORDER, TracedFunction
from tvm_tile.frontend.torch.refused import Refused, draws_numbers, why_unknown
from tvm_tile.frontend.torch.weights import constant_of, held, tensor_of, unsupported
from tvm_tile.frontend.torch.write_updates import write_update
from tvm_tile.frontend.torch.writes import Writes, needed, operands
from tvm_tile.graph.signature import RANDOM, Effects
from tvm_tile.graph.user_names import Names, named

_RESULTS = frozenset({OutputKind.USER_OUTPUT, OutputKind.LOSS_OUTPUT})
# An order of effects: operators that have some are refused themselves.
_IGNORED = frozenset({OutputKind.TOKEN})
_MOST_CHARACTERS = 300  # of PyTorch's messages


@dataclass(frozen=True, slots=True)
class Form:
    """What a function of a program takes and returns.

    Attributes:
        takes_parameters: whether it takes the module's parameters behind all else, with their
            values in its attribute ``"params"``, or has them as constants.
        is_tuple: whether a single output is returned in a tuple.
        is_bound: whether a tuple that is returned is bound to a variable.
        writes: whether it writes to its arguments what it changes, or makes new values.
        bare: names of weights that have no values: they are further inputs, said to be weights.
    """

    takes_parameters: bool = False
    is_tuple: bool = False
    is_bound: bool = True
    writes: bool = True
    bare: frozenset[str] = frozenset()


def function_of(
    program: ExportedProgram, form: Form = Form(), names: NodeNames | None = None
) -> tuple[tvm.IRModule, tuple[str, ...], Effects]:
    """Write the function ``main`` of a program, with its weights as constants.

    Arguments that are no tensors are fixed at the values that they were exported with, outputs
    that are ``None`` are left out.

    Args:
        program: broken down to operators that have converters, all extents known.
        form: of the function.
        names: of nodes, for people; those of the program where it is as the user has it.

    Returns:
        The module, the names of its inputs, and what ``main`` changes.

    Raises:
        UnsupportedOperatorError: operators that cannot be imported, all of them by name.
        ModelError: the program needs an order of effects, or returns what is no tensor.
    """
    _require_known_effects(program)
    changes = changes_of(program)
    outputs = _outputs(program, changes)
    writes = changes.writes if form.writes else {}
    draws = (
        Draws(random_state()) if any(map(draws_numbers, needed(program.graph, writes))) else None
    )
    writer = _Writer(
        relax.BlockBuilder(), names or NodeNames.of(program), form, writes, draws=draws
    )
    inputs, state = writer.bind_inputs(program, {change.place for change in changes.state})
    random = () if draws is None else (STATE,)
    taken = [*(writer.values[node] for node in writer.inputs), *state]
    taken += [] if draws is None else [draws.state]
    parameters = [*taken, *writer.parameters]
    with ending_blocks(writer.builder):
        writer.write_function("main", parameters, program, outputs)
    writer.refused.require_none()
    mod = named(writer.builder.get(), writer.named)
    if writer.bare:
        mod["main"] = mod["main"].with_attr(NUM_INPUT, len(inputs) - len(writer.bare))
    if form.takes_parameters:
        mod["main"] = with_parameters(mod["main"], len(taken), list(writer.parameters.values()))
    written = tuple(writer.inputs.index(change.place) for change in changes.inputs)
    return mod, inputs, Effects(written, (*states_of(program, changes), *random))


@dataclass(frozen=True, slots=True)
class _Writer:
    """What is known while a function is written.

    Attributes:
        builder: writes the function.
        names: of nodes, for people.
        form: of the function.
        writes: nodes that write in place.
        parameters: variables for the module's parameters -> these, where it takes them.
        inputs: the placeholders of the function's inputs.
        bare: those of them, the last, that are weights without values.
        values: each node's value, a tuple where an operator has several.
        made, draws: as of :class:`Emit`.
        refused: the nodes that were, and why.
        named: values -> the names of their nodes.
    """

    builder: relax.BlockBuilder
    names: NodeNames
    form: Form = Form()
    writes: Writes = field(default_factory=dict)
    parameters: dict[relax.Var, Any] = field(default_factory=dict)
    inputs: list[fx.Node] = field(default_factory=list)
    bare: list[fx.Node] = field(default_factory=list)
    values: dict[Any, Values] = field(default_factory=dict)
    made: dict[tuple[Any, relax.Expr], relax.Var] = field(default_factory=dict)
    draws: Draws | None = None
    refused: Refused = field(default_factory=Refused)
    named: dict[relax.Var, Names] = field(default_factory=dict)

    def bind_inputs(
        self, program: ExportedProgram, changed: set[fx.Node]
    ) -> tuple[tuple[str, ...], list[relax.Var]]:
        """Make the parameters and constants; returns the inputs' names, and the state of the model:
        parameters, too, for what is ``changed``."""
        names, state = [], []
        weights: dict[Any, relax.Expr] = {}
        placeholders = {node.name: node for node in program.graph.find_nodes(op="placeholder")}
        for spec in program.graph_signature.input_specs:
            node = placeholders[spec.arg.name]
            if spec.kind in WEIGHTS:
                tensor = tensor_of(program, spec.target)
                is_taken = self.form.takes_parameters and spec.kind == InputKind.PARAMETER
                if spec.target in self.form.bare and node not in changed:
                    self.values[node] = _input(node)
                    self.bare.append(node)
                elif node in changed or is_taken:
                    dtype = dtype_name(tensor.dtype)
                    var = relax.Var(node.name, relax.TensorType(tensor.shape, dtype))
                    self.values[node] = var
                    if node in changed:
                        state.append(var)
                    else:
                        self.parameters[var] = held(tensor)
                else:
                    self.values[node] = constant_of(tensor, weights)
            elif spec.kind == InputKind.TOKEN:
                continue  # as _IGNORED
            elif spec.kind != InputKind.USER_INPUT:
                raise unsupported(f"an input of kind {spec.kind.name}: {spec.arg.name!r}")
            elif isinstance(node.meta.get("val"), torch.Tensor):
                self.values[node] = _input(node)
                self.inputs.append(node)
                names.append(str(spec.arg.name))
        self.inputs.extend(self.bare)
        return (*names, *(str(node.name) for node in self.bare)), state

    def write_function(
        self,
        name: str,
        parameters: list[relax.Var],
        program: ExportedProgram,
        outputs: list[fx.Node],
    ) -> None:
        """Write a program as a function; an ``If`` must not be within a dataflow block."""
        branches = any(node.target in HIGHER_ORDER for node in program.graph.nodes)
        block = contextlib.nullcontext() if branches else self.builder.dataflow()
        with self.builder.function(name, parameters):
            with block:
                self._write_nodes(program.graph_module, program.graph)
                emit = self.builder.emit if branches else self.builder.emit_output
                values = [self.values.get(node, relax.Tuple([])) for node in outputs]
                if self.draws is not None:
                    values.append(self.draws.next_call(self.builder, writes=self.form.writes))
                    self.named[values[-1]] = (RANDOM,)
                if len(values) == 1 and not self.form.is_tuple:
                    result = emit(values[0])
                elif self.form.is_bound:
                    result = emit(relax.Tuple(values))
                else:
                    result = relax.Tuple([emit(value) for value in values])
            self.builder.emit_func_output(result)

    def _write_nodes(self, module: fx.GraphModule, graph: fx.Graph) -> None:
        """Write the operators of a graph.

        What no output needs is left out: a kernel cannot raise an assertion's error.
        """
        for node in needed(graph, self.writes):
            if node.target in HIGHER_ORDER:
                self._write_higher_order(node, module)
            elif node.op == "call_function":
                self._write(node)
            values = pytree.tree_leaves(self.values.get(node))
            made = (value for value in values if isinstance(value, relax.Var))
            for value in made:
                self.named.setdefault(value, (self.names(node),))

    def _write(self, node: fx.Node) -> None:
        """Write what a node computes; one that is refused is noted, what needs it is left out."""
        known = all(other in self.values for other in operands(node, self.writes))
        if node.target is operator.getitem:
            if known:
                self.values[node] = self.values[node.args[0]][node.args[1]]
            return
        update = self.writes.get(node)
        try:
            if update is None:
                converter = self._converter(node)
                if known:
                    self.values[node] = convert(converter, node, self._value, self._emit(node))
            elif known:
                self.values[node] = write_update(self._emit(node), update, self.values)
        except Refusal as refusal:
            self.refused.add(node, str(refusal))

    def _emit(self, node: fx.Node) -> Emit:
        """What writes a node's operators."""
        known = results(node), wanted(node), examples(node)
        return Emit(self.builder, *known, self.made, self.draws)

    def _write_higher_order(self, node: fx.Node, module: fx.GraphModule) -> None:
        """Write an operator that takes functions; what is refused within these is noted, too."""
        functions = {
            other: self._traced(getattr(module, other.target), self.names.region(other.target))
            for other in node.all_input_nodes
            if other.op == "get_attr"
        }
        if not all(other in self.values or other in functions for other in node.all_input_nodes):
            return

        def value(argument: Any) -> Any:
            is_node = isinstance(argument, fx.Node)
            return (functions.get(argument) or self.values[argument]) if is_node else argument

        arguments = map_aggregate((node.args, node.kwargs), value)
        try:
            expected = results(node)
            made = HIGHER_ORDER[node.target](self.builder, node.name, *arguments[0], **arguments[1])
            for given, like in zip(made, expected, strict=True):
                require_like(given, like)
        except _RefusedWithin:
            return
        except Refusal as refusal:
            self.refused.add(node, str(refusal))
        except ValueError as error:
            self.refused.add(node, str(error))
        else:
            self.values[node] = tuple(made)

    def _traced(self, module: fx.GraphModule, names: NodeNames) -> TracedFunction:
        """A function that an operator is given, and the names in it."""
        graph = module.graph

        def write(arguments: Sequence[Any]) -> list[relax.Expr]:
            places = graph.find_nodes(op="placeholder")
            values = dict(zip(places, arguments, strict=True))
            own = replace(self, names=names, values=values)
            inner = replace(own, form=Form(), writes={}, inputs=[], made={}, draws=None)
            inner._write_nodes(module, graph)
            outputs = pytree.tree_leaves(graph.output_node().args)
            if not all(output in inner.values for output in outputs):
                raise _RefusedWithin
            return [inner.values[output] for output in outputs]

        graphs = [part.graph for part in module.modules() if isinstance(part, fx.GraphModule)]
        operators = [node for part in graphs for node in part.nodes if node.op == "call_function"]
        return TracedFunction(write, len(operators))

    def _converter(self, node: fx.Node) -> Converter:
        converter = CONVERTERS.get(node.target)
        if converter is None:
            raise Refusal(why_unknown(node))
        return converter

    def _value(self, argument: Any) -> Any:
        return map_aggregate(argument, lambda a: self.values[a] if isinstance(a, fx.Node) else a)


class _RefusedWithin(Exception):
    """A function that an operator is given has operators that are refused, and noted."""


def _require_known_effects(program: ExportedProgram) -> None:
    """Refuse programs with effects of which it is unknown what they are."""
    for spec in program.graph_signature.output_specs:
        if spec.kind not in _RESULTS | _IGNORED | MUTATIONS:
            raise UnsupportedOperatorError(
                "a model may return tensors, and change its buffers and inputs",
                f"{spec.kind.name.lower().replace('_', ' ')} of {spec.target or spec.arg.name!r}",
                "return the new value as an output",
            )


def _input(node: fx.Node) -> relax.Var:
    """The parameter of an input."""
    try:
        (example,) = results(node)
        dtype = dtype_name(example.dtype)
    except Refusal as refusal:
        raise unsupported(f"input {node.name!r}: {refusal}") from None
    return relax.Var(node.name, relax.TensorType(example.shape, dtype))


def _outputs(program: ExportedProgram, changes: Changes) -> list[fx.Node]:
    """The nodes whose values ``main`` returns: the program's outputs, then the new values of what
    it changes. One may be there several times."""
    nodes = []
    outputs = program.graph.output_node().args[0]
    for output, spec in zip(outputs, program.graph_signature.output_specs, strict=True):
        if spec.kind in _IGNORED | MUTATIONS:
            continue
        if isinstance(output, fx.Node) and isinstance(output.meta.get("val"), torch.Tensor):
            nodes.append(output)
        elif output is not None:
            raise _not_tensors(f"it returns {output!r}, too")
    if not nodes:
        raise _not_tensors("it returns none")
    return [*nodes, *changes.values]


def shortened(error: Exception) -> str:
    """The kind of an error and what it says; PyTorch's go on with traces of its own code."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:_MOST_CHARACTERS]}"


def _not_tensors(found: str) -> ModelError:
    return ModelError(
        "a model must return tensors",
        found,
        "return tensors only, for example torch.tensor(value) in place of a number",
    )
