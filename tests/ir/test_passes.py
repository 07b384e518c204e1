"""Relax passes of ours, before and after."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tvm
from cpu_build import CPU
from tvm import IRModule, relax
from tvm.relax import op

from tvm_tile import find_device
from tvm_tile.device import Device, with_tf32
from tvm_tile.passes import DispatchOpenSorts, KeepGraphResults, NarrowProducts, schedule_module
from tvm_tile.pipeline import Options, _lower
from tvm_tile.stages.fusing import fuse

Build = Callable[..., relax.Expr]
H200 = find_device("nvidia/h200")


def module(build: Build, *shapes: tuple[int, ...], dtype: str = "float32") -> IRModule:
    """A module whose ``main`` is ``build`` of inputs of these shapes."""
    builder = relax.BlockBuilder()
    inputs = [relax.Var(f"x{i}", relax.TensorType(s, dtype)) for i, s in enumerate(shapes)]
    with builder.function("main", inputs):
        with builder.dataflow():
            output = builder.emit_output(build(*inputs))
        builder.emit_func_output(output)
    return builder.get()


def kernels(mod: IRModule) -> int:
    """How many kernels it is after fusion."""
    fused = fuse(mod, find_device("nvidia/h200")).mod
    return sum(1 for func in fused.functions.values() if not isinstance(func, relax.Function))


def swapped(x: relax.Expr) -> relax.Expr:
    return op.permute_dims(x, [1, 0])


class TestReadTransposed:
    @pytest.mark.parametrize(
        ("build", "shapes", "expected"),
        [
            (lambda x, w: op.matmul(x, swapped(w)), ((7, 64), (128, 64)), 1),
            (lambda x, w: op.matmul(swapped(x), w), ((64, 512), (64, 128)), 1),
            (lambda x, w: op.matmul(swapped(x), swapped(w)), ((64, 7), (128, 64)), 1),
            (lambda x: op.matmul(x, swapped(x)), ((7, 64),), 1),
            (lambda x, w: op.matmul(x, swapped(w)), ((512, 64), (128, 64)), 1),
            # What is no transposition of matrices is left alone.
            (
                lambda x, w: op.matmul(x, op.permute_dims(w, [1, 0, 2])),
                ((2, 512, 64), (64, 2, 128)),
                2,
            ),
        ],
    )
    def test_kernels(
        self, build: Build, shapes: tuple[tuple[int, ...], ...], expected: int
    ) -> None:
        assert kernels(module(build, *shapes)) == expected

    @pytest.mark.parametrize(
        ("dtype", "device", "shape"),
        [
            ("int8", H200, [128, 64]),
            ("float32", with_tf32(H200), [128, 64]),
            ("float32", H200, [64, 128]),
            ("float16", H200, [64, 128]),
            ("int8", find_device("nvidia/a100"), [64, 128]),
        ],
    )
    def test_weights_whose_summed_axis_must_be_contiguous(
        self, dtype: str, device: Device, shape: list[int]
    ) -> None:
        weight = relax.const(np.ones((64, 128), dtype))
        mod = module(lambda x: op.matmul(x, weight), (512, 64), dtype=dtype)
        assert constant_shapes(fuse(mod, device).mod) == [shape]


def constant_shapes(mod: IRModule) -> list[list[int]]:
    """Of the constants in ``main``."""
    found: list[list[int]] = []

    def visit(expr: relax.Expr) -> None:
        if isinstance(expr, tvm.ir.Constant) and isinstance(expr.ty, relax.TensorType):
            found.append([int(extent) for extent in expr.ty.shape])

    relax.analysis.post_order_visit(mod["main"], visit)
    return found


def wide(x: relax.Expr) -> relax.Expr:
    return op.astype(x, "int32")


def column(*values: int) -> relax.Expr:
    return relax.const(np.array(values, "uint8"))


W = np.random.default_rng(1).integers(-128, 128, (16, 24))
W32 = relax.const(W.astype("int32"))
W8 = relax.const(W.astype("int8"))


class TestNarrowProducts:
    @pytest.mark.parametrize(
        "build",
        [
            lambda x, _: op.matmul(wide(x), W32),
            lambda x, _: op.matmul(wide(x), wide(W8)),
            lambda x, _: op.matmul(wide(x), op.subtract(W32, relax.const(np.int32(0)))),
            # Integers that fit into 8 bits without a sign.
            lambda x, _: op.matmul(wide(x), relax.const((W + 128).astype("int32"))),
            lambda x, _: op.matmul(op.subtract(wide(x), wide(column(128))), W32),
            lambda x, _: op.matmul(op.subtract(wide(x), relax.const(np.int32(3))), wide(W8)),
            # And others, which need corrections.
            lambda x, _: op.matmul(wide(x), op.subtract(wide(W8), relax.const(np.int32(90)))),
            lambda x, _: op.matmul(
                op.subtract(wide(x), relax.const(np.int32(3))),
                op.subtract(wide(W8), relax.const(np.arange(-100, 140, 10, dtype="int32"))),
            ),
            lambda x, y: op.matmul(wide(x), wide(y)),
            lambda x, y: op.matmul(op.subtract(wide(x), wide(column(128))), wide(y)),
            lambda x, y: op.matmul(
                op.subtract(wide(x), wide(column(3))), op.subtract(wide(y), wide(column(250)))
            ),
            lambda x, y: op.matmul(op.astype(x, "float32"), op.astype(y, "float32")),
        ],
    )
    def test_the_product_is_of_bytes_and_the_same(self, build: Build) -> None:
        before = module(build, (2, 7, 16), (2, 16, 5), dtype="uint8")
        after = narrowed(before)
        assert factors(after) <= {"int8", "uint8"}
        rng = np.random.default_rng(0)
        inputs = [rng.integers(0, 256, s).astype("uint8") for s in ((2, 7, 16), (2, 16, 5))]
        assert np.array_equal(run(after, *inputs), run(before, *inputs))

    @pytest.mark.parametrize(
        "build",
        [
            lambda x, _: op.matmul(wide(x), relax.const(np.full((16, 8), 256, "int32"))),
            lambda x, _: op.matmul(op.subtract(wide(x), wide(column(*range(16)))), W32),
            lambda x, y: op.matmul(op.astype(x, "float16"), op.astype(y, "float16")),
            lambda x, _: op.matmul(wide(x), relax.const(np.arange(16, dtype="int32"))),
        ],
    )
    def test_left_alone(self, build: Build) -> None:
        mod = module(build, (2, 7, 16), (2, 16, 5), dtype="uint8")
        assert factors(narrowed(mod)) == factors(mod)

    def test_products_of_products_are_read_once(self) -> None:
        def build(x: relax.Expr, w: relax.Expr) -> relax.Expr:
            for _ in range(60):
                x = op.multiply(x, x)
            return op.matmul(x, w)

        mod = module(build, (2, 16), (16, 5))
        assert factors(narrowed(mod)) == {"float32"}


def narrowed(mod: IRModule) -> IRModule:
    after = relax.transform.DeadCodeElimination()(NarrowProducts()(mod))
    assert relax.analysis.check_well_formed(after)
    return after


def factors(mod: IRModule) -> set[str]:
    """Dtypes that the module's products read."""
    matmul = tvm.ir.Op.get("relax.matmul")
    values = [b.value for block in mod["main"].body.blocks for b in block.bindings]
    products = [v for v in values if isinstance(v, relax.Call) and v.op == matmul]
    assert products
    return {str(operand.ty.dtype) for call in products for operand in call.args}


