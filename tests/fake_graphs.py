"""CUDA graphs on the CPU: the virtual machine's two builtins in Python, which record and replay.

A replay runs a captured function on what it was given when it was captured, whatever a call passes:
as on a GPU it reads memory that weights have left, and gives back the tensors of the capture.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import tvm
import tvm_ffi

import tvm_tile
from tvm_tile.device import Device

_PREFIX = "vm.builtin.cuda_graph."


def emulated_with_graphs() -> Device:
    """The emulated device, compiled for as if it had CUDA graphs."""
    return dataclasses.replace(tvm_tile.find_device("emulated"), supports_graphs=True)


@dataclass(frozen=True, slots=True)
class FakeGraphs:
    """What virtual machines keep.

    Attributes:
        memory: by function of a machine: what it has allocated.
        captured: by function of a machine and its key: the function, its arguments and result.
        replayed: the keys of the graphs that ran again, in order.
    """

    memory: dict[Any, tuple[Any, Any]] = field(default_factory=dict)
    captured: dict[Any, tuple[Any, Any, Any]] = field(default_factory=dict)
    replayed: list[Any] = field(default_factory=list)

    def allocate(self, context: Any, make: Any, place: int) -> Any:
        """``vm.builtin.cuda_graph.get_cached_alloc``."""
        key = make.__chandle__(), place
        if key not in self.memory:
            self.memory[key] = make, _invoke(context, make)
        return self.memory[key][1]

    def run(self, context: Any, function: Any, arguments: Any, number: int, *shape: Any) -> Any:
        """``vm.builtin.cuda_graph.run_or_capture``."""
        key = function.__chandle__(), number, *(tuple(extents) for extents in shape)
        if key not in self.captured:
            self.captured[key] = function, arguments, _invoke(context, function, *arguments)
        else:
            self.replayed.append(key)
            _invoke(context, function, *self.captured[key][1])
        return self.captured[key][2]


def _invoke(context: Any, function: Any, *arguments: Any) -> Any:
    return tvm.get_global_func("vm.builtin.invoke_closure")(context, function, *arguments)


@contextmanager
def fake_graphs() -> Iterator[FakeGraphs]:
    """While it lasts, all virtual machines capture and replay like this."""
    graphs = FakeGraphs()
    builtins = {"get_cached_alloc": graphs.allocate, "run_or_capture": graphs.run}
    names = [_PREFIX + name for name in builtins]
    former = {name: tvm.get_global_func(name, allow_missing=True) for name in names}
    for name, function in zip(names, builtins.values(), strict=True):
        tvm_ffi.register_global_func(name, function, override=True)
    try:
        yield graphs
    finally:
        for name, function in former.items():
            if function is None:
                tvm_ffi.registry.remove_global_func(name)
            else:
                tvm_ffi.register_global_func(name, function, override=True)
