"""Timing candidates on the GPU in a process of its own, which one of them may end."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from bench.isolated import Crash, Worker
from bench.metaschedule.build import Artifact

# What one run of one candidate may take, its loading included.
RUN_LIMIT_S = 10.0
# What timing one candidate should take, and how many samples at least and at most.
_TARGET_S = 0.05
_SAMPLES = (3, 30)
# Three medians of a third of the samples each are recorded.
_PARTS = 3

Tensor = tuple[tuple[int, ...], str]
Measured = list[float] | str
Message = tuple[str, Any]


class GpuTimer:
    """Times candidates of one operator; a context manager that ends its process.

    Args:
        tensors: shape and dtype of each parameter, outputs included.
        gpu: held while the process runs anything on the GPU.
        make_worker: what the process does; see :func:`make_timer`.
        limit_s: what one candidate may take.
    """

    def __init__(
        self,
        tensors: Sequence[Tensor],
        gpu: AbstractContextManager[Any],
        make_worker: Callable[[], Callable[[Any], Any]] | None = None,
        limit_s: float = RUN_LIMIT_S,
    ) -> None:
        self._tensors = tuple(tensors)
        self._gpu = gpu
        self._make_worker = make_worker or make_timer
        self._limit_s = limit_s
        self._worker: Worker | None = None
        self.waited_s = 0.0

    def __enter__(self) -> GpuTimer:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def measure(self, artifact: Artifact) -> Measured:
        """Seconds of one run, three numbers; or why there are none."""
        try:
            worker = self._started()
            worker.call(("load", artifact), self._limit_s)
            with self._holding():
                answer: Measured | tuple[str] = worker.call(("time", None), self._limit_s)
        except Crash as crash:
            self._stop()
            return f"{crash}"
        if isinstance(answer, tuple):  # the GPU is in error: nothing more can run there
            self._stop()
            return answer[0]
        return answer

    def _started(self) -> Worker:
        if self._worker is None:
            self._worker = Worker(self._make_worker)
            with self._holding():
                self._worker.call(("tensors", self._tensors), 120.0)
        return self._worker

    def _stop(self) -> None:
        if self._worker is not None:
            self._worker.stop()
        self._worker = None

    def _holding(self) -> _Held:
        return _Held(self)


class _Held:
    """The GPU held; what waiting for it took is added up."""

    def __init__(self, timer: GpuTimer) -> None:
        self._timer = timer

    def __enter__(self) -> None:
        start = time.perf_counter()
        self._timer._gpu.__enter__()
        self._timer.waited_s += time.perf_counter() - start

    def __exit__(self, *error: Any) -> None:
        self._timer._gpu.__exit__(*error)


def make_timer() -> Callable[[Message], Any]:
    """What the timing process does with its messages: tensors, load, time."""
    import torch

    from bench.gpu import CudaStage

    state: dict[str, Any] = {}

    def answer(message: Message) -> Any:
        kind, content = message
        if kind == "tensors":
            state["tensors"] = [
                torch.randn(shape, device="cuda").to(getattr(torch, dtype))
                for shape, dtype in content
            ]
            state["stage"] = CudaStage()
            return None
        if kind == "load":
            state["error"] = ""
            try:
                state["module"] = content.load()
            except Exception as error:  # TVM raises whatever it likes
                state["error"] = f"loading: {error}"
            return None
        if state["error"]:
            return state["error"]
        function = state["module"]["main"]
        try:
            return _seconds(lambda: function(*state["tensors"]), state["stage"])
        except Exception as error:
            return _failed(error, state["stage"])

    return answer


def _failed(error: Exception, stage: Any) -> str | tuple[str]:
    """The reason; alone in a tuple where the GPU no longer works for this process."""
    try:
        stage.synchronize()
        stage.time(lambda: None, 1, cold=True)
    except Exception:
        return (f"running: {error}",)
    return f"running: {error}"


def _seconds(run: Callable[[], Any], stage: Any) -> list[float]:
    run()
    stage.synchronize()
    first = stage.time(run, 1, cold=True)[0]
    least, most = _SAMPLES
    count = min(max(int(_TARGET_S / (first + 2e-4)), least), most) // _PARTS * _PARTS
    samples = [first] * _PARTS if first > _TARGET_S else stage.time(run, count, cold=True)
    return [statistics.median(samples[part::_PARTS]) for part in range(_PARTS)]
