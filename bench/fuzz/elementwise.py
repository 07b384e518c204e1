"""Element-wise operators of PyTorch, casts and comparisons."""

from __future__ import annotations

from bench.fuzz.drawing import Drawing, Misfit

_UNARY = (
    "F.relu({})", "F.relu6({})", "torch.sigmoid({})", "torch.tanh({})", "torch.abs({})", "-{}",
    "F.gelu({})", "F.gelu({}, approximate='tanh')", "F.silu({})", "F.elu({}, 0.7)",
    "F.leaky_relu({}, 0.1)", "F.hardtanh({}, -0.8, 0.9)", "F.hardswish({})", "F.hardsigmoid({})",
    "F.softplus({})", "F.softplus({}, beta=2.0, threshold=3.0)", "F.mish({})", "F.selu({})",
    "F.celu({}, 1.3)", "F.logsigmoid({})", "F.softsign({})", "F.tanhshrink({})",
    "F.hardshrink({}, 0.3)", "F.softshrink({}, 0.3)", "F.threshold({}, 0.1, -2.0)",
    "torch.erf({})", "torch.sin({})", "torch.cos({})", "torch.atan({})", "torch.floor({})",
    "torch.ceil({})", "torch.round({})", "torch.trunc({})", "torch.frac({})", "torch.sign({})",
    "torch.square({})", "torch.asinh({})", "{} ** 2", "{} ** 3", "{}.clamp(-0.5, 0.7)",
    "{}.clamp(min=-0.2)", "{}.clamp(max=0.4)", "torch.nan_to_num({})",
    "1.5 - {}", "{} * 0.37", "{} / 3", "{} + 2", "2.5 / ({}.abs() + 0.5)",
    "torch.log1p({}.abs())", "torch.sqrt({}.abs() + 0.01)", "torch.rsqrt({}.abs() + 0.1)",
    "torch.log({}.abs() + 0.1)", "torch.log2({}.abs() + 0.1)", "torch.reciprocal({}.abs() + 0.5)",
    "torch.pow({}.abs() + 0.1, 0.7)", "torch.pow({}.abs(), 0.5)", "torch.asin({}.clamp(-0.9, 0.9))",
    "torch.fmod({}, 1.7)", "torch.remainder({}, 1.7)", "torch.floor_divide({}, 0.8)",
    "torch.rad2deg({})", "torch.deg2rad({})", "{}.contiguous()", "{}.clone()",
    "F.dropout({}, 0.5, False)",
    "torch.copysign({}, {}.cos())", "torch.logit({}.sigmoid(), eps=1e-3)", "F.softmin({}, 0)",
)  # fmt: skip
_BOUNDED = (
    "torch.exp({})", "torch.expm1({})", "torch.sinh({})", "torch.cosh({})", "torch.exp2({})",
    "torch.erfc({})",
)  # fmt: skip
_BINARY = (
    "{} + {}", "{} - {}", "{} * {}", "{} / ({}.abs() + 0.5)", "torch.maximum({}, {})",
    "torch.minimum({}, {})", "torch.add({}, {}, alpha=0.5)", "torch.sub({}, {}, alpha=2)",
    "torch.rsub({}, {})", "torch.atan2({}, {})", "torch.hypot({}, {})", "torch.fmax({}, {})",
    "torch.where({} > 0.1, {}, 0.25)", "torch.lerp({}, {}, 0.3)",
    "F.mse_loss({}, {}, reduction='none')",
    "torch.xlogy({}, {}.abs() + 0.1)", "torch.logaddexp({}, {})", "torch.copysign({}, {})",
    "torch.special.xlog1py({}, {}.abs())", "torch.fmod({}, {}.abs() + 0.5)",
)  # fmt: skip
_COMPARE = ("<", "<=", ">", ">=", "==", "!=")
_INTEGER = (
    "{} + {}", "{} - {}", "torch.maximum({}, {})", "torch.minimum({}, {})", "{} & {}", "{} | {}",
    "{} ^ {}",
)  # fmt: skip
_INTEGER_UNARY = (
    "-{}", "{}.abs()", "{} + 3", "{} * 2", "torch.sign({})", "{} // 3", "{} % 4", "~{}",
    "{}.clamp(0, 3)", "torch.remainder({}, 5)", "torch.bitwise_and({}, 7)", "{} << 1", "{} >> 1",
    "F.relu({})",
)  # fmt: skip
_LOGIC = ("torch.logical_and({}, {})", "torch.logical_or({}, {})", "torch.logical_xor({}, {})")
_PREDICATES = (
    "torch.isnan({})",
    "torch.isfinite({})",
    "torch.isinf({})",
    "torch.logical_not({})",
    "torch.signbit({})",
)


