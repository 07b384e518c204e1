"""ONNX's RNN, GRU and LSTM as Relax operators, one group per time step.

TVM's importer has none of them. The product of the inputs with their weights does not depend on
the state, so that it is one product over all steps; only the state's own product is per step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any

from tvm import relax
from tvm.relax import op

from tvm_tile.frontend.onnx_node import Node, Value, dtype_of, shape_of

_ACTIVATIONS: dict[str, Callable[[Value], Value]] = {
    "Sigmoid": op.sigmoid,
    "Tanh": op.tanh,
    "Relu": op.nn.relu,
}
_DEFAULTS = {"RNN": ("Tanh",), "GRU": ("Sigmoid", "Tanh"), "LSTM": ("Sigmoid", "Tanh", "Tanh")}
_GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}

RECURRENT_OPERATORS = frozenset(_GATES)


@dataclass(frozen=True, slots=True)
class _Direction:
    """One direction's weights, and what each step does with them.

    Shapes: ``recurrent`` [hidden, gates·hidden]; ``recurrent_bias`` [gates·hidden] or ``None``;
    ``peepholes`` three of [hidden] or ``None``.
    """

    builder: relax.BlockBuilder
    kind: str
    activations: tuple[Callable[[Value], Value], ...]
    recurrent: Value
    recurrent_bias: Value | None
    peepholes: tuple[Value, ...] | None
    clip: float | None
    linear_before_reset: bool


def convert_recurrent(node: Node) -> relax.Tuple:
    """Convert one node of RNN, GRU or LSTM.

    Its inputs are X, W, R, B, sequence_lens, initial_h, initial_c, P as ONNX defines them.

    Returns:
        Y, Y_h and, for LSTM, Y_c.

    Raises:
        NotImplementedError: coupled gates, or an activation not known here.
        ValueError: weights and attributes contradict each other.
    """
    kind, builder, attrs = node.op_type, node.builder, node.attrs
    x, w, r, b, lengths, h0, c0, p = (node.input(i) for i in range(8))
    if attrs.get("input_forget", 0):
        raise NotImplementedError("input_forget")
    if attrs.get("layout", 0):  # batch first: only the axes' order differs
        x = op.permute_dims(x, [1, 0, 2])
        h0 = None if h0 is None else op.permute_dims(h0, [1, 0, 2])
        c0 = None if c0 is None else op.permute_dims(c0, [1, 0, 2])
    x = builder.normalize(x)
    directions, _, hidden = shape_of(r)
    _require_agreement(node, shape_of(x)[2])
    steps = int(x.ty.shape[0])
    masks = None if lengths is None else _masks(node, lengths, steps)
    reverse = [node.text("direction", "forward") == "reverse", True]
    ends = []
    for d in range(directions):
        direction, projected = _prepare(builder, kind, x, w, r, b, p, d, attrs)
        state = tuple(_initial(s, d, x, hidden) for s in ((h0, c0) if kind == "LSTM" else (h0,)))
        ends.append(_unroll(direction, projected, state, reverse[d], masks))
    sequence = op.stack([op.stack(list(steps), axis=0) for steps, _ in ends], axis=1)
    finals = [op.stack(list(states), axis=0) for states in zip(*(f for _, f in ends), strict=True)]
    if masks is not None:  # a sample without any step has, as in ONNX Runtime, zeros
        finals = [op.where(masks[0], final, relax.const(0.0, dtype_of(x))) for final in finals]
        finals = [builder.emit(final) for final in finals]
    if attrs.get("layout", 0):
        sequence = op.permute_dims(sequence, [2, 0, 1, 3])
        finals = [op.permute_dims(final, [1, 0, 2]) for final in finals]
    return relax.Tuple([builder.emit(value) for value in (sequence, *finals)])


def _require_agreement(node: Node, size: int) -> None:
    """Refuse weights that are not of the sizes and directions that the attributes say."""
    direction = node.text("direction", "forward")
    ways = {"forward": 1, "reverse": 1, "bidirectional": 2}.get(direction)
    if ways is None:
        raise ValueError(f"direction {direction}")
    hidden = int(node.attrs.get("hidden_size", shape_of(node.inputs[2])[2]))
    gates = _GATES[node.op_type]
    wanted = [(ways, gates * hidden, size), (ways, gates * hidden, hidden)]
    found = [shape_of(weights) for weights in node.inputs[1:3]]
    if found != wanted:
        raise ValueError(
            f"weights of {found}, not {wanted}, for hidden_size {hidden} and direction {direction}"
        )


def _masks(node: Node, lengths: Value, steps: int) -> list[Value] | None:
    """For each step which samples still run, [batch, 1]; ``None`` where always all do."""
    known = node.constant(4)
    if known is not None and (known == steps).all():
        return None
    column = node.emit(op.expand_dims(op.astype(lengths, "int32"), 1))
    return [node.emit(op.greater(column, relax.const(t, "int32"))) for t in range(steps)]


def _prepare(
    builder: relax.BlockBuilder,
    kind: str,
    x: Value,
    w: Value,
    r: Value,
    b: Value,
    p: Value,
    d: int,
    attrs: Mapping[str, Any],
) -> tuple[_Direction, Value]:
    """The direction's weights, and ``x·Wᵀ + Wb``: [steps, batch, gates·hidden]."""
    projected = op.matmul(x, op.permute_dims(_pick(w, d)))
    recurrent_bias = None
    if b is not None:
        input_bias, recurrent_bias = _split(builder, _pick(b, d), 2)
        projected = op.add(projected, input_bias)
    names = [name.decode() for name in attrs.get("activations", ())] or [
        name for _ in range(int(w.ty.shape[0])) for name in _DEFAULTS[kind]
    ]
    count = len(_DEFAULTS[kind])
    unknown = set(names) - set(_ACTIVATIONS)
    if unknown:
        raise NotImplementedError(f"activations {', '.join(sorted(unknown))}")
    direction = _Direction(
        builder,
        kind,
        tuple(_ACTIVATIONS[name] for name in names[d * count : (d + 1) * count]),
        op.permute_dims(_pick(r, d)),
        recurrent_bias,
        None if p is None else _split(builder, _pick(p, d), 3),
        attrs.get("clip"),
        bool(attrs.get("linear_before_reset", 0)),
    )
    return direction, projected


