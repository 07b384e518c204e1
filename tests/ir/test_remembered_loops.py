"""Loops of calls that are alike are written once, and are those that each would have."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

tvm = pytest.importorskip("tvm")

from tvm import relax  # noqa: E402

from tvm_tile.loops import LEGALIZATIONS  # noqa: E402
from tvm_tile.loops.remembered import remembering  # noqa: E402


def layers() -> Any:
    """Layers that are alike, but for operands that are one, scalars, constants, and types."""
    x, w = (
        relax.Var("x", relax.TensorType((4, 8), "float32")),
        relax.Var("w", relax.TensorType((8, 8), "float32")),
    )
    scale = relax.Var("scale", relax.TensorType((), "float32"))
    weight = relax.const(np.ones((8, 8), np.float32))
    builder = relax.BlockBuilder()
    with builder.function("main", [x, w, scale]):
        with builder.dataflow():
            y = x
            for _ in range(3):
                y = layer(lambda value: builder.emit(value), y, x, [w, weight], scale)
            y = builder.emit_output(relax.op.sum(y, axis=[0]))
        builder.emit_func_output(y)
    return builder.get()


def layer(emit: Any, y: Any, x: Any, weights: list[Any], scale: Any) -> Any:
    for weight in weights:
        y = emit(relax.op.matmul(y, weight))
    y = emit(relax.op.permute_dims(emit(relax.op.reshape(y, (8, 4)))))
    y = emit(relax.op.add(y, emit(relax.op.multiply(y, y))))
    y = emit(relax.op.concat([emit(relax.op.multiply(y, scale)), x], 0))
    left, right = (emit(relax.op.strided_slice(y, [0], [at], [at + 4])) for at in (0, 4))
    y = emit(relax.op.add(emit(relax.op.add(left, right)), relax.const(np.float32(2))))
    half = emit(relax.op.astype(emit(relax.op.nn.softmax(y, axis=1)), "float16"))
    return emit(relax.op.astype(emit(relax.op.add(half, half)), "float32"))


def test_they_are_what_each_call_would_have() -> None:
    mod = layers()
    ours = relax.transform.LegalizeOps(remembering())(mod)
    tvm.ir.assert_structural_equal(ours, relax.transform.LegalizeOps(dict(LEGALIZATIONS))(mod))


def test_they_are_written_once(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []
    original = relax.BlockBuilder.call_te

    def noted(self: Any, *args: Any, **kwargs: Any) -> Any:
        written.append(kwargs.get("primfunc_name_hint", args[0].__name__))
        return original(self, *args, **kwargs)

    monkeypatch.setattr(relax.BlockBuilder, "call_te", noted)
    relax.transform.LegalizeOps(remembering())(layers())
    assert written.count("matmul") == written.count("softmax") == written.count("reshape") == 1


def test_another_module_gets_functions_of_its_own() -> None:
    step = relax.transform.LegalizeOps(remembering())
    first, second = step(layers()), step(layers())
    tvm.ir.assert_structural_equal(first, second)
    assert all(var in second.get_global_vars() for var in called(second))


def called(mod: Any) -> list[Any]:
    return list(relax.analysis.all_global_vars(mod["main"]))
