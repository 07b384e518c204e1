"""What all front doors share, and the door for Relax modules."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op
from tvm.script import ir as I
from tvm.script import relax as R

from tests.cpu_build import operators, run
from tvm_tile.errors import DynamicShapeError, ModelError
from tvm_tile.frontend import Imported, import_model
from tvm_tile.frontend.fold import fold_constants
from tvm_tile.frontend.imported import describe


@I.ir_module
class Symbolic:
    @R.function
    def main(x: R.Tensor(("n", 4), "float32"), y: R.Tensor(("n", 4), "float32")):
        with R.dataflow():
            z = R.add(x, y)
            R.output(z)
        return z


class TestRelax:
    def test_symbolic_extents_are_bound(self) -> None:
        imported = import_model(Symbolic, inputs={"x": (3, 4)})
        assert [s.shape for s in (*imported.inputs, *imported.outputs)] == [(3, 4)] * 3

    def test_symbolic_extents_without_values(self) -> None:
        with pytest.raises(DynamicShapeError, match="'x'"):
            import_model(Symbolic)

    @pytest.mark.parametrize(
        "sizes",
        [{"q": (3, 4)}, {"x": (3,)}, {"x": (3, 5)}, {"x": (3, 4), "y": (2, 4)}, {"x": (-1, 4)}],
    )
    def test_sizes_that_contradict_the_module(self, sizes: dict[str, tuple[int, ...]]) -> None:
        with pytest.raises(ModelError):
            import_model(Symbolic, inputs=sizes)

    def test_needs_main(self) -> None:
        with pytest.raises(ModelError, match="main"):
            import_model(tvm.IRModule({"other": Symbolic["main"]}))

    def test_other_kinds_are_refused(self) -> None:
        with pytest.raises(ModelError, match=r"builtins\.int"):
            import_model(3)


def batch_norm_inputs() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    constants = {name: rng.uniform(0.5, 1.5, 3).astype(np.float32) for name in "gbmv"}
    constants["w"] = rng.standard_normal((3, 2, 3, 3)).astype(np.float32)
    return {name: relax.const(value) for name, value in constants.items()}


class TestFold:
    @pytest.mark.parametrize("behind_convolution", [True, False])
    def test_batch_norm_with_known_statistics(self, behind_convolution: bool) -> None:
        c = batch_norm_inputs()
        x = relax.Var("x", relax.TensorType((1, 2 if behind_convolution else 3, 5, 5), "float32"))
        builder = relax.BlockBuilder()
        with builder.function("main", [x]):
            with builder.dataflow():
                data = builder.emit(relax.op.nn.conv2d(x, c["w"])) if behind_convolution else x
                norm = relax.op.nn.batch_norm(
                    data, c["g"], c["b"], c["m"], c["v"], axis=1, training=False
                )
                out = builder.emit_output(builder.emit(norm)[0])
            builder.emit_func_output(out)
        mod = builder.get()
        imported = import_model(mod)
        expected = ["nn.conv2d", "add"] if behind_convolution else ["multiply", "add"]
        assert operators(imported) == expected
        array = np.random.default_rng(1).standard_normal([int(e) for e in x.ty.shape])
        array = array.astype(np.float32)
        before = Imported(mod, "before", imported.inputs, imported.outputs)
        np.testing.assert_allclose(
            run(imported, array)[0], run(before, array)[0], rtol=1e-5, atol=1e-5
        )


TABLE = np.random.default_rng(0).standard_normal((4, 6)).astype("float16")
FIVE = relax.const(5, "int64")
NUMBERS = np.array([[5, 0, -1], [2, 9, 3]], "int64")


@pytest.mark.parametrize(
    "body",
    [
        lambda table, _: op.nn.pad(table, [0, 1, 2, 0]),
        lambda table, _: op.nn.pad(table, [0, 0, 1, 1], pad_value=-1.5),
        lambda table, _: op.strided_slice(table, [1], [4], [-7], [-2]),
        lambda table, _: op.strided_slice(table, [0, 1], [1, 0], [3, 5]),
        lambda table, numbers: op.take(table, numbers, axis=0, mode="wrap"),
        lambda table, numbers: op.take(table, numbers, axis=0, mode="clip"),
        lambda table, numbers: op.gather_elements(
            op.strided_slice(table, [0], [0], [2]), op.abs(op.floor_mod(numbers, FIVE)), 1
        ),
        lambda _, numbers: op.mod(op.add(op.arange(3), numbers), FIVE),
        lambda _, numbers: op.floor_mod(op.subtract(op.arange(1, 7, 2), numbers), FIVE),
    ],
)
def test_what_constants_decide_is_as_tvm_computes_it(body: Callable[[Any, Any], Any]) -> None:
    builder = relax.BlockBuilder()
    with builder.function("main", []):
        with builder.dataflow():
            output = builder.emit_output(body(relax.const(TABLE), relax.const(NUMBERS, "int64")))
        builder.emit_func_output(output)
    mod = relax.transform.Normalize()(builder.get())
    folded = fold_constants(mod)
    assert operators(describe(folded)) == []
    want, got = (run(describe(m))[0] for m in (mod, folded))
    assert want.dtype == got.dtype
    np.testing.assert_array_equal(got, want)


def test_what_is_spread_far_is_left_to_kernels() -> None:
    builder = relax.BlockBuilder()
    with builder.function("main", []):
        with builder.dataflow():
            output = builder.emit_output(op.broadcast_to(relax.const(TABLE), (4096, 4, 6)))
        builder.emit_func_output(output)
    assert operators(describe(fold_constants(builder.get()))) == ["broadcast_to"]


def test_no_model_library_is_loaded_before_a_model_needs_it() -> None:
    # TVM itself imports torch where that is installed.
    code = (
        "import sys, tvm_tile.frontend as f; "
        "assert not {'onnx', 'tvm_tile.frontend.torch'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
