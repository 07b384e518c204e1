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
        ("", 457, 1.053, 1.063),
        ("attention", 7, 1.020, 1.002),
        ("chain", 16, 1.024, 1.029),
        ("column", 41, 1.076, 1.069),
        ("contraction", 175, 1.068, 1.083),
        ("decode", 8, 1.019, 1.030),
        ("elementwise", 95, 1.011, 1.010),
        ("gates", 6, 1.021, 1.013),
        ("halo", 7, 1.030, 1.038),
        ("matvec", 50, 1.065, 1.071),
        ("mma", 149, 1.034, 1.059),
        ("row", 69, 1.106, 1.103),
        ("rows", 36, 1.028, 1.043),
        ("transpose", 48, 1.026, 1.044),
        ("warp_attention", 15, 1.043, 1.042),
        ("wgmma", 118, 1.032, 1.037),
        ("window", 55, 1.072, 1.081),
    ],
)
def test_first_choices_lose_no_more_than_before(
    rule: str, functions: int, alone: float, amid: float
) -> None:
    own = of(rule)
    assert len(own) == functions
    assert quality(own, H200, ALONE).regret <= alone
    assert quality(own, H200, AMID).regret <= amid
