"""How runs are checked and timed: the same way for every system.

1. Each system's output is compared with a reference in higher precision, on fresh random inputs;
   before that its output was filled with NaN and given back to its allocator, so an element
   that nobody writes is found.
2. Warm-up, at least 20 ms for each system.
3. Rounds: in each round every system is timed a few times, one after another, so that drifts of
   clock and temperature meet all of them. At least 15 samples each; median and interquartile range.
4. Operators begin with a cold second-level cache and their launches enqueued beforehand; models
   begin from an idle device, with their launches in the time.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.gpu import Stage

ROUNDS = 5
MIN_SAMPLES = 15
MAX_SAMPLES = 40
# What timing one system may take, unless MIN_SAMPLES take longer.
TARGET_S = 0.1
WARM_UP_S = 0.02

Run = Callable[[], Any]
OnSystem = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Times:
    """Samples of one system, in seconds."""

    samples: tuple[float, ...]

    @property
    def median_ms(self) -> float:
        """Milliseconds."""
        return statistics.median(self.samples) * 1e3

    @property
    def iqr_ms(self) -> float:
        """Interquartile range, milliseconds."""
        first, _, third = statistics.quantiles(self.samples, n=4, method="inclusive")
        return (third - first) * 1e3


def measure(
    runs: Mapping[str, Run],
    stage: Stage,
    *,
    cold: bool,
    clocks: Mapping[str, Callable[[Run, int], list[float]]] | None = None,
    on_system: OnSystem = lambda _: None,
) -> dict[str, Times]:
    """Time systems in turns.

    Args:
        runs: system -> a function that enqueues one run.
        stage: where they run.
        cold: see :meth:`bench.gpu.Stage.time`.
        clocks: for systems that ``stage`` cannot time, their own way.
        on_system: hears a system's name before each of its turns.
    """
    clocks = clocks or {}

    def sample(system: str, count: int) -> list[float]:
        on_system(system)
        if system in clocks:
            return clocks[system](runs[system], count)
        return stage.time(runs[system], count, cold=cold)

    counts = {}
    for system in runs:
        first = sample(system, 2)[-1]
        spent = 2 * first
        while spent < WARM_UP_S:
            more = min(100, 1 + int((WARM_UP_S - spent) / max(first, 1e-5)))
            spent += max(sum(sample(system, more)), 1e-4 * more)
        counts[system] = per_round(first)
    samples: dict[str, list[float]] = {system: [] for system in runs}
    for _ in range(ROUNDS):
        for system in runs:
            samples[system] += sample(system, counts[system])
    return {system: Times(tuple(values)) for system, values in samples.items()}


def per_round(seconds: float) -> int:
    """Samples of a round, for a run of this length."""
    wanted = TARGET_S / max(seconds, 1e-9)
    return -(-int(min(max(wanted, MIN_SAMPLES), MAX_SAMPLES)) // ROUNDS)


def checked(run: Run, reference: Sequence[Any], stage: Stage, compared: int | None = None) -> float:
    """The relative error of a run whose output memory was poisoned beforehand.

    Args:
        run: enqueues one run.
        reference: what the outputs should be.
        stage: where it runs.
        compared: as of :class:`bench.workload.Case`.

    Returns:
        The largest over the outputs of the norm of the difference over the norm of the
        reference, in double precision; NaN where an output has one that the reference has not.
    """
    import torch

    outputs = tensors(run())
    with torch.inference_mode():
        for output in outputs:
            if output.is_floating_point():
                output.fill_(float("nan"))
    stage.synchronize()
    # The last references: what comes next gets this very memory.
    del outputs, output
    outputs = tensors(run())[:compared]
    stage.synchronize()
    if len(outputs) != len(reference):
        raise ValueError(f"{len(outputs)} outputs; the reference has {len(reference)}")
    errors = [relative_error(*pair) for pair in zip(outputs, reference, strict=True)]
    # max() would lose a NaN that does not come first.
    return float("nan") if any(math.isnan(error) for error in errors) else max(errors)


def relative_error(output: Any, wanted: Any) -> float:
    """Norm of the difference over norm of the reference; both on one device."""
    if tuple(output.shape) != tuple(wanted.shape):
        raise ValueError(f"an output of shape {tuple(output.shape)}, not {tuple(wanted.shape)}")
    difference = output.detach().double() - wanted
    scale = float(wanted.double().norm())
    return float(difference.norm()) / (scale if scale > 0 else 1.0)


def tensors(outputs: Any) -> list[Any]:
    """The tensors of what a module returned."""
    if hasattr(outputs, "shape"):
        return [outputs]
    return [tensor for output in outputs for tensor in tensors(output)]
