"""Kernels that start while the one before them ends: programmatic dependent launches (PDL).

A launch with the attribute "programmatic stream serialization" may start as soon as every block of
the kernel before it on the stream has ended, or has let it go by saying
``griddepcontrol.launch_dependents``, before what that kernel wrote is visible.
Captured into a CUDA graph, the order between the two becomes a programmatic edge (by drivers of
CUDA 12.3 and later), where the one before is a kernel; behind a copy it is an ordinary one. Until
``griddepcontrol.wait`` returns, which it does once all blocks of the kernel before have ended and
what they wrote is visible, nothing that an earlier kernel of the stream reads or writes may be
touched (PTX ISA, griddepcontrol; CUDA programming guide, programmatic dependent launch).

**The rule**: a kernel is launched with the attribute if, and only if, each of its threads waits
before it touches global memory, but for copies of what is settled to where no thread of another
block sees them. Before, it computes indices, and makes its barriers in shared memory. Settled are
constants, which nobody writes while a model runs, and what kernels wrote that have ended for sure.
So the order that the stream had remains: let kernels A, B, C follow each other.

* C depends on B: none of its threads touches memory before all of B has ended and is visible.
* C depends on A: B ends only when its threads have, and each of these has waited until A had ended
  and was visible; or B was launched without the attribute, and began only then. What A wrote before
  B's wait, B's wait before B's end, and B's end before C's wait: order is transitive.
* C overwrites what A or B still read: the same, as they have ended.
* What A wrote is settled for C, if blocks of B let C go behind their own wait, or by ending: C
  begins when all blocks of B have, so behind what they waited for, the end of A and of all before
  it. So a step of a language model reads the caches that it keeps, and the position that it is
  at, while the product runs that makes its queries. Where B lets C go first of all, nothing but
  constants is settled for C.
* A kernel lets dependents go by what these do: first of all if they ask ahead for constants at
  most, behind its wait if they ask for what else is settled. One that waits for nothing, as it is
  launched without the attribute, lets all go first of all: it began when those before had ended.
* C that begins while B runs must not crowd on the multiprocessors that B leaves idle, several
  blocks on one; ResNet-50, whose kernels have fewer blocks than there are multiprocessors, lost 6 %
  by that. So blocks that are few ask for so much shared memory that they lie evenly
  (:mod:`tvm_tile.build.early.spread_blocks`). Where the number of C's blocks is not known before it
  runs, and it asks for nothing ahead, B lets it go by ending.

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

import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import Any

from tvm_tile import compat
from tvm_tile.build.early.steps import (
    DEPENDENCY,
    ahead_of_memory,
    behind_wait,
    is_dependency,
    name_of,
    touched_ahead,
)
from tvm_tile.build.program import COOPERATIVE_TAG, DEPENDENT_TAG, SHARED_TAG
from tvm_tile.graph.expression import uses
from tvm_tile.graph.extract import nodes_in
from tvm_tile.graph.tile_graph import element_size

_MARK = "tvm_tile.dependent_launch"
_CONSTANTS, _SETTLED, _SECONDS, _LETS_GO = "constants", "settled", "step_seconds", "lets_go"
_WAITS = "waits"
_COPY = "tirx.ptx.cp_async"
_HEAD = re.compile(r'(extern "C" __global__ void (?:__\w+\([\d, ]*\) )*\w+\()([^)]*)(\))')
_ASK_FOR_MAP = Path(__file__).with_name("ask_for_map.h").read_text()


class LetsGo(Enum):
    """When a kernel's blocks let the kernel behind it begin."""

    FIRST = "first of all"
    WAITED = "behind their wait"
    ENDED = "by ending"


