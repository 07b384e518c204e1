"""Operators of integers that wrap, which a graph of nothing else compares exactly.

Divisors are neither 0, where PyTorch raises an error, nor -1, of which the quotient of the least
number ends the process.
"""

from __future__ import annotations

from bench.fuzz.drawing import WHOLE, Drawing, Misfit, Value

_BITS = {"int8": 8, "uint8": 8, "int16": 16, "int32": 32, "int64": 64}
_BINARY = (
    *("{} + {}", "{} - {}", "{} * {}") * 2,
    "{} & {}", "{} | {}", "{} ^ {}", "torch.maximum({}, {})", "torch.minimum({}, {})",
    "torch.where({0} > {1}, {0}, {1} + {0})", "torch.rsub({}, {})", "torch.add({}, {}, alpha=3)",
    "torch.sub({}, {}, alpha=2)", "{0} * {1} - {0}",
)  # fmt: skip
_UNARY = (
    "-{}", "~{}", "{}.abs()", "torch.sign({})", "torch.square({})", "{} ** 2", "{} ** 3",
    "{} + 100", "{} - 128", "{} * 3", "{} * 37 + 11", "7 - {}", "{}.clamp(3, 90)",
    "{}.clamp(min=5)", "{}.clamp(max=60)", "torch.relu({})", "{} & 15", "{} | 64", "{} ^ 85",
    "{0} * 2 // 2", "({} << 4) >> 4", "torch.clone({})",
    "{} * 2 - {} * 2 + {}", "{0} ^ ({0} << 3) ^ ({0} >> 5)",
)  # fmt: skip
_DIVIDED = (
    "{} // {}", "{} % {}", "torch.fmod({}, {})", "torch.remainder({}, {})",
    "torch.div({}, {}, rounding_mode='trunc')", "torch.div({}, {}, rounding_mode='floor')",
)  # fmt: skip
_COMPARE = ("<", "<=", ">", ">=", "==", "!=")


def whole(d: Drawing, *ranks: int) -> Value:
    """A value of integers, mostly narrow ones; a new one is of the whole range."""

    def make() -> Value:
        kind = d.choice((*WHOLE, "int8", "uint8"))
        return d.input(d.shape(d.choice(ranks or (1, 2, 2, 3))), kind, 0)

    return d.pick(lambda v: v.kind in WHOLE and (not ranks or v.rank in ranks), make)


def _other(d: Drawing, value: Value, *, same: bool = True) -> Value:
    """Another value that broadcasts with one, of its type or of any."""

    def fits(other: Value) -> bool:
        pairs = zip(reversed(other.shape), reversed(value.shape), strict=False)
        kinds = (value.kind,) if same else WHOLE
        return other.kind in kinds and all(1 in (a, b) or a == b for a, b in pairs)

    def make() -> Value:
        shape = [1 if d.chance(0.25) else extent for extent in value.shape]
        kind = value.kind if same else d.choice(WHOLE)
        return d.weight(shape, kind, 0) if d.chance(0.3) else d.input(shape, kind, 0)

    return d.pick(fits if d.chance(0.6) else (lambda _: False), make)


def binary(d: Drawing) -> str:
    value = whole(d)
    return d.choice(_BINARY).format(value.name, _other(d, value, same=d.chance(0.85)).name)


def unary(d: Drawing) -> str:
    value = whole(d)
    return d.choice(_UNARY).replace("{0}", "{}").replace("{}", value.name)


def divided(d: Drawing) -> str:
    value = whole(d)
    if d.chance(0.5):
        divisors = (2, 3, 5, 7, 10, 64, 100, 127)
        divisor = str(d.choice((*divisors, -2, -3, -7) if value.kind != "uint8" else divisors))
    else:
        other = _other(d, value).name
        is_negative = value.kind != "uint8" and d.chance(0.4)
        divisor = f"{other}.clamp({'max=-2' if is_negative else 'min=1'})"
    return d.choice(_DIVIDED).format(value.name, divisor)


def shifted(d: Drawing) -> str:
    """By less than the width, by more, and by whatever there is."""
    value = whole(d)
    sign, bits = d.choice(("<<", ">>")), _BITS[value.kind]
    kind = d.choice(("number", "number", "amounts", "anything"))
    if kind == "number":
        return f"{value.name} {sign} {d.choice((1, 2, 3, 4, bits - 1, bits, bits + 3))}"
    if kind == "amounts":
        return f"{value.name} {sign} {d.input(value.shape, value.kind, bits + 4).name}"
    return f"{value.name} {sign} {_other(d, value).name}"


