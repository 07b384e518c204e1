"""Products whose operands' rows begin anywhere, and copies of these with aligned rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tvm
from kernels import Case, prim_functions
from tvm import relax, tirx
from tvm.relax import op
from wgmma_cases import product_case

from tvm_tile.device import find_device
from tvm_tile.passes import AlignRows
from tvm_tile.passes.scheduling.first_choices import FirstChoices
from tvm_tile.passes.weld.align_rows import Misaligned
from tvm_tile.schedule import Scheduled

H200 = find_device("nvidia/h200")


def function(layout: str, m: int, n: int, k: int, dtype: str = "float16") -> tirx.PrimFunc:
    entry: Case = product_case(layout, m, n, k, dtype=dtype)
    (func,) = prim_functions(entry, H200).values()
    return func


def module(shapes: tuple[tuple[int, int], tuple[int, int]], w: Any = None) -> tvm.IRModule:
    """A product of halves and relu, its weight an input or a constant, in functions."""
    builder = relax.BlockBuilder()
    x, given = (
        relax.Var(name, relax.TensorType(shape, "float16"))
        for name, shape in zip("xw", shapes, strict=True)
    )
    with builder.function("main", [x] if w is not None else [x, given]):
        with builder.dataflow():
            weight = given if w is None else relax.const(w)
            found = builder.emit(op.nn.relu(op.matmul(x, weight)))
            output = builder.emit_output(found)
        builder.emit_func_output(output)
    passes = [relax.transform.LegalizeOps(), relax.transform.AnnotateTIROpPattern()]
    passes += [relax.transform.FuseOps(), relax.transform.FuseTIR()]
    return tvm.transform.Sequential(passes)(builder.get())


class Eager:
    """Says that what has aligned rows takes no time, whatever it is."""

    def __call__(self, func: Any, rules: Any) -> Scheduled:
        seconds = 1e-6 if Misaligned.of(func) is None else 1.0
        found = FirstChoices(H200)(func, rules)
        assert found is not None
        return replace(found, seconds=seconds)


def run(mod: tvm.IRModule, *inputs: np.ndarray) -> np.ndarray:
    machine = relax.VirtualMachine(tvm.compile(mod, "llvm"), tvm.cpu())
    found: np.ndarray = machine["main"](*map(tvm.runtime.tensor, inputs)).numpy()
    return found


SHAPES = (((5, 77), (77, 29)), ((5, 80), (80, 29)), ((5, 77), (77, 32)))


@pytest.mark.parametrize("shapes", SHAPES, ids=str)
@pytest.mark.parametrize("is_constant", [False, True], ids=["input", "constant"])
def test_the_same_is_computed_of_copies(
    shapes: tuple[tuple[int, int], tuple[int, int]], is_constant: bool
) -> None:
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(shape).astype("float16") for shape in shapes)
    mod = module(shapes, w if is_constant else None)
    aligned = AlignRows(H200, Eager())(mod)
    inputs = (x,) if is_constant else (x, w)
    np.testing.assert_array_equal(run(aligned, *inputs), run(mod, *inputs))
    copies = [str(v.name_hint) for v in aligned.functions if "padded" in str(v.name_hint)]
    misaligned = sum(shape[1] % 8 > 0 or shape == (77, 32) for shape in shapes)
    is_copied = shapes[1][1] % 8 > 0 or shapes[1][0] % 8 > 0
    assert len(copies) == misaligned - (is_constant and is_copied)


def test_rows_behind_the_end_of_a_sum_are_zeros_too() -> None:
    found = Misaligned.of(function("NN", 64, 64, 100 + 1))
    assert found is not None
    assert found.depth == (101, 104)
    assert sorted(found.shapes.values()) == [(64, 104), (104, 64)]


def test_what_is_aligned_or_no_product_of_halves_stays() -> None:
    assert Misaligned.of(function("NT", 64, 64, 64)) is None
    assert Misaligned.of(function("NT", 63, 61, 64)) is None  # rows of both are whole
    assert Misaligned.of(function("NT", 64, 64, 101, "float32")) is None


def test_large_products_become_those_of_the_fastest_instructions() -> None:
    large, small = (
        prim_functions(product_case("NT", *extents), H200).values()
        for extents in ((8001, 4001, 4001), (81, 41, 401))
    )
    rules = [str(found.rule) for func in large if (found := FirstChoices(H200)(func, None))]
    assert sorted(rules) == ["elementwise", "elementwise", "wgmma"]
    assert len(small) == 1
