"""ONNX Runtime in the benchmark, by its CPU provider, which goes the same way."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest

from bench.inputs import Placed, draw
from bench.systems import load_system
from bench.systems.system import NotSupported, Session
from tests.small_operators import SMALL, small_case

torch = pytest.importorskip("torch")
onnx_runtime = pytest.importorskip("bench.systems.onnx_runtime")
pytest.importorskip("onnxruntime")


class OnCpu(onnx_runtime.OnnxRuntime):
    provider = "CPUExecutionProvider"


def prepared(case: Any, workload: Any) -> Any:
    session = Session("none", nullcontext(), lambda: draw(case, "cpu", 1), Placed("cpu"))
    return OnCpu().prepare(workload, case, session)


@pytest.mark.parametrize("kind", ["product", "softmax", "conv", "attention", "layer_norm"])
def test_outputs_are_those_of_the_module(kind: str) -> None:
    case = small_case(kind, "float32")
    made = prepared(case, SMALL[kind][1])
    assert made.note == ""
    for seed in (2, 3):
        inputs = draw(case, "cpu", seed)
        output = made.start(inputs)()
        assert torch.allclose(output, case.module(*inputs), rtol=1e-4, atol=1e-4)


def test_it_reads_and_writes_where_tensors_are() -> None:
    case = small_case("softmax", "float32")
    inputs = draw(case, "cpu", 2)
    run = prepared(case, SMALL["softmax"][1]).start(inputs)
    first = run()
    inputs[0].mul_(2.0)
    assert run() is not None
    assert torch.allclose(first, case.module(*inputs), rtol=1e-4, atol=1e-4)


def test_outputs_of_several_tensors_keep_their_structure() -> None:
    class Several(torch.nn.Module):
        def forward(self, x: Any, unused: Any) -> Any:
            return {"sum": x.sum(-1), "both": (x + 1, x > 0)}

    case = replace(small_case("product", "float32"), module=Several())
    inputs = draw(case, "cpu", 5)
    output = prepared(case, SMALL["product"][1]).start(inputs)()
    wanted = case.module(*inputs)
    assert torch.allclose(output["sum"], wanted["sum"], atol=1e-4)
    assert torch.equal(output["both"][0], wanted["both"][0])
    assert torch.equal(output["both"][1], wanted["both"][1])


def test_what_cannot_be_exported_is_refused() -> None:
    class Inverse(torch.nn.Module):
        def forward(self, x: Any, y: Any) -> Any:
            return torch.linalg.eigvals(x @ x.T) + y.sum()

    case = replace(small_case("product", "float32"), module=Inverse())
    with pytest.raises(NotSupported, match="cannot export it"):
        prepared(case, SMALL["product"][1])


def test_where_there_is_no_gpu_it_is_missing() -> None:
    system = load_system("onnxruntime")
    if not torch.cuda.is_available():
        assert system.missing()
    assert system.version().startswith("onnxruntime ")
