"""Tiles by open extents: which are taken, what is said of them, and what becomes of it all."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import tvm_tile
from tvm_tile import Open, Options
from tvm_tile.cli import main
from tvm_tile.report.compiled import KernelReport
from tvm_tile.stages import known_models, opened_store

pytestmark = pytest.mark.bank(8)

DEPTH, WIDTH, MOST = 96, 80, 64
WEIGHTS = np.random.default_rng(0).standard_normal((DEPTH, WIDTH)).astype("float32")


class Product(nn.Module):
    """A product of so many rows."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.from_numpy(WEIGHTS))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.weights


@functools.cache
def compiled(max_loss: float, device: str = "emulated") -> tvm_tile.CompiledModel:
    return compiled_with(Options(cache=False, max_loss=max_loss), device)


def compiled_with(options: Options, device: str = "emulated") -> tvm_tile.CompiledModel:
    model: tvm_tile.CompiledModel = tvm_tile.compile(
        Product().eval(),
        device,
        inputs={"x": (Open(2, MOST, "rows"), DEPTH)},
        example_inputs=(torch.zeros(MOST, DEPTH),),
        options=options,
    )
    return model


def product_of(model: tvm_tile.CompiledModel) -> KernelReport:
    (kernel,) = (kernel for kernel in model.report.kernels if kernel.cover)
    return kernel


@pytest.mark.parametrize("device", ["emulated", "nvidia/h200"])
@pytest.mark.parametrize("max_loss", [0, 0.05, 0.5])
def test_no_tile_loses_more_than_is_allowed(device: str, max_loss: float) -> None:
    cover = product_of(compiled(max_loss, device)).cover
    assert cover is not None
    assert cover.worst.loss <= max_loss
    assert cover.points[0].bound == (MOST,)
    assert cover.points[-1].bound == (2,)


@pytest.mark.parametrize("device", ["emulated", "nvidia/h200"])
def test_who_loses_less_has_more_tiles(device: str) -> None:
    models = [compiled(loss, device) for loss in (0, 0.05, 1e6)]
    covers = [product_of(model).cover for model in models]
    tiles = [len({p.served_by for p in cover.points}) for cover in covers if cover]
    assert tiles == sorted(tiles, reverse=True)
    assert tiles[0] > tiles[-1]
    kernels = [len(model.program.kernels) for model in models]
    more = [t - tiles[-1] for t in tiles]
    assert [k - kernels[-1] for k in kernels] == more  # each tile is built once


@pytest.mark.parametrize("max_loss", [0, 0.05, 1e6])
def test_every_tile_computes_the_product(max_loss: float) -> None:
    model = compiled(max_loss)
    for rows in (2, 3, 5, 8, 9, 13, 16, 17, 24, 31, 33, 48, 50, 63, 64):
        x = np.random.default_rng(rows).standard_normal((rows, DEPTH)).astype("float32")
        expected = x.astype("float64") @ WEIGHTS.astype("float64")
        np.testing.assert_allclose(model(x), expected, rtol=1e-4, atol=1e-4)


def test_the_report_has_the_short_tile_and_explains_the_others() -> None:
    model = compiled(0.0)
    kernel = product_of(model)
    assert kernel.cover is not None
    assert kernel.tile == kernel.cover.points[0].tile
    assert kernel.rule == kernel.cover.points[0].rule
    text = model.explain("all")
    for end in kernel.cover.ends:
        tile = kernel.cover.tile_of(end)
        assert f"      rows <= {end.bound[0]}: {tile.rule}, {tile.tile}\n" in text
    assert len(model.report.cover.times) == len(kernel.cover.points)


def test_a_saved_model_explains_itself_as_before(tmp_path: Path) -> None:
    model = compiled(0.0)
    model.save(tmp_path / "m.tvmtile")
    loaded = tvm_tile.load(tmp_path / "m.tvmtile")
    assert loaded.report == model.report
    assert loaded.explain("all") == model.explain("all")


def test_plans_are_kept_by_the_loss_that_they_are_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opened_store, "_own_fingerprint", lambda: "the code under test")
    monkeypatch.setattr(known_models, "open_model_store", lambda _: None)
    for _ in range(2):
        for loss in (0, 1e6):
            kept = compiled_with(Options(cache=tmp_path, max_loss=loss))
            assert product_of(kept).cover == product_of(compiled(loss)).cover


def test_the_command_line_takes_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program: Any = torch.export.export(
        Product().eval(),
        (torch.zeros(8, DEPTH),),
        dynamic_shapes={"x": {0: torch.export.Dim("rows", min=2, max=MOST)}},
    )
    path = tmp_path / "m.pt2"
    torch.export.save(program, path)
    words = ["explain", str(path), "--device", "emulated", "--cache", "none", "--detail", "kernels"]
    assert main([*words, "--max-loss", "1000000"]) == 0
    fewest = capsys.readouterr().out.count(" <= ")
    drawing = tmp_path / "times.svg"
    assert main([*words, "--max-loss", "0", "--svg-extents", str(drawing)]) == 0
    ends = capsys.readouterr().out.count(" <= ")
    assert ends > fewest >= 1
    text = drawing.read_text(encoding="utf-8")
    assert text.startswith("<svg")
    assert text.count('class="end"') == ends - 1
    assert main([*words, "--svg-extents", str(tmp_path)]) == 2
