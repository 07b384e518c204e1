"""One architecture, or module, through the backend of ``torch.compile``, emulated, in float32."""

from __future__ import annotations

import time
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from bench.architectures.check import reference, relative_error
from bench.architectures.zoo import Architecture
from bench.backend_models import modules
from bench.suites.model_suite import TOLERANCES


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of one architecture.

    Attributes:
        architecture: ``library/name``, or ``torch.nn/NAME``.
        status: ``"right"``, ``"wrong"`` or ``"died"``.
        detail: why, where it is not right.
        error: largest difference from PyTorch, over its largest value, of all calls.
        graphs: how many PyTorch captured.
        parts: programs that were compiled.
        compiled: operators in them; views are not counted.
        eager: operators that PyTorch ran, each as ``"times x name: why"``.
        seconds: it took, with PyTorch's tracing.
        commit: of this repository.
    """

    architecture: str
    status: str
    detail: str
    error: float | None
    graphs: int
    parts: int
    compiled: int
    eager: tuple[str, ...]
    seconds: float
    commit: str

    @property
    def key(self) -> str:
        return self.architecture

    @property
    def run_by_pytorch(self) -> int:
        """How many operators PyTorch ran."""
        return sum(int(one.split(" x ", 1)[0]) for one in self.eager)


def make_worker(commit: str) -> Callable[[str], Verdict]:
    """In a worker process: a function from ``"library/name"`` to a verdict."""

    def work(key: str) -> Verdict:
        start = time.monotonic()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = _attempt(key)
        return Verdict(key, *found, time.monotonic() - start, commit)

    return work


def _attempt(key: str) -> tuple[str, str, float | None, int, int, int, tuple[str, ...]]:
    import torch

    from tvm_tile.torch.backend import compiled
    from tvm_tile.torch.options import BackendOptions
    from tvm_tile.torch.report import GraphReport

    reports: list[GraphReport] = []
    options = BackendOptions.of({"device": "emulated", "cache": False})

    def backend(graph: Any, inputs: Sequence[Any]) -> Any:
        return compiled(graph, inputs, options, reports.append)

    torch._dynamo.reset()
    error, detail = None, ""
    try:
        error = _error(key, partial(torch.compile, backend=backend))
        status = "right" if error <= TOLERANCES["float32"] else "wrong"
    except Exception as failure:  # one that PyTorch alone would not raise
        status, detail = "died", f"{type(failure).__name__}: {failure}"[:300]
    left = Counter(f"{one.operator}: {one.why}" for graph in reports for one in graph.eager)
    notes = [f"1 x graph: {graph.note}" for graph in reports if graph.note]
    return (
        status,
        detail,
        error,
        len(reports),
        sum(len(graph.parts) for graph in reports),
        sum(graph.compiled_operators for graph in reports),
        (*(f"{times} x {what}"[:200] for what, times in left.most_common()), *notes),
    )


def _error(key: str, compiled: Callable[[Any], Any]) -> float:
    """Largest relative difference between what ``compiled`` makes of it and PyTorch alone."""
    library, name = key.split("/", 1)
    if library == modules.LIBRARY:
        return modules.check(name, compiled)
    architecture = Architecture(library, name)
    module, inputs = architecture.build()
    twin, _ = architecture.build()
    run, error = compiled(module), 0.0
    for _ in range(2):  # once more, when all is compiled
        found, wanted = _called(run, inputs), _called(twin, inputs)
        error = max(error, relative_error(found.numpy(), wanted.numpy()))
    if error > TOLERANCES["float32"]:  # or is it PyTorch that is inexact?
        error = relative_error(found.numpy(), reference(twin, inputs).numpy())
    return error


def _called(run: Any, inputs: Sequence[Any]) -> Any:
    import torch

    torch.manual_seed(0)  # of models that draw random numbers
    with torch.no_grad():
        return run(*inputs)