def compared(d: Drawing) -> str:
    value = whole(d)
    sign = d.choice(_COMPARE)
    if d.chance(0.4):
        return f"{value.name} {sign} {d.choice((0, 1, 50, 100))}"
    return f"{value.name} {sign} {_other(d, value, same=d.chance(0.8)).name}"


def chosen(d: Drawing) -> str:
    value = whole(d)

    def fits(other: Value) -> bool:
        return other.kind == "bool" and other.shape == value.shape

    condition = d.pick(fits, lambda: d.input(value.shape, "bool"))
    if d.chance(0.3):
        return f"{value.name}.masked_fill({condition.name}, {d.choice((0, 1, 100))})"
    return f"torch.where({condition.name}, {value.name}, {_other(d, value).name})"


def logic(d: Drawing) -> str:
    value = d.pick(lambda v: v.kind == "bool")
    other = d.pick(lambda v: v.kind == "bool" and v.shape == value.shape)
    return d.choice(("{} & {}", "{} | {}", "{} ^ {}", "torch.logical_and({}, {})")).format(
        value.name, other.name
    )


def cast(d: Drawing) -> str:
    value = d.pick(lambda v: v.kind in WHOLE or v.kind == "bool", lambda: whole(d))
    target = d.choice((*WHOLE, "int32", "int64", "int32", "int64"))
    return f"{value.name}.to(torch.{target})"


def as_floats(d: Drawing) -> str:
    """Floats, of which no integers are made again."""
    value = whole(d)
    text = f"{value.name}.to(FLOAT)"
    return f"{text}.mean({d.axis(value)})" if value.rank and d.chance(0.5) else text


def reduced(d: Drawing) -> str:
    value = d.pick(lambda v: v.kind in WHOLE and v.rank > 0, lambda: whole(d, 1, 2, 3))
    axis = d.axis(value)
    if not value.shape[axis]:
        raise Misfit
    texts = (
        *(f"{value.name}.sum({axis})",) * 3,
        f"{value.name}.sum({axis}, keepdim=True)",
        f"{value.name}.sum()",
        f"{value.name}.sum({axis}, dtype=torch.int32)",
        f"{value.name}.amax({axis})",
        f"{value.name}.amin({axis})",
        f"torch.cumsum({value.name}, {axis})",
        f"{value.name}.prod({axis})",
    )
    return d.choice(texts)


def multiplied(d: Drawing) -> str:
    """A product of matrices, whose sums wrap, too."""
    value = whole(d, 2)
    columns = d.extent(33)
    other = d.input((value.shape[1], columns), value.kind, 0)
    if value.size * columns > 60_000:
        raise Misfit
    wide = f".to(torch.{d.choice(('int32', 'int64'))})" if d.chance(0.6) else ""
    return f"{value.name}{wide} @ {other.name}{wide}"


def viewed(d: Drawing) -> str:
    value = d.pick(lambda v: v.kind in WHOLE and v.rank > 0, lambda: whole(d, 1, 2, 3))
    axis = d.axis(value)
    extent = value.shape[axis]
    kind = d.choice(("flat", "turned", "slice", "flip", "cat", "stack"))
    if kind == "flat":
        return f"{value.name}.reshape(-1)"
    if kind == "turned":
        return f"torch.movedim({value.name}, 0, -1)"
    if kind == "slice":
        start, step = d.rng.randrange(max(1, extent)), d.choice((1, 1, 2))
        return f"{value.name}[{':, ' * (axis % value.rank)}{start}::{step}]"
    if kind == "flip":
        return f"torch.flip({value.name}, ({axis},))"
    other = d.pick(lambda v: v.kind == value.kind and v.shape == value.shape, lambda: value)
    return f"torch.{kind}([{value.name}, {other.name}], {axis})"


OPERATORS = (
    *(binary,) * 6, *(unary,) * 5, *(divided,) * 3, *(shifted,) * 3, *(compared,) * 2, chosen,
    logic, *(cast,) * 4, *(as_floats,) * 2, *(reduced,) * 3, multiplied, *(viewed,) * 2,
)  # fmt: skip
