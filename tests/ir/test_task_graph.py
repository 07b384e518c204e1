"""A dataflow block as rOperators: what is a view of which memory, and who reads it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tvm
from scheduled import relax_module
from tvm import relax
from tvm.relax import op

from tvm_tile.graph.extract import extract
from tvm_tile.kernel.body import with_numbered_params
from tvm_tile.passes.coschedule.task_graph import Location, TaskGraph, contiguous_parts, read_block


def legalized(body: Callable[..., Any], *shapes: tuple[int, ...]) -> tvm.IRModule:
    """Each operator a call, none fused; reshapes stay where they only change the type."""
    passes = [
        relax.transform.ConvertToDataflow(),
        relax.transform.LegalizeOps(),
        relax.transform.CanonicalizeBindings(),
        relax.transform.RewriteDataflowReshape(),
    ]
    return tvm.transform.Sequential(passes)(relax_module(body, shapes))


def graph_of(mod: tvm.IRModule) -> TaskGraph:
    def slices(name: str) -> tuple[tuple[int, int] | None, ...]:
        func = with_numbered_params(mod[name])
        graph = extract(func)
        assert graph is not None
        written = {operator.write.tensor.name for operator in graph.operators}
        names = [str(param.name) for param in func.params]
        inputs = [name for name in names if name not in written]
        return contiguous_parts(graph, inputs, names[len(inputs) :])

    (block,) = mod["main"].body.blocks
    return read_block(block, slices)


def read_by_last(body: Callable[..., Any], *shapes: tuple[int, ...]) -> tuple[TaskGraph, Any]:
    """The graph, and the first argument of its last call."""
    graph = graph_of(legalized(body, *shapes))
    return graph, graph.nodes[-1].arguments[0]


def test_a_reshape_is_a_view() -> None:
    graph, place = read_by_last(lambda x: op.exp(op.reshape(op.nn.relu(x), (4, 16))), (8, 8))
    assert [node.function for node in graph.nodes] == ["relu", "tir_exp"]
    assert place == Location(graph.nodes[0].outputs[0], 0)
    assert len(graph.views) == 1


def test_rows_are_a_view_where_they_begin() -> None:
    graph, place = read_by_last(
        lambda x: op.exp(op.strided_slice(op.nn.relu(x), [0], [3], [5])), (8, 8)
    )
    assert [node.function for node in graph.nodes] == ["relu", "tir_exp"]
    assert place == Location(graph.nodes[0].outputs[0], 3 * 8 * 4)
    assert len(graph.views) == 1


@pytest.mark.parametrize(
    ("shape", "axis", "start", "stop"),
    [
        ((8, 8), 1, 0, 4),  # with gaps
        ((8, 3), 0, 1, 5),  # from byte 12
    ],
)
def test_what_is_not_whole_or_not_aligned_is_a_copy(
    shape: tuple[int, ...], axis: int, start: int, stop: int
) -> None:
    def body(x: Any) -> Any:
        return op.exp(op.strided_slice(op.nn.relu(x), [axis], [start], [stop]))

    graph, _ = read_by_last(body, shape)
    assert [node.function for node in graph.nodes] == ["relu", "strided_slice", "tir_exp"]
    assert not graph.views


def test_parts_of_a_split_are_views() -> None:
    def body(x: Any) -> Any:
        parts = op.split(op.nn.relu(x), 2, 0)
        return op.exp(relax.TupleGetItem(parts, 1))

    graph, place = read_by_last(body, (8, 8))
    assert [node.function for node in graph.nodes] == ["relu", "tir_exp"]
    assert place == Location(graph.nodes[0].outputs[0], 4 * 8 * 4)


def test_what_changes_values_is_no_view() -> None:
    graph, place = read_by_last(lambda x: op.exp(op.nn.relu(x)), (8, 8))
    assert not graph.views
    assert place == Location(graph.nodes[0].outputs[0], 0)
    assert graph.nodes[0].reads == tuple(graph.given)


def test_what_is_looked_up_is_no_view() -> None:
    def body(table: Any, x: Any) -> Any:
        return op.exp(op.take(table, op.astype(x, "int64"), axis=0))

    graph, place = read_by_last(body, (16, 8), (4,))
    assert [node.function for node in graph.nodes] == ["cast", "take", "tir_exp"]
    assert place == Location(graph.nodes[1].outputs[0], 0)
    assert not graph.views


def test_items_of_a_tuple_are_values_of_their_own() -> None:
    def body(x: Any) -> Any:
        both = op.topk(x, k=2, axis=1, ret_type="both")
        return op.exp(relax.TupleGetItem(both, 0))

    passes = [relax.transform.ConvertToDataflow(), relax.transform.LegalizeOps()]
    mod = tvm.transform.Sequential(passes)(relax_module(body, ((4, 8),)))
    (block,) = mod["main"].body.blocks
    graph = read_block(block, lambda _: ())
    first, last = graph.nodes
    assert len(first.outputs) == 2
    assert last.reads == (first.outputs[0],)


def test_values_that_leave_the_block_are_known_through_their_views() -> None:
    def body(x: Any) -> Any:
        return op.strided_slice(op.nn.relu(op.exp(x)), [0], [4], [6])

    graph = graph_of(legalized(body, (8, 8)))
    exp, relu = graph.nodes
    assert len(graph.views) == 1
    assert graph.used_later == frozenset(relu.outputs)
    assert relu.reads == exp.outputs
