"""Operators that write into their operands become operators that return what is written.

``ExportedProgram.run_decompositions`` does that, too, and runs the whole program several times
with tensors that have no data, 2 ms an operator: 3 s for a decoder. Where whole tensors are
written, as models write activations and caches, the operators' schemas tell enough::

    relu_(x); add(x, y)                    =>   x1 = relu(x); add(x1, y)
    index_copy_(cache, 2, at, key)         =>   cache1 = index_copy(cache, 2, at, key)
"""

from __future__ import annotations

import functools
import operator
from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram
from torch.export.graph_signature import (
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    TensorArgument,
)
from torch.fx.node import map_arg

from tvm_tile.frontend.torch.exported import WEIGHTS, weight_of, with_graph

_ATEN = torch.ops.aten
# They give a tensor other memory or extents.
_OF_MEMORY = frozenset(
    {"aten::set_", "aten::resize_", "aten::resize_as_", "aten::resize_as_sparse_"}
)
# PyTorch's operators made of others may hand on their operand, whatever they say; these do not.
_NEW = frozenset(
    {
        *(_ATEN.conv1d.default, _ATEN.conv2d.default, _ATEN.conv3d.default),
        *(_ATEN.conv1d.padding, _ATEN.conv2d.padding, _ATEN.conv3d.padding),
        *(_ATEN.batch_norm.default, _ATEN.linear.default, _ATEN.matmul.default),
    }
)
_KINDS = {
    InputKind.BUFFER: OutputKind.BUFFER_MUTATION,
    InputKind.USER_INPUT: OutputKind.USER_INPUT_MUTATION,
}


def writes_whole(node: fx.Node) -> bool:
    """Whether a node writes into its first operand alone what another operator would return."""
    is_operator = isinstance(node.target, torch._ops.OpOverload)
    return is_operator and _returning(node.target) is not None


def without_writes(program: ExportedProgram) -> ExportedProgram | None:
    """The same program in which nothing but the state and inputs is written, and these at the end.

    Args:
        program: all of its operators that write are of :func:`writes_whole`. It stays as it is.

    Returns:
        ``None`` where parts of a tensor are written, or a tensor is written that was looked at in
        another way, and where this is used afterwards: then more must be known than schemas tell.
    """
    rewriting = _WithoutWrites(program)
    for node in program.graph.nodes:
        if not rewriting.put(node):
            return None
    graph, specs = rewriting.graph, rewriting.changes()
    graph.eliminate_dead_code()
    return with_graph(program, graph, changes=specs)


@functools.cache
def _returning(target: Any) -> Any:
    """The operator that returns what another one writes; ``None`` where there is none."""
    schema = target._schema
    name = schema.name.removeprefix("aten::")
    written = [a.alias_info is not None and a.alias_info.is_write for a in schema.arguments]
    if schema.name in _OF_MEMORY or not name.endswith("_") or len(schema.returns) != 1:
        return None
    if written[:1] != [True] or any(written[1:]) or _is_random(target):
        return None
    found = getattr(getattr(_ATEN, name[:-1], None), target._overloadname, None)
    if found is None or found._schema.is_mutable or _may_hand_on(found):
        return None
    names = [argument.name for argument in found._schema.arguments]
    return found if names == [argument.name for argument in schema.arguments] else None


def _is_random(target: Any) -> bool:
    return torch.Tag.nondeterministic_seeded in target.tags


@functools.cache
def _may_hand_on(target: Any) -> bool:
    """Whether the result of an operator may be in the memory of its operands."""
    if target in _NEW:
        return False
    returns = target._schema.returns
    is_view = any(value.alias_info is not None for value in returns)
    return is_view or target is _ATEN._unsafe_view.default or target._can_decompose()


def _is_same(node: fx.Node) -> bool:
    """Whether a value is its operand, as it is."""
    if node.target is _ATEN.alias.default:
        return True
    if getattr(node.target, "overloadpacket", None) is not _ATEN.to or node.kwargs.get("copy"):
        return False
    before, after = node.args[0].meta["val"], node.meta["val"]
    is_given_format = node.kwargs.get("memory_format") is not None or True in node.args[1:]
    kinds = ((v.dtype, v.device, v.layout) for v in (before, after))
    return not is_given_format and len(set(kinds)) == 1