def mark(
    func: Any,
    seconds: float,
    constants: Iterable[str],
    settled: Iterable[str] = (),
    lets_go: LetsGo = LetsGo.ENDED,
    *,
    waits: bool = True,
) -> Any:
    """A scheduled PrimFunc whose kernels are to start early, or to let those behind them do so.

    Args:
        func: itself.
        seconds: predicted seconds by which a call behind another kernel ends earlier.
        constants: names of the parameters that are constants in every call.
        settled: names of those that in every call only kernels wrote that have ended for sure.
        lets_go: when kernels behind it may begin, if it does not say so by itself.
        waits: whether they start early, and wait for the kernel before them.
    """
    names = {_CONSTANTS: list(constants), _SETTLED: list(settled)}
    how = {_SECONDS: float(seconds), _LETS_GO: lets_go.value, _WAITS: waits}
    return func.with_attr(_MARK, {**names, **how})


def starts_early(func: Any) -> bool:
    """Whether kernels of a function are to start early; see :func:`mark`."""
    told = (func.attrs or {}).get(_MARK)
    return told is not None and bool(told[_WAITS])


def asked_ahead(func: Any) -> frozenset[str] | None:
    """Names of the parameters that a scheduled PrimFunc touches before it waits by itself.

    ``None`` if it does not say by itself where it waits.
    """
    return touched_ahead(func.body, func.params)


def loaded_share(func: Any, constants: Collection[str]) -> float:
    """Share of its operands' bytes that a scheduled PrimFunc loads from memory that may change.

    Loads are slower from there, and compilers move none of them across a barrier. All else it
    copies, which is as fast from anywhere, or it is of ``constants``, by their names. What waits by
    itself, or has copies, is looked at so closely; of other functions it is all.
    """
    from tvm.ir import Call, TensorLoad
    from tvm.tirx import DeclBuffer, IntImm

    calls = {str(getattr(call.op, "name", "")) for call in nodes_in(func.body, Call)}
    if not any(name.startswith(_COPY) or DEPENDENCY in name for name in calls):
        return 1.0
    names = {param: name_of(param) for param in func.params}
    for declared in nodes_in(func.body, DeclBuffer):
        used = next((name for var, name in names.items() if uses(declared.data, [var])), None)
        if used is not None:
            names[declared.buffer] = used
    sources = [load.source for load in nodes_in(func.body, TensorLoad)]
    loaded = {name for var, name in names.items() if any(map(var.same_as, sources))}
    shapes = {name_of(param): list(getattr(param.ty, "shape", ())) for param in func.params}
    if not all(isinstance(extent, IntImm) for shape in shapes.values() for extent in shape):
        return 1.0
    sizes = {
        name: math.prod(map(int, shape)) * element_size(str(param.ty.dtype))
        for (name, shape), param in zip(shapes.items(), func.params, strict=True)
    }
    return sum(sizes[name] for name in loaded - set(constants)) / sum(sizes.values())


def step_seconds(func: Any) -> float:
    """Seconds that a call behind another kernel gains, as told to :func:`mark`; else zero."""
    told = (func.attrs or {}).get(_MARK)
    return 0.0 if told is None else float(told[_SECONDS])


def start_early(kernel: compat.LoweredKernel, func: Any) -> compat.LoweredKernel:
    """A lowered kernel of a PrimFunc, as it starts early if the function is marked so.

    before: ``kernel(y, x, w) {...}``
    after:  ``kernel(y, x, w) {wait(); ...}``, with ``__restrict__`` at ``y`` and ``w`` only, if
    ``w`` is a constant, and with the attribute among its launch parameters

    A kernel that waits by itself, once it has asked for what is settled, gets no other wait, if it
    has read nothing else.

    A constant's pointer is known by its name. Tensor maps, which the copy engine reads, are
    prefetched ahead of the wait: they lie among the parameters, which nobody writes.
    """
    told = (func.attrs or {}).get(_MARK)
    if told is None or COOPERATIVE_TAG in kernel.launch_params:
        return kernel
    if not told[_WAITS]:
        return _letting_go(kernel)
    constants = set(map(str, told[_CONSTANTS]))
    settled = constants | set(map(str, told[_SETTLED]))
    own = _own(kernel)
    inner = kernel.module[own]
    is_only_written = _only_written(inner.body)
    alone = tuple(
        position
        for position, param in enumerate(inner.params)
        if name_of(param) in constants or is_only_written(param)
    )
    known = constants, settled
    opened = _waiting(inner, kernel.arg_types, known, LetsGo(str(told[_LETS_GO])))
    functions = {**kernel.module.functions, own: opened}
    tags = list(kernel.launch_params)
    # TVM wants the size of dynamic shared memory at the end.
    tags.insert(len(tags) - (tags[-1:] == [SHARED_TAG]), DEPENDENT_TAG)
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


