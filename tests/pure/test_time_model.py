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
        ("", 409, 1.048, 1.058),
        ("attention", 6, 1.019, 1.002),
        ("chain", 15, 1.026, 1.031),
        ("column", 36, 1.047, 1.042),
        ("contraction", 145, 1.072, 1.087),
        ("decode", 6, 1.016, 1.038),
        ("elementwise", 95, 1.010, 1.010),
        ("gates", 6, 1.028, 1.013),
        ("halo", 7, 1.035, 1.040),
        ("matvec", 31, 1.042, 1.054),
        ("mma", 115, 1.031, 1.061),
        ("row", 48, 1.094, 1.119),
        ("rows", 36, 1.031, 1.045),
        ("transpose", 48, 1.023, 1.039),
        ("warp_attention", 15, 1.043, 1.042),
        ("wgmma", 105, 1.034, 1.038),
        ("window", 44, 1.078, 1.078),
    ],
)
def test_first_choices_lose_no_more_than_before(
    rule: str, functions: int, alone: float, amid: float
) -> None:
    own = of(rule)
    assert len(own) == functions
    assert quality(own, H200, ALONE).regret <= alone
    assert quality(own, H200, AMID).regret <= amid
