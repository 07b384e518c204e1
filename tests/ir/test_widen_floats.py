"""Products of 8-bit floats become those of halves, for devices without units for them."""

from __future__ import annotations

import pytest
import tvm
from tvm import relax
from tvm.script import relax as R

from tvm_tile.frontend.narrow_products import narrow_products


def product(x: str, w: str, out: str) -> tvm.IRModule:
    builder = relax.BlockBuilder()
    left, right = (relax.Var(n, R.Tensor((4, 32), d)) for n, d in (("x", x), ("w", w)))
    with builder.function("main", [left, right]):
        turned = builder.emit(relax.op.permute_dims(right))
        builder.emit_func_output(relax.op.matmul(left, turned, out_dtype=out))
    return builder.get()


def operands(mod: tvm.IRModule) -> list[str]:
    """Element types of what the product multiplies, and of what it makes."""
    (block,) = mod["main"].body.blocks
    calls = [b.value for b in block.bindings if isinstance(b.value, relax.Call)]
    (made,) = [call for call in calls if call.op.name == "relax.matmul"]
    return [str(own.ty.dtype) for own in (*made.args, made)]


@pytest.mark.parametrize("x", ["float8_e4m3fn", "float8_e5m2"])
@pytest.mark.parametrize("w", ["float8_e4m3fn", "float8_e5m2"])
def test_what_no_unit_takes_is_widened(x: str, w: str) -> None:
    mod = product(x, w, "float32")
    assert operands(narrow_products(mod, frozenset({"float16"}))) == [
        "float16",
        "float16",
        "float32",
    ]
    kept = narrow_products(mod, frozenset({"float16", "float8_e4m3fn", "float8_e5m2"}))
    assert operands(kept) == [x, w, "float32"]


def test_other_products_stay() -> None:
    for dtype in ("float16", "float32"):
        assert operands(narrow_products(product(dtype, dtype, "float32"))) == [
            dtype,
            dtype,
            "float32",
        ]
