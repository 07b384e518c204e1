"""A suite of two small workloads, and systems that fail in every way there is."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from typing import Any

from bench.systems.system import NotSupported, Prepared, Session
from bench.workload import Case, Input, Workload

SOURCE = "the tests"


def workloads() -> tuple[Workload, ...]:
    """Two sums of vectors."""
    return tuple(
        Workload(
            "tests.fake_bench", f"sum_{size}", "elementwise", "float32", None, (("size", size),)
        )
        for size in (64, 96)
    )


def case(workload: Workload) -> Case:
    """``x + y``; one named ``broken`` cannot be built."""
    import torch

    class Sum(torch.nn.Module):
        def forward(self, x: Any, y: Any) -> Any:
            return x + y

    if workload.name == "broken":
        os._exit(4)
    item = Input((workload.size("size"),), "float32")
    size = float(workload.size("size"))
    return Case(Sum(), (item, item), size, 12 * size, "float64", 1e-6)


class Good:
    """Right, and as fast as it is."""

    name = "good"
    variant = ""
    preload = ("torch",)

    def missing(self) -> str:
        return ""

    def version(self) -> str:
        return "good 1.0"

    def warm_up(self) -> None:
        pass

    def prepare(self, workload: Workload, case: Case, session: Session) -> Prepared:
        return Prepared(start=self.start, kernels=1, note="fine")

    def start(self, inputs: Sequence[Any]) -> Callable[[], Any]:
        return lambda: inputs[0] + inputs[1]


class Wrong(Good):
    """Its last element is off."""

    name = "wrong"

    def start(self, inputs: Sequence[Any]) -> Callable[[], Any]:
        def run() -> Any:
            output = inputs[0] + inputs[1]
            output[-1] += 1
            return output

        return run


class Lazy(Good):
    """Leaves the last element of its output as it finds it: right by luck at its first run."""

    name = "lazy"

    def start(self, inputs: Sequence[Any]) -> Callable[[], Any]:
        output = inputs[0] + inputs[1]

        def run() -> Any:
            output[:-1] = inputs[0][:-1] + inputs[1][:-1]
            return output

        return run


class Refusing(Good):
    name = "refusing"

    def prepare(self, workload: Workload, case: Case, session: Session) -> Prepared:
        raise NotSupported("it does not add")


class Raising(Good):
    name = "raising"

    def prepare(self, workload: Workload, case: Case, session: Session) -> Prepared:
        raise ZeroDivisionError("a bug of the peer's")


class Hanging(Good):
    """Never comes back from compiling."""

    name = "hanging"

    def prepare(self, workload: Workload, case: Case, session: Session) -> Prepared:
        time.sleep(1000)
        raise AssertionError


class HangingOnGpu(Good):
    """Never comes back from a run, while it holds the GPU."""

    name = "hanging_on_gpu"

    def start(self, inputs: Sequence[Any]) -> Callable[[], Any]:
        return lambda: time.sleep(1000)


class Crashing(Good):
    """Takes its process with it when it is timed."""

    name = "crashing"

    def start(self, inputs: Sequence[Any]) -> Callable[[], Any]:
        runs = []

        def run() -> Any:
            runs.append(0)
            if len(runs) > 3:
                os.kill(os.getpid(), signal.SIGSEGV)
            return inputs[0] + inputs[1]

        return run


class Absent(Good):
    name = "absent"

    def missing(self) -> str:
        return "not installed here"
