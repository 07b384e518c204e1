"""One architecture: compiled and run emulated in float32, compiled for an H200 in float16."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bench.architectures.zoo import Architecture
from bench.suites.model_suite import TOLERANCES

EMULATED = "emulated"
HALF_DEVICE = "nvidia/h200"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of one architecture on one device.

    Attributes:
        architecture: ``library/name``.
        device: :data:`EMULATED` (float32, run) or :data:`HALF_DEVICE` (float16, compiled).
        status: ``"right"``, ``"compiled"``, ``"refused"``, ``"wrong"`` or ``"died"``.
        detail: why, where it is none of the first two.
        error: largest difference from PyTorch in float64, over its largest value.
        kernels: different kernels.
        fallbacks: those of them that are not of a rule of ours, with the reason.
        seconds: it took, PyTorch's export included.
        commit: of this repository.
    """

    architecture: str
    device: str
    status: str
    detail: str
    error: float | None
    kernels: int
    fallbacks: tuple[str, ...]
    seconds: float
    commit: str

    @property
    def key(self) -> tuple[str, str]:
        return self.architecture, self.device


def make_worker(commit: str) -> Callable[[str], Verdict]:
    """In a worker process: a function from ``"library/name device"`` to a verdict."""

    def work(job: str) -> Verdict:
        key, device = job.split()
        start = time.monotonic()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = _attempt(Architecture(*key.split("/", 1)), device)
        return Verdict(key, device, *found, time.monotonic() - start, commit)

    return work


def _attempt(
    architecture: Architecture, device: str
) -> tuple[str, str, float | None, int, tuple[str, ...]]:
    import tvm_tile
    from tvm_tile.errors import TileError
    from tvm_tile.graph.signature import RANDOM

    module, inputs = architecture.build()
    half = device != EMULATED
    if half:
        module = module.half()
        inputs = tuple(x.half() if x.is_floating_point() else x for x in inputs)
    options = tvm_tile.Options(cache=False)
    try:
        model = tvm_tile.compile(module, device, example_inputs=inputs, options=options)
        draws = any(state.signature.name == RANDOM for state in model.effects.state)
        outputs = None if half or draws else model(*inputs)  # PyTorch draws other numbers
    except TileError as error:
        return "refused", f"{type(error).__name__}: {error.current}"[:300], None, 0, ()
    except Exception as error:  # one that no user should see
        return "died", f"{type(error).__name__}: {error}"[:300], None, 0, ()
    report = model.report
    fallbacks = tuple(f"{kernel.operators}: {kernel.fallback}"[:200] for kernel in report.fallbacks)
    if outputs is None:
        return "compiled", "", None, len(report.kernels), fallbacks
    error = relative_error(outputs.numpy(), reference(module, inputs).numpy())
    status = "right" if error <= TOLERANCES["float32"] else "wrong"
    return status, "", error, len(report.kernels), fallbacks


def reference(module: Any, inputs: Sequence[Any]) -> Any:
    """What PyTorch computes: in float64, or in float32 of a module that float64 is too wide for."""
    import torch

    with torch.no_grad():
        try:
            return module.double()(*(x.double() if x.is_floating_point() else x for x in inputs))
        except RuntimeError:  # it puts the least number of its type where only float32 goes
            return module.float()(*inputs)


def relative_error(found: Any, exact: Any) -> float:
    """Largest difference over the largest magnitude; infinite where shapes or NaNs disagree."""
    if found.shape != exact.shape or not np.array_equal(np.isnan(found), np.isnan(exact)):
        return float("inf")
    is_number = np.isfinite(exact)
    if not np.array_equal(
        found[~is_number & ~np.isnan(exact)], exact[~is_number & ~np.isnan(exact)]
    ):
        return float("inf")
    largest = float(np.abs(exact[is_number]).max(initial=0.0)) or 1.0
    return float(np.abs(found[is_number] - exact[is_number]).max(initial=0.0)) / largest
