"""The benchmark of open extents, on the emulated device."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

from bench.lines import append
from bench.open_shapes import record as records
from bench.open_shapes.__main__ import main
from bench.open_shapes.compiling import Lowerings
from bench.open_shapes.measure import Measurement, Plan
from bench.open_shapes.models import MODELS, module_of
from bench.open_shapes.record import Compilation, Point, Provenance
from bench.open_shapes.statics import Statics
from bench.open_shapes.systems import padded
from tests.tiny_open_models import LESS_SUM

_ORIGIN = Provenance("none", "none", "none", "abc", "a test", "2026-01-01")
_MODEL = "tests.tiny_open_models:LESS_SUM"


def _measure(folder: Path, count: int) -> dict[records.Key, Point]:
    """Measure in this process alone; the points that are then in the folder."""
    systems = ("open", "static", "padded")
    plan = Plan(_MODEL, systems, (), "emulated", folder, count=count)
    with ThreadPoolExecutor(1) as pool:
        compiled = Statics(pool, folder, _MODEL, "emulated", None)
        Measurement(plan, _ORIGIN, compiled, lambda _: None).run()
    return records.read(folder / records.POINTS, Point)


@pytest.mark.whole
def test_all_ways_are_right_and_a_run_is_gone_on_with(tmp_path: Path) -> None:
    found = _measure(tmp_path, 3)
    extents = sorted({point.extent for point in found.values()})
    assert extents[0] == LESS_SUM.low
    assert extents[-1] == LESS_SUM.high
    assert {key[1:]: point.status for key, point in found.items()} == {
        (system, "", extent): "ok" for system in ("open", "padded", "static") for extent in extents
    }
    assert {point.compiled for point in found.values()} == {0}
    assert {p.padded_to for p in found.values() if p.system == "padded"} <= {2, 4, 8, 12}
    made = records.read(tmp_path / records.COMPILATIONS, Compilation)
    assert {one.status for one in made.values()} == {"ok"}
    more = _measure(tmp_path, 4)
    assert len(more) == len(found) + 3
    assert found.items() <= more.items()
    assert _measure(tmp_path, 4) == more


def test_what_does_not_compile_is_not_tried_again(tmp_path: Path) -> None:
    refused = Compilation(_MODEL, "open", "", LESS_SUM.high, "failed: no", 1.0)
    append(tmp_path / records.COMPILATIONS, refused)
    for extent in (LESS_SUM.low, LESS_SUM.high):
        for system in ("static", "padded"):
            point = Point(_MODEL, system, "", extent, "ok", 1.0, 1.0, 1.0, 15)
            append(tmp_path / records.POINTS, point)
    assert len(_measure(tmp_path, 2)) == 4


def test_what_is_compiled_is_counted() -> None:
    import tvm_tile

    count = Lowerings()
    options = tvm_tile.Options(cache=False)
    with count.counting():
        model = tvm_tile.compile(
            torch.nn.ReLU(), "emulated", example_inputs=(torch.ones(4),), options=options
        )
        compiled = count()
        model(torch.ones(4))
    assert compiled > 0
    assert count() == compiled


@pytest.mark.parametrize("extent", [2, 3, 8])
def test_padding_changes_nothing(extent: int) -> None:
    value = torch.randn(extent, 8, generator=torch.Generator().manual_seed(1))
    masked = module_of(_MODEL, is_masked=True)
    run = padded(LESS_SUM, 8, masked, extent, value)
    torch.testing.assert_close(run(), module_of(_MODEL)(value))


def test_masked_bert_is_bert_of_the_tokens_that_are_there() -> None:
    from bench.suites.networks.bert import Bert
    from bench.suites.networks.masked_bert import MaskedBert
    from bench.suites.networks.seeded import seeded

    bert = seeded(lambda: Bert(2, 32, 2, 64, 100))
    tokens = torch.randint(100, (1, 5), generator=torch.Generator().manual_seed(1))
    run = padded(MODELS["bert_base"], 8, MaskedBert(bert).eval(), 5, tokens)
    with torch.no_grad():
        torch.testing.assert_close(run(), bert(tokens), rtol=1e-4, atol=1e-5)


def test_a_token_of_a_prompt_depends_on_those_before_it_alone() -> None:
    from bench.suites.networks.llama_prefill import LlamaPrefill
    from bench.suites.networks.seeded import seeded

    prefill = seeded(lambda: LlamaPrefill(2, 32, 64, 4, 2, 16))
    hidden = torch.randn(1, 9, 32, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        whole: Any = prefill(hidden)
        torch.testing.assert_close(prefill(hidden[:, :4]), whole[:, :4], rtol=1e-4, atol=1e-5)


def test_unknown_names_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--device", "emulated", "--models", "none", "--results", str(tmp_path)]) == 2
    assert "there is no none" in capsys.readouterr().err
