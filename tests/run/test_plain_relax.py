"""Plain Relax for pipelines of one's own: TVM's CPU build of it computes what PyTorch and ONNX do,
where TVM's own importers refuse or give other numbers."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
import torch
import torch.nn.functional as F
import tvm
from cpu_build import CPU
from onnx import helper
from torch import nn
from tvm import relax

from bench.node_cases import NodeCase, compare, float_cases
from tvm_tile.errors import DynamicShapeError, ModelError, ModelFileError, UnsupportedOperatorError
from tvm_tile.frontend import from_exported_program, from_onnx

NUMBERS = torch.tensor([[1.0, -2.0, math.inf, -math.inf], [math.nan, 3.0, -math.inf, 0.5]])
WHOLE = torch.tensor([-7, 7, -1])


def run(mod: tvm.IRModule, *arrays: Any) -> list[np.ndarray]:
    """What TVM's build of a module, with none of our passes, computes."""
    relax.analysis.well_formed(mod)
    machine = relax.VirtualMachine(tvm.compile(mod, CPU), tvm.cpu())
    outputs: Any = machine["main"](*(tvm.runtime.tensor(np.asarray(array)) for array in arrays))
    return [output.numpy() for output in ([outputs] if hasattr(outputs, "numpy") else outputs)]


class Function(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Any) -> Any:
        return self.function(*inputs)


def exported(model: nn.Module, *inputs: Any) -> Any:
    return torch.export.export(model.eval(), inputs)


@pytest.mark.parametrize(
    ("function", "x"),
    [
        (lambda x: x.argmax(-1), NUMBERS),
        (lambda x: torch.div(x, 3, rounding_mode="floor"), WHOLE),
        (lambda x: torch.div(x, 3, rounding_mode="trunc"), WHOLE),
        (lambda x: x.cumsum(0), torch.full((9,), 100, dtype=torch.int8)),
        (lambda x: x.mean(), torch.full((70_000,), 0.1, dtype=torch.float16)),
        (lambda x: x.scatter_add(0, torch.tensor([0, 0, 1]), torch.ones(3)), torch.zeros(3)),
        (lambda x: x.logsumexp(1), torch.full((2, 3), 200.0)),
        (lambda x: F.interpolate(x, scale_factor=1.5, mode="bilinear"), torch.randn(1, 1, 5, 5)),
        (lambda x: F.group_norm(x, 2), torch.randn(2, 4, 3)),
        (lambda x: x[-1, ..., ::2], torch.randn(3, 5)),
        (lambda x: torch.sub(x, x + 1, alpha=2), torch.randn(3)),
        (lambda x: x.any(1), torch.tensor([[0, 2], [0, 0]])),
        (lambda x: x.erfinv(), torch.tensor([0.1, -0.5])),
        (lambda x: torch.logaddexp(x, x), torch.tensor([500.0, -500.0])),
        (lambda x: x.sort(descending=True, stable=True)[1], torch.tensor([2.0, 3.0, 2.0, 3.0])),
    ],
)
def test_what_the_stock_importer_gets_wrong(function: Any, x: Any) -> None:
    mod = from_exported_program(exported(Function(function), x))
    (found,) = run(mod, x)
    expected = function(x)
    assert found.dtype.name == str(expected.dtype).removeprefix("torch.")
    torch.testing.assert_close(torch.from_numpy(found), expected, equal_nan=True)


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(5, 7), nn.Linear(7, 3)
        self.register_buffer("scale", torch.full((3,), 2.0))

    def forward(self, x: Any) -> Any:
        return self.second(torch.relu(self.first(x))) * self.scale


def test_parameters_may_stay_inputs() -> None:
    model, x = Layers(), torch.randn(4, 5)
    mod = from_exported_program(exported(model, x), keep_params_as_input=True)
    assert int(mod["main"].attrs["num_input"]) == 1
    names = [str(param.name) for param in mod["main"].params]
    assert names[1:] == ["p_first_weight", "p_first_bias", "p_second_weight", "p_second_bias"]
    mod, values = relax.frontend.detach_params(mod)
    (found,) = run(mod, x, *(value.numpy() for value in values["main"]))
    np.testing.assert_allclose(found, model(x).detach().numpy(), rtol=1e-4, atol=1e-5)
    (other,) = run(mod, x, *(2 * value.numpy() for value in values["main"]))
    assert np.abs(other - found).max() > 1e-2


@pytest.mark.parametrize("unwrap", [False, True])
@pytest.mark.parametrize("unbound", [False, True])
@pytest.mark.parametrize("count", [1, 2])
def test_what_is_returned_is_as_asked(unwrap: bool, unbound: bool, count: int) -> None:
    def function(x: Any) -> Any:
        return tuple(x + i for i in range(count))

    mod = from_exported_program(
        exported(Function(function), torch.zeros(3)),
        unwrap_unit_return_tuple=unwrap,
        no_bind_return_tuple=unbound,
    )
    is_tuple = count > 1 or not unwrap
    assert isinstance(mod["main"].ret_ty, relax.TupleType) == is_tuple
    assert isinstance(mod["main"].body.body, relax.Tuple) == (is_tuple and unbound)
    assert [list(found) for found in run(mod, np.zeros(3, "float32"))] == [
        [i] * 3 for i in range(count)
    ]


class Counter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(2, 3))
        self.register_buffer("step", torch.ones(3))

    def forward(self, x: Any, y: Any) -> Any:
        self.count[1:] += x * self.step
        y.mul_(2)
        return self.count.sum() + y


