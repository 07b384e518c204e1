"""The benchmark of weights of a few bits, small, with TVM's CPU build in place of our kernels."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import tvm
from cpu_build import CPU
from tvm import relax

import tvm_tile

torch = pytest.importorskip("torch")

import bench.low_bit.__main__ as command  # noqa: E402
from bench.low_bit import measure as measuring  # noqa: E402
from bench.low_bit.compiling import (  # noqa: E402
    Models,
    Request,
    compile_one,
    compiled,
    obstacle,
    requests_of,
    rules_of,
)
from bench.low_bit.formats import FORMATS  # noqa: E402
from bench.low_bit.modules import coded_module, float_module  # noqa: E402
from bench.low_bit.operands import operands_of  # noqa: E402
from bench.low_bit.products import Product  # noqa: E402
from bench.low_bit.record import APART, FLOATS, OURS, RESULTS, read  # noqa: E402

pytestmark = pytest.mark.bank(4)

ROWS, DEPTH = 64, 256
PRODUCTS = Product("V", "V0", 1, ROWS, DEPTH), Product("V16", "V0", 16, ROWS, DEPTH)
# TVM's CPU build adds halves up as halves.
ROUGH = 5e-3
DEVICE = "nvidia/h200"


class OnCpu:
    """A module, compiled for the CPU, which takes and returns torch tensors."""

    def __init__(self, mod: tvm.IRModule) -> None:
        self._run = relax.VirtualMachine(tvm.compile(mod, CPU), tvm.cpu())["main"]
        self.report = SimpleNamespace(kernels=(), fallbacks=(), decisions=())

    def __call__(self, *given: Any) -> Any:
        return torch.from_dlpack(self._run(*map(tvm.runtime.from_dlpack, given)))


def on_cpu(_: Models, request: Request) -> Any:
    sizes = request.vectors, request.rows, request.depth
    low = FORMATS.get(request.format)
    return OnCpu((coded_module(low, *sizes) if low else float_module(*sizes))[0])


@pytest.mark.parametrize("name", FORMATS)
def test_modules_compute_what_the_codes_mean(name: str) -> None:
    operands = operands_of(FORMATS[name], PRODUCTS[1], "cpu", 3)
    run = on_cpu(Models(Path(), ""), Request(OURS, name, 16, ROWS, DEPTH))
    wanted = operands.wanted()
    assert wanted.isfinite().all()
    assert float((run(*operands.arguments).double() - wanted).norm() / wanted.norm()) < ROUGH
    x, matrix = operands.halves
    assert float((x.double() @ matrix.double().T - wanted).norm() / wanted.norm()) < 1e-3


def test_codes_are_all_those_that_are_numbers() -> None:
    for low in FORMATS.values():
        patterns = operands_of(low, PRODUCTS[0], "cpu", 1).patterns
        assert patterns.shape == (ROWS, DEPTH)
        numbers = (1 << low.code.bits) - (2 if low.name.startswith("FP8") else 0)
        assert len(patterns.unique()) == numbers


def run_command(folder: Path, *given: str) -> int:
    words = "--device", "emulated", "--results", str(folder), "--models", str(folder / "models")
    return command.main([*words, *given])


@pytest.mark.whole
def test_a_run_measures_all_that_it_can_and_goes_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(command, "products", lambda: PRODUCTS)
    monkeypatch.setattr(measuring, "OUR_TOLERANCE", ROUGH)
    monkeypatch.setattr(Models, "compile", lambda *_: None)
    monkeypatch.setattr(Models, "load", on_cpu)
    given = "--formats", "W4A16 zeros,W8A8", "--resume"
    assert run_command(tmp_path, *given, "--only", "V") == 0
    first = read(tmp_path / RESULTS)
    assert run_command(tmp_path, *given, "--only", "V,V16") == 0
    found = read(tmp_path / RESULTS)
    assert found.items() >= first.items()
    status = {key[1:]: one.status for key, one in found.items()}
    assert status.pop(("V16", "V0", "W4A16 zeros", "int4pack")).startswith("failed: ")
    assert status.pop(("V", "V0", "W4A16 zeros", "int4pack")).startswith("failed: ")
    assert set(status.values()) == {"ok"}
    systems = OURS, FLOATS, "cublas"
    assert set(status) == {
        (family, "V0", form, system)
        for family in ("V", "V16")
        for form in ("W4A16 zeros", "W8A8")
        for system in (*systems, *([APART] if form != "W8A8" else []))
    }  # of 16 vectors PyTorch's int_mm takes none
    assert all(one.error is not None and one.repeats >= 15 for one in found.values()
               if one.status == "ok")  # fmt: skip


def test_what_is_wrong_or_leaves_its_result_as_it_was_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def wrong(_: Models, request: Request) -> Any:
        if request.system == FLOATS:
            return "failed: no kernel"
        right = on_cpu(_, request)
        kept = torch.zeros(request.vectors, request.rows, dtype=torch.float16)

        def run(*given: Any) -> Any:
            return -right(*given) if request.system == APART else kept

        run.report = right.report  # type: ignore[attr-defined]
        return run

    monkeypatch.setattr(command, "products", lambda: PRODUCTS[:1])
    monkeypatch.setattr(Models, "compile", lambda *_: None)
    monkeypatch.setattr(Models, "load", wrong)
    assert run_command(tmp_path, "--formats", "W2A16") == 1
    found = {key[-1]: one for key, one in read(tmp_path / RESULTS).items()}
    assert found[FLOATS].status == "failed: no kernel"
    assert found[OURS].status.startswith("wrong")
    assert found[OURS].error is None
    assert found[APART].status.startswith("wrong")
    assert found[APART].error == pytest.approx(2, 0.1)
    assert not found[OURS].is_right
    assert found["cublas"].is_right


def test_products_are_compiled_saved_and_found_again(tmp_path: Path) -> None:
    models = Models(tmp_path, DEVICE)
    requests = requests_of(FORMATS["W4A16"], Product("V", "V0", 1, 1024, 2048))
    assert [one.system for one in requests] == [FLOATS, OURS, APART]
    for request in requests:
        compile_one(request, models)
        made = models.load(request)
        assert not isinstance(made, str)
        assert (rules_of(made) == "coded") == (request.system == OURS)
        assert bool(obstacle(made, FORMATS["W4A16"])) == (request.system == APART)
    models.compile(requests, 0, print, 0)  # nothing is left to do
    assert models.load(Request(OURS, "NF4", 1, 1, 1)) == "was not compiled"
    nowhere = Models(tmp_path, "nvidia/nothing")
    compile_one(Request(OURS, "NF4", 1, ROWS, DEPTH), nowhere)
    assert "UnknownDeviceError" in str(nowhere.load(Request(OURS, "NF4", 1, ROWS, DEPTH)))


class Linear(torch.nn.Module):
    """int8, a scale a row: what W8A16 is, with weights that are constants."""

    def __init__(self) -> None:
        super().__init__()
        codes = torch.randint(-128, 128, (1024, 2048), dtype=torch.int8)
        self.register_buffer("codes", codes)
        self.register_buffer("scales", torch.rand(1024, 1).half())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.linear(x, self.codes.to(x.dtype) * self.scales)


def _fours() -> torch.nn.Module:
    return tvm_tile.quantize(torch.nn.Linear(2048, 1024, bias=False).half(), "int4")


@pytest.mark.parametrize(("name", "make"), [("W8A16", Linear), ("W4A16", _fours)])
@pytest.mark.parametrize("vectors", [1, 64])
def test_kernels_are_those_of_models_whose_weights_are_constants(
    name: str, make: Any, vectors: int
) -> None:
    ours = compiled(Request(OURS, name, vectors, 1024, 2048), DEVICE)
    options = tvm_tile.Options(cache=False, low_bit=True)
    example = (torch.zeros(vectors, 2048, dtype=torch.float16),)
    theirs = tvm_tile.compile(make(), DEVICE, example_inputs=example, options=options)
    found = [[(k.rule, k.tile) for k in one.report.kernels] for one in (ours, theirs)]
    assert found[0] == found[1]


def test_words_that_are_unknown_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--only", "V7"]) == 2
    assert "--only is of V, V16" in capsys.readouterr().err
