"""Reading TensorIR functions as operators with affine accesses."""

from __future__ import annotations

from typing import Any

import tvm
from kernel_bodies import case
from kernel_cases import CASES
from kernels import Input, prim_functions
from tvm import te, topi
from tvm.relax import op
from tvm.script import tirx as T

from tvm_tile.device import find_device
from tvm_tile.graph.extract import extract
from tvm_tile.graph.tile_graph import Operator, TileGraph

H200 = find_device("nvidia/h200")


def extracted(name_or_body: Any, *inputs: Any) -> TileGraph:
    """The graph of one case of the table, or of a body."""
    found = next((entry for entry in CASES if entry.name == name_or_body), None)
    (func,) = prim_functions(found or case("", "", name_or_body, *inputs), H200).values()
    graph = extract(func)
    assert graph is not None
    return graph


def from_te(*tensors: te.Tensor) -> TileGraph:
    graph = extract(te.create_prim_func(list(tensors)))
    assert graph is not None
    return graph


def indices(operator: Operator, read: int) -> list[tuple[dict[str, int], int]]:
    """Each index of a read as ({axis: coefficient}, offset)."""
    return [(dict(index.terms), index.offset) for index in operator.reads[read].indices]


def test_matmul() -> None:
    a, b = te.placeholder((17, 19), name="A"), te.placeholder((19, 23), name="B")
    graph = from_te(a, b, topi.matmul(a, b))
    (operator,) = graph.operators
    i, j, k = operator.axes
    assert [(x.extent, x.is_reduce) for x in (i, j, k)] == [(17, False), (23, False), (19, True)]
    assert indices(operator, 0) == [({i.name: 1}, 0), ({k.name: 1}, 0)]
    assert indices(operator, 1) == [({k.name: 1}, 0), ({j.name: 1}, 0)]
    assert [operator.reads[0].tensor.name, operator.reads[1].tensor.name] == ["A", "B"]
    assert operator.write.contiguous_axis == j.name
    assert operator.flops == 2
    assert graph.traffic == 4 * (17 * 19 + 19 * 23 + 17 * 23)


def test_convolution_slides_over_its_padded_input() -> None:
    x, w = te.placeholder((1, 6, 21, 21)), te.placeholder((8, 3, 3, 3))
    # arguments: stride, padding, dilation, groups
    graph = from_te(x, w, topi.nn.group_conv2d_nchw(x, w, 2, 1, 4, 2))
    pad, convolution = graph.operators
    assert pad.reads[0].is_computed  # read under a condition
    assert (len(convolution.spatial_axes), len(convolution.reduce_axes)) == (4, 3)
    data = next(r for r in convolution.reads if r.tensor == pad.write.tensor)
    row = dict(data.indices[2].terms)
    assert sorted(row.values()) == [2, 4]
    assert row[convolution.spatial_axes[2].name] == 2
    assert data.indices[2].span({axis.name: axis.extent for axis in convolution.axes}) <= 23
    assert [tensor.shape for tensor in graph.inputs] == [(1, 6, 21, 21), (8, 3, 3, 3)]


def test_softmax_is_four_operators_in_order() -> None:
    graph = extracted("softmax")
    assert [bool(operator.reduce_axes) for operator in graph.operators] == [
        True,
        False,
        True,
        False,
    ]
    assert len(graph.reductions) == 2
    assert [tensor.shape for tensor in graph.outputs] == [(3, 5, 77)]
    # Intermediates are not traffic: one read and one write of the tensor.
    assert graph.traffic == 2 * 4 * 3 * 5 * 77


def test_layer_norm_reads_scale_and_shift_by_the_last_axis() -> None:
    last = extracted("layer_norm").operators[-1]
    scale = [read for read in last.reads if read.tensor.shape == (96,)]
    assert len(scale) == 2
    assert all(dict(r.indices[0].terms) == {last.axes[-1].name: 1} for r in scale)


def test_a_gathered_index_is_not_exact() -> None:
    table = extracted("take_rows").operators[0]
    (data,) = (read for read in table.reads if read.tensor.shape == (70, 256))
    assert not data.is_exact
    assert [index.is_exact for index in data.indices] == [False, True]
    assert data.axes == {axis.name for axis in table.axes}


def test_reshapes_are_simplified_to_affine_indices() -> None:
    def heads(x: Any) -> Any:
        split = op.reshape(op.nn.relu(x), (2, 9, 4, 16))
        return op.exp(op.permute_dims(split, [0, 2, 1, 3]))

    graph = extracted(heads, (2, 9, 64))
    reads = [read for operator in graph.operators for read in operator.reads]
    assert all(read.is_exact for read in reads)
    terms = [dict(index.terms) for read in reads for index in read.indices]
    assert any(sorted(t.values()) == [1, 16] for t in terms)  # head * 16 + element


def test_a_scalar_result_has_no_spatial_axes() -> None:
    graph = extracted(lambda x: op.sum(x), (3, 5))
    (operator,) = graph.operators
    assert operator.spatial_axes == ()
    assert (operator.points, operator.write.contiguous_axis) == (15, None)


def test_repeated_reads_are_kept_once() -> None:
    a = te.placeholder((8,), name="A")
    graph = extract(te.create_prim_func([a, te.compute((8,), lambda i: a[i] * a[i])]))
    assert graph is not None
    assert len(graph.operators[0].reads) == 1


def test_extern_calls_are_not_read() -> None:
    def call(inputs: Any, outputs: Any) -> Any:
        return tvm.tirx.call_packed("nothing", inputs[0], outputs[0])

    a = te.placeholder((4,), name="A")
    assert extract(te.create_prim_func([a, te.extern((4,), [a], call)])) is None


def test_tuple_reductions_are_not_read() -> None:
    a = te.placeholder((5, 33), name="A")
    assert extract(te.create_prim_func([a, topi.argmax(a, 1)])) is None


def test_symbolic_extents_are_not_read() -> None:
    n = te.var("n", "int64")
    a = te.placeholder((n,), name="A")
    assert extract(te.create_prim_func([a, te.compute((n,), lambda i: a[i] + 1)])) is None


def test_loops_written_by_hand_are_not_read() -> None:
    @T.prim_func(s_tir=True)
    def by_hand(a: T.Buffer((8,), "float32"), b: T.Buffer((8,), "float32")) -> None:
        with T.sblock("all"):
            T.reads(a[0:8])
            T.writes(b[0:8])
            for i in range(8):
                b[i] = a[i]

    assert extract(by_hand) is None


def test_dtypes_count_towards_traffic() -> None:
    graph = extracted(lambda x: op.astype(x, "int8"), Input((6, 7), "int64"))
    assert graph.traffic == 6 * 7 * (8 + 1)
