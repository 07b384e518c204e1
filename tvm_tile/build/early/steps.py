"""What all threads of a kernel do one after the other: where one waits, and what it touches before.

A statement that only some threads run, or some times, is one step with all that is in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tvm_ffi
from tvm.tirx import AllocBuffer, AttrStmt, Bind, DeclBuffer, Evaluate, SeqStmt

from tvm_tile.build.leaving import leaves
from tvm_tile.build.tensor_maps import encodes, mapped_tensor
from tvm_tile.graph.expression import uses

DEPENDENCY = "griddepcontrol"
"""In the names of calls that wait for the kernel before, or let go the one behind."""


def name_of(param: Any) -> str:
    """The name of a kernel's parameter in the function that the kernel was made of."""
    return mapped_tensor(param) or str(param.name).removesuffix("_ptr")


def touched_ahead(body: Any, params: Sequence[Any]) -> frozenset[str] | None:
    """Names of the parameters that a body touches until all of its threads wait.

    ``None`` if they do not, or not all in one place.
    """
    touched = set[str]()
    for statement, names in _steps(body, params):
        if is_dependency(statement, "wait"):
            return frozenset(touched)
        touched |= names
    return None


def ahead_of_memory(body: Any, params: Sequence[Any], wait: Any) -> Any:
    """A body with a wait ahead of the first step that touches a parameter, or may be the last."""
    steps = _steps(body, params)
    first = next((own for own, names in steps if names or leaves(own)), None)
    return _replaced(body, first, lambda own: [wait, own])


def behind_wait(body: Any, going: Sequence[Any], params: Sequence[Any]) -> Any:
    """A body with statements right behind the wait of all of its threads."""
    steps = (own for own, _ in _steps(body, params))
    wait = next((own for own in steps if is_dependency(own, "wait")), None)
    return _replaced(body, wait, lambda own: [own, *going])


def is_dependency(statement: Any, kind: str) -> bool:
    """Whether a statement waits for the kernel before this one, or lets go the one behind it.

    Args:
        statement: a step of a kernel.
        kind: ``"wait"`` or ``"launch"``.
    """
    if not isinstance(statement, Evaluate):
        return False
    call = statement.value
    name = str(getattr(getattr(call, "op", None), "name", ""))
    return DEPENDENCY in name and kind in str(call.args)


def _steps(body: Any, params: Sequence[Any]) -> Iterator[tuple[Any, set[str]]]:
    """Steps, and the names of the parameters that each touches.

    A declaration of another name for a parameter's memory, or of a map of it, touches none.
    """
    names, pending = {param: name_of(param) for param in params}, [body]
    while pending:
        statement = pending.pop()
        if isinstance(statement, SeqStmt):
            pending += reversed(list(statement))
        elif isinstance(statement, AttrStmt):
            pending.append(statement.body)
        elif isinstance(statement, Bind) and (tensor := mapped_tensor(statement.var)):
            names[statement.var] = tensor
            yield statement, set()
        elif _touches_none(statement) or not uses(statement, list(names)):
            yield statement, set()
        else:
            is_name = isinstance(statement, DeclBuffer)
            part = statement.data if is_name else statement
            used = {name for var, name in names.items() if uses(part, [var])}
            if is_name and used:
                (names[statement.buffer],) = used
            yield statement, set() if is_name else used


def _touches_none(statement: Any) -> bool:
    """Whether a statement touches no parameter, whichever it names."""
    return isinstance(statement, AllocBuffer) or encodes(statement)


def _replaced(body: Any, statement: Any, change: Callable[[Any], list[Any]]) -> Any:
    """A body with others in place of a statement of it, or all of it where that is ``None``."""

    def visit(own: Any) -> Any:
        return SeqStmt(change(own)) if own.same_as(statement) else own

    if statement is None:
        return SeqStmt(change(body))
    return tvm_ffi.structural_map(body, [(type(statement), visit)], order="post")
