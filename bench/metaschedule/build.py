"""Candidates to machine code: TVM's default pipeline, then NVRTC in several processes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from bench.isolated import Crash, run_jobs

# MetaSchedule's own builder allows 30 s; several operators share the cores here.
COMPILE_LIMIT_S = 60.0


@dataclass(frozen=True, slots=True)
class Kernel:
    """One kernel of a candidate; ``cubin`` is empty before it is compiled."""

    name: str
    arg_types: tuple[str, ...]
    launch_params: tuple[str, ...]
    source: str
    cubin: bytes = b""


@dataclass(frozen=True, slots=True)
class Artifact:
    """A candidate as bytes: LLVM bitcode of its host function ``main``, and its kernels."""

    host: bytes
    kernels: tuple[Kernel, ...]

    def load(self) -> Any:
        """A module that holds its function ``main``, destination-style; needs the GPU."""
        from tvm_tile import compat

        module = compat.load_host(self.host)
        for kernel in self.kernels:
            module.import_module(
                compat.cuda_module_from_cubin(
                    kernel.name, kernel.arg_types, kernel.launch_params, kernel.cubin
                )
            )
        return module


Built = Artifact | str


def build(functions: Sequence[Any], target: Any, workers: int) -> list[Built]:
    """Build scheduled PrimFuncs.

    Args:
        functions: each of a symbol ``main``.
        target: TVM's, CUDA.
        workers: threads that lower, then processes that compile.

    Returns:
        For each function its artifact, or why it does not build.
    """
    arch = str(target.attrs["arch"])
    with ThreadPoolExecutor(workers) as pool:
        lowered = list(pool.map(lambda function: _lower(function, target), functions))
    sources = {k.source for item in lowered if isinstance(item, Artifact) for k in item.kernels}
    jobs = [f"{arch}\n{source}" for source in sorted(sources)]
    compiled = {
        job.partition("\n")[2]: result
        for job, result in run_jobs(
            make_compiler, jobs, workers=max(1, min(workers, len(jobs))), timeout=COMPILE_LIMIT_S
        )
    }
    return [item if isinstance(item, str) else _filled(item, compiled) for item in lowered]


def make_compiler() -> Any:
    """What each compiling process does with ``"ARCH\\nSOURCE"``: the cubin, or the error."""
    from tvm_tile.build.cuda import compile_cuda
    from tvm_tile.errors import BuildError

    def compile_one(job: str) -> bytes | str:
        arch, _, source = job.partition("\n")
        try:
            return compile_cuda(source, arch)
        except BuildError as error:
            return str(error)

    return compile_one


def _filled(item: Artifact, compiled: Mapping[str, bytes | str | Crash]) -> Built:
    kernels = []
    for kernel in item.kernels:
        cubin = compiled[kernel.source]
        if not isinstance(cubin, bytes):
            return f"NVRTC: {cubin}"
        kernels.append(replace(kernel, cubin=cubin))
    return replace(item, kernels=tuple(kernels))


def _lower(function: Any, target: Any) -> Built:
    """TVM's default lowering, its settings untouched.

    Loops that MetaSchedule wants unrolled must be: the compiler is told how many copies a
    software pipeline waits for, as a constant.
    """
    import tvm
    from tvm.tirx.build import split_host_device_mods

    from tvm_tile import compat

    try:
        pipeline, finalize_host, finalize_device = tvm.tirx.get_tir_pipeline("default")
        with target:
            bound = tvm.tirx.transform.BindTarget(target)(tvm.IRModule({"main": function}))
            host, devices = split_host_device_mods(pipeline(bound))
            host = finalize_host()(host)
            if compat.writes_memory(host):
                return "some of its loops run on the host"
            kernels = [
                kernel
                for device_target, module in devices.items()
                for kernel in compat.split_kernels(finalize_device()(module), device_target)
            ]
            return Artifact(
                compat.generate_host(host),
                tuple(
                    Kernel(k.name, k.arg_types, k.launch_params, compat.generate_source(k))
                    for k in kernels
                ),
            )
    except Exception as error:  # TVM's passes raise whatever they like
        return f"{type(error).__name__}: {error}"
