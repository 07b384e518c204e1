"""Compile models for devices, present or not, and describe their machine code."""

from __future__ import annotations

import datetime
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from bench.code.record import Code, KernelCode
from bench.inputs import untouched
from bench.suites import load_suite
from bench.workload import Workload

if TYPE_CHECKING:
    from tvm_tile import CompiledModel
    from tvm_tile.report.compiled import KernelReport

_MATRIX = re.compile(r"mfma|wmma")
_LONGEST_REASON = 300


@dataclass(frozen=True, slots=True)
class Builds:
    """What to compile, and for what.

    Attributes:
        workloads: of the suites.
        devices: names of records.
        commit: of this project.
        command: what was run.
    """

    workloads: Sequence[Workload]
    devices: Sequence[str]
    commit: str
    command: str

    def records(self, say: Callable[[str], None]) -> Iterator[Code]:
        """Compile one after the other."""
        from tvm_tile.build.hip import hip_compiler

        facts = {
            "versions": hip_compiler(),
            "commit": self.commit,
            "command": self.command,
            "date": datetime.datetime.now(tz=datetime.timezone.utc).date().isoformat(),
        }
        for workload in self.workloads:
            case = load_suite(workload.suite).case(workload)
            for device in self.devices:
                place = (workload.suite, workload.name, workload.dtype, workload.batch, device)
                record = replace(_built(place, case), **facts)
                say(f"{workload} {device}: {record.status}, {record.seconds:.0f} s")
                yield record


def _built(place: tuple[Any, ...], case: Any) -> Code:
    import tvm_tile

    start = time.perf_counter()
    try:
        options = tvm_tile.Options(cache=False)
        model = tvm_tile.compile(
            case.module, place[-1], example_inputs=untouched(case), options=options
        )
    except Exception as error:  # whatever it is, the others are to be compiled
        reason = " ".join(str(error).split())[:_LONGEST_REASON]
        return Code(*place, status=f"{type(error).__name__}: {reason}")
    return Code(
        *place,
        status="ok",
        seconds=round(time.perf_counter() - start, 1),
        predicted_ms=model.report.predicted_seconds * 1e3,
        kernels=tuple(_kernel(kernel, model) for kernel in model.report.kernels),
    )


def _kernel(kernel: KernelReport, model: CompiledModel) -> KernelCode:
    import tvm_tile

    symbol = re.compile(rf"{re.escape(kernel.name)}_kernel(_\d+)?")
    texts = [own.source for own in model.program.kernels if symbol.fullmatch(own.name)]

    device = tvm_tile.find_device(model.device_name)

    def most(name: str) -> int:
        return max((int(getattr(own, name) or 0) for own in kernel.resources), default=0)

    return KernelCode(
        name=kernel.name,
        operators=kernel.operators,
        rule=kernel.rule,
        calls=kernel.calls,
        block=kernel.block,
        resident=kernel.resident,
        fallback=kernel.fallback,
        on_matrix_units=any(_MATRIX.search(text) for text in texts),
        predicted_registers=kernel.registers,
        predicted_shared=kernel.shared_bytes,
        registers=most("registers"),
        register_unit=device.register_unit,
        accumulation=most("accumulation"),
        scalar=most("scalar"),
        shared=most("shared"),
        spilled=most("spilled"),
        stack=most("stack"),
        warp=most("warp"),
    )
