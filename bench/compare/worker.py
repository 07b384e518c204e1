"""A process that compiles, and times, with the ``tvm_tile`` of one commit.

``python -m bench.compare.worker DESCRIPTOR`` answers requests from that connection until it ends.
The benchmark is the caller's, whatever the commit: of the package only what is public is used, and
reports, whose older forms lack some fields.
"""

from __future__ import annotations

import importlib
import re
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import fields, replace
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from bench.compare.record import Compiled, Kernel, digest, plain_name
from bench.compare.requests import Check, Describe, Failed, Prepare, Ready, Request, Time
from bench.gpu import CudaStage, HostStage, Stage
from bench.inputs import draw, reference, untouched
from bench.protocol import checked
from bench.suites import load_suite
from bench.worker import release_memory
from bench.workload import Case

_LONGEST_REASON = 300
# What the machine code of any kernel is taken to need, where none is made.
_REGISTERS = 64


def main(connection: Connection) -> None:
    """Answer until the caller hangs up."""
    import torch

    import tvm_tile

    torch.set_num_threads(1)
    connection.send(tvm_tile.__file__)
    timed = _Timed()
    while True:
        try:
            request: Request = connection.recv()
        except EOFError:
            return
        if isinstance(request, Describe):
            connection.send(describe(request))
        elif isinstance(request, Prepare):
            timed = _Timed()  # the memory of the last is free
            release_memory()
            connection.send(_tried(partial(timed.prepare, request)))
        elif isinstance(request, Check):
            connection.send(_tried(timed.check))
        else:
            connection.send(timed.seconds(request))


def _tried(step: Callable[[], Ready | Failed]) -> Ready | Failed:
    try:
        return step()
    except Exception as error:
        return Failed(_reason(error))


def describe(request: Describe) -> Compiled:
    """Compile a workload; whatever goes wrong is its status."""
    start = time.perf_counter()
    try:
        if not request.machine_code:
            leave_machine_code_out()
        found = _described(request)
    except Exception as error:  # the others are to be compiled
        return Compiled.failed(request.workload, _reason(error))
    return replace(found, seconds=round(time.perf_counter() - start, 2))


def _described(request: Describe) -> Compiled:
    workload = request.workload
    model = _compile(load_suite(workload.suite).case(workload), request.device)
    program, report = model.program, model.report
    kernels = tuple(_kernel(own, program.kernels, request.texts) for own in report.kernels)
    return Compiled(
        workload.suite,
        workload.name,
        workload.dtype,
        workload.batch,
        status="ok",
        predicted_s=getattr(report, "predicted_seconds", sum(own.seconds for own in kernels)),
        kernels=kernels,
        host=digest(program.host + program.vm),
    )


def leave_machine_code_out() -> None:
    """Compilation ends with the kernels' texts; all are taken to need as many registers.

    Where co-scheduling asks what kernels take, the answer is the same at both commits.

    Raises:
        RuntimeError: the commit's build is not put together as is known here.
    """
    lower = importlib.import_module("tvm_tile.build.lower")
    modules = [lower]
    with suppress(ModuleNotFoundError):  # where later commits call the compilers
        modules.append(importlib.import_module("tvm_tile.build.machine_code"))
    if not any(hasattr(module, "compile_cuda") for module in modules):
        raise RuntimeError("where this commit calls its compilers is not known: --machine-code")
    for name, compiled in (
        ("compile_cuda", b"none"),
        ("compile_hip", b"none"),
        ("compiler_for", "none"),
        ("hip_compiler", "none"),
        ("check_opencl", b""),
    ):
        for module in modules:
            if hasattr(module, name):
                setattr(module, name, partial(_always, compiled))
    for name in ("cubin", "code_object"):
        if reader := getattr(lower, name, None):
            reader.resources_of = partial(_always, reader.Resources(_REGISTERS, 0, 0))


def _always(answer: Any, *_: Any, **__: Any) -> Any:
    return answer


def _compile(case: Case, device: str) -> Any:
    """The case as a compiled model; options that the commit does not know are left out."""
    import tvm_tile

    try:
        from tvm_tile.stages.forced import Forced as Options
    except ImportError:  # an earlier commit
        from tvm_tile import Options
    known = {field.name for field in fields(Options)}
    wanted: dict[str, Any] = {"parallel_builds": 1, "cache": False}
    options = Options(**{name: own for name, own in wanted.items() if name in known})
    return tvm_tile.compile(case.module, device, example_inputs=untouched(case), options=options)


def _kernel(kernel: Any, built: Any, folder: Path) -> Kernel:
    symbol = re.compile(rf"{re.escape(kernel.name)}_kernel(_\d+)?")
    texts = [own.source for own in built if symbol.fullmatch(own.name)]
    return Kernel(
        name=kernel.name,
        operators=kernel.operators,
        rule=kernel.rule,
        tile=kernel.tile,
        grid=kernel.grid,
        block=kernel.block,
        calls=getattr(kernel, "calls", 1),
        seconds=kernel.seconds,
        fallback=kernel.fallback,
        texts=tuple(_kept(text, kernel.name, folder) for text in texts),
    )


def _kept(text: str, name: str, folder: Path) -> str:
    """The digest of a text, under which it is in the folder; a function's hash is no part of it."""
    data = text.replace(name, plain_name(name)).encode()
    found = digest(data)
    path = folder / f"{found}.txt"
    if not path.exists():
        path.write_bytes(data)
    return found


class _Timed:
    """A workload that is timed."""

    _case: Case
    _model: Any
    _stage: Stage
    _inputs: tuple[Any, ...]

    def prepare(self, request: Prepare) -> Ready | Failed:
        """Compile it."""
        import torch

        if not torch.cuda.is_available() and request.device != "emulated":
            return Failed("times are taken on a GPU, and none is here")
        self._case = load_suite(request.workload.suite).case(request.workload)
        self._model = _compile(self._case, request.device)
        return Ready(self._case.is_operator)

    def check(self) -> Ready | Failed:
        """Whether it computes what the benchmark's reference does."""
        import torch

        on_gpu = torch.cuda.is_available()
        self._stage = CudaStage() if on_gpu else HostStage()
        self._inputs = draw(self._case, "cuda" if on_gpu else "cpu", seed=1)
        expected, _ = reference(replace(self._case, examine=None), self._inputs)
        error = checked(self._run, expected, self._stage, self._case.compared)
        if error <= self._case.tolerance:  # NaN is not
            return Ready(self._case.is_operator)
        return Failed(f"wrong: its error is {error:.1e}, above {self._case.tolerance:.1e}")

    def seconds(self, request: Time) -> list[float]:
        """Of each of so many runs."""
        return self._stage.time(self._run, request.count, cold=self._case.is_operator)

    def _run(self) -> Any:
        return self._model(*self._inputs)


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:_LONGEST_REASON]


if __name__ == "__main__":
    sys.stdout = sys.stderr
    main(Connection(int(sys.argv[1])))
