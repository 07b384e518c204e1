"""Weights that are kept without their zeros, in the layouts of ``torch.sparse``, become plain."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx
from torch._guards import detect_fake_mode
from torch.export import ExportedProgram
from torch.sparse import SparseSemiStructuredTensor

from tvm_tile.errors import UnsupportedOperatorError
from tvm_tile.frontend.torch.computed_weights import computed_of_weights, computed_values
from tvm_tile.frontend.torch.effects import MUTATIONS
from tvm_tile.frontend.torch.exported import WEIGHTS, copied_graph, weight_of, with_graph

_ATEN = torch.ops.aten
# Operators that compute of a sparse tensor what they do of one with its zeros, or another does.
_OF_PLAIN = {
    _ATEN._sparse_mm.default: _ATEN.mm.default,
    _ATEN._sparse_addmm.default: _ATEN.addmm.default,
    **{
        operator: operator
        for operator in (
            _ATEN.linear.default,
            _ATEN.matmul.default,
            _ATEN.mm.default,
            _ATEN.mv.default,
            _ATEN.bmm.default,
            _ATEN.addmm.default,
            _ATEN.addmv.default,
            _ATEN.add.Tensor,
        )
    },
}


def with_plain_weights(program: ExportedProgram) -> ExportedProgram:
    """The same program, in which such weights have their zeros; itself where it has none.

    PyTorch computes what depends on weights alone, as its sparse operators do it, and what reads
    the result becomes an operator of plain tensors::

        w: torch.sparse_csr;  y = _sparse_mm(t(w), x)   =>   y = mm(w_t, x), w_t a plain weight

    The zeros are then factors like others: of an infinite factor they make no number.

    Raises:
        UnsupportedOperatorError: a sparse tensor is read by another operator, is computed of the
            inputs, or cannot be written out here; it is named.
    """
    signature = program.graph_signature
    sparse = {
        spec.arg.name: spec.target
        for spec in signature.input_specs
        if spec.kind in WEIGHTS and _is_sparse(weight_of(program, spec.target))
    }
    if not sparse:
        return program
    changed = {spec.target for spec in signature.output_specs if spec.kind in MUTATIONS}
    fixed = computed_of_weights(program)
    known = {node.name: value for node, value in computed_values(program, fixed).items()}
    names = {node.name for node in fixed}
    graph = copied_graph(program)
    first = next(iter(graph.nodes))
    # One that is packed two of four has none of its own.
    fake_mode = detect_fake_mode([node.meta.get("val") for node in graph.nodes])
    behind = dict.fromkeys(node for node in graph.nodes if node.name in sparse)
    constants: dict[fx.Node, tuple[str, torch.Tensor]] = {}
    for node in list(graph.nodes):
        if node.name in names and not behind.keys().isdisjoint(node.all_input_nodes):
            behind[node] = None
    for node in behind:
        users = [user for user in node.users if user not in behind]
        if sparse.get(node.name) in changed:
            raise _refused(node, "is written to")
        if not users:
            continue
        plain = _written_out(node, known[node.name])
        with graph.inserting_before(first):
            place = graph.placeholder(f"_plain_{node.name}")
        with fake_mode:
            made = torch.empty(plain.shape, dtype=plain.dtype, device=plain.device)
        place.meta = {**node.meta, "val": made}
        constants[place] = str(place.target), plain
        for user in users:
            if _is_sparse(known[node.name]):
                user.target = _of_plain(user, node)
            user.replace_input_with(node, place)
    graph.eliminate_dead_code()
    for node in graph.find_nodes(op="placeholder"):
        if node.name in sparse:
            graph.erase_node(node)
    return with_graph(program, graph, constants)


def _is_sparse(value: Any) -> bool:
    is_structured = isinstance(value, SparseSemiStructuredTensor)
    return isinstance(value, torch.Tensor) and (value.layout != torch.strided or is_structured)


def _written_out(node: fx.Node, value: torch.Tensor) -> torch.Tensor:
    """A sparse tensor with its zeros."""
    try:
        plain: torch.Tensor = value.detach().to_dense().contiguous()
    except (RuntimeError, NotImplementedError) as error:
        first_line = str(error).strip().partition("\n")[0]
        raise _refused(node, f"cannot be written out on {value.device}: {first_line}") from error
    return plain


def _of_plain(user: fx.Node, node: fx.Node) -> Any:
    """The operator that computes of a tensor with its zeros what one does of a sparse tensor."""
    operator = _OF_PLAIN.get(user.target)
    result = user.meta.get("val")
    if operator is None or not isinstance(result, torch.Tensor) or result.layout != torch.strided:
        raise _refused(node, f"is read by {user.target} (node {user.name})", user.name)
    return operator


def _refused(node: fx.Node, found: str, *nodes: str) -> UnsupportedOperatorError:
    layout = node.meta["val"].layout
    return UnsupportedOperatorError(
        "a sparse tensor must be a weight that a matrix product or a sum reads",
        f"{node.name!r}, of layout {layout}, {found}",
        "write it out before: weight.to_dense()",
        nodes or (node.name,),
    )
