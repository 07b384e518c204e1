"""This project behind ``torch.compile``."""

from __future__ import annotations

from typing import Any

from bench.systems.system import Prepared, Session
from bench.systems.torch_eager import bound, on_device_of
from bench.systems.tvm_tile import TvmTile
from bench.workload import Case, Workload


class TorchBackend(TvmTile):
    """``torch.compile(module, backend="tvm_tile")``: PyTorch's guards and wrappers at each call,
    and weights that are inputs, which TVM captures in no CUDA graph."""

    name = "tvm_tile_torch"
    preload = (*TvmTile.preload, "torch._dynamo", "tvm_tile.torch.backend")

    def prepare(self, workload: Workload, case: Case, session: Session) -> Prepared:
        """Compile at a first call, which runs on the GPU, too; PyTorch may run no operator."""
        import torch

        from tvm_tile.torch.backend import compiled
        from tvm_tile.torch.options import BackendOptions
        from tvm_tile.torch.report import GraphReport

        torch._dynamo.reset()
        inputs = session.draw()
        options = BackendOptions.of(
            {
                "device": session.device,
                "topk": self.topk,
                "parallel_builds": 1,
                "exclusive": session.gpu,
                "cache": False,
            }
        )
        reports: list[GraphReport] = []

        def backend(graph: Any, examples: Any) -> Any:
            return compiled(graph, examples, options, reports.append)

        run = torch.compile(on_device_of(case.module, inputs), backend=backend, dynamic=False)
        with session.gpu:
            bound(run, inputs)()
        models = [part.model for report in reports for part in report.parts]
        eager = sum(len(report.eager) for report in reports)
        return Prepared(
            start=lambda inputs: bound(run, inputs),
            kernels=sum(len(model.report.kernels) for model in models),
            fallbacks=sum(len(model.report.fallbacks) for model in models),
            note=f"PyTorch runs {eager} operators" if eager else "",
        )
