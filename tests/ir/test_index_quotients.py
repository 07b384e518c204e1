"""Places of elements keep their values while TVM flattens tensors: random divisions of sums."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import ir, tirx

from tvm_tile.build.exact.quotients import TruncateQuotients

EXPRESSIONS = 400


def _value(node: Any, at: dict[str, np.ndarray]) -> Any:
    """What an expression of two loops comes to at all of their iterations."""
    if isinstance(node, tirx.IntImm):
        return int(node.value)
    if isinstance(node, tirx.Var):
        return at[str(node.name)]
    if isinstance(node, tirx.Cast):
        return _value(node.value, at)
    a, b = _value(node.a, at), _value(node.b, at)
    truncated = np.sign(a) * np.sign(b) * (np.abs(a) // np.abs(b)) if _is_truncated(node) else 0
    results = {
        tirx.Add: lambda: a + b,
        tirx.Sub: lambda: a - b,
        tirx.Mul: lambda: a * b,
        tirx.FloorDiv: lambda: a // b,
        tirx.FloorMod: lambda: a % b,
        tirx.Div: lambda: truncated,
        tirx.Mod: lambda: a - b * truncated,
    }
    return results[type(node)]()


def _is_truncated(value: Any) -> bool:
    return isinstance(value, tirx.Div | tirx.Mod)


def _index(draw: random.Random, block: Any, thread: Any, extent: int) -> Any:
    """What slices, flips, tiles and reshapes make of the place of a thread."""
    place = block * extent + thread
    for _ in range(draw.randint(1, 4)):
        kind = draw.choice(("mod", "mod", "div", "div", "flip", "shift", "step"))
        if kind == "mod":
            place = tirx.floormod(place, draw.choice((2, 3, 4, 7, 8, 16, 24, 72, 96)))
        elif kind == "div":
            place = tirx.floordiv(place, draw.choice((2, 3, 4, 8)))
        elif kind == "flip":
            place = draw.randint(0, 300) - place
        elif kind == "shift":
            place = place + draw.randint(-3, 8)
        else:
            place = place * draw.choice((2, 3))
    return place


def _flattened(index: Any, loops: list[tuple[Any, int]]) -> Any:
    """The index after TVM's pass, behind ours."""
    source, output = (
        tirx.Var(name, tvm.tirx.decl_buffer((4096,), "float32").ty) for name in ("A", "B")
    )
    body: Any = tirx.BufferStore(output, tirx.BufferLoad(source, [index]), [0])
    for var, extent in reversed(loops):
        body = tirx.For(var, 0, extent, tirx.ForKind.SERIAL, body)
    mod = tvm.IRModule({"main": tirx.PrimFunc([source, output], body)})
    passes = [TruncateQuotients(), tirx.transform.FlattenBuffer()]
    found: list[Any] = []
    lowered = tvm.transform.Sequential(passes)(mod)["main"]
    tvm_ffi.structural_walk(lowered.body, (ir.TensorLoad, found.append), order="pre")
    return found[0].indices[0]


def test_flattened_places_are_those_of_the_tensor() -> None:
    draw = random.Random(0)
    changed = []
    for _ in range(EXPRESSIONS):
        loops = [
            (tirx.Var("b", "int32"), draw.choice((2, 3, 4, 9))),
            (tirx.Var("t", "int32"), draw.choice((8, 16, 32))),
        ]
        index = _index(draw, loops[0][0], loops[1][0], loops[1][1])
        blocks, threads = np.indices([extent for _, extent in loops])
        at = {"b": blocks, "t": threads}
        wanted = _value(index, at)
        got = _value(_flattened(index, loops), at)
        if not np.array_equal(np.broadcast_to(got, blocks.shape), wanted):
            changed.append(str(index))
    assert not changed
