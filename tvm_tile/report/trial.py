"""Choice among a function's measured candidates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

# Candidates add in different orders. Inputs are numbers around 1, so a wrong index or a missing
# barrier shows as a difference near 1.
# Tensor cores add up products of 8-bit floats in fewer bits than float32 has.
_TOLERANCES = {"float16": 2e-2, "bfloat16": 5e-2, "float8_e4m3fn": 2e-2, "float8_e5m2": 2e-2}
_TOLERANCE = 1e-4


@dataclass(frozen=True, slots=True)
class Trial:
    """The measurement of one candidate that ran.

    Attributes:
        rank: its place in the model's order; 0 is the first choice.
        seconds: median time of a run.
        difference: norm of the difference of its outputs from those of the first candidate that
            ran, over the norm of these; infinite where one has NaN and the other has not.
    """

    rank: int
    seconds: float
    difference: float


def fastest(trials: Sequence[Trial], tolerance: float) -> Trial:
    """The fastest that agrees with the first; of equally fast ones the model's favourite.

    Args:
        trials: one or more, the one that the others were compared with among them.
        tolerance: the largest difference that is no disagreement.
    """
    agreeing = [trial for trial in trials if trial.difference <= tolerance]
    return min(agreeing, key=lambda trial: (trial.seconds, trial.rank))


def tolerance_for(dtypes: Sequence[str]) -> float:
    """The difference that the least precise of these dtypes explains."""
    return max((_TOLERANCES.get(dtype, _TOLERANCE) for dtype in dtypes), default=_TOLERANCE)
