"""ONNX's loops, scans and sequences: what its node tests have stored, and exported TorchScript."""

from __future__ import annotations

import functools
import gc
import warnings
from importlib.util import find_spec
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import tvm
from onnx import TensorProto, helper, numpy_helper
from onnx.backend.test.loader import load_model_tests

import tvm_tile
from bench.node_cases import NodeCase, compare, judge, run_compiled
from bench.random_control import differences, program
from tvm_tile.errors import UnsupportedOperatorError
from tvm_tile.frontend import import_model

pytestmark = [
    pytest.mark.bank(8),
    pytest.mark.skipif(not find_spec("pyopencl"), reason="needs pyopencl"),
]
_TENSORS = (
    *("affine_grid_2d_expanded", "affine_grid_2d_align_corners_expanded"),
    *("affine_grid_3d_expanded", "affine_grid_3d_align_corners_expanded", "if", "loop11"),
    *("range_int32_type_negative_delta_expanded", "scan_sum", "scan9_sum", "scan9_multi_state"),
    *("scan9_scalar", "linear_attention_linear", "linear_attention_delta_expanded"),
    *("linear_attention_gated_delta_gqa", "linear_attention_prefill_with_past_expanded"),
)
_MAPS = (
    *("identity_1_sequence", "identity_2_sequences", "identity_1_sequence_1_tensor"),
    *("add_2_sequences", "add_1_sequence_1_tensor", "extract_shapes"),
)
_SEQUENCES = (
    *(f"sequence_map_{name}{form}" for name in _MAPS for form in ("", "_expanded")),
    *("loop13_seq", "sequence_insert_at_back", "sequence_insert_at_front", "if_seq"),
)


