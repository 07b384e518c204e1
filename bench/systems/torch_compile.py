"""torch.compile at its strongest: max-autotune for operators, CUDA graphs for all.

The CUDA graph is captured here, not by Inductor: with its own it would copy every input at each
call, which a large operator would feel. So an operator has ``mode="max-autotune-no-cudagraphs"``,
and a model the default mode, which is ``"reduce-overhead"`` without its graphs.

For depthwise convolutions Inductor's own templates are left out of the tuning: on an H200 each of
them took 60 to 500 ms where cuDNN took 0.04 to 0.7, so that nothing but tuning time is lost.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from bench.systems.system import Prepared, Session
from bench.systems.torch_eager import bound, captured, no_gpu, peer_module
from bench.workload import Case, Workload


class TorchCompile:
    """Inductor, with Triton's kernels and the vendor's.

    Attributes:
        is_tuned: whether models are tuned as operators are.
        is_frozen: whether weights are compiled in.
    """

    name = "torch_compile"
    variant = ""
    is_tuned = False
    is_frozen = False
    preload = ("torch", "torch._dynamo", "torch._inductor.compile_fx", "triton")

    def missing(self) -> str:
        """It needs a GPU and Triton."""
        try:
            import triton  # noqa: F401
        except ImportError as error:
            return str(error)
        return no_gpu()

    def version(self) -> str:
        """Triton's; torch's own says the rest."""
        import torch
        import triton

        return f"torch.compile {torch.__version__} with triton {triton.__version__}"

    def warm_up(self) -> None:
        """Its imports; and one compiling thread, as other workloads compile at the same time."""
        import torch
        import torch._inductor.config

        torch._inductor.config.compile_threads = 1
        torch.compile(torch.relu, dynamic=False)(torch.ones(8, device="cuda"))

    def prepare(self, workload: Workload, case: Case, session: Session) -> Prepared:
        """Compile and tune on other inputs of the same shapes."""
        import torch
        import torch._inductor.config

        torch._dynamo.reset()
        is_tuned = case.is_operator or self.is_tuned
        mode = "max-autotune-no-cudagraphs" if is_tuned else "default"
        inputs = session.draw()
        module = session.place(peer_module(workload, case))
        compiled = torch.compile(module, mode=mode, fullgraph=True, dynamic=False)
        backends = "ATEN" if workload.family == "depthwise" else "ATEN,TRITON"
        options = {"max_autotune_conv_backends": backends, "freezing": self.is_frozen}
        options["compile_threads"] = session.threads
        with (
            torch._inductor.config.patch(options),
            _tuning_under(session.gpu),
        ):
            bound(compiled, inputs)()
        return Prepared(start=lambda inputs: captured(bound(compiled, inputs)))


class TorchCompileMax(TorchCompile):
    """The same with ``max-autotune`` for models, too."""

    variant = "max-autotune"
    is_tuned = True


class TorchCompileTuned(TorchCompileMax):
    """The same with frozen weights besides; minutes a model."""

    variant = "max-autotune, frozen"
    is_frozen = True


@contextmanager
def _tuning_under(gpu: AbstractContextManager[Any]) -> Iterator[None]:
    """Whatever Inductor times, it times holding the GPU."""
    from torch._inductor.runtime.benchmarking import benchmarker

    owner = type(benchmarker)
    plain = owner.benchmark_gpu

    @functools.wraps(plain)
    def alone(*args: Any, **kwargs: Any) -> Any:
        with gpu:
            return plain(*args, **kwargs)

    owner.benchmark_gpu = alone
    try:
        yield
    finally:
        owner.benchmark_gpu = plain
