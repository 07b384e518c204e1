"""The measurement of dependent launches, as far as it goes without a GPU."""

from __future__ import annotations

import numpy as np
import pytest

import tvm_tile
from tvm_tile.device import find_device

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from bench import dependent_launches as bench  # noqa: E402
from bench.suites.networks.llama_layers import LlamaLayers  # noqa: E402
from bench.suites.networks.seeded import seeded  # noqa: E402


def test_the_decoder_layers_compute_what_eager_does() -> None:
    module = seeded(lambda: LlamaLayers(2, 64, 128, 8, 2, 7), gain=1.0)
    hidden = torch.randn(1, 1, 64)
    model = tvm_tile.compile(module, "emulated", example_inputs=(hidden,))
    np.testing.assert_allclose(model(hidden.numpy()), module(hidden).numpy(), rtol=1e-4, atol=1e-5)


def test_a_single_bit_is_a_difference() -> None:
    expected = [[torch.zeros(4)], [torch.ones(4)]]
    assert bench.differing(6, lambda n: [expected[n][0].clone()], expected) == 0
    # Minus zero equals zero, but is another number.
    assert bench.differing(6, lambda n: [expected[n][0] * (1 if n else -1)], expected) == 3
    nan = [[torch.full((2,), float("nan"))]]
    assert bench.differing(2, lambda _: nan[0], nan) == 0


def test_a_row_has_a_cell_for_each_heading() -> None:
    seconds = {"ordinary": 2e-4, "waiting": 1.5e-4}
    row = bench.Row("m", (40, 39), seconds, {"waiting": 1})
    first, rule = bench.heading(tuple(seconds)).splitlines()
    assert row.render() == "| m | 39 of 40 | 200.0 (1.000) | 150.0 (0.750) | 1 |"
    assert first.count("|") == rule.count("|") == row.render().count("|")


def test_without_a_gpu_it_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench, "detect_device", lambda: find_device("emulated"))
    assert bench.main([]) == 2
    assert "no GPU" in capsys.readouterr().err
