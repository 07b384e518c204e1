"""``torch.compile`` with this project behind it: what a user of PyTorch gets by one line."""

from __future__ import annotations

from bench.systems.system import Prepared, Session
from bench.systems.torch_eager import bound, no_gpu, peer_module
from bench.workload import Case, Workload


class TorchBackend:
    """``torch.compile(module, backend="tvm_tile")``, whose weights are inputs of each call.

    Calls are plain ones: whatever is captured in CUDA graphs the backend captures itself.

    Attributes:
        freezes: whether weights are compiled in.
    """

    name = "torch_tvm_tile"
    variant = ""
    freezes = False
    preload = ("torch", "torch._dynamo", "tvm_tile", "tvm_tile.frontend.torch")

    def missing(self) -> str:
        """It compiles for the GPU that tensors are on."""
        return no_gpu()

    def version(self) -> str:
        """This package's."""
        import tvm_tile

        return f"tvm_tile {tvm_tile.__version__}"

    def warm_up(self) -> None:
        """Trace, import and schedule something small."""
        import torch

        from tvm_tile.torch import tvm_tile

        torch.compile(torch.relu, backend=tvm_tile, dynamic=False)(torch.ones(8, device="cuda"))

    def prepare(self, workload: Workload, case: Case, session: Session) -> Prepared:
        """Compile at the first call, on other inputs of the same shapes."""
        import torch

        # Itself, not its name: that is known where this package is installed.
        from tvm_tile.stages.forced import Forced
        from tvm_tile.torch import tvm_tile

        torch._dynamo.reset()
        inputs = session.draw()
        module = session.place(peer_module(workload, case))
        # One worker: the others compile other workloads. An earlier run's plans are not read.
        forced = Forced(parallel_builds=1, cache=False)
        options = {"options": forced, "freeze": self.freezes}
        compiled = torch.compile(
            module, backend=tvm_tile, options=options, fullgraph=True, dynamic=False
        )
        bound(compiled, inputs)()
        return Prepared(start=lambda given: bound(compiled, given))


class FrozenTorchBackend(TorchBackend):
    """The same with weights that are said to stay as they are."""

    name = "torch_tvm_tile_frozen"
    variant = "frozen"
    freezes = True