def run(mod: IRModule, *inputs: np.ndarray) -> np.ndarray:
    """Of TVM's own build for the CPU."""
    machine = relax.VirtualMachine(tvm.compile(mod, CPU), tvm.cpu())
    return machine["main"](*map(tvm.runtime.tensor, inputs)).numpy()


class TestMarkReductions:
    def test_what_feeds_a_reduction_is_part_of_its_kernel(self) -> None:
        assert kernels(module(lambda x: op.nn.softmax(op.exp(x)), (8, 128))) == 1

    def test_what_others_read_too_is_not(self) -> None:
        def build(x: relax.Expr) -> relax.Expr:
            shared = op.exp(x)
            return op.matmul(op.nn.softmax(shared), shared)

        assert kernels(module(build, (64, 64))) == 3

    def test_products_read_too_often_for_that(self) -> None:
        assert kernels(module(lambda x, w: op.matmul(op.exp(x), w), (64, 64), (64, 64))) == 2


class TestKeepGraphResults:
    def test_no_captured_call_is_without_a_place_for_its_result(self) -> None:
        """Of three kernels the one in the middle alone is captured."""

        def between(x: relax.Expr, w: relax.Expr) -> relax.Expr:
            return op.matmul(op.cumsum(op.matmul(x, w), axis=1), w)

        device = find_device("nvidia/h200")
        fused = fuse(module(between, (64, 64), (64, 64)), device).mod
        scheduled, _ = schedule_module(fused, device)
        text = str(_lower(scheduled, device, Options()).script())
        calls = [line for line in text.splitlines() if "run_or_capture" in line]
        assert calls
        assert all("ty_args=(R.Any,)" in call for call in calls)

    def test_other_results_keep_their_types(self) -> None:
        builder = relax.BlockBuilder()
        tensor = relax.TensorType((4,), "float32")
        run = relax.ExternFunc("vm.builtin.cuda_graph.run_or_capture")
        x = relax.Var("x", tensor)
        with builder.function("main", [x]):
            result = relax.TupleType([tensor])
            call = op.call_builtin_with_ctx(run, relax.Tuple([x]), ty_args=result)
            builder.emit_func_output(builder.emit(call))
        before = builder.get()
        tvm.ir.assert_structural_equal(KeepGraphResults()(before), before)


