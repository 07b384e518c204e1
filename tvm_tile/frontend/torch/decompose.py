"""Break a program's operators down into those that the importer knows.

``ExportedProgram.run_decompositions`` runs the whole program several times with tensors that have
no data, about 3 ms an operator: 50 s for an LSTM of 1000 cells. Most operators need no breaking
down, and those of an unrolled loop are a few, again and again. So only these few are run.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any

import torch
from torch import fx
from torch._decomp import decomposition_table
from torch._export.utils import _is_preservable_cia_op, _special_op_to_preserve_cia
from torch.export import ExportedProgram
from torch.export.exported_program import _override_composite_implicit_decomp
from torch.fx.node import map_arg
from torch.fx.traceback import NodeSource
from torch.utils import _pytree as pytree

from tvm_tile.frontend.torch.broken_down import (
    BrokenDown,
    empty_like,
    kind_of,
    tensors_of,
)
from tvm_tile.frontend.torch.decompositions import DECOMPOSITIONS
from tvm_tile.frontend.torch.decompositions.sums import grouped_mm
from tvm_tile.frontend.torch.exported import with_graph
from tvm_tile.frontend.torch.frames import OF_FRAMES
from tvm_tile.frontend.torch.in_place import without_writes, writes_whole
from tvm_tile.frontend.torch.node_names import sources
from tvm_tile.frontend.torch.operators import CONVERTERS
from tvm_tile.frontend.torch.operators.quantized import decompositions_of_codes
from tvm_tile.frontend.torch.own_decompositions import (
    ATTENTION,
    OWN_DECOMPOSITIONS,
    own_decompositions,
)
from tvm_tile.graph.latest import Latest

Table = dict[Any, Any]
_ATEN = torch.ops.aten
# PyTorch writes their parts into views of the result, and cannot trace that.
_MAKERS_OF_COMPLEX = frozenset({_ATEN.complex.default, _ATEN.polar.default})
_PASS = "decomposed"  # as nodes say where they are from
_KNOWN: Latest[BrokenDown] = Latest(2048)  # of some 10 KB each

BROKEN_DOWN_BY_US = frozenset(
    {ATTENTION, _ATEN.instance_norm.default, _ATEN.histc.default, _ATEN._grouped_mm.default}
)
"""Operators without converters that stay whole until they are imported."""


def broken_down_by_us() -> frozenset[Any]:
    """All of these, with what transformers has for them, once it is imported."""
    return BROKEN_DOWN_BY_US.union(of_transformers())


def of_transformers() -> tuple[Any, ...]:
    """The operator by which transformers multiplies rows in groups of other types than PyTorch."""
    known = getattr(torch.ops.transformers, "grouped_mm_fallback", None)
    return () if known is None else (known.default,)


@own_decompositions()
def decomposed(program: ExportedProgram, kept: frozenset[Any] = frozenset()) -> ExportedProgram:
    """What ``program.run_decompositions`` makes of a program; the program itself is left alone.

    Each different operator (arguments, shapes, strides and types are the same) is broken down once,
    and what it becomes is put in its places::

        split(x, 2); split(y, 2)   =>   split_with_sizes(x, [2, 2]); split_with_sizes(y, [2, 2])

    Programs with open sizes, with operators that write into parts of their operands, or with
    functions of functions are left to PyTorch.

    Args:
        program: the program.
        kept: operators that stay whole, whatever is known of them.
    """
    table = {own: how for own, how in decompositions().items() if own not in kept}
    result = _decomposed(program, table, kept)
    if result is not program:
        tell_lines(result.graph_module, program.graph_module)
    return result


def tell_lines(module: fx.GraphModule, source: fx.GraphModule) -> None:
    """Let operators name the lines of the user's code that those before them are from.

    PyTorch gives some the line of its caller, which is ours.
    """
    lines = {node.name: node.stack_trace for node in source.graph.nodes}
    for node in module.graph.nodes:
        known = (lines[name] for name in sources(node) if name in lines)
        node.meta["stack_trace"] = next(known, None)
    for name, inner in module.named_children():
        before = getattr(source, name, None)
        if isinstance(inner, fx.GraphModule) and isinstance(before, fx.GraphModule):
            tell_lines(inner, before)


def _decomposed(program: ExportedProgram, table: Table, kept: frozenset[Any]) -> ExportedProgram:
    given, program = program, _plain(program)
    if program is None:
        return _by_pytorch(given, table)
    first: dict[Any, fx.Node] = {}
    for node in program.graph.nodes:
        if _breaks_down(node, table):
            first.setdefault(kind_of(node), node)
    if not first:
        return program
    values = (node.meta.get("val") for node in program.graph.nodes)
    mode = next(value for value in values if isinstance(value, torch.Tensor)).fake_mode
    world = kept, torch.get_default_dtype()  # on which it depends, too
    found = {
        kind: BrokenDown.as_known(node) or _KNOWN.find((world, kind))
        for kind, node in first.items()
    }
    known = {kind: part for kind, part in found.items() if part is not None}
    asked = {kind: node for kind, node in first.items() if kind not in known}
    parts = _parts(tuple(asked.values()), table, mode) if asked else []
    if parts is None:
        return _by_pytorch(given, table)
    for kind, part in zip(asked, parts, strict=True):
        _KNOWN.keep((world, kind), part)
        known[kind] = part
    return _replaced(program, known, table, mode)


def _plain(program: ExportedProgram) -> ExportedProgram | None:
    """The program, or the same without operators that write; ``None`` where it has others."""
    others = [node for node in program.graph.nodes if not is_plain(node)]
    if not others:
        return program
    return without_writes(program) if all(map(writes_whole, others)) else None


def _by_pytorch(program: ExportedProgram, table: Table) -> ExportedProgram:
    """What PyTorch makes of a program, whose nodes then get shapes and strides anew.

    Attention as we write it lies in memory in another order than PyTorch's. Where views behind it
    count on that order, it is left to PyTorch, too, whose form becomes no fused kernel.
    """
    theirs = {**table, ATTENTION: torch.export.default_decompositions()[ATTENTION]}
    if program.graph.find_nodes(op="call_function", target=_ATEN.as_strided.default):
        return program.run_decompositions(theirs)
    try:
        return program.run_decompositions(table)
    except ValueError:  # a view of what does not lie so
        if not program.graph.find_nodes(op="call_function", target=ATTENTION):
            raise
        return program.run_decompositions(theirs)


def decompositions() -> Table:
    """What is broken down before the import: whatever has no converter, as far as PyTorch can.

    PyTorch's own table for attention guards it against rows in which all is masked, even where
    there is no mask.
    """
    return {**_decompositions(), **dict.fromkeys(of_transformers(), grouped_mm)}


@functools.cache  # PyTorch takes a fifth of a second to list its own
def _decompositions() -> Table:
    known = {**decomposition_table, **torch.export.default_decompositions(), **OWN_DECOMPOSITIONS}
    kept = {*CONVERTERS, *_MAKERS_OF_COMPLEX}
    table = {operator: how for operator, how in known.items() if operator not in kept}
    ours = {operator: _of_real_numbers(how) for operator, how in DECOMPOSITIONS.items()}
    return table | ours | decompositions_of_codes()


@contextmanager
def whole_operators() -> Iterator[None]:
    """A frame within which tracing leaves whole what has a converter, such as ``linear``, and takes
    our formulas for transforms of frames.

    Where no gradients are wanted, PyTorch would break it down all the same, as for training.
    """
    whole = (
        target for target in (*CONVERTERS, *broken_down_by_us()) if _is_preservable_cia_op(target)
    )
    kept = dict.fromkeys(whole, _special_op_to_preserve_cia)
    with _override_composite_implicit_decomp({**kept, **OF_FRAMES}):
        yield


def _of_real_numbers(formula: Callable[..., Any]) -> Callable[..., Any]:
    """A formula that leaves operators of complex numbers whole."""

    @functools.wraps(formula)
    def of_real(*args: Any, **kwargs: Any) -> Any:
        given = pytree.tree_leaves((args, kwargs))
        is_complex = any(isinstance(one, torch.Tensor) and one.is_complex() for one in given)
        return NotImplemented if is_complex else formula(*args, **kwargs)

    return of_real


def is_plain(node: fx.Node) -> bool:
    """Whether the node is a tensor of fixed sizes, made without side effects, or no tensor."""
    if node.op == "output" or node.target is operator.getitem or is_check(node):
        return True
    if node.op == "call_function":
        target = node.target
        if not isinstance(target, torch._ops.OpOverload) or target._schema.is_mutable:
            return False
    elif node.op != "placeholder":
        return False
    values = node.meta.get("val")
    if node.op == "placeholder" and not isinstance(values, torch.Tensor | torch.SymInt):
        return True  # an argument that is no tensor
    values = values if isinstance(values, tuple | list) else (values,)
    return all(_is_fixed(value) for value in values)


def is_check(node: fx.Node) -> bool:
    """Whether it looks at the types and sizes of a tensor, which torch.export has settled."""
    return node.target is _ATEN._assert_tensor_metadata.default


def _breaks_down(node: fx.Node, table: Table) -> bool:
    """Whether PyTorch makes other operators of this one, as far as can be seen from outside."""
    if node.op != "call_function" or node.target is operator.getitem or is_check(node):
        return False
    if node.target in CONVERTERS:
        return node.target in DECOMPOSITIONS
    return node.target in table or node.target._can_decompose()


def _is_fixed(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and all(
        isinstance(extent, int) for extent in (*value.shape, *value.stride())
    )


def _parts(nodes: Sequence[fx.Node], table: Table, mode: Any) -> list[BrokenDown] | None:
    """What each of some operators becomes, in a program that has nothing but them; None where
    PyTorch gives that program more inputs than their tensors, which are constants, or more
    outputs."""
    graph = fx.Graph()
    tensors = [tensor for node in nodes for tensor in tensors_of(node)]
    inputs = [graph.placeholder(f"x{i}") for i in range(len(tensors))]
    ends: list[fx.Node] = []
    left = iter(inputs)
    for node in nodes:
        args, kwargs = map_arg((node.args, node.kwargs), lambda _: next(left))
        result = graph.call_function(node.target, args, kwargs)
        count = _count(node)
        ends += (
            [result]
            if count is None
            else [graph.call_function(operator.getitem, (result, i)) for i in range(count)]
        )
    graph.output(tuple(ends))
    with mode:  # new ones: of one tensor that two operators take, PyTorch would make one input
        example = tuple(empty_like(tensor.meta["val"]) for tensor in tensors)
    program = torch.export.export(fx.GraphModule({}, graph), example).run_decompositions(table)
    signature = program.graph_signature
    if len(signature.input_specs) != len(inputs) or len(signature.output_specs) != len(ends):
        return None  # operators that write into their operands give more outputs
    starts = iter(program.graph.find_nodes(op="placeholder"))
    outputs = iter(program.graph.output_node().args[0])
    parts = []
    for node in nodes:
        count = _count(node)
        own = tuple(islice(starts, len(tensors_of(node))))
        made = tuple(islice(outputs, 1 if count is None else count))
        parts.append(BrokenDown.of(own, made))
    return parts


def _count(node: fx.Node) -> int | None:
    """How many tensors an operator returns; None where it is one and no tuple of one."""
    value = node.meta["val"]
    return len(value) if isinstance(value, tuple | list) else None


def _replaced(
    program: ExportedProgram, parts: Mapping[Any, BrokenDown], table: Table, mode: Any
) -> ExportedProgram:
    """The program with each operator that is broken down replaced by what its kind becomes.

    ``mode`` is that of the program's tensors without data.
    """
    graph = fx.Graph()
    places: dict[fx.Node, Any] = {}
    for node in program.graph.nodes:
        if _breaks_down(node, table):
            tensors = [places[tensor] for tensor in tensors_of(node)]
            value, source = node.meta["val"], NodeSource(node, _PASS)
            likes = (value,) if _count(node) is None else value
            made = parts[kind_of(node)].put(graph, tensors, mode, likes, source)
            places[node] = made[0] if _count(node) is None else made
        elif node.target is operator.getitem and isinstance(places[node.args[0]], tuple):
            places[node] = places[node.args[0]][node.args[1]]
        else:
            places[node] = graph.node_copy(node, places.__getitem__)
            places[node].meta["from_node"] = [NodeSource(node, _PASS)]
            if node.op == "placeholder":
                places[node].name = node.name  # also one that Python has taken, such as "input"
    graph.eliminate_dead_code()
    return with_graph(program, graph)
