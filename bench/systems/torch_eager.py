"""PyTorch as its users run it: cuBLAS, cuDNN in benchmark mode, ATen's kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from bench.suites import vendor_module
from bench.systems.system import Prepared, Session
from bench.workload import Case, Workload

_WARM_UP_RUNS = 3


class TorchEager:
    """Call by call."""

    name = "torch"
    variant = ""
    preload: tuple[str, ...] = ("torch",)

    def missing(self) -> str:
        """Runs wherever the benchmark does."""
        return ""

    def version(self) -> str:
        """With the libraries behind it."""
        import torch

        cudnn = torch.backends.cudnn.version() if torch.backends.cudnn.is_available() else None
        return f"torch {torch.__version__}, CUDA {torch.version.cuda}, cuDNN {cudnn}"

    def warm_up(self) -> None:
        """Nothing: the first run is waited for anyway."""

    def prepare(self, workload: Workload, case: Case, session: Session) -> Prepared:
        """Nothing to compile; cuDNN tries its algorithms at the first call."""
        module = peer_module(workload, case)
        return Prepared(start=lambda inputs: bound(session.place(module), inputs))


class TorchGraph(TorchEager):
    """The same calls, captured in a CUDA graph."""

    name = "torch_graph"

    def missing(self) -> str:
        """CUDA graphs need CUDA."""
        return no_gpu()

    def prepare(self, workload: Workload, case: Case, session: Session) -> Prepared:
        """Captured at the start."""
        module = peer_module(workload, case)
        return Prepared(start=lambda inputs: captured(bound(session.place(module), inputs)))


def peer_module(workload: Workload, case: Case) -> Any:
    """The vendor's fused form where the suite has one, else the module itself."""
    return vendor_module(workload, workload.suite) or case.module


def bound(function: Callable[..., Any], inputs: Sequence[Any]) -> Callable[[], Any]:
    """The call of ``function`` with these inputs, without gradients."""
    import torch

    def run() -> Any:
        with torch.inference_mode():
            return function(*inputs)

    return run


@dataclass(frozen=True, slots=True)
class Replay:
    """A captured CUDA graph; its outputs are the same tensors each time.

    Attributes:
        graph: what to replay.
        outputs: where it writes.
        run: what was captured. The graph has only the addresses of its weights and inputs: were
            they freed, it would read what is put there next.
    """

    graph: Any
    outputs: Any
    run: Callable[[], Any]

    def __call__(self) -> Any:
        """Replay."""
        self.graph.replay()
        return self.outputs


def captured(run: Callable[[], Any]) -> Replay:
    """``run`` as the replay of a CUDA graph."""
    import torch

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(_WARM_UP_RUNS):
            run()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outputs = run()
    return Replay(graph, outputs, run)


def no_gpu() -> str:
    """Why what needs a GPU cannot run; empty where there is one."""
    import torch

    return "" if torch.cuda.is_available() else "torch sees no GPU"
