"""Which weights stay codes, and why others do not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tvm
from tvm import relax, tirx
from tvm.relax import op
from tvm.script import ir as I
from tvm.script import relax as R

import tvm_tile
from tests.cpu_build import chosen, operators, run
from tvm_tile import Options
from tvm_tile.frontend import import_model
from tvm_tile.frontend.fold import fold_constants
from tvm_tile.loops.decoding import format_of

OPTIONS = Options(cache=False, low_bit=True)
DEPTH, COLUMNS = 128, 64
RNG = np.random.default_rng(0)
CODES = RNG.integers(0, 256, (DEPTH, COLUMNS // 2)).astype(np.uint8)
SCALES = RNG.random((4, 1, COLUMNS)).astype(np.float32)
Emit = Callable[[Any], Any]
Weight = Callable[[Emit], Any]


def const(array: np.ndarray) -> Any:
    return relax.const(array, array.dtype.name)


def floats(emit: Emit, dtype: str = "float32") -> Any:
    """Two codes a byte, as numbers."""
    byte = emit(op.expand_dims(const(CODES), -1))
    shifts = const(np.array([0, 4], np.uint8))
    codes = emit(op.bitwise_and(emit(op.right_shift(byte, shifts)), const(np.uint8(15))))
    return emit(op.astype(emit(op.reshape(codes, (DEPTH, COLUMNS))), dtype))


def scaled(emit: Emit) -> Any:
    """And scaled, by groups of 32 along the depth."""
    groups = emit(op.reshape(floats(emit), (4, DEPTH // 4, COLUMNS)))
    product = emit(op.multiply(groups, const(SCALES)))
    return emit(op.reshape(product, (DEPTH, COLUMNS)))


def model(weight: Weight, product: Callable[[Emit, Any, Any], Any] | None = None) -> tvm.IRModule:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((3, DEPTH), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            w = weight(builder.emit)
            multiply = product or (lambda emit, x, w: op.matmul(x, w))
            result = builder.emit_output(multiply(builder.emit, x, w))
        builder.emit_func_output(result)
    return builder.get()


def decoders(mod: tvm.IRModule) -> list[str]:
    found = (format_of(f) for f in mod.functions.values() if isinstance(f, tirx.PrimFunc))
    return [str(form) for form in found if form is not None]


def check(mod: tvm.IRModule, expected: list[str]) -> None:
    """Which formats are kept, and that results are those of folded weights."""
    imported = import_model(mod)
    kept, folded = chosen(imported, True), chosen(imported, False)
    assert sorted(decoders(kept.mod)) == sorted(expected)
    assert decoders(folded.mod) == []
    plain = replace(imported, mod=fold_constants(mod))  # without codes
    x = np.random.default_rng(1).standard_normal((3, DEPTH)).astype(np.float32)
    wanted = run(plain, x)
    for found in (run(kept, x), run(folded, x)):
        for one, other in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(one, other)


FOUR = "uint4, scale float32 for each 32 x 1"
TURNED = "uint4, scale float32 for each 1 x 32"  # stored so where products read the matrix itself


def test_codes_are_found_however_they_are_unpacked() -> None:
    mod = model(scaled)
    check(mod, [TURNED])
    assert import_model(mod).weights == ()
    (weight,) = tvm_tile.compile(mod, "emulated", options=OPTIONS).report.coded
    assert (weight.shape, weight.dtype, weight.reason) == ((DEPTH, COLUMNS), "float32", "")
    assert weight.bytes == DEPTH * COLUMNS // 2 + SCALES.nbytes
    assert weight.folded_bytes == DEPTH * COLUMNS * 4


def quotients(emit: Emit) -> Any:
    """The same codes by division and remainder, stacked."""
    sixteen = const(np.uint8(16))
    low, high = op.floor_mod(const(CODES), sixteen), op.floor_divide(const(CODES), sixteen)
    codes = emit(op.stack([emit(low), emit(high)], -1))
    return emit(op.astype(emit(op.reshape(codes, (DEPTH, COLUMNS))), "float32"))


def split(emit: Emit) -> Any:
    parts = emit(op.split(floats(emit), 2, 0))
    halves = [emit(relax.TupleGetItem(parts, i)) for i in (1, 0)]
    return emit(op.concat(halves, 0))


def table(emit: Emit) -> Any:
    entries = const(np.linspace(-1, 1, 16).astype(np.float32) ** 3)
    codes = const(RNG.integers(0, 16, (DEPTH, COLUMNS)))
    scales = const(np.array([[0.1]], np.float32))
    return emit(op.multiply(scales, emit(op.take(entries, codes, 0, mode="clip"))))


def shifted(emit: Emit) -> Any:
    codes = const(RNG.integers(0, 256, (DEPTH, COLUMNS)).astype(np.int32))
    zeros = const(RNG.integers(0, 256, (1, COLUMNS)).astype(np.int32))
    return emit(op.astype(emit(op.subtract(codes, zeros)), "float32"))


def truths(emit: Emit) -> Any:
    return emit(op.astype(const(RNG.random((DEPTH, COLUMNS)) < 0.5), "float32"))


def small_floats(emit: Emit) -> Any:
    numbers = RNG.standard_normal((DEPTH, COLUMNS)).astype(ml_dtypes.float8_e4m3fn)
    return emit(op.multiply(emit(op.astype(const(numbers), "float32")), const(np.float32(0.3))))


@pytest.mark.parametrize(
    ("weight", "expected"),
    [
        (floats, "uint4"),
        (quotients, "uint4"),
        (split, "uint4"),
        (table, "table of 16 of float32, scale float32 for each 64 x 128"),
        (shifted, "uint8, zero uint8 for each 1 x 128"),
        (truths, "uint1"),
        (small_floats, "float8 e4m3, scale float32 for each 64 x 128"),
    ],
)
def test_formats(weight: Weight, expected: str) -> None:
    check(model(weight), [expected])


def linear(emit: Emit, x: Any, w: Any) -> Any:
    return op.matmul(x, emit(op.permute_dims(w)))


def test_a_linear_layer_reads_its_weight_as_it_is_kept() -> None:
    def weight(emit: Emit) -> Any:
        return emit(op.permute_dims(scaled(emit)))

    check(model(weight, linear), ["uint4, scale float32 for each 1 x 32"])


def test_a_weight_with_an_infinite_scale_is_folded() -> None:
    def weight(emit: Emit) -> Any:
        scales = SCALES.copy()
        scales.flat[3] = np.inf
        groups = emit(op.reshape(floats(emit), (4, DEPTH // 4, COLUMNS)))
        product = emit(op.multiply(groups, const(scales)))
        return emit(op.reshape(product, (DEPTH, COLUMNS)))

    kept = import_model(model(weight))
    assert decoders(kept.mod) == []
    assert [weight.reason for weight in kept.weights] == ["a scale of it is infinite"]


def test_products_may_share_a_weight() -> None:
    def twice(emit: Emit, x: Any, w: Any) -> Any:
        return op.add(emit(op.matmul(x, w)), emit(op.matmul(emit(op.negative(x)), w)))

    check(model(scaled, twice), [TURNED])


def test_weights_of_functions_that_are_called_are_kept() -> None:
    builder = relax.BlockBuilder()
    x, y = (relax.Var(name, relax.TensorType((3, DEPTH), "float32")) for name in "xy")
    with builder.function("inner", [y], private=True):
        with builder.dataflow():
            result = builder.emit_output(op.matmul(y, scaled(builder.emit)))
        builder.emit_func_output(result)
    inner = builder.get().get_global_var("inner")
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(relax.Call(inner, [x])))
    check(builder.get(), [TURNED])


def test_weights_are_decoded_just_before_their_products() -> None:
    """Wherever a model computes them: so not all of them are in memory at once."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((3, DEPTH), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            weights = [scaled(builder.emit), floats(builder.emit)]
            turned = builder.emit(op.permute_dims(weights[0]))
            y = builder.emit(op.matmul(builder.emit(op.matmul(x, weights[1])), turned))
            result = builder.emit_output(op.matmul(y, weights[0]))
        builder.emit_func_output(result)
    mod = builder.get()
    kept = chosen(import_model(mod), True)
    expected = [
        *("call_tir", "permute_dims", "matmul"),
        *("call_tir", "permute_dims", "matmul", "call_tir", "matmul"),
    ]
    assert operators(kept) == expected
    check(mod, ["uint4", FOUR])


