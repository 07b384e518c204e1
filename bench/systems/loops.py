"""Networks with PyTorch's loops and branches (``scan``, ``while_loop``, ``cond``) in them.

What traces these sees control flow, and not the iterations and sides of one input, so that they
are right for any. The other systems have Python's, which all but eager PyTorch must unroll.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from bench.suites.networks.looped import looped
from bench.systems.system import NotSupported, Prepared, Session
from bench.systems.torch_compile import TorchCompile
from bench.systems.torch_eager import bound
from bench.systems.tvm_tile import TvmTile
from bench.workload import Case, Workload
from tvm_tile.plan.rprogram import Control


class TvmTileLoops(TvmTile):
    """``tvm_tile.compile`` of such a network, its loops on the host."""

    name = "tvm_tile_loops"
    control: Control = "host"
    variant = control

    def prepare(self, workload: Workload, case: Case, session: Session) -> Prepared:
        """Compile what the case's module is with loops, or with recursion."""
        return super().prepare(workload, with_loops(case), session)


class TvmTileKernelLoops(TvmTileLoops):
    """The same, its loops in persistent kernels wherever they can be."""

    control: Control = "kernel"
    variant = control


class TvmTileAutoLoops(TvmTileLoops):
    """The same, each loop where it is predicted to be faster."""

    control: Control = "auto"
    variant = control


class TorchCompileLoops(TorchCompile):
    """Inductor, of such a network; conditions are read by the host, which no graph can hold."""

    name = "torch_compile_loops"

    def prepare(self, workload: Workload, case: Case, session: Session) -> Prepared:
        """Compile what the case's module is with loops; launched call by call."""
        import torch
        import torch._inductor.config

        torch._dynamo.reset()
        compiled = torch.compile(session.place(_looped(case).module), fullgraph=True, dynamic=False)
        inputs = session.draw()
        with (
            torch._inductor.config.patch({"compile_threads": session.threads}),
            session.gpu,
        ):
            bound(compiled, inputs)()
        return Prepared(start=lambda inputs: bound(compiled, inputs))


def with_loops(case: Case) -> Case:
    """The case with its network written with loops and branches, or, as a Relax module, recursion.

    Raises:
        NotSupported: there is none.
    """
    from bench.suites.networks.recursive_autoencoder import RecursiveAutoencoder

    if not isinstance(case.module, RecursiveAutoencoder):
        return _looped(case)
    from bench.suites.networks.recursive_module import recursive_module

    module: Any = recursive_module(case.module)
    return replace(case, module=module)


def _looped(case: Case) -> Case:
    module = looped(case.module)
    if module is None:
        raise NotSupported("PyTorch has no word for its control flow")
    return replace(case, module=module)