def unary(d: Drawing) -> str:
    text = d.choice(_UNARY)
    value = d.floats(most=100)
    if "softmin" in text and not value.rank:
        raise Misfit
    return text.replace("{}", value.name)


def bounded(d: Drawing) -> str:
    return d.choice(_BOUNDED).format(d.floats(most=12).name)


def binary(d: Drawing) -> str:
    text = d.choice(_BINARY)
    value = d.floats(most=1e3)
    other = d.broadcastable(value) if d.chance(0.9) else value
    if "mse" in text and other.shape != value.shape:
        raise Misfit
    pair = [value.name, other.name]
    if d.chance(0.3):
        pair.reverse()
    return text.format(*pair)


def addcmul(d: Drawing) -> str:
    value = d.floats(most=100)
    others = d.broadcastable(value).name, d.broadcastable(value).name
    if d.chance(0.5):
        return f"torch.addcmul({value.name}, {others[0]}, {others[1]}, value=0.5)"
    return f"torch.addcdiv({value.name}, {others[0]}, {others[1]}.abs() + 0.5, value=-2)"


def compare(d: Drawing) -> str:
    value = d.floats() if d.chance(0.6) else d.integers()
    sign = d.choice(_COMPARE)
    if d.chance(0.4):
        return f"{value.name} {sign} {d.choice((0, 0.5, 1, 2))}"
    return f"{value.name} {sign} {d.broadcastable(value).name}"


def where(d: Drawing) -> str:
    value = d.floats()
    condition = d.weight([1 if d.chance(0.3) else e for e in value.shape], "bool")
    if d.chance(0.5):
        mask = f"{d.broadcastable(value).name} > 0.3"
        condition_text = f"({mask})"
    else:
        condition_text = condition.name
    if d.chance(0.3):
        fill = d.choice(("0.0", "-1e4", "float('-inf')", "2"))
        return f"{value.name}.masked_fill({condition_text}, {fill})"
    return f"torch.where({condition_text}, {value.name}, {d.broadcastable(value).name})"


def predicate(d: Drawing) -> str:
    return d.choice(_PREDICATES).format(d.floats().name)


def integer(d: Drawing) -> str:
    value = d.integers()
    if d.chance(0.5):
        return d.choice(_INTEGER_UNARY).format(value.name)
    return d.choice(_INTEGER).format(value.name, d.broadcastable(value).name)


def logic(d: Drawing) -> str:
    value = d.bools()
    if d.chance(0.3):
        return d.choice(("~{}", "torch.logical_not({})")).format(value.name)
    return d.choice((*_LOGIC, "{} & {}", "{} | {}")).format(value.name, d.broadcastable(value).name)


def cast(d: Drawing) -> str:
    value = d.anything()
    target = d.choice(("FLOAT", "FLOAT", "torch.int64", "torch.int32", "torch.bool"))
    if value.kind == "float" and "int" in target and value.magnitude > 1e4:
        raise Misfit
    return f"{value.name}.to({target})"


def mixed(d: Drawing) -> str:
    """Operands of two types: PyTorch promotes them."""
    value = d.floats()
    other = d.weight(value.shape[-1:], d.choice(("int64", "bool", "int32")), 5)
    return f"{value.name} {d.choice('+*-')} {other.name}"


def masked(d: Drawing) -> str:
    """A mask of numbers, as models write it."""
    value, other = d.floats(), d.bools()
    pairs = zip(reversed(value.shape), reversed(other.shape), strict=False)
    if not all(1 in (a, b) or a == b for a, b in pairs):
        raise Misfit
    return f"{value.name} * {other.name}.to(FLOAT)"


OPERATORS = (
    *(unary,) * 5, bounded, *(binary,) * 6, addcmul, *(compare,) * 2, *(where,) * 2, predicate,
    *(integer,) * 2, logic, *(cast,) * 2, mixed, masked,
)  # fmt: skip