@functools.cache
def _node_tests() -> dict[str, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the tests are computed on loading, infinities included
        return {test.name: test for test in load_model_tests(kind="node")}


@pytest.mark.parametrize("name", _TENSORS)
def test_stored_outputs_of_tensors(name: str) -> None:
    test = _node_tests()[f"test_{name}"]
    inputs, expected = test.data_sets[0]
    case = NodeCase(test.name, test.model, tuple(map(np.asarray, inputs)), tuple(expected), 1e-4)
    verdict = judge(case, run_compiled("emulated"))
    assert verdict.status == "passed", verdict.detail


@pytest.mark.parametrize("name", _SEQUENCES)
def test_stored_outputs_of_sequences(name: str) -> None:
    """A model takes and returns tensors: each of a sequence is one of its own."""
    test = _node_tests()[f"test_{name}"]
    inputs, expected = test.data_sets[0]
    model, tensors = _of_tensors(test.model, inputs, [len(e) for e in expected])
    found = run_compiled("emulated")(model, tensors)
    wanted = [tensor for sequence in expected for tensor in sequence]
    verdict = compare(found, wanted, 1e-5)
    assert verdict.status == "passed", verdict.detail


def _of_tensors(
    model: onnx.ModelProto, inputs: list[Any], lengths: list[int]
) -> tuple[onnx.ModelProto, tuple[np.ndarray, ...]]:
    """A model of sequences' tensors, and what is given to it; single integers are constants."""
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    graph = changed.graph
    before: list[onnx.NodeProto] = []
    tensors: list[np.ndarray] = []
    kept = []
    for value, given in zip(model.graph.input, inputs, strict=True):
        names = [f"{value.name}_{n}" for n in range(len(given))] if isinstance(given, list) else []
        for name, array in zip(names, given if names else (), strict=True):
            kind = helper.np_dtype_to_tensor_dtype(array.dtype)
            kept.append(helper.make_tensor_value_info(name, kind, array.shape))
            tensors.append(array)
        if isinstance(given, list):
            operator = "SequenceConstruct" if names else "SequenceEmpty"
            before.append(helper.make_node(operator, names, [value.name]))
        elif given.dtype.kind in "ib" and given.size == 1:
            graph.initializer.append(numpy_helper.from_array(np.asarray(given), value.name))
        else:
            kind = helper.np_dtype_to_tensor_dtype(given.dtype)
            kept.append(helper.make_tensor_value_info(value.name, kind, given.shape))
            tensors.append(given)
    after, outputs = [], []
    for value, length in zip(model.graph.output, lengths, strict=True):
        kind = value.type.sequence_type.elem_type.tensor_type.elem_type
        for place in range(length):
            at, name = f"at_{place}", f"{value.name}_{place}"
            if all(tensor.name != at for tensor in graph.initializer):
                graph.initializer.append(numpy_helper.from_array(np.array(place), at))
            after.append(helper.make_node("SequenceAt", [value.name, at], [name]))
            outputs.append(helper.make_tensor_value_info(name, kind, None))
    nodes = [*before, *model.graph.node, *after]
    del graph.input[:], graph.output[:], graph.node[:]
    graph.input.extend(kept)
    graph.output.extend(outputs)
    graph.node.extend(nodes)
    return changed, tuple(tensors)


@pytest.mark.parametrize("seed", [1, 3, 6, 10, 18])
def test_exported_programs_of_loops_and_branches(seed: int) -> None:
    assert not list(differences(program(seed), seed))


def _loop(count: Any, *, going_on: list[Any], rows: bool) -> onnx.ModelProto:
    """``while going_on and i < count: a = tanh(a @ w) + x; rows.append(a * i)``."""
    node, value = helper.make_node, helper.make_tensor_value_info
    body = helper.make_graph(
        [
            node("MatMul", ["a", "w"], ["product"]),
            node("Tanh", ["product"], ["tanh"]),
            node("Add", ["tanh", "x"], ["new"]),
            node("Cast", ["i"], ["f"], to=TensorProto.FLOAT),
            node("Mul", ["new", "f"], ["row"]),
            *going_on,
        ],
        "body",
        [
            value("i", TensorProto.INT64, []),
            value("on", TensorProto.BOOL, []),
            value("a", TensorProto.FLOAT, [2, 4]),
        ],
        [
            value("next", TensorProto.BOOL, []),
            value("new", TensorProto.FLOAT, [2, 4]),
            *([value("row", TensorProto.FLOAT, [2, 4])] if rows else []),
        ],
    )
    w = np.random.default_rng(0).standard_normal((4, 4)).astype("float32") * 0.5
    inputs = [value("x", TensorProto.FLOAT, [2, 4])]
    constants = [
        numpy_helper.from_array(w, "w"),
        numpy_helper.from_array(np.array(6.0, "f"), "most"),
    ]
    if count is None:
        inputs.append(value("count", TensorProto.INT64, []))
    else:
        constants.append(numpy_helper.from_array(np.array(count), "count"))
    names = ["y", *(["rows"] if rows else [])]
    graph = helper.make_graph(
        [node("Loop", ["count", "", "x"], names, body=body)],
        "loop",
        inputs,
        [value(name, TensorProto.FLOAT, None) for name in names],
        constants,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


_ALWAYS = [helper.make_node("Identity", ["on"], ["next"])]
_ENDED = [
    helper.make_node("Abs", ["new"], ["size"]),
    helper.make_node("ReduceSum", ["size"], ["sum"], keepdims=0),
    helper.make_node("Less", ["sum", "most"], ["next"]),
]


def _compare(model: onnx.ModelProto, *inputs: np.ndarray) -> None:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    given = dict(zip((value.name for value in model.graph.input), inputs, strict=True))
    expected = session.run(None, given)
    found = run_compiled("emulated")(model, inputs)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


X = np.random.default_rng(1).standard_normal((2, 4)).astype("float32")


@pytest.mark.parametrize("count", [3, 200])
def test_rows_of_a_loop_of_a_known_count(count: int) -> None:
    model = _loop(count, going_on=_ALWAYS, rows=True)
    _compare(model, X)
    functions = import_model(model, inputs=None, example_inputs=None).mod.functions.values()
    # A short one is written out.
    is_written_out = sum(isinstance(func, tvm.relax.Function) for func in functions) == 1
    assert is_written_out == (count == 3)


@pytest.mark.parametrize("count", [0, 1, 9])
def test_loops_whose_end_the_data_decide(count: int) -> None:
    for going_on in (_ALWAYS, _ENDED):
        _compare(_loop(None, going_on=going_on, rows=False), X, np.array(count))
    _compare(_loop(count, going_on=_ENDED, rows=False), X)


def test_rows_whose_number_the_data_decide_are_refused(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UnsupportedOperatorError, match="only the data decide"):
        tvm_tile.compile(_loop(None, going_on=_ALWAYS, rows=True), "emulated")
    gc.collect()
    assert "Warning" not in capfd.readouterr().err  # TVM's, of what was begun


def _counting(step: int) -> onnx.ModelProto:
    """``k, n = 0, len(x)``; ``while k < n: a = tanh(a + x[k]); rows.append(a); k += step``, as
    exporters of TensorFlow's write it; and the same of the rows."""
    node, value = helper.make_node, helper.make_tensor_value_info
    nodes, read = [], "x"
    for layer in ("first", "second"):
        body = helper.make_graph(
            [
                node("Add", ["k", "step"], ["after"]),
                node("Gather", [read, "k"], ["part"]),
                node("Add", ["a", "part"], ["sum"]),
                node("Tanh", ["sum"], ["new"]),
                node("Identity", ["new"], ["row"]),
                node("Less", ["after", "n"], ["next"]),
            ],
            layer,
            [
                value("i", TensorProto.INT64, []),
                value("on", TensorProto.BOOL, []),
                *(value(name, TensorProto.INT64, None) for name in ("k", "n")),
                value("a", TensorProto.FLOAT, None),
            ],
            [
                value("next", TensorProto.BOOL, None),
                *(value(name, TensorProto.INT64, None) for name in ("after", "n")),
                *(value(name, TensorProto.FLOAT, None) for name in ("new", "row")),
            ],
        )
        own = {name: f"{layer}_{name}" for name in ("shape", "n", "begins", "a", "rows")}
        nodes += [
            node("Shape", [read], [own["shape"]]),
            node("Gather", [own["shape"], "zero"], [own["n"]]),
            node("Less", ["zero", own["n"]], [own["begins"]]),
            node(
                "Loop",
                ["", own["begins"], "zero", own["n"], "start"],
                [f"{layer}_end", f"{layer}_limit", own["a"], own["rows"]],
                body=body,
            ),
        ]
        read = own["rows"]
    constants = {"zero": np.array(0), "step": np.array(step), "start": np.zeros((2, 4), "float32")}
    graph = helper.make_graph(
        nodes,
        "counting",
        [value("x", TensorProto.FLOAT, [7, 2, 4])],
        [value(name, TensorProto.FLOAT, None) for name in ("second_rows", "first_a")],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.mark.parametrize("step", [1, 3])
def test_rows_of_loops_that_count_by_themselves(step: int) -> None:
    x = np.random.default_rng(2).standard_normal((7, 2, 4)).astype("float32")
    _compare(_counting(step), x)


def _branches(squeezes: bool) -> onnx.ModelProto:
    """Of a tensor, or of two rows of it; or of one of lower rank."""
    node, value = helper.make_node, helper.make_tensor_value_info
    other = (
        ("Squeeze", ["x", "zero"], "b", [4])
        if squeezes
        else ("Slice", ["x", "one", "three"], "b", [2, 4])
    )
    sides = []
    for kind, inputs, name, shape in (("Sigmoid", ["x"], "a", [1 if squeezes else 4, 4]), other):
        made = [value(name, TensorProto.FLOAT, shape)]
        sides.append(helper.make_graph([node(kind, inputs, [name])], name, [], made))
    nodes = [
        node("If", ["c"], ["z"], then_branch=sides[0], else_branch=sides[1]),
        node("Mul", ["z", "weight"], ["scaled"]),
        node("ReduceMax", ["scaled"], ["largest"], keepdims=0),
        node("Greater", ["z", "largest"], ["greater"]),
        node("ReduceMax", ["greater"], ["any"], keepdims=0),
        node("ReduceMin", ["greater"], ["all"], keepdims=0),
    ]
    names = {"scaled": TensorProto.FLOAT, "any": TensorProto.BOOL, "all": TensorProto.BOOL}
    constants = {"zero": [0], "one": [1], "three": [3]}
    graph = helper.make_graph(
        nodes,
        "branches",
        [
            value("x", TensorProto.FLOAT, [1 if squeezes else 4, 4]),
            value("c", TensorProto.BOOL, []),
        ],
        [value(name, dtype, None) for name, dtype in names.items()],
        [
            *(numpy_helper.from_array(np.array(array), name) for name, array in constants.items()),
            numpy_helper.from_array(np.float32([0.5, 2, 1, -1]), "weight"),
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def test_branches_of_several_shapes() -> None:
    model = _branches(squeezes=False)
    compiled = tvm_tile.compile(model, "emulated")
    session = onnxruntime.InferenceSession(model.SerializeToString())
    x = np.random.default_rng(1).standard_normal((4, 4)).astype("float32")
    for condition in (True, False):
        given = {"x": x, "c": np.array(condition)}
        for own, wanted in zip(compiled(*given.values()), session.run(None, given), strict=True):
            np.testing.assert_allclose(own, wanted, rtol=1e-5)


def test_branches_of_several_ranks_are_refused() -> None:
    with pytest.raises(UnsupportedOperatorError, match="differ in rank"):
        tvm_tile.compile(_branches(squeezes=True), "emulated")