class TestDispatchOpenSorts:
    """Only what has no loops of ours becomes TVM's."""

    @pytest.mark.parametrize("extent", [8, tvm.tirx.Var("n", "int64")])
    def test_known_extents_stay_operators(self, extent: object) -> None:
        builder = relax.BlockBuilder()
        x = relax.Var("x", relax.TensorType((extent, 4), "float32"))
        with builder.function("main", [x]):
            with builder.dataflow():
                result = builder.emit_output(builder.emit(op.sort(x, 1)))
            builder.emit_func_output(result)
        before = builder.get()
        with tvm.target.Target({"kind": "cuda", "arch": "sm_90a"}):
            after = DispatchOpenSorts()(before)
        if isinstance(extent, int):
            tvm.ir.assert_structural_equal(after, before)
        else:
            assert "call_tir" in after["main"].script()
            assert "R.sort" not in after["main"].script()


class TestMarkSpreads:
    """Channel attention: a convolution of one place, multiplied with the whole image."""

    def gated(self, x: relax.Expr, w: relax.Expr) -> relax.Expr:
        pooled = op.mean(x, [2, 3], keepdims=True)
        return op.multiply(x, op.sigmoid(op.nn.conv2d(pooled, w)))

    def test_the_image_is_not_written_by_the_small_product(self) -> None:
        mod = module(self.gated, (1, 64, 40, 40), (64, 64, 1, 1))
        assert kernels(mod) == 3  # the mean, the convolution with its sigmoid, the image

    def test_what_a_large_product_goes_through_stays_with_it(self) -> None:
        def scaled(x: relax.Expr, w: relax.Expr, scale: relax.Expr) -> relax.Expr:
            return op.multiply(op.nn.conv2d(x, w), scale)

        mod = module(scaled, (1, 64, 40, 40), (64, 64, 1, 1), (1, 64, 1, 1))
        assert kernels(mod) == 1