class _WithoutWrites:
    """Puts a program's nodes into another graph, one by one.

    Attributes:
        graph: nodes that have been put, the output last.
    """

    def __init__(self, program: ExportedProgram) -> None:
        self.graph = fx.Graph()
        self._program = program
        self._specs = {spec.arg.name: spec for spec in program.graph_signature.input_specs}
        self._places = {node: place for place, node in enumerate(program.graph.nodes)}
        # What each value's memory was made by; and by itself, where it is all of that.
        self._makers: dict[fx.Node, frozenset[fx.Node]] = {}
        self._whole: dict[fx.Node, fx.Node] = {}
        self._put: dict[fx.Node, Any] = {}
        self._changed: dict[fx.Node, InputSpec] = {}

    def put(self, node: fx.Node) -> bool:
        """Put the next node into the graph; whether that is possible."""
        if node.op == "output":
            results = map_arg(node.args[0], self._now)
            self.graph.output((*map(self._now, self._changed_inputs), *results))
        elif writes_whole(node):
            return self._write(node)
        elif _is_same(node):
            self._hand_on(node, node.args[0])
        else:
            self._put[node] = self.graph.node_copy(node, self._now)
            self._put[node].name = node.name  # also one that Python has taken, such as "input"
            self._makers[node] = self._makers_of(node)
            if self._makers[node] == {node}:
                self._whole[node] = node
        return True

    def changes(self) -> list[OutputSpec]:
        """What the outputs in front of the program's own are: new values of state and inputs."""
        specs = [self._changed[node] for node in self._changed_inputs]
        return [
            OutputSpec(
                _KINDS[spec.kind],
                TensorArgument(self._put[node].name),
                spec.arg.name if spec.kind is InputKind.USER_INPUT else spec.target,
            )
            for node, spec in zip(self._changed_inputs, specs, strict=True)
        ]

    @property
    def _changed_inputs(self) -> list[fx.Node]:
        """Inputs that are written, in the program's order, as PyTorch names their new values."""
        return sorted(self._changed, key=self._places.__getitem__)

    def _now(self, node: fx.Node) -> Any:
        """The node that has a value as it is by now."""
        return self._put[self._whole.get(node, node)]

    def _hand_on(self, node: fx.Node, value: fx.Node) -> None:
        """Let a node be another one, or a part of it as that is."""
        self._put[node] = self._now(value)
        self._makers[node] = self._makers[value]
        if value in self._whole:
            self._whole[node] = self._whole[value]

    def _makers_of(self, node: fx.Node) -> frozenset[fx.Node]:
        """The nodes that have made the memory in which a value may lie."""
        takes = node.all_input_nodes
        if node.target is operator.getitem:
            is_new = self._makers[takes[0]] == {takes[0]}
            return frozenset({node}) if is_new else self._makers[takes[0]]
        if node.op == "placeholder" or not _may_hand_on(node.target):
            return frozenset({node})
        return frozenset().union(*(self._makers[value] for value in takes))

    def _write(self, node: fx.Node) -> bool:
        """Compute what a node writes, for all that reads its operand from now on."""
        written = node.args[0]
        maker = self._whole.get(written)
        if maker is None or self._is_looked_at(maker, self._places[node]):
            return False
        returning = _returning(node.target)
        if maker.op == "placeholder":
            spec = self._specs[maker.name]
            if spec.kind not in _KINDS or not _is_apart(self._program, spec):
                return False
            self._changed[maker] = spec
        args, kwargs = map_arg((node.args, node.kwargs), lambda value: value.meta["val"])
        before = written.meta["val"]
        with before.fake_mode:
            after = returning(*args, **kwargs)
        # What is written is rounded to the operand's type, and lies as the operand does.
        if _form(before) != _form(after):
            return False
        args, kwargs = map_arg((node.args, node.kwargs), self._now)
        made = self.graph.create_node("call_function", returning, args, kwargs, name=node.name)
        made.meta = {**node.meta, "val": after}
        self._put[maker] = made
        self._put[node], self._makers[node] = made, self._makers[maker]
        self._whole[node] = maker
        return True

    def _is_looked_at(self, maker: fx.Node, place: int) -> bool:
        """Whether something behind a place takes what looks at a part of a node's memory, or at all
        of it in another way."""
        looks = (
            node
            for node, makers in self._makers.items()
            if maker in makers and self._whole.get(node) is not maker
        )
        return any(self._places[user] > place for node in looks for user in node.users)


def _is_apart(program: ExportedProgram, spec: InputSpec) -> bool:
    """Whether no other weight that the program takes is in the memory of an input."""
    if spec.kind is InputKind.USER_INPUT:
        return True
    taken = (own.target for own in program.graph_signature.input_specs if own.kind in WEIGHTS)
    weights = (weight_of(program, target) for target in taken)
    memories = [own.untyped_storage()._cdata for own in weights if isinstance(own, torch.Tensor)]
    return memories.count(weight_of(program, spec.target).untyped_storage()._cdata) == 1


def _form(tensor: torch.Tensor) -> tuple[Any, ...]:
    return tensor.dtype, tensor.device, tuple(tensor.shape), tensor.stride()
