"""Buffers of whole rows become arrays of what one thread has of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm import ir, tirx
from tvm.s_tir import SBlock, SBlockRealize

from tvm_tile.schedule.s_tir.exchanged import distance_of
from tvm_tile.schedule.s_tir.steps import element, replace_parts

_DIVIDED = "float32"  # what has reciprocals
_ZERO, _ONE = tirx.const(0, "int64"), tirx.const(1, "int64")


@dataclass(frozen=True)
class OwnElements:
    """Turns buffers of whole rows into arrays of what one thread has of them.

    TVM finds out by itself that a thread touches but some elements of a row, unless their number
    is no multiple of what threads take in turn. And it would keep a sum over many threads, which
    ends up in shared memory, and the copy of it in one place, if both were as large: so the copy
    has company, the reciprocal, which divisions multiply by.

    Attributes:
        held: names of buffers of elements.
        results: names of the copies of sums.
        places: name of a block -> which of its thread's elements it works on, in its loops.
        elements: elements of a thread.
        vector: neighbouring elements that a thread takes together.
        lap: elements that all threads of a row take together.
        apart: distance of two elements in a row -> that among a thread's elements.
    """

    held: set[str]
    results: set[str]
    places: dict[str, Any]
    elements: int
    vector: int
    lap: int
    apart: Mapping[int, int]

    def of(self, func: tirx.PrimFunc) -> tirx.PrimFunc:
        """The function with such arrays."""
        root = func.body.block
        sizes = {**dict.fromkeys(self.held, self.elements), **dict.fromkeys(self.results, 2)}
        arrays = {
            str(b.name): tirx.decl_buffer([sizes[b.name]], str(b.ty.dtype), b.name, scope="local")
            for b in root.alloc_buffers
            if str(b.name) in sizes
        }

        def visit(realize: SBlockRealize) -> SBlockRealize:
            node = realize.block
            touched = {str(r.source.name) for r in (*node.reads, *node.writes)}
            is_moved = not node.same_as(root) and not touched.isdisjoint(arrays)
            return self._moved(realize, arrays) if is_moved else realize

        body = tvm_ffi.structural_map(root.body, (SBlockRealize, visit), order="post")
        buffers = [arrays.get(str(b.name), b) for b in root.alloc_buffers]
        block = replace_parts(root, body=body, alloc_buffers=buffers)
        return func.with_body(SBlockRealize([], func.body.predicate, block))

    def _moved(self, realize: SBlockRealize, arrays: dict[str, Any]) -> SBlockRealize:
        """A stage that reads and writes arrays of its thread."""
        node = realize.block
        variables, values = list(node.iter_vars), list(realize.iter_values)
        own = self._place_of_sum(node) if _is_sum(node) else _ZERO
        if str(node.name_hint) in self.places:
            own = tirx.Var("v_own", "int64")
            domain = ir.Range(_ZERO, tirx.const(self.elements, "int64"))
            variables.append(tirx.IterVar(domain, own, tirx.IterVar.DataPar))
            values.append(self.places[str(node.name_hint)])

        def index(buffer: Any) -> Any:
            return _ZERO if str(buffer.name) in self.results else own

        def load(old: Any) -> Any:
            array = arrays.get(str(old.source.name))
            return old if array is None else tirx.BufferLoad(array, [index(array)])

        def store(old: Any) -> Any:
            array = arrays.get(str(old.buffer.name))
            if array is None:
                return old
            first = tirx.BufferStore(array, old.value, [index(array)])
            return self._with_reciprocal(first) if str(array.name) in self.results else first

        def exchanged(call: Any) -> Any:
            distance = distance_of(call)
            if distance is None:
                return call
            held = call.args[1]
            return tirx.BufferLoad(held.source, [held.indices[0] + self.apart[distance]])

        def region(old: Any) -> Any:
            array = arrays.get(str(old.source.name))
            return old if array is None else element(array, [index(array)])

        entries = [
            (ir.TensorLoad, load),
            (ir.Call, exchanged),
            (tirx.BufferStore, store),
            (tirx.Div, self._multiplied),
        ]
        body = tvm_ffi.structural_map(node.body, entries, order="post")
        reads, writes = ([region(r) for r in regions] for regions in (node.reads, node.writes))
        moved = replace_parts(node, iter_vars=variables, reads=reads, writes=writes, body=body)
        return SBlockRealize(values, realize.predicate, moved)

    def _with_reciprocal(self, store: tirx.BufferStore) -> tirx.SeqStmt:
        """The store of a row's number, and of its reciprocal where elements are divided by it."""
        dtype = str(store.value.ty.dtype)
        other = tirx.const(1, dtype) / store.value if dtype == _DIVIDED else store.value
        return tirx.SeqStmt([store, tirx.BufferStore(store.buffer, other, [_ONE])])

    def _multiplied(self, division: tirx.Div) -> Any:
        """A division by a row's result as a product: one accurate division a row will do."""
        by = division.b.source if isinstance(division.b, ir.TensorLoad) else None
        if by is None or str(by.name) not in self.results or str(by.ty.dtype) != _DIVIDED:
            return division
        return division.a * tirx.BufferLoad(by, [_ONE])

    def _place_of_sum(self, block: SBlock) -> Any:
        """The place among its thread's elements of the one that a reduction adds."""
        flat: Any = _ZERO
        for v in block.iter_vars:
            if v.iter_type != tirx.IterVar.DataPar:
                flat = flat * v.dom.extent + v.var
        return flat // self.lap * self.vector + flat % self.vector


def _is_sum(block: SBlock) -> bool:
    """Whether a block is a reduction."""
    return any(v.iter_type != tirx.IterVar.DataPar for v in block.iter_vars)
