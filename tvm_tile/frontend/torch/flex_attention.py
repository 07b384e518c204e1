"""PyTorch's FlexAttention becomes products, a softmax, and what its functions make of all scores.

``flex_attention`` is an operator that is given functions of a single score and of its indices::

    flex_attention(q, k, v, score_mod, (..., mask_mod), scale, ...)
    =>  s = score_mod(q @ k.T * scale, b, h, i, j)        of all scores, index by index
        softmax(where(mask_mod(b, h, i, j), s, -inf)) @ v, and 0 where all of a row is -inf

``mask_mod`` is what a mask is; a block mask's tables, lists of the blocks in which it lets anything
through, only say the same of blocks. Tables without such a function, ``BlockMask.from_kv_blocks``
of nothing else, are the mask themselves.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, fx
from torch._dispatch.python import enable_python_dispatcher
from torch.export import ExportedProgram
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.node import map_arg
from torch.fx.traceback import NodeSource

from tvm_tile.frontend.torch.convert import wanted
from tvm_tile.frontend.torch.decompose import decompositions, whole_operators
from tvm_tile.frontend.torch.exported import copied_graph, with_graph
from tvm_tile.frontend.torch.weights import unsupported

_ATEN = torch.ops.aten
_FLEX = getattr(torch.ops.higher_order, "flex_attention", None)
_PASS = "plain_attention"  # as nodes say where they are from
_ALL = (_ATEN.new_ones.default, _ATEN.ones.default, _ATEN.ones_like.default)
_FRAMES = ("_vmap_increment_nesting", "_vmap_decrement_nesting")
_WITHOUT_TABLES = 1 << 30  # extent of the blocks of a mask that is none

Held = Callable[[str, Tensor], fx.Node]
_Given = tuple[Sequence[Tensor], Sequence[Any]]


def with_plain_attention(program: ExportedProgram) -> ExportedProgram:
    """The program without this operator; itself where it has none.

    Args:
        program: all of whose extents are known.

    Raises:
        UnsupportedOperatorError: a function that another operator is given has it.
    """
    whole = program.graph_module
    for part in whole.modules():
        if part is not whole and isinstance(part, fx.GraphModule) and _flex_attention(part.graph):
            raise unsupported("flex_attention within a branch or a loop")
    if not _flex_attention(program.graph):
        return program
    graph = copied_graph(program)
    first = next(iter(graph.nodes))
    constants: dict[fx.Node, tuple[str, Tensor]] = {}

    def held(name: str, tensor: Tensor) -> fx.Node:
        with graph.inserting_before(first):
            place = graph.placeholder(f"{name}_{len(constants)}")
        constants[place] = str(place.target), tensor
        return place

    put_plain_attention(graph, program.graph_module, held)
    return with_graph(program, graph, constants)


def _flex_attention(graph: fx.Graph) -> list[fx.Node]:
    """The nodes that are the operator."""
    return [] if _FLEX is None else list(graph.find_nodes(op="call_function", target=_FLEX))


def put_plain_attention(graph: fx.Graph, module: fx.GraphModule, held: Held) -> None:
    """Replace the operator, wherever a graph has it, in place.

    Args:
        graph: nodes have tensors without data, of known extents.
        module: holds the functions that its operators are given.
        held: gives a node for a tensor, by a name, that one of these functions holds.
    """
    for node in _flex_attention(graph):
        traced, tensors = _traced(node, module)
        places: dict[fx.Node, Any] = dict(
            zip(traced.graph.find_nodes(op="placeholder"), tensors, strict=True)
        )
        with graph.inserting_before(node):
            for inner in traced.graph.nodes:
                if inner.op == "get_attr":
                    places[inner] = held(str(inner.target), getattr(traced, str(inner.target)))
                    places[inner].meta["val"] = inner.meta["val"]
                elif inner.op == "call_function":
                    places[inner] = _copied(graph, inner, places)
                    places[inner].meta["from_node"] = [NodeSource(node, _PASS)]
                    places[inner].meta["stack_trace"] = node.stack_trace
        (made,) = traced.graph.output_node().args
        for item in list(node.users):
            place = places[made[item.args[1]]] if item.users else None
            if place is not None:
                # Views behind it count on the strides of PyTorch's own.
                place.meta["val"] = item.meta["val"]
                item.replace_all_uses_with(place)
            graph.erase_node(item)
        behind = _made_of(node)
        graph.erase_node(node)
        _erase_unused(graph, behind)


def _made_of(node: fx.Node) -> set[fx.Node]:
    """What a node's operands are made of: tables and functions, above all."""
    found: set[fx.Node] = set()
    left = [node]
    while left:
        new = [own for own in left.pop().all_input_nodes if own not in found]
        found.update(new)
        left += new
    return found


def _erase_unused(graph: fx.Graph, nodes: set[fx.Node]) -> None:
    """Erase those of some nodes that nothing takes, also where they write to what nothing takes.

    PyTorch makes tables by functions of vectors; the frames of such that are left open are erased.
    """
    for node in reversed(graph.nodes):
        if node in nodes and node.op != "placeholder" and not node.users and _is_alone(node):
            graph.erase_node(node)
    names = {getattr(node.target, "__name__", "") for node in graph.nodes}
    if "_add_batch_dim" not in names:
        for node in list(graph.nodes):
            if getattr(node.target, "__name__", "") in _FRAMES:
                graph.erase_node(node)


def _is_alone(node: fx.Node) -> bool:
    """Whether nobody else sees what a node writes to, if anything."""
    if not getattr(getattr(node.target, "_schema", None), "is_mutable", False):
        return True
    (written, *_) = node.all_input_nodes
    schema = getattr(written.target, "_schema", None)
    is_own = schema is not None and not any(own.alias_info for own in schema.arguments)
    return is_own and len(written.users) == 1


