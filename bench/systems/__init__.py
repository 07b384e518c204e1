"""The systems that are compared, by name."""

from __future__ import annotations

import importlib
from collections.abc import Iterable

from bench.systems.system import System

_SYSTEMS = {
    "tvm_tile": "bench.systems.tvm_tile:TvmTile",
    "tvm_tile_top10": "bench.systems.tvm_tile:TvmTileTop10",
    "tvm_tile_unfused": "bench.systems.tvm_tile:TvmTileUnfused",
    "tvm_tile_no_coschedule": "bench.systems.tvm_tile:TvmTileNoCoschedule",
    "tvm_tile_dependent": "bench.systems.tvm_tile:TvmTileDependent",
    "tvm_tile_ordinary": "bench.systems.tvm_tile:TvmTileOrdinary",
    "tvm_tile_loops": "bench.systems.loops:TvmTileLoops",
    "tvm_tile_kernel_loops": "bench.systems.loops:TvmTileKernelLoops",
    "tvm_tile_auto_loops": "bench.systems.loops:TvmTileAutoLoops",
    "torch": "bench.systems.torch_eager:TorchEager",
    "torch_graph": "bench.systems.torch_eager:TorchGraph",
    "torch_compile": "bench.systems.torch_compile:TorchCompile",
    "torch_compile_max": "bench.systems.torch_compile:TorchCompileMax",
    "torch_compile_tuned": "bench.systems.torch_compile:TorchCompileTuned",
    "torch_compile_loops": "bench.systems.loops:TorchCompileLoops",
    "torch_tvm_tile": "bench.systems.torch_backend:TorchBackend",
    "torch_tvm_tile_frozen": "bench.systems.torch_backend:FrozenTorchBackend",
    "dlight": "bench.systems.dlight:Dlight",
    "metaschedule": "bench.systems.metaschedule:MetaSchedule",
    "jax": "bench.systems.jax_loop:JaxLoop",
    "onnxruntime": "bench.systems.onnx_runtime:OnnxRuntime",
}


def names() -> tuple[str, ...]:
    """All systems."""
    return tuple(_SYSTEMS)


def preloaded(names: Iterable[str]) -> tuple[str, ...]:
    """Modules that these systems need and that take long to import."""
    modules: dict[str, None] = {}
    for name in names:
        modules.update(dict.fromkeys(load_system(name).preload))
    return tuple(modules)


def load_system(name: str) -> System:
    """A system by its name here, or any other as ``module:class``.

    Raises:
        KeyError: no such name.
    """
    module, _, attribute = (_SYSTEMS[name] if ":" not in name else name).partition(":")
    made: System = getattr(importlib.import_module(module), attribute)()
    return made
