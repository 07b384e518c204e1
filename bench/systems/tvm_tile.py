"""This project: the model's first choice for every kernel, or the best of ten when measured."""

from __future__ import annotations

import copy
import statistics
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from bench.gpu import CudaStage, HostStage
from bench.inputs import untouched
from bench.systems.system import NotSupported, Prepared, Session
from bench.workload import Case, Workload

_RANKS = tuple(range(10))
_SAMPLES = 5


class TvmTile:
    """``tvm_tile.compile``, nothing measured."""

    name = "tvm_tile"
    variant = "top1"
    preload = ("torch", "torch.export", "tvm_tile", "tvm_tile.frontend.torch", "bench.functions")

    def missing(self) -> str:
        """Runs wherever the benchmark does."""
        return ""

    def version(self) -> str:
        """This package's."""
        import tvm_tile

        return f"tvm_tile {tvm_tile.__version__}"

    def warm_up(self) -> None:
        """Export, import and schedule something small."""
        import torch

        import tvm_tile

        example = (torch.ones(4, 4),)
        tvm_tile.compile(torch.nn.ReLU(), "nvidia/h200", example_inputs=example)

    def prepare(self, workload: Workload, case: Case, session: Session) -> Prepared:
        """Compile; calls are the public ones, on torch's tensors and stream."""
        import tvm_tile

        # One worker: the others compile other workloads. So the compiler's share is exact, too.
        options = tvm_tile.Options(parallel_builds=1)
        model = tvm_tile.compile(
            case.module, session.device, example_inputs=untouched(case), options=options
        )
        stages = {stage.name: stage.seconds for stage in model.report.stages}
        kernels = model.report.kernels
        return Prepared(
            start=lambda inputs: partial(model, *inputs),
            schedule_s=sum(stages.values()) - stages["machine code"],
            kernels=len(kernels),
            fallbacks=len(model.report.fallbacks),
            note=f"{kernels[0].rule} {kernels[0].tile}" if len(kernels) == 1 else "",
        )


class TvmTileTop10(TvmTile):
    """The best of the model's ten first choices, each measured; for single kernels."""

    variant = "top10"

    def prepare(self, workload: Workload, case: Case, session: Session) -> Prepared:
        """Build and time ten candidates."""
        from bench.functions import build_functions, find_candidates, fused_function
        from tvm_tile import find_device

        device = find_device(session.device)
        func = fused_function(case, device)
        if func is None:
            raise NotSupported("only single kernels have candidates to measure")
        found = find_candidates(func, device, _RANKS)
        if not found:
            raise NotSupported("no rule takes this function")
        names = {f"candidate_{rank}": item for rank, item in found.items()}
        built = build_functions({n: item.func for n, item in names.items()}, device)
        with session.gpu:
            inputs = session.draw()
            runs = {n: destination_style(built[n], case, inputs) for n in sorted(built.names)}
            times = _seconds(runs)
        best = min(times, key=times.__getitem__)
        return Prepared(
            start=lambda inputs: destination_style(built[best], case, inputs),
            kernels=1,
            fallbacks=0,
            note=f"#{best.rpartition('_')[2]} of {len(times)}: {names[best].tile}",
        )


def destination_style(
    function: Callable[..., Any], case: Case, inputs: Sequence[Any]
) -> Callable[[], Any]:
    """A compiled PrimFunc on torch's tensors: its output is a new tensor each time.

    The case has one output; its shape and dtype are what the module says.
    """
    import torch

    with torch.inference_mode():
        shapes = copy.deepcopy(case.module).to("meta")
        like = shapes(*(value.to("meta") for value in inputs))

    def run() -> Any:
        output = torch.empty(like.shape, dtype=like.dtype, device=inputs[0].device)
        function(*inputs, output)
        return output

    return run


def _seconds(runs: Mapping[str, Callable[[], Any]]) -> dict[str, float]:
    import torch

    stage = CudaStage() if torch.cuda.is_available() else HostStage()
    times = {}
    for name, run in runs.items():
        run()
        times[name] = statistics.median(stage.time(run, _SAMPLES, cold=True))
    return times
