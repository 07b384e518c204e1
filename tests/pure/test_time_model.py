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
        ("", 421, 1.049, 1.059),
        ("attention", 7, 1.020, 1.002),
        ("chain", 16, 1.024, 1.029),
        ("column", 36, 1.040, 1.049),
        ("contraction", 155, 1.069, 1.085),
        ("decode", 8, 1.053, 1.080),
        ("elementwise", 95, 1.011, 1.010),
        ("gates", 6, 1.021, 1.013),
        ("halo", 7, 1.030, 1.038),
        ("matvec", 41, 1.048, 1.056),
        ("mma", 126, 1.031, 1.062),
        ("row", 58, 1.084, 1.100),
        ("rows", 36, 1.028, 1.043),
        ("transpose", 48, 1.026, 1.044),
        ("warp_attention", 15, 1.043, 1.042),
        ("wgmma", 116, 1.033, 1.036),
        ("window", 44, 1.080, 1.083),
    ],
)
def test_first_choices_lose_no_more_than_before(
    rule: str, functions: int, alone: float, amid: float
) -> None:
    own = of(rule)
    assert len(own) == functions
    assert quality(own, H200, ALONE).regret <= alone
    assert quality(own, H200, AMID).regret <= amid
