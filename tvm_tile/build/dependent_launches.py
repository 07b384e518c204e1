"""Kernels that start while the one before them ends: programmatic dependent launches (PDL).

A launch with the attribute "programmatic stream serialization" may start as soon as every block of
the kernel before it on the stream has ended, before what that kernel wrote is visible. (Blocks may
say ``griddepcontrol.launch_dependents`` earlier; none here does.)
Captured into a CUDA graph, the order between the two becomes a programmatic edge (by drivers of
CUDA 12.3 and later), where the one before is a kernel; behind a copy it is an ordinary one. Until
``griddepcontrol.wait`` returns, which it does once all blocks of the kernel before have ended and
what they wrote is visible, nothing that an earlier kernel of the stream reads or writes may be
touched (PTX ISA, griddepcontrol; CUDA programming guide, programmatic dependent launch).

**The rule**: a kernel is launched with the attribute if, and only if, each of its threads waits
before all else, but for copies of constants to where no other thread sees them: nobody writes a
constant while a model runs. So the order that the stream had remains: let kernels A, B, C follow
each other.

* C depends on B: none of its threads touches memory before all of B has ended and is visible.
* C depends on A: B ends only when its threads have, and each of these has waited until A had ended
  and was visible; or B was launched without the attribute, and began only then. What A wrote before
  B's wait, B's wait before B's end, and B's end before C's wait: order is transitive.
* C overwrites what A or B still read: the same, as they have ended.
* Blocks let dependents go by ending, unless all kernels behind them ask for constants ahead. So C
  begins when every block of B has ended: the blocks of C find all multiprocessors free, and spread
  over them. Let go earlier, they would crowd on those that B leaves idle, several on one;
  ResNet-50, whose kernels have fewer blocks than there are multiprocessors, lost 6 % by that, and
  gains 4 % without. Kernels that ask ahead have blocks that fill all multiprocessors, in half of
  their memory, so that they find room beside those before them: these let them go first of all.
  When C begins does not matter to the order, which its wait keeps.

Cooperative launches keep the ordinary edge: all blocks of a persistent kernel are to be resident at
once, and those of a kernel that still runs would be in their way. So does what is not built here,
library calls and copies; a kernel of ours behind them starts when they have ended. Clusters wait as
other kernels do; CUTLASS launches them with the attribute, too.

**No** ``__restrict__`` of what other kernels write: compilers take it to say that a pointer's
memory does not change while the kernel runs. They would read it through the path for constants
(``ld.global.nc``), which is not coherent and knows no order, and may move such a read above the
wait. Constants may be read so, and before the wait. And a pointer that a kernel only writes to
keeps it: else each read behind a write would have to wait for it, as both might be of one place.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tvm_tile import compat
from tvm_tile.build.program import DEPENDENT_TAG
from tvm_tile.graph.expression import uses
from tvm_tile.graph.extract import nodes_in

_MARK = "tvm_tile.dependent_launch"
_CONSTANTS, _SECONDS, _LETS_GO = "constants", "step_seconds", "lets_go"
_DEPENDENCY = "griddepcontrol"
_HEAD = re.compile(r'(extern "C" __global__ void (?:__\w+\([\d, ]*\) )*\w+\()([^)]*)(\))')
_COOPERATIVE = "tirx.use_cooperative_launch"
_LAST_TAG = "tirx.use_dyn_shared_memory"
_ASK_FOR_MAP = Path(__file__).with_name("ask_for_map.h").read_text()


def mark(func: Any, seconds: float, constants: Iterable[str], *, lets_go: bool = False) -> Any:
    """A scheduled PrimFunc whose kernels are to start early.

    Args:
        func: itself.
        seconds: predicted seconds by which a call behind another kernel ends earlier.
        constants: names of the parameters that are constants in every call.
        lets_go: whether kernels behind it may begin as soon as all of its blocks have.
    """
    told = {_CONSTANTS: list(constants), _SECONDS: float(seconds), _LETS_GO: lets_go}
    return func.with_attr(_MARK, told)


def asks_ahead(func: Any) -> bool:
    """Whether a scheduled PrimFunc says by itself where it waits: behind asking for constants."""
    return any(_is_dependency(s, "wait") for s in nodes_in(func.body, _evaluate()))


def step_seconds(func: Any) -> float:
    """Seconds that a call behind another kernel gains, as told to :func:`mark`; else zero."""
    told = (func.attrs or {}).get(_MARK)
    return 0.0 if told is None else float(told[_SECONDS])


def start_early(kernel: compat.LoweredKernel, func: Any) -> compat.LoweredKernel:
    """A lowered kernel of a PrimFunc, as it starts early if the function is marked.

    before: ``kernel(y, x, w) {...}``
    after:  ``kernel(y, x, w) {wait(); ...}``, with ``__restrict__`` at ``y`` and ``w`` only, if
    ``w`` is a constant, and with the attribute among its launch parameters

    A kernel that waits by itself, once it has asked for constants, gets no other wait, if it has
    read nothing else.

    A constant's pointer is known by its name. Tensor maps, which the copy engine reads, are
    prefetched ahead of the wait: they lie among the parameters, which nobody writes.
    """
    told = (func.attrs or {}).get(_MARK)
    if told is None or _COOPERATIVE in kernel.launch_params:
        return kernel
    constants = set(map(str, told[_CONSTANTS]))
    (own,) = (var for var, f in kernel.module.functions.items() if _symbol(f) == kernel.name)
    inner = kernel.module[own]
    is_only_written = _only_written(inner.body)
    alone = tuple(
        position
        for position, param in enumerate(inner.params)
        if _name(param) in constants or is_only_written(param)
    )
    opened = _waiting(inner, kernel.arg_types, constants, lets_go=bool(told[_LETS_GO]))
    functions = {**kernel.module.functions, own: opened}
    tags = list(kernel.launch_params)
    # TVM wants the size of dynamic shared memory at the end.
    tags.insert(len(tags) - (tags[-1:] == [_LAST_TAG]), DEPENDENT_TAG)
    module = _module(functions, kernel)
    return replace(kernel, module=module, launch_params=tuple(tags), alone=alone)


def restricted(source: str, alone: Sequence[int]) -> str:
    """A kernel's text with ``__restrict__`` at the pointers of these positions.

    before: ``extern "C" __global__ void f(float* y, float* x)``
    after:  ``extern "C" __global__ void f(float* __restrict__ y, float* x)``
    """

    def rewritten(head: re.Match[str]) -> str:
        kinds = head[2].split(", ")
        for position in alone:
            kinds[position] = kinds[position].replace("* ", "* __restrict__ ")
        return f"{head[1]}{', '.join(kinds)}{head[3]}"

    return _HEAD.sub(rewritten, source) if alone else source


def _name(param: Any) -> str:
    """The name of a kernel's parameter in the function that the kernel was made of."""
    return str(param.name).removesuffix("_ptr")


