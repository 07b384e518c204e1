"""The one model of time chooses well among measured tiles of all rules.

``bench/results`` has tiles that were measured on an H100, each with what its kernel does and what
its family's model said, and the record of that GPU, whose numbers were fitted to these tiles. The
regret is what the choice of least predicted time was measured to take, over what the fastest tile
did. Each bound is what the model reached when it was written down.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tvm_tile.calibrate.fit import quality
from tvm_tile.calibrate.samples import Samples, TileSample
from tvm_tile.device.record import read_record
from tvm_tile.tile.time import ALONE, AMID

RESULTS = Path(__file__).parents[2] / "bench" / "results"
H100 = read_record(RESULTS / "nvidia_h100.json")
MEASURED = tuple(Samples.read(RESULTS / "tiles_nvidia_h100.jsonl").functions.values())


def of(rule: str) -> list[tuple[TileSample, ...]]:
    """Each function's tiles of a rule; all tiles where it is empty."""
    found = [tuple(tile for tile in own if rule in ("", tile.rule)) for own in MEASURED]
    return [own for own in found if own]


# Geometric means of the regrets, alone and amid others.
@pytest.mark.parametrize(
    ("rule", "functions", "alone", "amid"),
    [
        ("", 246, 1.046, 1.057),
        ("attention", 7, 1.084, 1.063),
        ("chain", 11, 1.020, 1.004),
        ("column", 42, 1.030, 1.038),
        ("contraction", 88, 1.100, 1.096),
        ("decode", 10, 1.019, 1.027),
        ("elementwise", 51, 1.019, 1.023),
        ("gates", 6, 1.038, 1.064),
        ("halo", 3, 1.037, 1.080),
        ("matvec", 15, 1.038, 1.103),
        ("mma", 59, 1.020, 1.027),
        ("row", 65, 1.098, 1.113),
        ("rows", 24, 1.051, 1.076),
        ("transpose", 20, 1.033, 1.030),
        ("warp_attention", 9, 1.020, 1.015),
        ("wgmma", 57, 1.023, 1.023),
        ("window", 26, 1.054, 1.060),
    ],
)
def test_first_choices_lose_no_more_than_before(
    rule: str, functions: int, alone: float, amid: float
) -> None:
    own = of(rule)
    assert len(own) == functions
    assert quality(own, H100, ALONE).regret <= alone
    assert quality(own, H100, AMID).regret <= amid


def test_it_chooses_better_than_the_models_of_families() -> None:
    """Those were made for one rule each: over all rules their least time is no guide at all."""
    theirs = [min(own, key=lambda tile: tile.predicted) for own in MEASURED]
    fastest = [min(tile.warm for tile in own) for own in MEASURED]
    ratios = [tile.warm / least for tile, least in zip(theirs, fastest, strict=True)]
    assert np.exp(np.log(ratios).mean()) > 2
    assert quality(MEASURED, H100, AMID).regret < 1.06
