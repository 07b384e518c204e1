"""How far loops are unrolled, for compilers that reorder all that they see at once.

LLVM's schedulers move all loads of a long straight run of code to its front, and then spill what
they cannot hold: loops of sums go a few turns at a time, and so do loops around unrolled ones. (How
much is in flight together, the tile has said, and LLVM would unroll whatever has few turns.) Loops
that walk through registers are unrolled whole: those need constant places, or they are memory.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

_MOST = 8  # iterations of a sum in a row
_MOST_HELD = 64  # registers that a loop may walk through
_MARK = "_by"
_MARKED = re.compile(rf"#pragma unroll(\s+for \(int \w+{_MARK}(\d+)(?:_\d+)? = )")


def mark_loops(kernel: Any) -> Any:
    """A lowered kernel (an IRModule) whose unrolled sums say in their variable how far to go.

    before: ``for k in unroll(24): ...``      after: ``for k_by8 in unroll(24): ...``
    before: ``for o in range(6): for k in unroll(4): ...``   after: ``for o_by2 in unroll(6): ...``
    before: ``for i in range(7): own[i] = ...``   after: ``for i in unroll(7): own[i] = ...``
    """
    import tvm

    functions = {
        name: function.with_body(_marked(function.body))
        for name, function in kernel.functions.items()
    }
    return tvm.IRModule(functions, attrs=kernel.attrs)


def limit_unrolling(source: str) -> str:
    """The text of a kernel that :func:`mark_loops` has marked, with pragmas that say it, too."""
    return _MARKED.sub(r"#pragma unroll \2\1", source)


def _marked(body: Any) -> Any:
    """A body whose loops are marked for how far they are to be unrolled."""
    import tvm_ffi
    from tvm.tirx import For, ForKind

    held = _walking_registers(body)

    def is_sum(loop: Any) -> bool:
        return loop.kind == ForKind.UNROLLED and loop.loop_var not in held

    def is_held(loop: Any) -> bool:
        return loop.loop_var in held and _turns(loop) <= _MOST_HELD

    def mark(loop: Any) -> Any:
        if loop.kind == ForKind.SERIAL and is_held(loop):
            return For(loop.loop_var, loop.min, loop.extent, ForKind.UNROLLED, loop.body)
        inside: list[Any] = []
        tvm_ffi.structural_walk(loop.body, (For, inside.append), order="pre")
        unrolled = [own for own in inside if own.kind == ForKind.UNROLLED]
        if is_sum(loop):
            unrolled = [own for own in unrolled if is_sum(own)]
        elif loop.kind != ForKind.SERIAL or loop.loop_var in held or not unrolled:
            return loop
        within = math.prod(_turns(own) for own in unrolled)
        return loop if _turns(loop) * within <= _MOST else _by(loop, max(1, int(_MOST // within)))

    return tvm_ffi.structural_map(body, (For, mark), order="post")


def _turns(loop: Any) -> float:
    """How many; infinite where that is not known."""
    from tvm.tirx import IntImm

    return int(loop.extent) if isinstance(loop.extent, IntImm) else math.inf


def _by(loop: Any, turns: int) -> Any:
    """The loop, marked to be unrolled by ``turns`` iterations at a time."""
    import tvm_ffi
    from tvm.tirx import For, ForKind, Var

    marked = Var(f"{loop.loop_var.name}{_MARK}{turns}", str(loop.loop_var.ty.dtype))
    renamed = (Var, lambda var: marked if var.same_as(loop.loop_var) else var)
    body = tvm_ffi.structural_map(loop.body, renamed)
    return For(marked, loop.min, loop.extent, ForKind.UNROLLED, body)


def _walking_registers(body: Any) -> set[Any]:
    """Variables that indices of registers are made of."""
    import tvm_ffi
    from tvm import ir
    from tvm.tirx import Bind, BufferStore, Var

    made_of: dict[Any, set[Any]] = {}
    used: set[Any] = set()

    def variables(expr: Any) -> set[Any]:
        found: set[Any] = set()
        tvm_ffi.structural_walk(expr, (Var, found.add), order="pre")
        return found

    def access(buffer: Any, indices: Any) -> None:
        if buffer.scope() == "local":
            used.update(var for index in indices for var in variables(index))

    handlers = [
        (Bind, lambda bind: made_of.update({bind.var: variables(bind.value)})),
        (ir.TensorLoad, lambda load: access(load.source, load.indices)),
        (BufferStore, lambda store: access(store.buffer, store.indices)),
    ]
    tvm_ffi.structural_walk(body, handlers, order="pre")
    return set(_closed(used, made_of))


def _closed(used: set[Any], made_of: dict[Any, set[Any]]) -> Iterator[Any]:
    """All variables that some variables are made of, directly or not, and these themselves."""
    pending, seen = list(used), set(used)
    while pending:
        var = pending.pop()
        yield var
        new = made_of.get(var, set()) - seen
        seen |= new
        pending += new
