"""Single PrimFuncs: an operator's function, its candidates, and building them to be called."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bench.inputs import untouched
from bench.workload import Case


def fused_function(case: Case, device: Any) -> Any | None:
    """The case's one unscheduled PrimFunc after fusion; None if it has several."""
    from tvm import tirx

    from tvm_tile.frontend import import_model
    from tvm_tile.pipeline import fuse

    mod = fuse(import_model(case.module, example_inputs=untouched(case)).mod, device)
    functions = [f for f in mod.functions.values() if isinstance(f, tirx.PrimFunc)]
    return functions[0] if len(functions) == 1 else None


def find_candidates(func: Any, device: Any, ranks: tuple[int, ...]) -> dict[int, Any]:
    """Rank -> schedule of the model's choices; empty where no rule takes the function."""
    from tvm_tile.graph.extract import extract
    from tvm_tile.schedule import Task, candidates_at

    graph = extract(func)
    return {} if graph is None else candidates_at(Task(func, graph, device), ranks)


@dataclass(frozen=True, slots=True)
class Functions:
    """Built PrimFuncs, to be called destination-style: ``functions[name](*inputs, output)``.

    Attributes:
        names: of those that build.
    """

    names: frozenset[str]
    _module: Any
    _launchers: tuple[object, ...]  # emulated kernels live as long as these

    def __getitem__(self, name: str) -> Any:
        return self._module[name]


def build_functions(functions: Mapping[str, Any], device: Any) -> Functions:
    """Build scheduled PrimFuncs."""
    from tvm import relax

    from tvm_tile import compat
    from tvm_tile.build import Builder
    from tvm_tile.runtime.emulate import attach_emulated

    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((1,), "float32"))
    with builder.function("main", [x]):
        builder.emit_func_output(x)
    mod = builder.get()
    for symbol, func in functions.items():
        mod[symbol] = func.with_attr("global_symbol", symbol)
    tools = Builder(device)
    failures = tools.find_failures(mod)
    for symbol in failures:
        del mod[symbol]
    mod = relax.transform.VMShapeLower()(relax.transform.AttachGlobalSymbol()(mod))
    program = tools.build(mod)
    host = compat.load_host(program.host)
    launchers: list[object] = []
    for kernel in program.kernels:
        if program.language == "opencl":
            launchers.append(attach_emulated(kernel))
            continue
        host.import_module(
            compat.cuda_module_from_cubin(
                kernel.name, kernel.arg_types, kernel.launch_params, kernel.binary
            )
        )
    return Functions(frozenset(functions.keys() - failures.keys()), host, tuple(launchers))
