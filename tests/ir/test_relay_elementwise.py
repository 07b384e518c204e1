"""Relay's operators element by element, its activations and reductions, against NumPy."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from relay_operators import Known, equal, run
from tvm import relax

from bench.cpu_build import run_on_cpu
from tvm_tile.frontend.relay.call import OperatorCall, converted
from tvm_tile.frontend.relay.operators.elementwise import CONVERTERS

pytestmark = pytest.mark.bank(6)

_RNG = np.random.default_rng(0)
_INTEGERS = ["int8", "uint8", "int32", "uint32", "int64"]
_TOLERANCES = {"float16": 2e-3, "bfloat16": 2e-2, "float32": 2e-6, "float64": 1e-6}
_FLOATS = list(_TOLERANCES)
_SHAPES = [((3, 1), (4,)), ((), (2,)), ((0, 3), (1, 3))]
_X = _RNG.standard_normal((2, 3, 4)).astype("float32")


def _type(dtype: str) -> Any:
    return ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype


def _random(dtype: str, *shape: int) -> np.ndarray:
    if dtype == "bool":
        return np.asarray(_RNG.random(shape) > 0.5)
    if "int" in dtype:
        return np.asarray(_RNG.integers(0 if dtype[0] == "u" else -9, 9, shape)).astype(dtype)
    return np.asarray(_RNG.standard_normal(shape) * 3).astype(_type(dtype))


def _cut_off(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.trunc(x.astype("float64") / y.astype("float64"))


_UNARY: dict[str, Callable[..., Any]] = {
    **{name: getattr(np, name) for name in ("abs", "ceil", "floor", "trunc", "sign", "negative")},
    **{name: getattr(np, name) for name in ("exp", "tanh", "sinh", "cosh", "cos", "sin", "tan")},
    **{name: getattr(np, name) for name in ("log", "log2", "log10", "sqrt")},
    **{f"a{name}": getattr(np, f"arc{name}") for name in ("tan", "sinh")},
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "fast_exp": np.exp,
    "fast_tanh": np.tanh,
}


@pytest.mark.parametrize("dtype", _FLOATS)
def test_functions(dtype: str) -> None:
    for name, function in _UNARY.items():
        for shape in ((3, 4), (), (0, 3)) if name in ("exp", "log2", "abs") else ((3, 4),):
            x = _random(dtype, *shape)
            if name in ("log", "log2", "log10", "sqrt", "rsqrt"):
                x = np.abs(x) + np.asarray(0.1, x.dtype)
            expected = np.asarray(function(x.astype("float64")))
            found = run(name, x)
            assert (found.dtype, found.shape) == (x.dtype, x.shape), name
            equal(found.astype("float64"), expected, 2 * _TOLERANCES[dtype])


def test_inverses_within_their_bounds() -> None:
    x = np.linspace(-0.9, 0.9, 7).astype("float32")
    for name, function in (("asin", np.arcsin), ("acos", np.arccos), ("atanh", np.arctanh)):
        equal(run(name, x), function(x), 2e-6)
    equal(run("acosh", x + 2), np.arccosh(x + 2), 2e-6)
    equal(run("erf", x), np.array([math.erf(v) for v in x], "float32"), 2e-6)
    equal(run("fast_erf", x), np.array([math.erf(v) for v in x], "float32"), 2e-6)


@pytest.mark.parametrize("dtype", [*_INTEGERS, "bool"])
def test_functions_of_integers(dtype: str) -> None:
    x = _random(dtype, 3, 4)
    for name in ("ceil", "floor", "trunc", "round", "copy"):
        equal(run(name, x), x)
    equal(run("isnan", x), np.zeros((3, 4), bool))
    equal(run("isfinite", x), np.ones((3, 4), bool))
    equal(run("logical_not", x), x == 0)
    equal(run("bitwise_not", x), np.invert(x))
    equal(run("abs", x), np.abs(x))
    equal(run("sign", x), x if dtype == "bool" else np.sign(x))
    if dtype != "bool":
        equal(run("negative", x), -x)
    with pytest.raises(NotImplementedError, match="elements of"):
        run("exp", x)


@pytest.mark.parametrize("dtype", _FLOATS)
def test_round_goes_away_from_zero(dtype: str) -> None:
    x = np.array([-2.5, -1.5, -0.5, -0.25, 0, 0.25, 0.5, 1.5, 2.5, 2.75]).astype(_type(dtype))
    expected = np.array([-3, -2, -1, 0, 0, 0, 1, 2, 3, 3]).astype(_type(dtype))
    equal(run("round", x), expected)
    if dtype == "float32":
        odd = np.array([8388609, np.nextafter(np.float32(0.5), 0), np.inf, np.nan], "float32")
        equal(run("round", odd), np.array([8388609, 0, np.inf, np.nan], "float32"))


_ARITHMETIC = {name: getattr(np, name) for name in ("add", "subtract", "multiply")}
_EXTREMES = {name: getattr(np, name) for name in ("maximum", "minimum")}
_COMPARISONS = {
    **{name: getattr(np, name) for name in ("less", "less_equal", "greater", "greater_equal")},
    **{name: getattr(np, name) for name in ("equal", "not_equal")},
    **{f"logical_{name}": getattr(np, f"logical_{name}") for name in ("and", "or", "xor")},
}
_DIVISIONS: dict[str, Callable[..., Any]] = {
    "divide": lambda x, y: x.astype("float64") / y.astype("float64"),
    "floor_divide": lambda x, y: np.floor(x.astype("float64") / y.astype("float64")),
    "floor_mod": np.mod,
    "mod": np.fmod,
    "trunc_mod": np.fmod,
    "trunc_divide": _cut_off,
}
_BITS = {f"bitwise_{name}": getattr(np, f"bitwise_{name}") for name in ("and", "or", "xor")}


@pytest.mark.parametrize("dtype", [*_INTEGERS, *_FLOATS])
def test_operators_of_two(dtype: str) -> None:
    for shapes in _SHAPES if dtype in ("float32", "int8") else _SHAPES[:1]:
        x, y = (_random(dtype, *shape) for shape in shapes)
        for name, function in {**_ARITHMETIC, **_EXTREMES, **_COMPARISONS}.items():
            equal(run(name, x, y), function(x, y))
        y = np.where(y == 0, np.asarray(3, y.dtype), y)
        for name, function in _DIVISIONS.items():
            expected = np.asarray(function(x, y))
            tolerance = _TOLERANCES.get(dtype, 0) * 4
            equal(run(name, x, y), expected.astype(x.dtype), tolerance)
        if dtype in _INTEGERS:
            for name, function in _BITS.items():
                equal(run(name, x, y), function(x, y))
            y = np.abs(y.astype("int8")).astype(dtype) % np.asarray(8, dtype)
            equal(run("left_shift", x, y), np.left_shift(x, y))
            equal(run("right_shift", x, y), np.right_shift(x, y))
            equal(run("power", x, y), np.power(x, y))


def test_operators_of_truth_values() -> None:
    x, y = np.array([True, True, False, False]), np.array([True, False, True, False])
    for name, function in {**_COMPARISONS, **_EXTREMES, **_BITS}.items():
        equal(run(name, x, y), function(x, y))
    equal(run("multiply", x, y), x & y)
    for name in ("add", "subtract", "divide", "mod", "power", "left_shift"):
        with pytest.raises(NotImplementedError, match="bool"):
            run(name, x, y)


def test_no_numbers_and_infinities() -> None:
    x = np.array([1, np.nan, np.inf, -np.inf, 0, -0.0, 2.5], "float32")
    y = np.array([np.nan, np.nan, np.inf, 1, 0, 0, 2.5], "float32")
    with np.errstate(all="ignore"):
        for name, function in {**_ARITHMETIC, **_EXTREMES, **_COMPARISONS}.items():
            equal(run(name, x, y), np.asarray(function(x, y)))
        for divisor in (0.0, -0.0):
            known = Known(divisor, "float32")
            equal(run("divide", x, known), x / np.float32(divisor))
    equal(run("cast", x, dtype="bool"), x != 0)


def test_one_value_compared_with_itself() -> None:
    x = np.array([1, np.nan], "float32")
    for name in ("equal", "not_equal", "less", "less_equal"):
        builder = relax.BlockBuilder()
        variable = relax.Var("x", relax.TensorType((2,), "float32"))
        with builder.function("main", [variable]):
            call = OperatorCall(name, (variable, variable), {}, builder)
            builder.emit_func_output(converted(CONVERTERS[name], call))
        equal(run_on_cpu(builder.get(), [x])[0], getattr(np, name)(x, x))


def test_operands_must_agree() -> None:
    with pytest.raises(ValueError, match="float32 and int8"):
        run("add", np.zeros(1, "float32"), np.zeros(1, "int8"))
    with pytest.raises(ValueError, match="zero"):
        run("divide", np.ones(2, "int32"), Known([1, 0], "int32"))


@pytest.mark.parametrize("dtype", [*_INTEGERS, *_FLOATS, "bool"])
def test_casts(dtype: str) -> None:
    for target in [*_INTEGERS, *_FLOATS, "bool"]:
        x = _random(dtype, 3, 4)
        if target[0] == "u" and dtype != "bool":
            x = np.abs(x.astype("float32")).astype(x.dtype)
        expected = x != 0 if target == "bool" else x.astype(_type(target))
        equal(run("cast", x, dtype=target), expected)
    equal(run("cast_like", x, np.zeros(1, "int8")), x.astype("int8"))


@pytest.mark.parametrize("dtype", [*_INTEGERS, *_FLOATS, "bool"])
def test_where_and_clip(dtype: str) -> None:
    x, y = _random(dtype, 3, 4), _random(dtype, 3, 1)
    flags = _random("bool", 4)
    equal(run("where", flags, x, y), np.where(flags, x, y))
    equal(run("where", x, x, y), np.where(x != 0, x, y))
    if dtype != "bool":
        low, high = (np.asarray(v).astype(x.dtype) for v in (0 if dtype[0] == "u" else -1, 3))
        equal(
            run("clip", x, a_min=-1.0, a_max=3.7 if dtype in _INTEGERS else 3.0),
            np.minimum(np.maximum(x, low), high),
        )
        equal(run("clip", x, a_min=-math.inf, a_max=1e30), x)


def test_bits_as_another_type() -> None:
    equal(run("reinterpret", _X, dtype="int32"), _X.view("int32"))
    with pytest.raises(NotImplementedError, match="as float64"):
        run("reinterpret", _X, dtype="float64")


def _fixed(x: np.ndarray, multiplier: Any, left: Any, right: Any) -> np.ndarray:
    total = 31 + np.asarray(right, "int64")
    product = (x.astype("int64") << left) * np.asarray(multiplier, "int64")
    return ((product + (np.int64(1) << (total - 1))) >> total).astype("int32")


def test_fixed_point_multiply() -> None:
    x = _RNG.integers(-100000, 100000, (3, 4)).astype("int32")
    for shift in (-3, 0, 2):
        found = run("fixed_point_multiply", x, multiplier=1395864371, shift=shift)
        equal(found, _fixed(x, 1395864371, max(shift, 0), max(-shift, 0)))
    multipliers = np.array([1 << 30, 1395864371, 7], "int32")
    left, right = np.array([1, 0, 3], "int32"), np.array([0, 2, 0], "int32")
    flags = {"is_lshift_required": True, "is_rshift_required": True, "axes": (0,)}
    found = run("fixed_point_multiply_per_axis", x, multipliers, left, right, **flags)
    columns = (v.astype("int64")[:, None] for v in (multipliers, left, right))
    equal(found, _fixed(x, *columns))


def test_activations() -> None:
    slopes = np.array([0.5, 2, 0], "float32")
    wide = slopes[None, :, None]
    equal(run("nn.relu", _X), np.maximum(_X, 0))
    equal(run("nn.relu", np.array([-1, 2], "int8")), np.array([0, 2], "int8"))
    equal(run("nn.leaky_relu", _X, alpha=0.25), np.where(_X > 0, _X, _X * np.float32(0.25)))
    equal(run("nn.prelu", _X, slopes, axis=1), np.where(_X > 0, _X, _X * wide))
    equal(run("nn.bias_add", _X, slopes, axis=-2), _X + wide)
    x, mask = run("nn.dropout", _X, rate=0.5)
    equal(x, _X)
    equal(mask, np.ones_like(_X))
    equal(run("hardswish", _X), _X * np.clip(_X + 3, 0, 6) / 6, 1e-6)


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_softmax(axis: int, dtype: str) -> None:
    x = (_X * 30).astype(dtype)
    wide = x.astype("float64") - x.max(axis, keepdims=True).astype("float64")
    shares = np.exp(wide) / np.exp(wide).sum(axis, keepdims=True)
    equal(run("nn.softmax", x, axis=axis), shares.astype(dtype), _TOLERANCES[dtype])
    equal(run("nn.fast_softmax", x, axis=axis), shares.astype(dtype), _TOLERANCES[dtype])
    logarithms = wide - np.log(np.exp(wide).sum(axis, keepdims=True))
    equal(run("nn.log_softmax", x, axis=axis), logarithms.astype(dtype), 3 * _TOLERANCES[dtype])


def test_losses() -> None:
    p = _RNG.uniform(0.1, 1, (4, 3)).astype("float32")
    y = _RNG.uniform(0.1, 1, (4, 3)).astype("float32")
    equal(run("nn.cross_entropy", p, y), np.float32(-(np.log(p) * y).sum() / 4), 1e-6)
    equal(run("nn.cross_entropy_with_logits", p, y), np.float32(-(p * y).sum() / 4), 1e-6)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("shape", [(4, 3), (2, 3, 5), (3,)])
def test_nll_loss(reduction: str, shape: tuple[int, ...]) -> None:
    p = _RNG.standard_normal(shape).astype("float32")
    places = (*shape[:1], *shape[2:]) if len(shape) > 1 else ()
    targets = np.asarray(_RNG.integers(0, 3, places), "int32")
    weights = np.array([0.5, 1, 2], "float32")
    ignored = 1
    own = np.where(targets == ignored, 0, weights[targets])
    axis = min(1, len(shape) - 1)
    chosen = np.take_along_axis(p, np.expand_dims(targets, axis).astype("int64"), axis)
    losses = -chosen.squeeze(axis) * own
    expected = losses if reduction == "none" else losses.sum()
    if reduction == "mean":
        if not own.sum():
            return
        expected = losses.sum() / own.sum()
    found = run("nn.nll_loss", p, targets, weights, reduction=reduction, ignore_index=ignored)
    equal(found, np.asarray(expected, "float32"), 1e-5)


_WHOLE = {"axis": None, "keepdims": False, "exclude": False}


@pytest.mark.parametrize(
    ("attributes", "axes"),
    [
        ({}, (0, 1, 2)),
        ({"axis": ()}, (0, 1, 2)),
        ({"axis": (1,), "keepdims": True}, (1,)),
        ({"axis": (0, -1)}, (0, 2)),
        ({"axis": (1,), "exclude": True}, (0, 2)),
        ({"axis": (0, 1, 2), "exclude": True}, ()),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "int32", "float16", "int8", "uint8", "int64"])
def test_reductions(attributes: dict[str, Any], axes: tuple[int, ...], dtype: str) -> None:
    x = _random(dtype, 2, 3, 4) % np.asarray(3, dtype)
    keeps = bool(attributes.get("keepdims"))
    tolerance = _TOLERANCES.get(dtype, 0) * 4
    wide = x.astype("float64") if "float" in dtype else x.astype("int64")
    count = math.prod(x.shape[axis] for axis in axes)
    total = np.asarray(wide.sum(axes, keepdims=keeps)).astype(dtype)
    mean = total / count if "float" in dtype else np.trunc(total.astype("float64") / count)
    mean = wide.mean(axes, keepdims=keeps) if "float" in dtype and axes else mean
    for name, expected in (
        ("sum", total),
        ("mean", mean),
        ("prod", wide.prod(axes, keepdims=keeps)),
        ("max", wide.max(axes, keepdims=keeps)),
        ("min", wide.min(axes, keepdims=keeps)),
    ):
        found = run(name, x, **{**_WHOLE, **attributes})
        equal(found, np.asarray(expected).astype(dtype), tolerance)
    equal(
        run("any", x != 0, **{**_WHOLE, **attributes}),
        np.asarray((x != 0).any(axes, keepdims=keeps)),
    )
    equal(
        run("all", x != 0, **{**_WHOLE, **attributes}),
        np.asarray((x != 0).all(axes, keepdims=keeps)),
    )


def test_reductions_of_single_numbers_and_of_nothing() -> None:
    equal(run("sum", np.float32(2), **_WHOLE), np.float32(2))
    equal(run("mean", np.int32(2), **_WHOLE), np.int32(2))
    nothing = np.zeros((0, 3), "float32")
    equal(run("sum", nothing, **_WHOLE), np.float32(0))
    equal(run("prod", nothing, **{**_WHOLE, "axis": (0,)}), np.ones(3, "float32"))
    equal(run("mean", nothing, **{**_WHOLE, "axis": (0,)}), np.full(3, np.nan, "float32"))
    equal(run("max", nothing, **{**_WHOLE, "axis": (1,)}), np.zeros(0, "float32"))
    equal(run("all", nothing > 0, **_WHOLE), np.bool_(True))
    equal(run("any", nothing > 0, **_WHOLE), np.bool_(False))
    equal(run("prod", nothing, **{**_WHOLE, "keepdims": True}), np.ones((1, 1), "float32"))
    with pytest.raises(ValueError, match="no elements"):
        run("max", nothing, **_WHOLE)
    equal(run("max", np.array([True, False]), **_WHOLE), np.bool_(True))


def test_variance() -> None:
    mean = _X.mean((0, 2), keepdims=True)
    for unbiased in (False, True):
        found = run("variance", _X, mean, **{**_WHOLE, "axis": (0, 2)}, unbiased=unbiased)
        equal(found, _X.var((0, 2), ddof=int(unbiased)), 1e-6)


@pytest.mark.parametrize("name", ["argmax", "argmin"])
@pytest.mark.parametrize("axis", [None, (1,), (-1,), (0, 1, 2)])
@pytest.mark.parametrize("is_last", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "int8", "bool"])
def test_places_of_extremes(name: str, axis: Any, is_last: bool, dtype: str) -> None:
    x = (_RNG.integers(0, 3, (2, 3, 4)) - (dtype == "int8")).astype(dtype)
    axes = tuple(range(3)) if axis is None else tuple(a % 3 for a in axis)
    kept = [a for a in range(3) if a not in axes]
    rows = x.transpose(*kept, *axes).reshape(*(x.shape[a] for a in kept), -1)
    expected = getattr(np, name)(rows[..., ::-1] if is_last else rows, -1)
    expected = rows.shape[-1] - 1 - expected if is_last else expected
    flags = {"axis": axis, "exclude": False, "select_last_index": is_last}
    equal(run(name, x, keepdims=False, **flags), np.asarray(expected, "int32"))
    wide = np.asarray(expected, "int32").reshape([1 if a in axes else x.shape[a] for a in range(3)])
    equal(run(name, x, keepdims=True, **flags), wide)


@pytest.mark.parametrize("exclusive", [False, True])
def test_scans(exclusive: bool) -> None:
    for name, function, first in (("cumsum", np.cumsum, 0), ("cumprod", np.cumprod, 1)):
        for axis in (0, -1, None):
            flat = _X.reshape(-1) if axis is None else _X
            expected = function(flat.astype("float64"), axis or 0 if axis is None else axis)
            if exclusive:
                place = 0 if axis is None else axis
                one = np.full_like(np.take(expected, [0], place), first)
                expected = np.concatenate([one, np.delete(expected, -1, place)], place)
            found = run(name, _X, axis=axis, dtype="float64", exclusive=exclusive)
            equal(found, expected, 1e-12)
    x = np.arange(5, dtype="int8")
    equal(run("cumsum", x, axis=0, dtype="int32", exclusive=False), np.cumsum(x).astype("int32"))
    equal(run("cumsum", x, axis=None, dtype="", exclusive=None), np.cumsum(x).astype("int8"))
