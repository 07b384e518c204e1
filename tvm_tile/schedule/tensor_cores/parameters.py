"""The parameters of a function that is written instruction by instruction."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as ib

from tvm_tile.graph.functions import is_tensor


@contextmanager
def function(
    params: Iterable[Any], frame: Callable[[], AbstractContextManager[Any]] = ib.prim_func
) -> Iterator[tuple[Any, dict[str, Any]]]:
    """A frame for a function: what has it behind the frame, and its tensors by name.

    Args:
        params: parameters of the function, as its callers pass them.
        frame: frame of the dialect that it is written in, by default of the thread-level one.
    """
    with IRBuilder() as builder, frame():
        ib.func_name("main")
        ib.func_attr({"tirx.noalias": True})
        yield builder, declare(params)


def declare(params: Iterable[Any]) -> dict[str, Any]:
    """Declare the tensors that callers pass; name of each -> its buffer here.

    Open extents among the parameters are theirs already.
    """
    return {str(param.name): _declared(param) for param in params if is_tensor(param)}


def views(
    names: Iterable[str], shapes: Mapping[str, tuple[int, ...]], buffers: Mapping[str, Any]
) -> dict[str, Any]:
    """Parameters in the shapes that an epilogue knows them by; name of each -> its buffer."""
    return {
        name: ib.decl_buffer(shapes[name], str(buffers[name].ty.dtype), data=buffers[name].data)
        for name in sorted(names)
    }


def _declared(param: Any) -> Any:
    """Declare a parameter of the kernel as a buffer."""
    shape = tuple(int(extent) for extent in param.ty.shape)
    return ib.arg(str(param.name), ib.buffer(shape, str(param.ty.dtype)))
