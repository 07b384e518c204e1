"""The page of a model that is compiled here, from Python and from the command line."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from test_command_line import onnx_file, saved  # noqa: F401

import tvm_tile
from tvm_tile import Options
from tvm_tile.cli import main
from tvm_tile.device.detect import read_gpu
from tvm_tile.runtime.sources import sources_of

WITHOUT_CACHE = Options(cache=False)


class Layers(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(16, 16), torch.nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(self.second(torch.relu(self.first(x))), -1)


@pytest.fixture(scope="module")
def module() -> Layers:
    return Layers().eval()


@pytest.fixture(scope="module")
def model(module: Layers) -> tvm_tile.CompiledModel:
    inputs = (torch.randn(4, 16),)
    return tvm_tile.compile(module, "emulated", example_inputs=inputs, options=WITHOUT_CACHE)


def test_a_page_has_layers_texts_and_what_was_measured_and_verified(
    model: tvm_tile.CompiledModel, tmp_path: Path
) -> None:
    path = tmp_path / "page.html"
    model.save_report(path)
    before = path.read_text(encoding="utf-8")
    assert "<title>page on emulated" in before
    assert "Measured" not in before
    assert "Not verified on this page" in before
    assert {"first", "second"} <= set(re.findall(r'data-find="(\w+)', before))
    for language in ("OpenCL", "TensorIR"):
        assert before.count(f"{language}: ") == len(model.report.kernels)
    model.time(np.zeros((4, 16), "float32"), repeats=2)
    profile = model.profile(np.zeros((4, 16), "float32"), runs=2)
    assert model.verify().is_right
    model.save_report(path, title="a <title>")
    after = path.read_text(encoding="utf-8")
    assert "<title>a &lt;title&gt; on emulated" in after
    assert "<dt>Measured</dt>" in after
    assert after.count("<dt>Profiled, of a run</dt>") == len(profile.kernels) > 0
    assert ">Measured</button>" in after
    assert ">Measured</button>" not in before
    assert "nothing that was compared differs" in after
    assert after.count("<dt>Verified</dt><dd>right, error") == len(model.report.kernels)


@pytest.mark.cuda
@pytest.mark.skipif(read_gpu() is None, reason="needs an NVIDIA GPU")
def test_a_page_of_a_gpu_has_measured_times_beside_predicted_ones(
    module: Layers, tmp_path: Path
) -> None:
    pytest.importorskip("cupti")
    inputs = (torch.randn(4, 16),)
    found = tvm_tile.compile(module, "auto", example_inputs=inputs, options=WITHOUT_CACHE)
    profile = found.profile(np.zeros((4, 16), "float32"))
    assert found.verify().is_right
    found.save_report(tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert text.count("<dt>Profiled, of a run</dt>") == len(found.report.kernels)
    assert len(profile.kernels) >= len(found.report.kernels)
    assert text.count("CUDA: ") == len(found.report.kernels)


def test_a_page_is_whole_or_as_it_was(model: tvm_tile.CompiledModel, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"the folder of \S+page.html does not exist"):
        model.save_report(tmp_path / "nowhere" / "page.html")
    folder = tmp_path / "page.html"
    folder.mkdir()
    with pytest.raises(FileExistsError):
        model.save_report(folder)
    assert list(tmp_path.iterdir()) == [folder]


def test_kernels_of_several_schedules_have_the_texts_of_all(module: Layers) -> None:
    rows = torch.export.Dim("rows", min=1, max=256)
    program = torch.export.export(module, (torch.randn(7, 16),), dynamic_shapes=({0: rows},))
    found = tvm_tile.compile(program, "nvidia/h200", options=WITHOUT_CACHE)
    sources = sources_of(found.program, found.report, None)
    assert set(sources) == {kernel.name for kernel in found.report.kernels}
    texts = [text for own in sources.values() for text in own]
    assert sorted(text.name for text in texts) == sorted(k.name for k in found.program.kernels)
    assert all(text.instructions > 10 for text in texts)
    assert any(len(own) > 1 for own in sources.values())


def test_the_command_writes_a_page_of_a_saved_model_and_of_a_source(
    onnx_file: Path,  # noqa: F811
    saved: Path,  # noqa: F811
    tmp_path: Path,
) -> None:
    path = tmp_path / "report.html"
    assert main(["report", str(saved), "-o", str(path)]) == 0
    text = path.read_text(encoding="utf-8")
    assert "<title>small.tvmtile on emulated" in text
    assert "TensorIR" not in text
    words = ["report", str(onnx_file), "--device", "emulated", "--input", "x=3x4"]
    assert main([*words, "--cache", "none", "-o", str(path)]) == 0
    text = path.read_text(encoding="utf-8")
    assert "<title>small.onnx on emulated" in text
    assert "TensorIR: " in text
    assert 'id="box-1"' in text


def test_the_command_refuses_a_place_that_cannot_be_written(
    saved: Path,  # noqa: F811
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["report", str(saved), "-o", str(tmp_path / "no" / "report.html")]) == 2
    assert "the folder of the output must exist" in capsys.readouterr().err
