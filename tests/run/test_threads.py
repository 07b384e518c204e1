"""Several models compiled at once, and what leaves a compilation that fails."""

from __future__ import annotations

import sys
import threading
from importlib.util import find_spec
from typing import Any

import numpy as np
import onnx
import pytest
import tvm
from onnx import TensorProto, helper
from scheduled import relax_module
from tvm.relax import op

import tvm_tile
import tvm_tile.pipeline
from tvm_tile.errors import BuildError

THREADS = 3
pytestmark = pytest.mark.skipif(not find_spec("pyopencl"), reason="needs pyopencl")


def onnx_model(columns: int) -> onnx.ModelProto:
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("Softmax", ["x"], ["s"]), helper.make_node("Add", ["s", "x"], ["y"])],
        "model",
        [value("x", TensorProto.FLOAT, [5, columns])],
        [value("y", TensorProto.FLOAT, [5, columns])],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def test_threads_compile_one_model_each() -> None:
    output, errors = sys.stdout, []
    start = threading.Barrier(THREADS)

    def work(number: int) -> None:
        try:
            start.wait()
            for columns in (7 + number, 20 + number):
                x = np.full((5, columns), 0.5, "float32") * np.arange(columns, dtype="float32")
                y = tvm_tile.compile(onnx_model(columns), "emulated")(x)
                e = np.exp(x - x.max(-1, keepdims=True))
                np.testing.assert_allclose(y, e / e.sum(-1, keepdims=True) + x, rtol=1e-5)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert sys.stdout is output


@tvm.transform.module_pass(opt_level=0, name="Tripping")
class Tripping:
    def transform_module(self, _: tvm.IRModule, __: tvm.transform.PassContext) -> tvm.IRModule:
        assert 1 + 1 == 3, "a pass that trips"
        raise NotImplementedError


@pytest.mark.parametrize("stage", ["stages.fusing.fusion_passes", "pipeline.lowering_passes"])
def test_a_pass_that_fails_is_named(stage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"tvm_tile.{stage}", lambda *_, **__: [Tripping()])
    with pytest.raises(BuildError, match=r"Tripping fails: .*trips"):
        tvm_tile.compile(relax_module(op.nn.relu, ((4, 4),)), "emulated")


def test_other_failures_are_typed_but_for_the_callers_own(monkeypatch: pytest.MonkeyPatch) -> None:
    mod = relax_module(op.nn.relu, ((4, 4),))

    def tell(*_: Any) -> None:
        raise LookupError("the caller's own")

    with pytest.raises(LookupError, match="own"):
        tvm_tile.compile(mod, "emulated", progress=tell)
    monkeypatch.setattr(tvm_tile.pipeline, "_plan", lambda *_: {}["nothing"])
    with pytest.raises(BuildError, match="KeyError"):
        tvm_tile.compile(mod, "emulated")
