"""Tensors that ONNX models keep without their zeros: what ONNX Runtime computes with them."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import tvm_tile
from tvm_tile.errors import ModelError, ModelFileError

RNG = np.random.default_rng(0)
WHOLE = (RNG.standard_normal((16, 24)) * (RNG.random((16, 24)) < 0.3)).astype("float32")


def _sparse(whole, by_axes, count=None):
    """A tensor's values and places up to a count, by number or along each axis."""
    axes = np.argwhere(whole)[:count]
    values = whole[tuple(axes.T)]
    numbers = np.ravel_multi_index(tuple(axes.T), whole.shape) if len(axes) else np.zeros(0)
    places = axes if by_axes else numbers
    return helper.make_sparse_tensor(
        numpy_helper.from_array(values, "w"),
        numpy_helper.from_array(np.asarray(places, "int64"), "w_indices"),
        whole.shape,
    )


def _model(sparse, kind="initializer"):
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [5, 16])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [5, 24])
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    if kind == "constant":
        nodes.insert(0, helper.make_node("Constant", [], ["w"], sparse_value=sparse))
    held = {"sparse_initializer": [sparse]} if kind == "initializer" else {}
    if kind == "branch":
        inner = helper.make_graph(nodes, "then", [], [y], sparse_initializer=[sparse])
        other = helper.make_graph([helper.make_node("MatMul", ["x", "v"], ["y"])], "else", [], [y])
        v = helper.make_tensor_value_info("v", TensorProto.FLOAT, [16, 24])
        flag = helper.make_tensor_value_info("flag", TensorProto.BOOL, [])
        branches = {"then_branch": inner, "else_branch": other}
        graph = helper.make_graph(
            [helper.make_node("If", ["flag"], ["y"], **branches)], "g", [x, v, flag], [y]
        )
    else:
        graph = helper.make_graph(nodes, "g", [x], [y], **held)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 9
    return model


@pytest.mark.parametrize("count", [None, 1, 0])
@pytest.mark.parametrize("by_axes", [False, True])
@pytest.mark.parametrize("kind", ["initializer", "constant", "branch"])
def test_sparse_tensors_compute_what_onnx_runtime_does(kind, by_axes, count, tmp_path):
    model = _model(_sparse(WHOLE, by_axes, count), kind)
    given = {"x": RNG.standard_normal((5, 16)).astype("float32")}
    if kind == "branch":
        given |= {"v": WHOLE + 1, "flag": np.array(True)}
    (want,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, given)
    before = model.SerializeToString()
    onnx.save(model, tmp_path / "model.onnx")
    for form in (model, tmp_path / "model.onnx"):
        found = tvm_tile.compile(form, "emulated")(**given)
        np.testing.assert_allclose(np.asarray(found), want, atol=1e-5)
    assert model.SerializeToString() == before


def test_places_outside_of_a_sparse_tensor_are_refused():
    sparse = _sparse(WHOLE, by_axes=False)
    sparse.dims[0] = 2
    with pytest.raises(ModelFileError, match="out of range"):
        tvm_tile.compile(_model(sparse), "emulated")


def test_sparse_tensors_that_no_device_holds_are_refused():
    sparse = _sparse(WHOLE, by_axes=True)
    sparse.dims[:] = [1 << 20, 1 << 20]
    with pytest.raises(ModelError, match="'w' of shape"):
        tvm_tile.compile(_model(sparse), "emulated")


def test_sparse_tensors_in_other_files_are_refused(tmp_path):
    model = _model(_sparse(WHOLE, by_axes=False))
    values = model.graph.sparse_initializer[0].values
    onnx.external_data_helper.set_external_data(values, "values.bin")
    (tmp_path / "values.bin").write_bytes(values.raw_data)
    values.ClearField("raw_data")
    onnx.save(model, tmp_path / "model.onnx")
    with pytest.raises(ModelError, match="lies in another file"):
        tvm_tile.compile(tmp_path / "model.onnx", "emulated")
