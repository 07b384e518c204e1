"""Read one output of a function without reductions as plain data: what it reads, and where."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import tvm_ffi
from tvm import ir, tirx
from tvm.s_tir import SBlock

from tvm_tile.device.device import Device
from tvm_tile.graph.extract import extract_operator, is_choice, loads_in
from tvm_tile.graph.tile_graph import Access, Axis, Tensor
from tvm_tile.schedule.s_tir.digits import Digits, read_digits
from tvm_tile.tile.moves.plain import construct_plain
from tvm_tile.tile.moves.transpose import Copy, Source, TransposeTile, construct_flat, work_of


@dataclass(frozen=True, slots=True)
class Output:
    """The value that a block stores in its output, and where.

    Attributes:
        digits: digits of the output's axes, and the value that is stored over them.
        value: the same value with variables for the parts that read.
        parts: these variables and parts: loads, and choices that hold loads.
        copy: all of it as plain data.
    """

    digits: Digits
    value: Any
    parts: tuple[tuple[Any, Any], ...]
    copy: Copy


def read_output(block: SBlock) -> Output | None:
    """Read the value that a block stores; ``None`` unless of affine reads, stored in order."""
    digits = read_digits(block)
    if digits is None or not digits.axes:
        return None
    value, parts = _parted(digits.value)
    axes = tuple(Axis(str(var.name), extent) for var, extent in digits.axes)
    write = _access(digits, digits.buffers[-1][0], digits.place)
    sources = []
    for _, part in parts:
        reads = [_access(digits, load.source, load.indices[0]) for load in loads_in(part)]
        sources.append(Source(tuple(dict.fromkeys(reads)), digits.used(part)))
    accesses = [write, *(read for source in sources for read in source.reads)]
    strides = [write.indices[0].coefficient(axis.name) for axis in axes]
    is_in_order = strides == [math.prod(a.extent for a in axes[n + 1 :]) for n in range(len(axes))]
    if not sources or not is_in_order or not all(access.is_exact for access in accesses):
        return None
    return Output(digits, value, parts, Copy(axes, tuple(sources), write))


def _access(digits: Digits, buffer: Any, place: Any) -> Access:
    """Access to a buffer at a flat place."""
    shape = tuple(int(extent) for extent in buffer.ty.shape)
    tensor = Tensor(str(buffer.name), shape, str(buffer.ty.dtype))
    return Access(tensor, (digits.affine(place),))


def _parted(expr: Any) -> tuple[Any, tuple[tuple[Any, Any], ...]]:
    """``expr`` with variables for its parts that read, and these: (variable, part).

    Such a part is an outermost load, or an outermost choice that holds loads; each occurs once. Of
    a choice whose values are computed, the loads are parts, each where its value is chosen: parts
    are read in vectors, for which TVM does not write all arithmetic.

    before: ``gelu(A[j]) if j < n else B[j - n]``
    after:  ``gelu(a) if j < n else b`` of ``a = A[j] if j < n else 0``, ``b = 0 if j < n else ...``
    """
    found: list[tuple[Any, Any]] = []

    def part(node: Any) -> Any:
        for var, known in found:
            if tvm_ffi.structural_equal(known, node):
                return var
        found.append((tirx.Var(f"part_{len(found)}", str(node.ty.dtype)), node))
        return found[-1][0]

    def parted(inner: Any, chosen: Callable[[Any], Any]) -> Any:
        def visit(node: Any) -> Any:
            if isinstance(node, ir.Call) and not (is_choice(node) and loads_in(node)):
                return node
            if isinstance(node, ir.TensorLoad) or _only_chooses(node):
                return part(chosen(node))
            test, first, second = node.args
            return tirx.if_then_else(
                test,
                parted(first, lambda own: chosen(tirx.if_then_else(test, own, _nothing(own)))),
                parted(second, lambda own: chosen(tirx.if_then_else(test, _nothing(own), own))),
            )

        return tvm_ffi.structural_map(inner, ((ir.TensorLoad, ir.Call), visit), order="pre")

    return parted(expr, lambda own: own), tuple(found)


def _only_chooses(choice: Any) -> bool:
    """Whether a choice's values are elements as they are, and no other than places decide."""
    condition, *values = choice.args
    return bool(loads_in(condition)) or all(
        _only_chooses(value)
        if is_choice(value)
        else not loads_in(value) or isinstance(value, ir.TensorLoad)
        for value in values
    )


def _nothing(like: Any) -> Any:
    """Zero, of the type of an expression."""
    return tirx.const(0, str(like.ty.dtype))


def plain_tile(block: SBlock, output: Output, device: Device) -> TransposeTile:
    """Best tile of the rule for element-wise functions, for one block."""
    operator = extract_operator(block)
    vector = construct_plain(operator, device, count=1)[0].vector if operator else 1
    tile = construct_flat(output.copy, vector, device)
    return replace(tile, work=work_of(tile, output.copy, device))