def _unroll(
    direction: _Direction,
    projected: Value,
    state: tuple[Value, ...],
    reverse: bool,
    masks: list[Value] | None,
) -> tuple[list[Value], tuple[Value, ...]]:
    """Outputs of all steps in time's order, and the state after the last one.

    Where a sample has ended its state stays, and its output is zero.
    """
    builder = direction.builder
    projected = builder.emit(projected)
    steps = int(projected.ty.shape[0])
    outputs: list[Value] = [None] * steps
    for t in reversed(range(steps)) if reverse else range(steps):
        moved = _step(direction, _pick(projected, t), state)
        if masks is not None:
            moved = tuple(
                op.where(masks[t], new, old) for new, old in zip(moved, state, strict=True)
            )
        state = tuple(builder.emit(value) for value in moved)
        outputs[t] = state[0]
        if masks is not None:
            nothing = relax.const(0.0, dtype_of(state[0]))
            outputs[t] = builder.emit(op.where(masks[t], state[0], nothing))
    return outputs, state


def _step(d: _Direction, x: Value, state: tuple[Value, ...]) -> tuple[Value, ...]:
    if d.kind == "LSTM":
        return _lstm_step(d, x, *state)
    return _gru_step(d, x, *state) if d.kind == "GRU" else _rnn_step(d, x, *state)


def _rnn_step(d: _Direction, x: Value, h: Value) -> tuple[Value, ...]:
    return (d.activations[0](_clipped(d, _with_state(d, x, h))),)


def _gru_step(d: _Direction, x: Value, h: Value) -> tuple[Value, ...]:
    f, g = d.activations
    xz, xr, xh = _split(d.builder, x, 3)
    rz, rr, rh = _split(d.builder, d.recurrent, 3)
    bias = d.recurrent_bias
    bz, br, bh = (None,) * 3 if bias is None else _split(d.builder, bias, 3)
    z = f(_clipped(d, _sum(xz, op.matmul(h, rz), bz)))
    r = f(_clipped(d, _sum(xr, op.matmul(h, rr), br)))
    if d.linear_before_reset:
        inner = op.multiply(r, _sum(op.matmul(h, rh), bh))
    else:
        inner = _sum(op.matmul(op.multiply(r, h), rh), bh)
    candidate = g(_clipped(d, op.add(xh, inner)))
    # (1 − z)·candidate + z·h
    return (op.add(candidate, op.multiply(z, op.subtract(h, candidate))),)


def _lstm_step(d: _Direction, x: Value, h: Value, c: Value) -> tuple[Value, ...]:
    f, g, last = d.activations
    i, o, forget, cell = _split(d.builder, _with_state(d, x, h), 4)
    pi, po, pf = d.peepholes or (None, None, None)
    i = f(_clipped(d, _sum(i, _times(pi, c))))
    forget = f(_clipped(d, _sum(forget, _times(pf, c))))
    c = op.add(op.multiply(forget, c), op.multiply(i, g(_clipped(d, cell))))
    o = f(_clipped(d, _sum(o, _times(po, c))))
    return op.multiply(o, last(c)), c


def _split(builder: relax.BlockBuilder, value: Value, parts: int) -> tuple[Value, ...]:
    """Equal parts along the last axis."""
    together = builder.emit(op.split(value, parts, axis=-1))
    return tuple(builder.emit(together[part]) for part in range(parts))


def _with_state(d: _Direction, x: Value, h: Value) -> Value:
    return _sum(x, op.matmul(h, d.recurrent), d.recurrent_bias)


def _sum(*terms: Value | None) -> Value:
    return reduce(op.add, [term for term in terms if term is not None])


def _times(factor: Value | None, value: Value) -> Value | None:
    return None if factor is None else op.multiply(factor, value)


def _clipped(d: _Direction, value: Value) -> Value:
    return value if d.clip is None else op.clip(value, -d.clip, d.clip)


def _initial(state: Value | None, d: int, x: Value, hidden: int) -> Value:
    if state is not None:
        return _pick(state, d)
    return op.zeros((int(x.ty.shape[1]), hidden), str(x.ty.dtype))


def _pick(tensor: Value, index: int) -> Value:
    """``tensor[index]``: one rank less."""
    part = op.strided_slice(tensor, [0], [index], [index + 1])
    return op.squeeze(part, [0])
