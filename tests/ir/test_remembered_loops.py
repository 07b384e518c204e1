"""Loops of calls that are alike are written once, and are those that each would have."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

tvm = pytest.importorskip("tvm")

from tvm import relax  # noqa: E402
from tvm_ffi import StructuralKey  # noqa: E402

from tvm_tile.graph.latest import Latest  # noqa: E402
from tvm_tile.loops import LEGALIZATIONS, remembered  # noqa: E402
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


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The operators whose loops are written, none of which was known before."""
    written: list[str] = []
    original = relax.BlockBuilder.call_te

    def noted(self: Any, *args: Any, **kwargs: Any) -> Any:
        written.append(kwargs.get("primfunc_name_hint", args[0].__name__))
        return original(self, *args, **kwargs)

    monkeypatch.setattr(relax.BlockBuilder, "call_te", noted)
    monkeypatch.setattr(remembered, "_LATEST", Latest(64))
    return written


def test_they_are_written_once(written: list[str]) -> None:
    relax.transform.LegalizeOps(remembering())(layers())
    assert written.count("matmul") == written.count("softmax") == written.count("reshape") == 1
    assert written.count("strided_slice") == 2  # from two places
    assert written.count("concatenate") == 1
    relax.transform.LegalizeOps(remembering())(layers())
    assert written.count("matmul") == written.count("concatenate") == 1


def row_times(number: float, name: str = "x") -> Any:
    builder = relax.BlockBuilder()
    x = relax.Var(name, relax.TensorType((4, 8), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            made = builder.emit(relax.op.multiply(x, relax.const(np.float32(number))))
            output = builder.emit_output(relax.op.mean(made, axis=[1]))
        builder.emit_func_output(output)
    return builder.get()


def test_what_is_known_of_another_module_changes_nothing(written: list[str]) -> None:
    for mod in (row_times(2), row_times(3), row_times(2, "y"), row_times(3)):
        ours = relax.transform.LegalizeOps(remembering())(mod)
        wanted = relax.transform.LegalizeOps(dict(LEGALIZATIONS))(mod)
        assert ours.script() == wanted.script()  # of the same names, too


def test_modules_may_have_none_in_common(written: list[str]) -> None:
    for _ in range(2):
        relax.transform.LegalizeOps(remembering(across_models=False))(layers())
    assert written.count("matmul") == written.count("softmax") == 2


def test_no_weights_are_kept() -> None:
    known: Latest[Any] = Latest(64)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(remembered, "_LATEST", known)
        relax.transform.LegalizeOps(remembering())(layers())
    assert known._found
    for (key, _), loops in known._found.items():
        assert not weights_in(key) + weights_in(loops), key


def weights_in(value: Any) -> list[Any]:
    """The constants of several elements that something holds."""
    if isinstance(value, tuple | list):
        return [weight for own in value for weight in weights_in(own)]
    if isinstance(value, remembered._Loops):
        return weights_in([value.func, value.op, value.attrs, value.types])
    held = getattr(value, "key", value) if isinstance(value, StructuralKey) else value
    return [held] if isinstance(held, tvm.ir.GenericConst) and held.ty.ndim else []


def test_another_module_gets_functions_of_its_own() -> None:
    step = relax.transform.LegalizeOps(remembering())
    first, second = step(layers()), step(layers())
    tvm.ir.assert_structural_equal(first, second)
    assert all(var in second.get_global_vars() for var in called(second))


def called(mod: Any) -> list[Any]:
    return list(relax.analysis.all_global_vars(mod["main"]))
