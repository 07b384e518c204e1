"""The one model of time chooses well among measured tiles of all rules.

``bench/results`` has tiles that were measured on an H200, each with what its kernel does; to these
the numbers of that GPU's record were fitted. The regret is what the choice of least predicted time
was measured to take, over what the fastest tile did. Each bound is what the model reached when it
was written down.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tvm_tile.calibrate.fit import quality
from tvm_tile.calibrate.samples import Samples, TileSample
from tvm_tile.device import find_device
from tvm_tile.tile.time import ALONE, AMID

RESULTS = Path(__file__).parents[2] / "bench" / "results"
H200 = find_device("nvidia/h200")
MEASURED = tuple(Samples.read(RESULTS / "tiles_nvidia_h200.jsonl").functions.values())


def of(rule: str) -> list[tuple[TileSample, ...]]:
    """Each function's tiles of a rule; all tiles where it is empty."""
    found = [tuple(tile for tile in own if rule in ("", tile.rule)) for own in MEASURED]
    return [own for own in found if own]


# Geometric means of the regrets, alone and amid others.
@pytest.mark.parametrize(
    ("rule", "functions", "alone", "amid"),
    [
        ("", 316, 1.051, 1.064),
        ("attention", 6, 1.019, 1.003),
        ("chain", 12, 1.033, 1.040),
        ("column", 35, 1.030, 1.051),
        ("contraction", 114, 1.084, 1.095),
        ("decode", 6, 1.006, 1.017),
        ("elementwise", 60, 1.014, 1.016),
        ("gates", 6, 1.023, 1.016),
        ("halo", 3, 1.052, 1.065),
        ("matvec", 31, 1.054, 1.068),
        ("mma", 93, 1.028, 1.062),
        ("row", 45, 1.109, 1.149),
        ("rows", 36, 1.030, 1.030),
        ("transpose", 25, 1.025, 1.056),
        ("warp_attention", 12, 1.050, 1.056),
        ("wgmma", 90, 1.033, 1.041),
        ("window", 31, 1.102, 1.100),
    ],
)
def test_first_choices_lose_no_more_than_before(
    rule: str, functions: int, alone: float, amid: float
) -> None:
    own = of(rule)
    assert len(own) == functions
    assert quality(own, H200, ALONE).regret <= alone
    assert quality(own, H200, AMID).regret <= amid