def _only_written(body: Any) -> Callable[[Any], bool]:
    """Tells of a kernel's parameters whether it has them for nothing but to write by stores."""
    import tvm_ffi
    from tvm.ir import Call, TensorLoad
    from tvm.tirx import BufferStore, DeclBuffer, Var

    found: dict[Any, list[Any]] = {k: [] for k in (DeclBuffer, Call, TensorLoad, BufferStore)}
    visits = [(kind, nodes.append) for kind, nodes in found.items()]
    tvm_ffi.structural_walk(body, visits, order="pre")
    declared, calls, loads, stores = found.values()

    def is_only_written(param: Any) -> bool:
        names, views = {param}, []  # of the parameter: a buffer is declared before it is used

        def is_name(value: Any) -> bool:
            return isinstance(value, Var) and value in names

        for declaration in declared:
            data = declaration.data
            if is_name(data) or (isinstance(data, Call) and is_name(data.args[0])):
                names.add(declaration.buffer)
                views.append(data)
        is_handed_on = any(
            any(map(is_name, call.args)) and not any(call.same_as(view) for view in views)
            for call in calls
        )
        is_read = is_handed_on or any(is_name(load.source) for load in loads)
        return not is_read and any(is_name(store.buffer) for store in stores)

    return is_only_written


def _symbol(func: Any) -> str:
    """Symbol of a function."""
    return str((func.attrs or {}).get("global_symbol"))


def _module(functions: Mapping[Any, Any], kernel: compat.LoweredKernel) -> Any:
    """A module with other functions and the attributes of a kernel's module."""
    import tvm

    return tvm.IRModule(functions, attrs=kernel.module.attrs)


def _waiting(
    kernel: Any, arg_types: Sequence[str], constants: Collection[str], *, lets_go: bool
) -> Any:
    """The kernel with its tensor maps' prefetches and the wait ahead of all that it does."""
    from tvm.script import tirx as T
    from tvm.tirx import Evaluate, SeqStmt

    maps = [
        T.cuda.func_call("tile_ask_for_map", T.address_of(param), source_code=_ASK_FOR_MAP)
        for param, kind in zip(kernel.params, arg_types, strict=True)
        if kind == "tensormap"
    ]
    by_itself = any(_is_dependency(s, "launch") for s in nodes_in(kernel.body, Evaluate))
    going = [T.ptx.griddepcontrol.launch_dependents()] if lets_go and not by_itself else []
    waits = [] if _waits_behind_constants(kernel, constants) else [T.ptx.griddepcontrol.wait()]
    opening = [Evaluate(call) for call in (*going, *maps, *waits)]
    body = SeqStmt([*opening, kernel.body]) if opening else kernel.body
    return kernel.with_body(body).without_attr("tirx.noalias")


def _waits_behind_constants(kernel: Any, constants: Collection[str]) -> bool:
    """Whether all threads of a kernel wait by themselves, and touch only constants before that."""
    from tvm.tirx import AllocBuffer, AttrStmt, DeclBuffer, SeqStmt

    others = {param for param in kernel.params if _name(param) not in constants}
    pending = [kernel.body]
    while pending:
        statement = pending.pop()
        if isinstance(statement, SeqStmt):
            pending += reversed(list(statement))
        elif isinstance(statement, AttrStmt):
            pending.append(statement.body)
        elif isinstance(statement, DeclBuffer):
            if uses(statement, list(others)):
                others.add(statement.buffer)
        elif _is_dependency(statement, "wait"):
            return True
        elif not isinstance(statement, AllocBuffer) and uses(statement, list(others)):
            return False
    return False


def _is_dependency(statement: Any, kind: str) -> bool:
    """Whether a statement waits for the kernel before this one, or lets go the one behind it."""
    if not isinstance(statement, _evaluate()):
        return False
    call = statement.value
    name = str(getattr(getattr(call, "op", None), "name", ""))
    return _DEPENDENCY in name and kind in str(call.args)


def _evaluate() -> Any:
    """The class of statements that are calls."""
    from tvm.tirx import Evaluate

    return Evaluate
