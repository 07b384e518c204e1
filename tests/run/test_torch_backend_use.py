"""Our backend of `torch.compile` as users meet it: by name, in threads, where something fails."""

from __future__ import annotations

import copy
import io
import logging
import os
import subprocess
import sys
import threading
from importlib.metadata import EntryPoint
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx
from torch_backend_cases import drawn
from torch_backend_models import ResidualBlock, TransformerBlock
from torch_backend_runs import EMULATED, assert_same, backend

import tvm_tile
from tvm_tile import compiling
from tvm_tile.errors import BuildError, RunError
from tvm_tile.runtime import CompiledModel
from tvm_tile.torch import EagerOperator, GraphKind, GraphReport, sizes
from tvm_tile.torch.compiler import GraphCompiler

pytestmark = pytest.mark.skipif(not find_spec("pyopencl"), reason="needs pyopencl")

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(autouse=True)
def compiled_anew() -> None:
    torch._dynamo.reset()


def small(x: Tensor) -> Tensor:
    return torch.relu(x) * 2 + 1


def with_an_inverse(x: Tensor) -> Tensor:
    return torch.relu(torch.linalg.inv(small(x @ x.t()) + torch.eye(4) * 99))


def eager_operators(reports: list[GraphReport]) -> dict[str, str]:
    """What PyTorch runs, and why."""
    return {one.operator: one.why for report in reports for one in report.eager}


