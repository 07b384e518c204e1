"""Single PrimFuncs: an operator's function, and building them to be called."""

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
    from tvm_tile.stages.fusing import fuse

    mod = fuse(import_model(case.module, example_inputs=untouched(case)).mod, device).mod
    functions = [f for f in mod.functions.values() if isinstance(f, tirx.PrimFunc)]
    return functions[0] if len(functions) == 1 else None


@dataclass(frozen=True, slots=True)
class Functions:
    """Built PrimFuncs, to be called destination-style: ``functions[name](*inputs, output)``.

    Attributes:
        names: of those that build.
    """

    names: frozenset[str]
    _loaded: Mapping[str, Any]

    def __getitem__(self, name: str) -> Any:
        return self._loaded[name][name]


def build_functions(functions: Mapping[str, Any], device: Any) -> Functions:
    """Build scheduled PrimFuncs and load them onto the device."""
    from tvm_tile.build import Builder, Program
    from tvm_tile.runtime.launch import load_functions

    programs = Builder(device).build_functions(functions)
    loaded = {
        name: load_functions(program, device.name)
        for name, program in programs.items()
        if isinstance(program, Program)
    }
    return Functions(frozenset(loaded), loaded)
