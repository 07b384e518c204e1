"""A process that measures one workload after another and reports to the runner.

Messages to the runner, in order: ``("phase", system, what)`` before anything that may hang,
``("waiting",)`` and ``("holding",)`` around the wait for the GPU, ``("result", system, fields)``
for each finished or failed system, ``("idle",)`` when the workload is through. A process whose GPU
is in error says nothing more and ends: nothing that it could still measure would mean anything.
"""

from __future__ import annotations

import gc
import os
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from bench.gpu import Cores, CudaStage, GpuLock, HostStage, Stage
from bench.inputs import Placed, draw, reference
from bench.protocol import checked, measure
from bench.systems import load_system
from bench.systems.system import NotSupported, Prepared, Session, System
from bench.workload import Case, Workload

_LONGEST_REASON = 300


@dataclass(frozen=True, slots=True)
class Task:
    """What a worker is asked: a workload, and systems by name.

    ``threads`` is how many it may compile with.
    """

    workload: Workload
    systems: tuple[str, ...]
    device: str
    seed: int
    threads: int = 1
    is_second_try: bool = False


def main(connection: Connection, lock: Path, gpu_index: int) -> None:
    """Do tasks until the runner hangs up, on the GPU that ``lock`` is for."""
    os.environ["CUDA_VISIBLE_DEVICES"] = str(gpu_index)
    import torch

    sys.stdout = sys.stderr  # what libraries print must not end up in a report
    on_gpu = torch.cuda.is_available()
    if on_gpu:
        # The same accuracy for all: float32 means float32.
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.allow_tf32 = False
        torch.backends.cudnn.benchmark = True
    cores = Cores.of_machine(gpu_index)
    gpu = GpuLock(lock, lambda state: connection.send((state,)), cores)
    systems: dict[str, System] = {}
    stage: Stage | None = None
    while True:
        try:
            task: Task = connection.recv()
        except EOFError:
            return
        if stage is None:
            with gpu:
                stage = CudaStage() if on_gpu else HostStage()
        for name in task.systems:
            if name not in systems:
                connection.send(("phase", name, "starting"))
                systems[name] = load_system(name)
                systems[name].warm_up()
        chosen = {name: systems[name] for name in task.systems}
        _Work(task, chosen, connection, gpu, stage, "cuda" if on_gpu else "cpu").run()
        release_memory()
        connection.send(("idle",))


class _Work:
    """One task in progress."""

    def __init__(
        self,
        task: Task,
        systems: Mapping[str, System],
        connection: Connection,
        gpu: GpuLock,
        stage: Stage,
        place: str,
    ) -> None:
        self.task = task
        self.systems = systems
        self.connection = connection
        self.gpu = gpu
        self.stage = stage
        self.place = place
        self.fields: dict[str, dict[str, Any]] = {name: {} for name in systems}

    def run(self) -> None:
        from bench.suites import load_suite

        self._phase("", "building the workload")
        case = load_suite(self.task.workload.suite).case(self.task.workload)
        session = Session(
            self.task.device,
            self.gpu,
            lambda: draw(case, self.place, self.task.seed),
            Placed(self.place),
            self.task.threads,
        )
        prepared: dict[str, Prepared] = {}
        for name, system in self.systems.items():
            self._phase(name, "compiling")
            found = self._timed(name, partial(system.prepare, self.task.workload, case, session))
            if found is not None:
                prepared[name] = found
                self.fields[name]["compile_s"] += found.spent_s
        if prepared:
            with self.gpu:
                self._on_gpu(case, prepared)

    def _on_gpu(self, case: Case, prepared: Mapping[str, Prepared]) -> None:
        inputs = draw(case, self.place, self.task.seed)
        self._phase("", "computing the reference")
        expected, look = reference(case, inputs)
        runs = self._right_or_wrong(prepared, inputs, expected, case)
        for name in list(runs) if look else ():
            self._phase(name, "examining")
            found = self._try(name, partial(look, runs[name], self.stage))
            if found is None:
                del runs[name]
            else:
                self.fields[name].update(asdict(found))
        clocks = {name: prepared[name].clock for name in runs if prepared[name].clock}
        times = measure(
            runs,
            self.stage,
            cold=case.is_operator,
            clocks=clocks,  # type: ignore[arg-type]
            on_system=lambda name: self._phase(name, "timing"),
        )
        for name, samples in times.items():
            item = prepared[name]
            right = self.fields[name]["error"] <= case.tolerance  # NaN is not
            self._result(
                name,
                "ok" if right else f"wrong: error above {case.tolerance:.1e}",
                median_ms=samples.median_ms,
                iqr_ms=samples.iqr_ms,
                repeats=len(samples.samples),
                schedule_s=item.schedule_s,
                kernels=item.kernels,
                fallbacks=item.fallbacks,
                predicted_ms=None if item.predicted_s is None else item.predicted_s * 1e3,
                note=item.note,
                tolerance=case.tolerance,
                flops=case.flops,
                bytes=case.bytes,
                read_bandwidth=_read_bandwidth(self.task.device),
                **self.fields[name],
            )

    def _right_or_wrong(
        self,
        prepared: Mapping[str, Prepared],
        inputs: tuple[Any, ...],
        expected: list[Any],
        case: Case,
    ) -> dict[str, Callable[[], Any]]:
        """Start every system and note its error; what to time."""
        runs = {}
        for name, item in prepared.items():
            self._phase(name, "starting")
            run = self._timed(name, partial(_started, item, inputs, self.stage))
            if run is None:
                continue
            self._phase(name, "checking")
            error = self._try(name, partial(checked, run, expected, self.stage, case.compared))
            if error is not None:
                self.fields[name]["error"] = error
                runs[name] = run
        return runs

    def _timed(self, name: str, step: Callable[[], Any]) -> Any:
        """A step that counts as compile time; what waiting for the GPU took does not."""
        start, waited = time.perf_counter(), self.gpu.waited_s
        result = self._try(name, step)
        spent = time.perf_counter() - start - (self.gpu.waited_s - waited)
        self.fields[name]["compile_s"] = self.fields[name].get("compile_s", 0.0) + spent
        return result

    def _try(self, name: str, step: Callable[[], Any]) -> Any:
        try:
            return step()
        except NotSupported as reason:
            self._result(name, f"not supported: {reason}")
        except Exception as error:
            traceback.print_exc()
            self._result(name, f"failed: {type(error).__name__}: {error}")
            # Frames of the traceback hold tensors.
            del error
            release_memory()
            self.stage.synchronize()  # raises where the GPU is in error: the process ends
        return None

    def _phase(self, name: str, what: str) -> None:
        self.connection.send(("phase", name, what))

    def _result(self, name: str, status: str, **fields: Any) -> None:
        status = " ".join(status.split())[:_LONGEST_REASON]
        self.connection.send(("result", name, {"status": status, **fields}))


def _started(item: Prepared, inputs: tuple[Any, ...], stage: Stage) -> Callable[[], Any]:
    run = item.start(inputs)
    run()
    stage.synchronize()
    return run


def _read_bandwidth(device: str) -> float:
    """Of the device record."""
    from tvm_tile.device import find_device

    return find_device(device).read_bandwidth


def release_memory() -> None:
    """Give memory of this workload back: other processes need it."""
    gc.collect()
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        torch.cuda.empty_cache()
    tvm = sys.modules.get("tvm")
    if tvm is not None:
        clear = tvm.get_global_func("vm.builtin.memory_manager.clear", allow_missing=True)
        if clear is not None:
            clear()