@I.ir_module
class Branches:
    @R.function
    def main(
        x: R.Tensor((3, 128), "float32"),
        a: R.Tensor((128, 64), "uint8"),
        b: R.Tensor((128, 64), "uint8"),
    ):
        condition = R.greater(R.sum(x), R.const(0, "float32"))
        if condition:
            weight = R.astype(a, "float32")
            product = R.matmul(x, weight)
            result = product
        else:
            other_weight = R.astype(b, "float32")
            other = R.matmul(x, other_weight)
            result = other
        return result


def test_weights_of_branches_are_kept() -> None:
    codes = {name: RNG.integers(0, top, (128, 64)) for name, top in (("a", 16), ("b", 4))}
    bound = {name: array.astype(np.uint8) for name, array in codes.items()}
    mod = relax.transform.BindParams("main", bound)(Branches)
    assert sorted(decoders(chosen(import_model(mod), True).mod)) == ["uint2", "uint4"]
    model = tvm_tile.compile(mod, "emulated", options=OPTIONS)
    x = np.abs(RNG.standard_normal((3, 128))).astype(np.float32)
    for sign, name in ((1, "a"), (-1, "b")):
        expected = sign * x.astype(np.float64) @ codes[name]
        np.testing.assert_allclose(np.asarray(model(sign * x)), expected, rtol=1e-5)


