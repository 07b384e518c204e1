"""TVM's default: ``tvm.compile`` with dlight's schedules, from the same imported module."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from bench.inputs import untouched
from bench.systems.system import Prepared, Session
from bench.systems.torch_eager import no_gpu
from bench.workload import Case, Workload

# dlight reads the digits of the architecture: with "sm_90a", TVM's own tag for the H100, it
# would take the GPU for one without tensor cores.
_TARGET = {
    "kind": "cuda",
    "arch": "sm_90",
    "max_shared_memory_per_block": 49152,
    "max_threads_per_block": 1024,
    "thread_warp_size": 32,
    "host": "llvm",
}


class Dlight:
    """TVM without tuning, as it comes."""

    name = "dlight"
    variant = ""
    # Parsing the intrinsics takes it 20 seconds.
    preload = ("torch", "torch.export", "tvm", "tvm_tile.frontend.torch", "tvm.s_tir.tensor_intrin")

    def missing(self) -> str:
        """It runs on the GPU that is there."""
        return no_gpu()

    def version(self) -> str:
        """TVM's."""
        import tvm

        return f"tvm {tvm.__version__}"

    def warm_up(self) -> None:
        """Its intrinsics are preloaded; nothing else is slow."""

    def prepare(self, workload: Workload, case: Case, session: Session) -> Prepared:
        """Compile with CUDA graphs on."""
        import tvm

        from tvm_tile.frontend import import_model

        imported = import_model(case.module, example_inputs=untouched(case))
        target = tvm.target.Target(_TARGET)
        with target, tvm.transform.PassContext(config={"relax.backend.use_cuda_graph": True}):
            executable = tvm.compile(imported.mod, target)
        return Prepared(start=lambda inputs: _started(executable, inputs))


def _started(executable: Any, inputs: Sequence[Any]) -> Callable[[], Any]:
    import torch
    import tvm

    machine = tvm.relax.VirtualMachine(executable, tvm.cuda(0))
    main = machine["main"]

    def run() -> Any:
        results = main(*inputs)
        if hasattr(results, "shape"):
            return _torch(torch, results)
        return tuple(_torch(torch, result) for result in results)

    return run


def _torch(torch: Any, result: Any) -> Any:
    return result if isinstance(result, torch.Tensor) else torch.from_dlpack(result)
