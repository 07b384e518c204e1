"""A program without complex numbers: each complex tensor becomes its two parts."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.node import map_arg
from torch.fx.traceback import NodeSource
from torch.utils import _pytree as pytree

from tvm_tile.errors import UnsupportedOperatorError
from tvm_tile.frontend.torch.broken_down import BrokenDown, empty_like, kind_of, tensors_of
from tvm_tile.frontend.torch.decompose import is_check, is_plain, tell_lines
from tvm_tile.frontend.torch.emit import Refusal
from tvm_tile.frontend.torch.exported import WEIGHTS, weight_of, with_graph
from tvm_tile.frontend.torch.frames import OF_FRAMES
from tvm_tile.frontend.torch.pairs.pair import Pair, real_type
from tvm_tile.frontend.torch.pairs.pairing import Pairing, is_complex
from tvm_tile.frontend.torch.refused import Refused

_ATEN = torch.ops.aten
_PASS = "with_pairs"  # as nodes say where they are from


def with_pairs(program: ExportedProgram) -> ExportedProgram:
    """The program with real numbers alone; itself where it has no others.

    Args:
        program: as the user has it, all extents known. One that writes into its tensors is made one
            that does not, by PyTorch.

    Raises:
        UnsupportedOperatorError: it takes, returns or keeps complex numbers, or has operators of
            them without a rule, all of them by name.
    """
    if not any(map(_has_complex, _nodes(program))):
        return program
    _require_real_ends(program)
    plain = program
    if not all(map(is_plain, program.graph.nodes)):
        plain = program.run_decompositions({})
        tell_lines(plain.graph_module, program.graph_module)
        _require_real_ends(plain)
    values = (node.meta.get("val") for node in plain.graph.nodes)
    mode = next(value for value in values if isinstance(value, torch.Tensor)).fake_mode
    writer = _RealGraph(mode)
    constants = dict(writer.weights(plain))
    module = writer.written(plain.graph_module)
    writer.refused.require_none()
    result = with_graph(plain, module.graph, constants, module)
    tell_lines(result.graph_module, plain.graph_module)
    return result


def _nodes(program: ExportedProgram) -> Iterator[fx.Node]:
    """The nodes of a program's graph and of the functions within it."""
    for module in program.graph_module.modules():
        if isinstance(module, fx.GraphModule):
            yield from module.graph.nodes


def _has_complex(node: fx.Node) -> bool:
    """Whether a node takes or makes complex numbers, or computes with such."""
    if node.target in OF_FRAMES:
        return True
    operands = (other.meta.get("val") for other in node.all_input_nodes)
    found = pytree.tree_leaves((node.meta.get("val"), list(operands), node.args, node.kwargs))
    return any(map(is_complex, found))


def _require_real_ends(program: ExportedProgram) -> None:
    """Refuse complex numbers that a program takes, returns or writes to what it keeps."""
    placeholders = {node.name: node for node in program.graph.find_nodes(op="placeholder")}
    ends = [
        (f"takes {spec.arg.name!r}", placeholders[spec.arg.name])
        for spec in program.graph_signature.input_specs
        if spec.kind == InputKind.USER_INPUT
    ]
    outputs = program.graph.output_node().args[0]
    for spec, node in zip(program.graph_signature.output_specs, outputs, strict=True):
        ends.append((f"writes to {spec.target!r}" if spec.target else "returns a result", node))
    found = [
        f"it {what}, {node.meta['val'].dtype}"
        for what, node in ends
        if isinstance(node, fx.Node) and is_complex(node.meta.get("val"))
    ]
    if found:
        raise UnsupportedOperatorError(
            "what a model takes, returns and keeps must be real tensors",
            "; ".join(found),
            "give it torch.view_as_real(z), call torch.view_as_complex within it, and return "
            "torch.view_as_real of its results",
        )


@dataclass(frozen=True, slots=True)
class _Parts:
    """The nodes of a complex tensor."""

    both: tuple[fx.Node, fx.Node]