def test_new_values_are_returned_behind_the_outputs() -> None:
    """TVM's importer drops them, with what the model was meant to remember."""
    theirs = Counter()
    x, y = torch.randn(3), torch.randn(3)
    mod = from_exported_program(exported(copy.deepcopy(theirs), x, y.clone()))
    assert len(mod["main"].params) == 3
    count = theirs.count.clone()
    for _ in range(2):
        given = y.clone()
        expected = theirs(x, given)
        output, new_y, count = run(mod, x, y, count)
        np.testing.assert_allclose(output, expected.numpy(), rtol=1e-5)
        np.testing.assert_array_equal(new_y, given.numpy())
        np.testing.assert_allclose(count, theirs.count.numpy(), rtol=1e-5)


def test_random_numbers_are_made_of_what_is_taken_and_returned() -> None:
    x = torch.zeros(3, 4)
    mod = from_exported_program(exported(Function(torch.rand_like), x))
    draws = [run(mod, x, np.array(state)) for state in ([7, 0], [7, 1], [7, 0])]
    assert [after.tolist() for _, after in draws] == [[7, 1], [7, 2], [7, 1]]
    first, second, again = (drawn for drawn, _ in draws)
    np.testing.assert_array_equal(first, again)
    assert (first != second).all()
    assert "tvm_tile" not in mod.script()


def test_nothing_of_ours_is_left_in_the_module() -> None:
    """No attribute of this package's, no operator that only its builds know, nothing in place."""
    x = torch.randn(2, 3)
    text = from_exported_program(exported(Counter(), x[0], x[1])).script()
    text += from_exported_program(exported(Function(lambda x: x.argmax(-1)), x)).script()
    assert "tvm_tile" not in text
    assert "inplace" not in text


def test_open_extents_are_given() -> None:
    model = Function(lambda x: x + 1)
    rows = torch.export.Dim("rows")
    program = torch.export.export(model, (torch.zeros(4, 2),), dynamic_shapes=(({0: rows},),))
    name = program.graph_signature.user_inputs[0]
    with pytest.raises(DynamicShapeError):
        from_exported_program(program)
    mod = from_exported_program(program, inputs={str(name): (3, 2)})
    assert run(mod, np.zeros((3, 2), "float32"))[0].shape == (3, 2)


def test_what_cannot_be_imported_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedOperatorError, match="igamma"):
        from_exported_program(exported(Function(lambda x: torch.igamma(x, x)), torch.ones(3)))
    with pytest.raises(ModelError, match=r"torch\.export\.ExportedProgram"):
        from_exported_program(nn.Linear(2, 2))
    with pytest.raises(ModelFileError):
        from_onnx("missing.onnx")


STOCK_FAILS = (
    *(
        "test_attention_4d",
        "test_batchnorm_example_training_mode",
        "test_celu",
        "test_gru_defaults",
    ),
    *("test_isinf_positive", "test_l2normalization_axis_0", "test_layer_normalization_4d_axis0"),
    *("test_lstm_defaults", "test_maxpool_with_argmax_2d_precomputed_pads", "test_nllloss_NC"),
    *("test_pow_types_float32_int64", "test_rms_normalization_4d_axis0", "test_sce_none"),
    *("test_rotary_embedding", "test_simple_rnn_defaults", "test_spacetodepth_crd_mode_example"),
)


def _cases(names: Sequence[str]) -> list[NodeCase]:
    known = {case.name: case for case in float_cases()}
    return [known[name] for name in names]


@pytest.mark.parametrize("case", _cases(STOCK_FAILS), ids=lambda case: case.name)
def test_nodes_of_onnx(case: NodeCase) -> None:
    outputs = run(from_onnx(case.model), *case.inputs)
    verdict = compare(outputs, case.expected, case.relative_tolerance)
    assert verdict.status == "passed", verdict.detail


def _classifier() -> onnx.ModelProto:
    """Two layers whose weights are initializers, one of which gives a shape."""
    rng = np.random.default_rng(0)
    arrays = {
        "first": rng.standard_normal((6, 5)).astype("float32"),
        "bias": rng.standard_normal(5).astype("float32"),
        "shape": np.array([-1, 10]),
    }
    nodes = [
        helper.make_node("MatMul", ["x y", "first"], ["h"]),
        helper.make_node("Add", ["h", "bias"], ["g"]),
        helper.make_node("Reshape", ["g", "shape"], ["out"]),
    ]
    x = helper.make_tensor_value_info("x y", onnx.TensorProto.FLOAT, ["rows", 6])
    out = helper.make_tensor_value_info("out", onnx.TensorProto.FLOAT, None)
    weights = [onnx.numpy_helper.from_array(array, name) for name, array in arrays.items()]
    return helper.make_model(helper.make_graph(nodes, "classifier", [x], [out], weights))


def test_constants_of_onnx_may_become_inputs() -> None:
    model = _classifier()
    with pytest.raises(DynamicShapeError, match="rows"):
        from_onnx(model)
    x = np.random.default_rng(1).standard_normal((4, 6)).astype("float32")
    (expected,) = run(from_onnx(model, {"x y": (4, 6)}), x)
    assert expected.shape == (2, 10)
    mod = from_onnx(model, {"x y": (4, 6)}, keep_params_in_input=True)
    assert int(mod["main"].attrs["num_input"]) == 1
    mod, values = relax.frontend.detach_params(mod)
    weights = [value.numpy() for value in values["main"]]
    assert sorted(array.shape for array in weights) == [(5,), (6, 5)]
    (found,) = run(mod, x, *weights)
    np.testing.assert_array_equal(found, expected)
    (zero,) = run(mod, x, *(0 * array for array in weights))
    assert not zero.any()
