"""Define ONNX Runtime's recurrent operators on codes by standard ones, step by step."""

from __future__ import annotations

import numpy as np

from tvm_tile.frontend.onnx.microsoft.codes import dynamic_product
from tvm_tile.frontend.onnx.microsoft.function_body import FunctionBody

_ACTIVATIONS = ["Sigmoid", "Tanh", "Tanh"]


def write_dynamic_lstm(b: FunctionBody) -> tuple[str, ...]:
    """DynamicQuantizeLSTM: each product is one of codes, which are made of all steps' inputs at
    once, and of the state anew in every step."""
    names = b.attribute("activations") or []
    others = any(name.decode() not in _ACTIVATIONS for name in names)
    absent = {"sequence_lens": b.input(4), "other activations": others}
    b.require_absent(absent | b.attributes("clip", "input_forget"))
    steps, batch, _ = b.shape(b.input(0))
    directions, hidden, _ = b.shape(b.input(2))
    first = b.attribute("direction", "forward") == "reverse"
    outputs, ends = [], []
    for d in range(directions):
        rows, state = _one_direction(b, d, (steps, batch, hidden), first or d == 1)
        outputs.append(b("Concat", *(_shaped(b, row, 1, 1, batch, hidden) for row in rows), axis=0))
        ends.append([_shaped(b, value, 1, batch, hidden) for value in state])
    finals = (b("Concat", *each, axis=0) for each in zip(*ends, strict=True))
    return (b("Concat", *outputs, axis=1), *finals)


def _shaped(b: FunctionBody, x: str, *extents: int) -> str:
    return str(b("Reshape", x, list(extents)))


def _one_direction(
    b: FunctionBody, d: int, extents: tuple[int, int, int], reverse: bool
) -> tuple[list[str], list[str]]:
    """Outputs of all steps in time's order, and the state behind the last one that is taken."""
    steps, batch, hidden = extents

    def own(place: int) -> str:
        """The direction's part of an input; empty where that is left out."""
        name = b.input(place)
        return str(b("Gather", name, np.int64(d), axis=0)) if name else ""

    w, r, bias, peepholes = (own(place) for place in (1, 2, 3, 7))
    w_scale, w_zero, r_scale, r_zero = (own(place) for place in range(8, 12))
    if bias:
        halves = (b.part(bias, first, first + 4 * hidden) for first in (0, 4 * hidden))
        bias = b("Add", *halves)
    projected = dynamic_product(b, b.input(0), w, w_scale, w_zero, bias)
    zeros = np.zeros((batch, hidden), b.real)
    h, c = (own(place) or b.constant(zeros) for place in (5, 6))
    rows = [""] * steps
    for step in reversed(range(steps)) if reverse else range(steps):
        row = b("Gather", projected, np.int64(step), axis=0)
        gates = b.add(row, dynamic_product(b, h, r, r_scale, r_zero))
        i, o, f, g = (_part(b, gates, place, hidden) for place in range(4))
        pi, po, pf = (peepholes and _part(b, peepholes, place, hidden) for place in range(3))
        i, f = (_gate(b, gate, peephole, c) for gate, peephole in ((i, pi), (f, pf)))
        c = b("Add", b("Mul", f, c), b("Mul", i, b("Tanh", g)))
        h = rows[step] = b("Mul", _gate(b, o, po, c), b("Tanh", c))
    return rows, [h, c]


def _part(b: FunctionBody, x: str, place: int, size: int) -> str:
    return b.part(x, place * size, (place + 1) * size)


def _gate(b: FunctionBody, x: str, peephole: str, cell: str) -> str:
    return str(b("Sigmoid", b("Add", x, b("Mul", peephole, cell)) if peephole else x))
