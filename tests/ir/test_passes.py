"""Relax passes of ours, before and after."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import tvm
from tvm import IRModule, relax
from tvm.relax import op

from tvm_tile import find_device
from tvm_tile.passes import KeepGraphResults, schedule_module
from tvm_tile.pipeline import Options, _lower, fuse

Build = Callable[..., relax.Expr]


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
    fused = fuse(mod, find_device("nvidia/h200"))
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
                ((2, 7, 64), (64, 2, 16)),
                2,
            ),
        ],
    )
    def test_kernels(
        self, build: Build, shapes: tuple[tuple[int, ...], ...], expected: int
    ) -> None:
        assert kernels(module(build, *shapes)) == expected


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
        """As in attention: of three kernels the one in the middle alone is captured."""

        def between(x: relax.Expr, w: relax.Expr) -> relax.Expr:
            return op.matmul(op.nn.softmax(op.matmul(x, w)), w)

        device = find_device("nvidia/h200")
        fused = fuse(module(between, (64, 64), (64, 64)), device)
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