def installed_at(folder: Path) -> None:
    """What an installer writes of the package's entry points, in a folder of Python's path."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    group = "torch_dynamo_backends"
    line = text.split(f'[project.entry-points."{group}"]\n')[1].splitlines()[0]
    info = folder / "tvm_tile-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tvm-tile\nVersion: 0.1.0\n")
    (info / "entry_points.txt").write_text(f"[{group}]\n{line.replace(chr(34), '')}\n")


def test_it_is_found_by_name_without_an_import(tmp_path: Path) -> None:
    installed_at(tmp_path)
    code = (
        "import torch, sys, logging\n"
        "logging.basicConfig(level=logging.INFO, stream=sys.stdout)\n"
        "assert 'tvm_tile' in torch._dynamo.list_backends()\n"
        "assert 'tvm' not in sys.modules\n"
        "f = torch.compile(lambda x: torch.relu(x) * 2, backend='tvm_tile',\n"
        "                  options={'device': 'emulated'})\n"
        "with torch.no_grad():\n"
        "    assert f(torch.tensor([-1.0, 3.0])).tolist() == [0.0, 6.0]\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "inference: 2 of 2 operators compiled, in 1 part" in done.stdout


def test_the_entry_point_is_the_backend() -> None:
    point = EntryPoint("tvm_tile", "tvm_tile.torch:tvm_tile", "torch_dynamo_backends")
    assert point.load() is tvm_tile.torch.tvm_tile
    assert f'{point.name} = "{point.value}"' in (ROOT / "pyproject.toml").read_text("utf-8")


@torch.no_grad()
def test_copies_and_saved_modules_run_like_the_module_itself() -> None:
    module = torch.nn.Linear(5, 3)
    run = torch.compile(module, backend=tvm_tile.torch.tvm_tile, options=EMULATED)
    x = drawn(4, 5)
    wanted = run(x)
    copied = copy.deepcopy(run)
    module.weight.zero_()
    torch.testing.assert_close(copied(x), wanted)
    torch.testing.assert_close(run(x), module.bias.expand(4, 3))
    file = io.BytesIO()
    torch.save(run, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=False)
    torch.testing.assert_close(loaded(x), module.bias.expand(4, 3))


def test_two_threads_call_one_model() -> None:
    reports: list[GraphReport] = []
    run = torch.compile(small, backend=backend(reports.append))
    errors: list[BaseException] = []

    def work(number: int) -> None:
        try:
            with torch.no_grad():
                for i in range(20):
                    x = drawn(4, 5, seed=100 * number + i)
                    torch.testing.assert_close(run(x), small(x))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert sum(report.compiled_operators for report in reports) >= 3


@pytest.mark.parametrize("network", [TransformerBlock, ResidualBlock])
@torch.no_grad()
def test_whole_networks_are_one_program(network: type[torch.nn.Module]) -> None:
    torch.manual_seed(0)
    model = network().eval()
    is_text = network is TransformerBlock
    x = torch.tensor([[3, 1, 4, 1], [5, 9, 2, 6]]) if is_text else drawn(2, 3, 8, 8)
    reports: list[GraphReport] = []
    found = torch.compile(model, backend=backend(reports.append))(x)
    assert_same([found], [model(x)])
    (report,) = reports
    assert len(report.parts) == 1
    assert report.eager == ()


@torch.no_grad()
def test_an_explanation_names_what_was_compiled_and_what_was_not() -> None:
    found = tvm_tile.torch.explain(with_an_inverse, drawn(4, 6), options=EMULATED)
    (graph,) = found.graphs
    count = graph.compiled_operators
    assert [part.operators for part in graph.parts] == [count - 1, 1]
    (eager,) = {one.operator: one for one in graph.eager if "inv" in one.operator}.values()
    assert eager == EagerOperator("aten.linalg_inv_ex.default", "no converter", eager.line)
    assert "torch.linalg.inv(" in eager.line
    assert f"{count} of {count + len(graph.eager)} operators compiled, in 2 parts" in str(found)
    assert "eager: 1 x aten.linalg_inv_ex.default: no converter, from `return" in str(found)
    assert "kernels" in graph.parts[0].model.explain("all")


@torch.no_grad()
def test_an_operator_that_fails_is_refused_alone() -> None:
    def model(x: Tensor) -> Tensor:
        return torch.tanh(torch.special.i0(torch.exp(x)) * 2)

    x = drawn(4, 5, dtype=torch.float64)
    reports: list[GraphReport] = []
    found = torch.compile(model, backend=backend(reports.append))(x)
    torch.testing.assert_close(found, model(x))
    (operator,) = eager_operators(reports)
    assert operator == "aten.i0.default"
    assert "a special function in float64" in eager_operators(reports)[operator]
    assert [part.operators for part in reports[0].parts] == [1, 2]


@torch.no_grad()
def test_a_part_that_does_not_build_runs_in_pytorch(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real = compiling.compile

    def fail_once(*args: Any, **kwargs: Any) -> CompiledModel:
        monkeypatch.setattr(compiling, "compile", real)
        raise BuildError("kernels must build", "this one does not", "wait")

    monkeypatch.setattr(compiling, "compile", fail_once)
    reports: list[GraphReport] = []
    x = drawn(4, 6)
    with caplog.at_level(logging.WARNING, "tvm_tile.torch"):
        found = torch.compile(with_an_inverse, backend=backend(reports.append))(x)
    torch.testing.assert_close(found, with_an_inverse(x))
    assert eager_operators(reports)["aten.relu.default"] == "this one does not"
    assert [part.operators for part in reports[0].parts] == [1]  # the second relu
    assert "operators is not compiled: kernels must build" in caplog.text


@torch.no_grad()
def test_a_call_that_fails_runs_in_pytorch_from_then_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[Any] = []

    def fail(*args: Any) -> Any:
        calls.append(args)
        raise RunError("the model must run", "its device is lost", "buy one")

    monkeypatch.setattr(CompiledModel, "call_torch", fail)
    run = torch.compile(with_an_inverse, backend=backend(lambda _: None))
    x = drawn(4, 6)
    with caplog.at_level(logging.WARNING, "tvm_tile.torch"):
        for _ in range(2):
            torch.testing.assert_close(run(x), with_an_inverse(x))
    assert len(calls) == 2  # both parts, once
    assert "its device is lost" in caplog.text


@torch.no_grad()
def test_a_graph_that_cannot_be_traced_is_left_to_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(x: Tensor) -> Tensor:
        raise NotImplementedError("no such formula")

    table = {torch.ops.aten.relu.default: fail}
    monkeypatch.setattr("tvm_tile.torch.backend.backend_decompositions", lambda: table)
    reports: list[GraphReport] = []
    x = drawn(4, 5)
    found = torch.compile(small, backend=backend(reports.append))(x)
    torch.testing.assert_close(found, small(x))
    assert "it cannot be traced: NotImplementedError: no such formula" in reports[0].note


@torch.no_grad()
def test_without_a_device_models_on_the_cpu_are_left_to_pytorch() -> None:
    x = drawn(4, 5)
    found = tvm_tile.torch.explain(small, x)
    assert found.graphs[0].parts == ()
    assert "no device is named" in found.graphs[0].note
    run = torch.compile(small, backend=tvm_tile.torch.tvm_tile)
    torch.testing.assert_close(run(x), small(x))


@torch.no_grad()
def test_tensors_elsewhere_than_the_device_are_left_to_pytorch() -> None:
    found = tvm_tile.torch.explain(small, drawn(4, 5), options={"device": "nvidia/h200"})
    (graph,) = found.graphs
    assert graph.parts == ()
    assert {one.why for one in graph.eager} == {"on cpu, not cuda:0"}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"options": {"devise": "emulated"}}, "did you mean .*device"),
        ({"options": {"device": "nvidia/none"}}, "nvidia/none"),
        ({"options": {**EMULATED, "topk": -1}}, "topk"),
        ({"mode": "fastest"}, "modes are default, reduce-overhead, "),
    ],
)
def test_options_that_are_none_are_refused(given: dict[str, Any], message: str) -> None:
    run = torch.compile(small, backend=tvm_tile.torch.tvm_tile, **given)
    with pytest.raises(Exception, match=message):
        run(drawn(4, 5))


@torch.no_grad()
def test_an_error_of_the_model_stays_its_own() -> None:
    def model(x: Tensor) -> Tensor:
        if x.shape[0] > 3:
            raise ValueError("too many rows")
        return small(x)

    run = torch.compile(model, backend=backend(lambda _: None))
    with pytest.raises(ValueError, match="too many rows"):
        run(drawn(4, 5))


@torch.no_grad()
def test_of_too_many_sizes_the_last_run_in_pytorch(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sizes, "_MOST_SIZES", 1)
    reports: list[GraphReport] = []
    run = torch.compile(small, backend=backend(reports.append), dynamic=True)
    for size in (4, 5, 6, 5, 4):
        x = drawn(size, 5)
        torch.testing.assert_close(run(x), small(x))
    assert len(reports) == 1
    assert "1 sizes are compiled" in caplog.text


def test_a_graph_lets_go_of_its_inputs() -> None:
    x = drawn(4, 5)
    graph = make_fx(small, tracing_mode="fake")(x)
    device = tvm_tile.find_device("emulated")
    ignore = [].append
    compiler = GraphCompiler(device, x.device, tvm_tile.Options(), ignore, 1, (), ignore)
    given = [x]
    found = compiler.compiler(GraphKind.INFERENCE)(graph, ())(given)
    torch.testing.assert_close(found, small(x))
    assert given == []


@torch.no_grad()
def test_a_program_refuses_tensors_that_do_not_fit() -> None:
    found = tvm_tile.torch.explain(small, drawn(4, 5), options=EMULATED)
    model = found.graphs[0].parts[0].model
    for misfit in (drawn(4, 6), drawn(4, 5).double()):
        with pytest.raises(RunError, match="the model must load and run on emulated"):
            model.call_torch([misfit])
