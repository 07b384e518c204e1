"""ONNX's RNN, GRU and LSTM as Relax operators, one group per time step, or as loops over these.

TVM's importer has none of them. The product of the inputs with their weights does not depend on
the state, so that it is one product over all steps; only the state's own product is per step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce

import numpy as np
from tvm import relax
from tvm.relax import op

from tvm_tile.frontend.loops import Values
from tvm_tile.frontend.onnx.node import Node
from tvm_tile.frontend.ops.values import Value, dtype_of, shape_of
from tvm_tile.frontend.scan import scan

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
    x, w, r, b, lengths, h0, c0 = (node.input(i) for i in range(7))
    if attrs.get("input_forget", 0):
        raise NotImplementedError("input_forget")
    if attrs.get("layout", 0):  # batch first: only the axes' order differs
        x = op.permute_dims(x, [1, 0, 2])
        h0 = None if h0 is None else op.permute_dims(h0, [1, 0, 2])
        c0 = None if c0 is None else op.permute_dims(c0, [1, 0, 2])
    x = builder.normalize(x)
    directions, _, hidden = shape_of(r)
    _require_agreement(node, shape_of(x)[2])
    running = None if lengths is None else _running(node, lengths, int(x.ty.shape[0]))
    reverse = [node.text("direction", "forward") == "reverse", True]
    ends = []
    for d in range(directions):
        projected = builder.emit(_projected(builder, x, w, b, d))
        state = [_initial(s, d, x, hidden) for s in ((h0, c0) if kind == "LSTM" else (h0,))]
        turned = _Rows(builder, projected, running, reverse[d])
        run = _looped if node.in_loops else _unrolled
        ends.append(run(node, d, turned, [builder.emit(value) for value in state]))
    sequence = op.stack([outputs for outputs, _ in ends], axis=1)
    finals = [op.stack(list(states), axis=0) for states in zip(*(f for _, f in ends), strict=True)]
    if running is not None:  # a sample without any step has, as in ONNX Runtime, zeros
        any_step = builder.emit(_pick(running, 0))
        finals = [op.where(any_step, final, relax.const(0.0, dtype_of(x))) for final in finals]
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


def _running(node: Node, lengths: Value, steps: int) -> Value | None:
    """Which samples still run in each step, [steps, batch, 1]; ``None`` where always all do."""
    known = node.constant(4)
    if known is not None and (known == steps).all():
        return None
    column = node.emit(op.expand_dims(op.astype(lengths, "int32"), [0, 2]))
    numbers = relax.const(np.arange(steps, dtype="int32").reshape(-1, 1, 1), "int32")
    return node.emit(op.greater(column, numbers))


def _projected(builder: relax.BlockBuilder, x: Value, w: Value, b: Value, d: int) -> Value:
    """``x·Wᵀ + Wb`` of a direction: [steps, batch, gates·hidden]."""
    projected = op.matmul(x, op.permute_dims(_pick(w, d)))
    return projected if b is None else op.add(projected, _split(builder, _pick(b, d), 2)[0])


def _direction(node: Node, d: int, r: Value, b: Value, p: Value) -> _Direction:
    """What a direction's steps do, given all directions' weights."""
    builder, kind, attrs = node.builder, node.op_type, node.attrs
    names = [name.decode() for name in attrs.get("activations", ())] or [
        name for _ in range(int(r.ty.shape[0])) for name in _DEFAULTS[kind]
    ]
    count = len(_DEFAULTS[kind])
    unknown = set(names) - set(_ACTIVATIONS)
    if unknown:
        raise NotImplementedError(f"activations {', '.join(sorted(unknown))}")
    return _Direction(
        builder,
        kind,
        tuple(_ACTIVATIONS[name] for name in names[d * count : (d + 1) * count]),
        op.permute_dims(_pick(r, d)),
        None if b is None else _split(builder, _pick(b, d), 2)[1],
        None if p is None else _split(builder, _pick(p, d), 3),
        attrs.get("clip"),
        bool(attrs.get("linear_before_reset", 0)),
    )


@dataclass(frozen=True, slots=True)
class _Rows:
    """What the steps of a direction read.

    Attributes:
        builder: within the function that has the node.
        projected: [steps, batch, gates·hidden].
        running: which samples still run, [steps, batch, 1]; ``None`` where always all do.
        reverse: whether the last step is the first one to be taken.
    """

    builder: relax.BlockBuilder
    projected: Value
    running: Value | None
    reverse: bool

    @property
    def tensors(self) -> Values:
        """Tensors of a row for each step, in time's order."""
        return [self.projected] if self.running is None else [self.projected, self.running]


def _unrolled(node: Node, d: int, rows: _Rows, state: Values) -> tuple[Value, Values]:
    """Outputs of all steps in time's order, and the state after the last one that is taken."""
    builder = rows.builder
    direction = _direction(node, d, node.inputs[2], node.input(3), node.input(7))
    steps = int(rows.projected.ty.shape[0])
    outputs: Values = [None] * steps
    for t in reversed(range(steps)) if rows.reverse else range(steps):
        state, outputs[t] = _moved(direction, state, [_pick(each, t) for each in rows.tensors])
    return builder.emit(op.stack(outputs, axis=0)), state


def _looped(node: Node, d: int, rows: _Rows, state: Values) -> tuple[Value, Values]:
    """One direction of a recurrent layer as a loop over its steps."""
    builder = rows.builder

    def turned(tensor: Value) -> Value:
        return builder.emit(op.flip(tensor, 0)) if rows.reverse else tensor

    weights = [node.inputs[2], node.input(3), node.input(7)]

    def iteration(own: Values, read: Values, inner: Values) -> tuple[Values, Values]:
        given = iter(inner)
        r, b, p = (None if weight is None else next(given) for weight in weights)
        new, output = _moved(_direction(node, d, r, b, p), own, read)
        return new, [output]

    fixed = [weight for weight in weights if weight is not None]
    values = state, [turned(tensor) for tensor in rows.tensors], fixed
    steps = int(rows.projected.ty.shape[0])
    name = node.op_type.lower()
    ended, (outputs,) = scan(builder, name, steps, values, iteration, operators=None)
    return turned(outputs), ended


def _moved(direction: _Direction, state: Values, rows: Values) -> tuple[Values, Value]:
    """The state after a step, and its output.

    Where a sample has ended its state stays, and its output is zero.
    """
    builder = direction.builder
    projected, *running = rows
    new = _step(direction, projected, tuple(state))
    if not running:
        state = [builder.emit(value) for value in new]
        return state, state[0]
    runs = builder.emit(running[0])
    state = [
        builder.emit(op.where(runs, value, old)) for value, old in zip(new, state, strict=True)
    ]
    return state, builder.emit(op.where(runs, state[0], relax.const(0.0, dtype_of(state[0]))))


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