@dataclass(frozen=True, slots=True)
class _RealGraph:
    """Writes a graph anew.

    Attributes:
        mode: that of its tensors without data.
        known: kinds of operators -> what they become.
        refused: the nodes that were, and why.
        graph: what is written.
        places: a node of the former graph -> its node here, its parts, or several of these.
    """

    mode: Any
    known: dict[Any, BrokenDown] = field(default_factory=dict)
    refused: Refused = field(default_factory=Refused)
    graph: fx.Graph = field(default_factory=fx.Graph)
    places: dict[fx.Node, Any] = field(default_factory=dict)

    def weights(
        self, program: ExportedProgram
    ) -> Iterator[tuple[fx.Node, tuple[str, torch.Tensor]]]:
        """Write placeholders of complex weights as pairs, with the names and values of these."""
        placeholders = {node.name: node for node in program.graph.find_nodes(op="placeholder")}
        whole: dict[fx.Node, fx.Node] = {}
        for spec in program.graph_signature.input_specs:
            node = placeholders[spec.arg.name]
            if spec.kind in WEIGHTS and is_complex(node.meta["val"]):
                weight = weight_of(program, str(spec.target)).detach()
                value = torch.view_as_real(weight.resolve_conj())
                whole[node] = place = self.graph.placeholder(f"{node.name}_pair")
                with self.mode:
                    place.meta["val"] = empty_like(value)
                yield place, (f"{spec.target}.pair", value)
        for node, place in whole.items():
            re, im = (self.graph.call_function(_ATEN.select.int, (place, -1, n)) for n in (0, 1))
            re.meta["val"], im.meta["val"] = (place.meta["val"].select(-1, n) for n in (0, 1))
            self.places[node] = _Parts((re, im))

    def written(self, module: fx.GraphModule) -> fx.GraphModule:
        """A graph with real numbers alone, and so the functions that its operators are given."""
        for node in module.graph.nodes:
            is_known = all(other in self.places for other in node.all_input_nodes)
            if node not in self.places and is_known:
                self._write(node)
        children = dict(module.named_children())
        for name, inner in children.items():
            if isinstance(inner, fx.GraphModule):
                children[name] = _RealGraph(self.mode, self.known, self.refused).written(inner)
        if self.refused.nodes:
            return module  # what is written has no end
        self.graph.eliminate_dead_code()
        return fx.GraphModule(children, self.graph)

    def _write(self, node: fx.Node) -> None:
        made = self.places.get(node.args[0]) if node.target is operator.getitem else None
        if isinstance(made, tuple):
            self.places[node] = made[node.args[1]]
        elif not _has_complex(node):
            self.places[node] = self.graph.node_copy(node, self.places.__getitem__)
            self.places[node].meta["from_node"] = [NodeSource(node, _PASS)]
            if node.op == "placeholder":
                self.places[node].name = node.name  # also one that Python has taken
        elif (part := _taken_part(node)) is not None:
            self.places[node] = self.places[node.args[0].args[0]].both[part]
        elif node.op == "call_function" and not is_check(node):
            try:
                self.places[node] = self._computed(node)
            except Refusal as refusal:
                self.refused.add(node, str(refusal))

    def _computed(self, node: fx.Node) -> Any:
        """What takes the place of a node that takes or makes complex numbers."""
        if not isinstance(node.target, OpOverload):
            raise Refusal("complex numbers into a function or out of it")
        tensors = [one for node in tensors_of(node) for one in _flat(self.places[node])]
        results = node.meta["val"]
        several = results if isinstance(results, tuple | list) else (results,)
        with self.mode:
            likes = [one for value in several for one in _like_parts(value)]
        kind, source = kind_of(node), NodeSource(node, _PASS)
        if kind not in self.known:
            self.known[kind] = _traced(node, self.mode)
        made = iter(self.known[kind].put(self.graph, tensors, self.mode, likes, source))
        places = tuple(
            _Parts((next(made), next(made))) if is_complex(value) else next(made)
            for value in several
        )
        return places if isinstance(results, tuple | list) else places[0]


def _flat(place: fx.Node | _Parts) -> tuple[fx.Node, ...]:
    return place.both if isinstance(place, _Parts) else (place,)


def _taken_part(node: fx.Node) -> int | None:
    """Which part of complex numbers a node takes from a tensor of both; as PyTorch writes
    ``z.real``."""
    if node.target is not _ATEN.select.int:
        return None
    both, dim, index = node.args
    is_last = dim % both.meta["val"].dim() == both.meta["val"].dim() - 1
    return index % 2 if both.target is _ATEN.view_as_real.default and is_last else None


def _like_parts(value: Any) -> tuple[Any, ...]:
    """Tensors like those that take the place of one, or the value."""
    if not is_complex(value):
        return (value,)
    shape, strides, dtype = value.shape, value.stride(), real_type(value.dtype)
    part = torch.empty_strided(shape, strides, dtype=dtype, device=value.device)
    return part, part


def _traced(node: fx.Node, mode: Any) -> BrokenDown:
    """What an operator becomes, as PyTorch and our rules for complex numbers compute it.

    Raises:
        Refusal: there are no rules for what it does.
    """
    values = [one.meta["val"] for one in tensors_of(node)]
    with mode:
        examples = [empty_like(like) for value in values for like in _like_parts(value)]

    def run(*reals: Any) -> list[Any]:
        left = iter(reals)

        def given(one: fx.Node) -> Any:
            return Pair(next(left), next(left)) if is_complex(one.meta["val"]) else next(left)

        args, kwargs = map_arg((node.args, node.kwargs), given)
        with Pairing():
            return list(
                _as_expected(OF_FRAMES.get(node.target, node.target)(*args, **kwargs), node)
            )

    try:
        graph = make_fx(run)(*examples).graph
    except Refusal:
        raise
    except Exception as error:  # of PyTorch's own code: whatever comes up
        raise Refusal(f"complex numbers: {type(error).__name__}: {error}") from error
    return BrokenDown.of(graph.find_nodes(op="placeholder"), graph.output_node().args[0])


def _as_expected(results: Any, node: fx.Node) -> Iterator[torch.Tensor]:
    """The real tensors of an operator's results, of PyTorch's own shapes and types."""
    if results is NotImplemented:
        raise Refusal("a form without a formula")
    wanted = node.meta["val"]
    pairs = (
        zip(results, wanted, strict=True)
        if isinstance(wanted, tuple | list)
        else ((results, wanted),)
    )
    for found, like in pairs:
        if found.shape != like.shape or is_complex(found) != is_complex(like):
            kinds = [f"{one.dtype}{list(one.shape)}" for one in (found, like)]
            raise Refusal(f"complex numbers: {kinds[0]} instead of {kinds[1]}")
        if is_complex(like):
            yield from (found.re.to(real_type(like.dtype)), found.im.to(real_type(like.dtype)))
        else:
            yield found.to(like.dtype)
