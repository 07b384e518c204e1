"""Products with codes of one value become one, whose matrix decodes to the same bits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tvm
from coded import formats, random_coded
from test_join_products import calls, check_equal, constant, fewest, weights
from tvm import relax
from tvm.relax import op

from tvm_tile.graph.codes import Coded
from tvm_tile.graph.tensor_format import Entries, Integers, Shared, TensorFormat
from tvm_tile.loops.decoding import decode, kept_constants
from tvm_tile.passes import JoinProducts
from tvm_tile.passes.weld.product_weights import DecodedMatrix
from tvm_tile.tile.weld.connect import Decision

DEPTH = 64
FOUR = TensorFormat(
    Integers(4, True), "int32", "float32", None, (Shared((1, 32), "float32", "float32"),)
)
Multiply = Callable[[Any, Coded], Any]
Body = Callable[[relax.BlockBuilder, Any, Multiply], Any]


def joined(
    body: Body, dtype: str = "float32", record: Callable[[Decision], None] | None = None
) -> tuple[tvm.IRModule, tvm.IRModule]:
    """A function of one tensor before and after; ``body`` is given what multiplies with codes."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((2, 5, DEPTH), dtype))
    constants: dict[int, list[relax.Expr]] = {}

    def multiply(value: Any, coded: Coded) -> Any:
        kept = constants.setdefault(id(coded), kept_constants(coded))
        decoded = builder.emit(decode(builder, coded, kept))
        turned = builder.emit(op.permute_dims(decoded))
        return builder.emit(op.matmul(value, turned))

    with builder.function("main", [x]):
        with builder.dataflow():
            output = builder.emit_output(body(builder, x, multiply))
        builder.emit_func_output(output)
    before = builder.get()
    last = [relax.transform.CanonicalizeBindings(), relax.transform.DeadCodeElimination()]
    after = tvm.transform.Sequential([JoinProducts(fewest, record), *last])(before)
    assert relax.analysis.check_well_formed(after)
    return before, after


def decoded(mod: tvm.IRModule) -> list[np.ndarray]:
    """The values of all matrices of codes."""
    bindings = [b for block in mod["main"].body.blocks for b in block.bindings]
    found = [DecodedMatrix.of(binding.value, mod) for binding in bindings]
    return [matrix.coded.values() for matrix in found if matrix is not None]


def products(parts: list[Coded]) -> Body:
    return lambda _, x, multiply: relax.Tuple([multiply(x, part) for part in parts])


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("rows", [(32, 8, 8), (24, 40)])
def test_codes_side_by_side_decode_to_the_same_bits(rows: tuple[int, ...], dtype: str) -> None:
    for form in formats(dtype):
        parts = [random_coded(form, (own, DEPTH), seed) for seed, own in enumerate(rows)]
        parts = [replace(part, table=parts[0].table) for part in parts]
        before, after = joined(products(parts), form.dtype)
        assert calls(after)["matmul"] == 1, form
        (whole,) = decoded(after)
        assert whole.tobytes() == np.concatenate(decoded(before)).tobytes(), form


@pytest.mark.parametrize("bits", [3, 4, 8])
def test_results_are_the_same_bits(bits: int) -> None:
    form = replace(FOUR, code=Integers(bits, False), zero=Shared((1, 32), "uint8", "float32"))
    parts = [random_coded(form, (rows, DEPTH), rows) for rows in (24, 8, 16)]
    bias = constant(24)

    def body(builder: relax.BlockBuilder, x: Any, multiply: Multiply) -> Any:
        q, k, v = (multiply(x, part) for part in parts)
        q = builder.emit(op.add(q, bias))
        heads = builder.emit(op.reshape(k, (2, 5, 2, 4)))
        k = builder.emit(op.permute_dims(heads, [0, 2, 1, 3]))
        return relax.Tuple([q, builder.emit(op.multiply(k, relax.const(0.5))), v])

    before, after = joined(body)
    assert calls(after)["matmul"] == 1
    assert calls(after)["add"] == 1
    check_equal(before, after)


def test_a_scale_of_the_whole_matrix_is_one_of_rows() -> None:
    def part(rows: int) -> Coded:
        whole = Shared((rows, DEPTH), "float32", "float32")
        return random_coded(replace(FOUR, scales=(whole,)), (rows, DEPTH), rows)

    before, after = joined(products([part(32), part(8)]))
    (whole,) = decoded(after)
    assert whole.tobytes() == np.concatenate(decoded(before)).tobytes()
    check_equal(before, after)


def test_a_matrix_of_several_products_stays_one() -> None:
    one, other, third = (random_coded(FOUR, (DEPTH, DEPTH), seed) for seed in range(3))

    def body(builder: relax.BlockBuilder, x: Any, multiply: Multiply) -> Any:
        for _ in range(2):
            x = builder.emit(op.add(multiply(x, one), multiply(x, other)))
        y = builder.emit(op.exp(x))
        return relax.Tuple([multiply(y, one), multiply(y, third)])

    before, after = joined(body)
    assert calls(after)["matmul"] == 3
    made = [b.value for b in after["main"].body.blocks[0].bindings]
    found = [matrix for value in made if (matrix := DecodedMatrix.of(value, after)) is not None]
    assert len({matrix.constants for matrix in found}) == 2
    check_equal(before, after)


def test_other_formats_are_left_apart_by_name() -> None:
    tables = TensorFormat(Entries(4), "float32", "float32", None, FOUR.scales)
    forms = (FOUR, replace(FOUR, code=Integers(8, True)), tables, tables)
    parts = [random_coded(form, (8, DEPTH), seed) for seed, form in enumerate(forms)]
    decisions: list[Decision] = []
    _, after = joined(products(parts), record=decisions.append)
    assert calls(after)["matmul"] == 4
    assert {decision.reason for decision in decisions} == {
        "their weights are not kept in one format"
    }
    twice = [*parts[:2], random_coded(FOUR, (16, DEPTH), 9)]
    before, after = joined(products(twice))
    assert calls(after)["matmul"] == 2
    check_equal(before, after)


def test_codes_and_constants_are_left_apart() -> None:
    part, other = random_coded(FOUR, (8, DEPTH)), weights(8, depth=DEPTH)
    _, after = joined(
        lambda builder, x, multiply: relax.Tuple(
            [multiply(x, part), builder.emit(op.matmul(x, other))]
        )
    )
    assert calls(after)["matmul"] == 2


def test_codes_that_are_inputs_are_left_alone() -> None:
    part = random_coded(FOUR, (8, DEPTH))
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((5, DEPTH), "float32"))
    packed = relax.Var("packed", relax.TensorType(part.packed.shape, "uint8"))
    with builder.function("main", [x, packed]):
        with builder.dataflow():
            made = []
            for _ in range(2):
                call = decode(builder, part, [packed, *kept_constants(part)[1:]])
                turned = builder.emit(op.permute_dims(builder.emit(call)))
                made.append(builder.emit(op.matmul(x, turned)))
            output = builder.emit_output(relax.Tuple(made))
        builder.emit_func_output(output)
    assert calls(JoinProducts(fewest)(builder.get()))["matmul"] == 2