def returned(emit: Emit, x: Any, w: Any) -> Any:
    return op.concat([emit(op.matmul(x, w)), w], 0)


def squared(emit: Emit, x: Any, w: Any) -> Any:
    return op.matmul(emit(op.matmul(x, w)), emit(op.matmul(emit(op.permute_dims(w)), w)))


def wide(emit: Emit) -> Any:
    codes = const(RNG.integers(-300, 300, (DEPTH, COLUMNS)).astype(np.int16))
    return emit(op.astype(codes, "float32"))


def own_scales(emit: Emit) -> Any:
    scales = const(RNG.random((DEPTH, COLUMNS)).astype(np.float32))
    return emit(op.multiply(floats(emit), scales))


def rooted(emit: Emit) -> Any:
    return emit(op.sqrt(floats(emit)))


def rounded(emit: Emit) -> Any:
    """To bfloat16 in between, which no format does."""
    scales = const(RNG.random((1, COLUMNS)).astype(np.float32))
    narrow = emit(op.astype(emit(op.multiply(floats(emit), scales)), "bfloat16"))
    return emit(op.astype(narrow, "float32"))


@pytest.mark.parametrize(
    ("weight", "product", "reason"),
    [
        (scaled, returned, "others than products read it"),
        (scaled, squared, "others than products read it"),
        (wide, None, "its codes have more than 8 bits"),
        (own_scales, None, "it would have 36864 bytes"),
        (rooted, None, "it is not computed by a zero point, scales and an offset"),
        (rounded, None, "it would have other values"),
    ],
)
def test_what_is_folded_says_why(weight: Weight, product: Any, reason: str) -> None:
    mod = model(weight, product)
    check(mod, [])
    found, *_ = import_model(mod).weights
    assert found.format is None
    assert reason in found.reason
    assert found.bytes == found.folded_bytes


def plain(emit: Emit) -> Any:
    return emit(op.negative(const(RNG.random((DEPTH, COLUMNS)).astype(np.float32))))


def test_others_are_not_told_of() -> None:
    def small(emit: Emit) -> Any:
        codes = const(RNG.integers(0, 9, (DEPTH, 4)).astype(np.uint8))
        return emit(op.astype(codes, "float32"))

    for weight in (plain, small):
        mod = model(weight)
        check(mod, [])
        assert import_model(mod).weights == ()
