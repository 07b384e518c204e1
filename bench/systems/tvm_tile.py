"""This project: the model's first choice for every kernel, the best of ten, or one thing off."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from bench.inputs import untouched
from bench.systems.system import Prepared, Session
from bench.workload import Case, Workload

if TYPE_CHECKING:
    from tvm_tile import CompiledModel
    from tvm_tile.plan.rprogram import Control


class TvmTile:
    """``tvm_tile.compile``, nothing measured before.

    Attributes:
        topk: schedules of each kernel that compiling may measure; 1: none is.
        weld: whether kernels are joined beyond TVM's own fusion.
        coschedule: whether small kernels share persistent ones.
        dependent_launches, control: as in :class:`tvm_tile.stages.forced.Forced`.
    """

    name = "tvm_tile"
    variant = "top1"
    topk = 1
    weld = True
    coschedule = True
    dependent_launches: bool | Literal["auto"] = "auto"
    control: Control = "auto"
    preload = ("torch", "torch.export", "tvm_tile", "tvm_tile.frontend.torch")

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

        example, options = (torch.ones(4, 4),), tvm_tile.Options(cache=False)
        tvm_tile.compile(torch.nn.ReLU(), "nvidia/h200", example_inputs=example, options=options)

    def prepare(self, workload: Workload, case: Case, session: Session) -> Prepared:
        """Compile; calls are the public ones, on torch's tensors and stream."""
        model = self.compile(case, session)
        stages = {stage.name: stage.seconds for stage in model.report.stages}
        kernels, fallbacks = model.report.kernels, model.report.fallbacks
        return Prepared(
            start=lambda inputs: partial(model, *inputs),
            schedule_s=sum(stages.values()) - stages["machine code"] - stages.get("measure", 0.0),
            kernels=len(kernels),
            fallbacks=len(fallbacks),
            predicted_s=None if fallbacks else model.report.predicted_seconds,
            note=_note(kernels),
        )

    def compile(self, case: Case, session: Session, *, cuda_graph: bool = True) -> CompiledModel:
        """The case as a compiled model; without CUDA graphs where every launch is to be seen."""
        import tvm_tile
        from tvm_tile.stages.forced import Forced

        # One worker: the others compile other workloads. So the compiler's share is exact, too.
        options = Forced(
            cuda_graph=cuda_graph,
            weld=self.weld,
            coschedule=self.coschedule,
            dependent_launches=self.dependent_launches,
            control=self.control,
            parallel_builds=1,
            topk=self.topk,
            # Others may be measuring, and what waiting for them takes is not compile time.
            exclusive=session.gpu,
            # What is measured is compiling, not reading what an earlier run has compiled.
            cache=False,
        )
        example = untouched(case)
        return tvm_tile.compile(
            case.module, session.device, example_inputs=example, options=options
        )


class TvmTileTop10(TvmTile):
    """The fastest of the model's ten first choices for each kernel, measured one by one."""

    variant = "top10"
    topk = 10


class TvmTileUnfused(TvmTile):
    """Each group of TVM's own fusion is a kernel; layouts and schedules are ours as always."""

    name = "tvm_tile_unfused"
    variant = ""
    weld = False


class TvmTileNoCoschedule(TvmTile):
    """Each kernel is launched by itself, in a CUDA graph; kernels are ours as always."""

    name = "tvm_tile_no_coschedule"
    variant = ""
    coschedule = False


class TvmTileDependent(TvmTile):
    """Each kernel that can starts while the one before it in a CUDA graph ends."""

    name = "tvm_tile"
    variant = "dependent launches"
    dependent_launches = True


class TvmTileOrdinary(TvmTile):
    """No kernel starts before the one before it has ended."""

    name = "tvm_tile"
    variant = "ordinary launches"
    dependent_launches = False


def _note(kernels: Sequence[Any]) -> str:
    """The tile of a single kernel, and which choice it was; how many were not the first."""
    if len(kernels) == 1:
        (kernel,) = kernels
        place = f"#{kernel.rank} of {kernel.measured}: " if kernel.measured else ""
        return f"{place}{kernel.rule} {kernel.tile}"
    measured = [kernel for kernel in kernels if kernel.measured]
    others = sum(kernel.rank > 0 for kernel in measured)
    return f"not the first choice for {others} of {len(measured)}" if measured else ""


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
