"""NaN, infinities and zeros' signs are PyTorch's, on the emulated device."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper
from torch.nn.functional import max_pool1d

import tvm_tile
from bench.special_cases import ROWS, VALUES, cases
from bench.special_values import judge, results

pytestmark = pytest.mark.bank(6)

CASES = {case.name: case for case in cases()}
# Those that were wrong, and some of each formula that they share.
UNARY = (
    *("relu", "hardtanh", "elu", "clamp (crossed)", "clamp (NaN)", "gelu (tanh)", "isfinite"),
    *("pow(0.5)", "x * 0", "x + 0", "x / 0", "(x + 1e8) - 1e8", "x == x", "not x > 0"),
    "max of min",
)
BINARY = ("maximum", "hypot", "floor_divide", "clamp (tensor)", "(x + y) - y")
OF_ROWS = ("amax", "amin", "softmax", "argmax", "argmin", "norm (-inf)")


@pytest.mark.parametrize("names", [UNARY, BINARY, OF_ROWS], ids=["unary", "binary", "rows"])
def test_as_in_pytorch(names: tuple[str, ...]) -> None:
    of = tuple(CASES[name] for name in names)
    verdicts = {c.name: judge(c, found) for c, found in zip(of, results(of), strict=True)}
    assert {n: v for n, v in verdicts.items() if v.status not in ("agrees", "excepted")} == {}


def test_of_constants() -> None:
    """What is computed while the model is compiled is what kernels would compute."""
    of = tuple(CASES[name] for name in ("relu", "hardtanh", "clamp (crossed)", "elu", "x / 0"))

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("values", VALUES)

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return tuple(torch.where(x, case.function(self.values), 0.0) for case in of)

    example, options = (torch.tensor(True),), tvm_tile.Options(cache=False)
    model = tvm_tile.compile(Model(), "emulated", example_inputs=example, options=options)
    verdicts = {c.name: judge(c, np.asarray(y)) for c, y in zip(of, model(*example), strict=True)}
    assert {n: v for n, v in verdicts.items() if v.status != "agrees"} == {}


def test_constants_without_elements() -> None:
    """TVM cannot load them: functions that write nothing make them."""

    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return x.new_full((2, 0), 2.0) + 1, x.new_zeros(0, dtype=torch.int64), x + 1

    example, options = (torch.ones(2, 3),), tvm_tile.Options(cache=False)
    model = tvm_tile.compile(Model(), "emulated", example_inputs=example, options=options)
    for found, wanted in zip(model(*example), Model()(*example), strict=True):
        assert found.dtype == wanted.dtype
        assert torch.equal(found, wanted)


def test_judge_finds_what_differs() -> None:
    relu, argmax = CASES["relu"], CASES["argmax"]
    wanted = relu.function(VALUES).numpy()
    assert judge(relu, wanted).status == "agrees"
    for place, wrong in ((0, 0.0), (1, -np.inf), (3, -0.0), (5, 1.1)):
        found = wanted.copy()
        found[place] = wrong
        assert judge(relu, found).status == "differs"
    assert judge(relu, wanted.astype("f8")).status == "differs"
    found = argmax.function(ROWS).numpy()
    found[1] = -1
    assert judge(argmax, found).status == "differs"


def test_excepted_only_where_the_reason_holds() -> None:
    maximum = CASES["maximum"]
    wanted = maximum.function(*maximum.operands).numpy()
    is_zero = maximum.apart is not None and maximum.apart(*maximum.operands).numpy()
    found = np.where(is_zero, -wanted, wanted)
    assert judge(maximum, found).status == "excepted"
    found[~np.isnan(wanted)] += 1
    assert judge(maximum, found).status == "differs"


def test_onnx() -> None:
    """Each operator of ONNX whose special values have rules of their own."""
    x, rows = VALUES.numpy(), ROWS.numpy()[None]
    given = {"x": x, "rows": rows}
    bounds = {"low": np.float32(-1), "high": np.float32(2), "half": np.float32(0.5)}
    nodes = [
        helper.make_node("Relu", ["x"], ["relu"]),
        helper.make_node("Clip", ["x", "low", "high"], ["clip"]),
        helper.make_node("Clip", ["x", "high", "low"], ["crossed"]),
        helper.make_node("Sign", ["x"], ["sign"]),
        helper.make_node("Round", ["x"], ["round"]),
        helper.make_node("Mod", ["x", "high"], ["mod"], fmod=1),
        helper.make_node("Pow", ["x", "half"], ["pow"]),
        helper.make_node("Max", ["x", "half"], ["max"]),
        helper.make_node("Min", ["x", "half"], ["min"]),
        helper.make_node("ReduceMax", ["rows"], ["reduce_max"], axes=[-1], keepdims=0),
        helper.make_node("MaxPool", ["rows"], ["pool"], kernel_shape=[3], pads=[1, 1]),
    ]
    graph = helper.make_graph(
        nodes,
        "special",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, a.shape) for n, a in given.items()],
        [helper.make_tensor_value_info(node.output[0], TensorProto.FLOAT, None) for node in nodes],
        [helper.make_tensor(n, TensorProto.FLOAT, [], [float(v)]) for n, v in bounds.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    wanted = onnxruntime.InferenceSession(model.SerializeToString()).run(None, given)
    compiled = tvm_tile.compile(model, "emulated", options=tvm_tile.Options(cache=False))
    found = compiled(**given)
    # ONNX Runtime loses NaN in these, as ONNX's own implementation, which is NumPy's, does not.
    wanted[-2:] = [a.numpy() for a in (ROWS.amax(-1)[None], max_pool1d(ROWS[None], 3, 1, 1))]
    apart = {
        node.op_type: (mine, theirs)
        for node, mine, theirs in zip(nodes, found, wanted, strict=True)
        if not np.allclose(mine, theirs, rtol=1e-5, equal_nan=True)
    }
    assert apart == {}