def _copied(graph: fx.Graph, node: fx.Node, places: dict[fx.Node, Any]) -> fx.Node:
    """A traced operator at the end of a graph."""
    if node.target is _ATEN._to_copy.default and not isinstance(node.args[0], fx.Node):
        # A number of Python's, whose type is settled.
        made = graph.call_function(_ATEN.scalar_tensor.default, node.args, dict(node.kwargs))
        made.meta = dict(node.meta)
        return made
    return graph.node_copy(node, places.__getitem__)


def _traced(node: fx.Node, module: fx.GraphModule) -> tuple[fx.GraphModule, list[fx.Node]]:
    """The operators that make a node's results that someone takes, others are ``None``; and the
    tensors that they take."""
    given = map_arg(
        node.args, lambda own: getattr(module, str(own.target)) if own.op == "get_attr" else own
    )
    tensors: list[fx.Node] = []
    map_arg(given, tensors.append)
    tensors = list(dict.fromkeys(tensors))
    taken = wanted(node)

    def function(*values: Tensor) -> tuple[Tensor | None, ...]:
        known = dict(zip(tensors, values, strict=True))
        made = _plain(*map_arg(given, known.__getitem__), logarithms=bool(taken - {0}))
        return tuple(one if place in taken else None for place, one in enumerate(made))

    values = [tensor.meta["val"] for tensor in tensors]
    with values[0].fake_mode, whole_operators(), enable_python_dispatcher():
        traced = make_fx(function, decompositions())(*values)
    traced.graph.eliminate_dead_code()
    return traced, tensors


def _plain(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score_mod: fx.GraphModule,
    block_mask: Sequence[Any],
    scale: float,
    _: Any,
    of_scores: Sequence[Any] = (),
    of_masks: Sequence[Any] = (),
    *,
    logarithms: bool,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """What the operator computes, as PyTorch's own formula: its result, and, if asked for, the
    logarithm of each row's sum and each row's maximum, to base 2."""
    batch, heads = query.shape[:2]
    groups = heads // key.size(1)
    key, value = (
        t.expand(batch, *t.shape[1:]).repeat_interleave(groups, 1) if groups > 1 else t
        for t in (key, value)
    )
    wide = torch.float64 if query.dtype == torch.float64 else torch.float32
    scores = torch.matmul(query.to(wide), key.transpose(-2, -1).to(wide)) * scale
    places = [torch.arange(extent) for extent in scores.shape]
    masks = _masks(block_mask, places, of_masks)
    scores = _of_all(score_mod, [scores], (places, of_scores)).to(wide)
    hidden = torch.full((), -math.inf, dtype=wide)
    for mask in masks:
        scores = torch.where(mask, scores, hidden)
    weights = _ATEN._safe_softmax(scores, -1)
    result = torch.matmul(weights.to(query.dtype), value)
    if not logarithms:
        return result, None, None
    sums = torch.where((scores == -math.inf).all(-1), hidden, scores.logsumexp(-1))
    return result, sums / math.log(2), scores.amax(-1) / math.log(2)


def _masks(block_mask: Sequence[Any], places: Sequence[Tensor], given: Sequence[Any]) -> list[Any]:
    """The masks that a block mask means: booleans that go with the scores."""
    *_, height, width, mask_mod = block_mask
    (made,) = mask_mod.graph.output_node().args
    if made.target not in _ALL:
        return [_of_all(mask_mod, [], (places, given))]
    if min(height, width) >= _WITHOUT_TABLES:
        return []
    rows, keys = (len(own) for own in places[2:])
    blocks = torch.arange(-(-keys // width), dtype=torch.int32)
    counts, indices, full_counts, full_indices = block_mask[2:6]
    kept = _listed(counts, indices, blocks)
    if full_counts is not None:
        kept = kept | _listed(full_counts, full_indices, blocks)
    kept = kept[:, :, :, None, :, None].expand(-1, -1, -1, height, -1, width)
    shape = (*kept.shape[:2], kept.shape[2] * height, kept.shape[4] * width)
    return [kept.reshape(shape)[:, :, :rows, :keys]]


def _listed(counts: Tensor, indices: Tensor, blocks: Tensor) -> Tensor:
    """Which blocks of keys are among the first ``counts`` of a row's list of them."""
    is_used = torch.arange(indices.size(-1), dtype=torch.int32) < counts[..., None]
    return ((indices[..., None] == blocks) & is_used[..., None]).any(-2)


def _of_all(function: fx.GraphModule, scores: Sequence[Tensor], given: _Given) -> Tensor:
    """What a function of a single score, or of indices alone, makes of all.

    Args:
        function: takes a score, if any, its batch, head, row and key, and tensors of its own.
        scores: those that there are, if it takes any.
        given: all batches, heads, rows and keys, and the tensors of its own.
    """
    places, others = given
    taken = function.graph.find_nodes(op="placeholder")[len(scores) :]
    # Without scores, what is the same for all batches, say, is not computed for each.
    used = [i for i in range(4) if scores or taken[i].users]
    values = [own if i in used else own[0] for i, own in enumerate(places)]
    call: Any = function
    for along in reversed(used):
        indices = [0 if i == along else None for i in range(4)]
        call = torch.vmap(call, (*[0 for _ in scores], *indices, *[None for _ in others]))
    made: Tensor = call(*scores, *values, *others)
    return made.reshape([len(own) if i in used else 1 for i, own in enumerate(places)])