def _letting_go(kernel: compat.LoweredKernel) -> compat.LoweredKernel:
    """The kernel, launched as ever, whose blocks let the one behind it begin first of all."""
    from tvm.tirx import SeqStmt

    own = _own(kernel)
    inner = kernel.module[own]
    opened = inner.with_body(SeqStmt([*_goings(inner.body), inner.body]))
    return replace(kernel, module=_module({**kernel.module.functions, own: opened}, kernel))


def _goings(body: Any) -> list[Any]:
    """The statement that lets the kernel behind begin, unless a body has one by itself."""
    from tvm.script import tirx as T
    from tvm.tirx import Evaluate

    by_itself = any(is_dependency(s, "launch") for s in nodes_in(body, Evaluate))
    return [] if by_itself else [Evaluate(T.ptx.griddepcontrol.launch_dependents())]


def _own(kernel: compat.LoweredKernel) -> Any:
    """The name that a kernel's function has in its module."""
    (own,) = (var for var, f in kernel.module.functions.items() if _symbol(f) == kernel.name)
    return own


def _symbol(func: Any) -> str:
    """Symbol of a function."""
    return str((func.attrs or {}).get("global_symbol"))


def _module(functions: Mapping[Any, Any], kernel: compat.LoweredKernel) -> Any:
    """A module with other functions and the attributes of a kernel's module."""
    import tvm

    return tvm.IRModule(functions, attrs=kernel.module.attrs)


def _waiting(
    kernel: Any,
    arg_types: Sequence[str],
    known: tuple[Collection[str], Collection[str]],
    lets_go: LetsGo,
) -> Any:
    """The kernel with its tensor maps' prefetches, and the wait ahead of all that touches memory.

    ``known`` are the names of its parameters that are constants, and of all that are settled.
    """
    from tvm.script import tirx as T
    from tvm.tirx import Evaluate, SeqStmt

    from tvm_tile.build.early.ask_constants import asks_for
    from tvm_tile.build.launched import in_threads

    constants, settled = known
    maps = [
        T.cuda.func_call("tile_ask_for_map", T.address_of(param), source_code=_ASK_FOR_MAP)
        for param, kind in zip(kernel.params, arg_types, strict=True)
        if kind == "tensormap"
    ]
    going = _goings(kernel.body)
    touched, body = touched_ahead(kernel.body, kernel.params), kernel.body
    is_ahead = touched is not None and touched <= set(settled)
    late = set(constants) - (touched if touched is not None and is_ahead else set())
    asks = asks_for(body, [param for param in kernel.params if name_of(param) in late])
    if not is_ahead:
        body = ahead_of_memory(body, kernel.params, Evaluate(T.ptx.griddepcontrol.wait()))
    if lets_go is LetsGo.WAITED:
        body = behind_wait(body, going, kernel.params)
    first = going if lets_go is LetsGo.FIRST else []
    opening = [*first, *map(Evaluate, maps), *asks]
    if asks:
        body = in_threads(body, lambda own: SeqStmt([*opening, own]))
    elif opening:
        body = SeqStmt([*opening, body])
    return kernel.with_body(body).without_attr("tirx.noalias")
