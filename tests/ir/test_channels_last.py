"""Convolutions with their channels last, before and after: one permutation at either end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from cpu_build import CPU
from kernels import relative_difference
from tvm import IRModule, relax
from tvm.relax import op

from tvm_tile.device import find_device
from tvm_tile.passes import ChannelsLast
from tvm_tile.stages.fusing import fuse

Body = Callable[[relax.Expr], relax.Expr]
HALF = frozenset({"float16", "bfloat16"})
IMAGE = (2, 16, 8, 8)


def module(body: Body, shape: tuple[int, ...] = IMAGE, dtype: str = "float16") -> IRModule:
    """A module whose ``main`` is ``body`` of one input."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(shape, dtype))
    with builder.function("main", [x]):
        with builder.dataflow():
            output = builder.emit_output(body(x))
        builder.emit_func_output(output)
    return builder.get()


def constant(*shape: int, dtype: str = "float16") -> relax.Expr:
    values = np.random.default_rng(sum(shape)).standard_normal(shape)
    return relax.const((values / np.sqrt(values[0].size)).astype(dtype))


def conv(x: Any, channels: int, kernel: int, filters: int, **options: Any) -> relax.Expr:
    """A convolution of NCHW with constant weights."""
    per_group = channels // options.get("groups", 1)
    weights = constant(filters, per_group, kernel, kernel)
    return op.nn.conv2d(x, weights, padding=options.pop("padding", kernel // 2), **options)


def chain(x: Any) -> relax.Expr:
    """Two convolutions; between them what half of all networks have there."""
    y = op.nn.relu(op.add(conv(x, 16, 3, 32), constant(1, 32, 1, 1)))
    y = op.clip(op.nn.max_pool2d(y, (2, 2), (2, 2)), 0, 6)
    return conv(y, 32, 1, 8)


def residual(x: Any) -> relax.Expr:
    first = op.nn.relu(conv(x, 16, 3, 16))
    second = op.nn.relu(conv(first, 16, 3, 16))
    return conv(op.nn.relu(op.add(first, conv(second, 16, 3, 16))), 16, 1, 8)


def classifier(x: Any) -> relax.Expr:
    pooled = op.mean(op.nn.relu(conv(x, 16, 3, 16, strides=2)), [2, 3])
    return op.matmul(pooled, constant(16, 10))


def image(x: Any) -> relax.Expr:
    """The first convolution of networks for images: three channels."""
    return conv(op.nn.relu(conv(x, 3, 3, 16)), 16, 3, 8)


def converted(mod: IRModule, dtypes: frozenset[str] = HALF) -> IRModule:
    after = ChannelsLast(dtypes)(mod)
    assert relax.analysis.check_well_formed(after)
    return after


def calls(mod: IRModule) -> list[relax.Call]:
    blocks = mod["main"].body.blocks
    return [b.value for block in blocks for b in block.bindings if isinstance(b.value, relax.Call)]


def operators(mod: IRModule) -> list[str]:
    """Names of the operators, in order."""
    return [str(call.op.name).removeprefix("relax.").removeprefix("nn.") for call in calls(mod)]


def layouts(mod: IRModule) -> list[str]:
    """Of the convolutions' data."""
    return [str(c.attrs.data_layout) for c in calls(mod) if c.op.name == "relax.nn.conv2d"]


class TestOnePermutationAtEitherEnd:
    @pytest.mark.parametrize("body", [chain, residual])
    def test_of_a_chain(self, body: Body) -> None:
        before = module(body)
        after = converted(before)
        assert operators(after) == ["permute_dims", *operators(before), "permute_dims"]
        assert set(layouts(after)) == {"NHWC"}

    def test_none_behind_a_mean_over_the_image(self) -> None:
        after = operators(converted(module(classifier)))
        assert after == ["permute_dims", "conv2d", "relu", "mean", "matmul"]

    def test_none_at_all_where_the_model_permutes_already(self) -> None:
        def permuted(x: Any) -> relax.Expr:
            y = conv(op.permute_dims(x, [0, 3, 1, 2]), 16, 3, 16)
            return op.permute_dims(y, [0, 2, 3, 1])

        assert operators(converted(module(permuted, (2, 8, 8, 16)))) == ["conv2d"]

    def test_reversed_axes_are_a_permutation(self) -> None:
        def turned(x: Any) -> relax.Expr:
            return conv(op.permute_dims(op.permute_dims(x)), 16, 3, 16)

        after = converted(module(turned, (2, 16, 8, 8)))
        assert operators(after) == ["permute_dims", "conv2d", "permute_dims"]

    def test_weights_and_biases_are_constants_still(self) -> None:
        first, bias, second = (
            call.args[1] for call in calls(converted(module(chain))) if len(call.args) == 2
        )
        for value, shape in (
            (first, (32, 3, 3, 16)),
            (bias, (1, 1, 1, 32)),
            (second, (8, 1, 1, 32)),
        ):
            assert isinstance(value, tvm.ir.Constant)
            assert tuple(map(int, value.ty.shape.values)) == shape


def test_what_quantized_networks_have_between_convolutions() -> None:
    """A permutation at either end, none at the casts."""

    def body(x: Any) -> relax.Expr:
        for _ in range(2):
            weight = relax.const(np.ones((16, 16, 3, 3), "int8"))
            sums = op.nn.conv2d(x, weight, padding=1, out_dtype="int32")
            scaled = op.multiply(op.astype(sums, "float32"), relax.const(np.float32(0.01)))
            x = op.astype(op.clip(op.round(scaled), -128, 127), "int8")
        return x

    before = module(body, dtype="int8")
    after = converted(before, frozenset({"int8"}))
    assert operators(after) == ["permute_dims", *operators(before), "permute_dims"]
    x = np.random.default_rng(0).integers(-128, 128, IMAGE).astype("int8")
    assert np.array_equal(run(after, x), run(before, x))


class TestFewChannels:
    @pytest.mark.parametrize(("dtype", "channels"), [("float32", 4), ("int8", 16)])
    def test_become_sixteen_bytes(self, dtype: str, channels: int) -> None:
        weight = relax.const(np.ones((16, 3, 3, 3), dtype))
        mod = module(lambda x: op.nn.conv2d(x, weight), (2, 3, 8, 8), dtype=dtype)
        (found,) = (
            call
            for call in calls(converted(mod, frozenset({dtype})))
            if call.op.name == "relax.nn.conv2d"
        )
        assert [int(extent) for extent in found.args[0].ty.shape][-1] == channels

    def test_become_eight_with_the_border_of_the_image(self) -> None:
        after = converted(module(image, (2, 3, 8, 8)))
        assert layouts(after) == ["NHWC", "NHWC"]
        first = next(call for call in calls(after) if call.op.name == "relax.nn.conv2d")
        assert [int(extent) for extent in first.args[0].ty.shape][-1] == 8
        assert [int(extent) for extent in first.attrs.padding] == [0, 0, 0, 0]

    def test_stacks_are_carried_through(self) -> None:
        def stacked(x: Any) -> relax.Expr:
            return op.sum(op.stack([conv(x, 16, 3, 16), x], 0), 0)

        after = converted(module(stacked, (2, 16, 8, 8)))
        assert layouts(after) == ["NHWC"]


class TestLeftAlone:
    def test_channels_without_aligned_rows(self) -> None:
        assert layouts(converted(module(lambda x: conv(x, 16, 3, 12)))) == ["NCHW"]
        assert layouts(converted(module(lambda x: conv(x, 12, 3, 16), (2, 12, 8, 8)))) == ["NCHW"]

    def test_float32(self) -> None:
        def body(x: Any) -> relax.Expr:
            return op.nn.conv2d(x, constant(8, 16, 3, 3, dtype="float32"))

        mod = module(body, dtype="float32")
        assert operators(converted(mod)) == ["conv2d"]
        assert layouts(converted(mod)) == ["NCHW"]

    def test_devices_without_matrix_units(self) -> None:
        mod = module(chain)
        assert converted(mod, frozenset()).same_as(mod)

    def test_what_is_channels_last_already(self) -> None:
        def body(x: Any) -> relax.Expr:
            w = constant(8, 3, 3, 16)
            return op.nn.conv2d(x, w, data_layout="NHWC", kernel_layout="OHWI")

        assert operators(converted(module(body, (2, 8, 8, 16)))) == ["conv2d"]


@pytest.mark.parametrize(
    "body",
    [
        chain,
        residual,
        classifier,
        lambda x: conv(x, 16, 3, 32, strides=(2, 1), padding=(0, 1, 2, 1), dilation=(1, 2)),
        lambda x: conv(x, 16, 3, 16, groups=16),
        lambda x: conv(x, 16, 3, 32, groups=2),
        lambda x: op.nn.avg_pool2d(op.clip(conv(x, 16, 3, 16), -1, 1), (2, 2)),
        lambda x: op.concat([conv(x, 16, 1, 8), conv(x, 16, 3, 16)], axis=1),
        lambda x: op.nn.softmax(conv(x, 16, 1, 8), axis=1),
        lambda x: op.reshape(conv(x, 16, 1, 8), (2, 512)),
        lambda x: op.split(conv(x, 16, 1, 8), 2, axis=1)[1],
    ],
)
def test_the_result_is_the_same(body: Body) -> None:
    mod = module(body)
    x = np.random.default_rng(0).standard_normal(IMAGE).astype("float16")
    before, after = (run(m, x) for m in (mod, converted(mod)))
    assert before.shape == after.shape
    assert relative_difference(after, before) < 2e-2  # TVM's CPU build sums in half precision


BETWEEN: dict[str, Body] = {
    "conv2d_transpose": lambda x: op.nn.conv2d_transpose(x, constant(16, 8, 2, 2), strides=2),
    "max_pool2d": lambda x: op.nn.max_pool2d(x, (3, 3), (2, 2), (1, 1)),
    "adaptive_avg_pool2d": lambda x: op.nn.adaptive_avg_pool2d(x, (2, 2)),
    "resize2d": lambda x: op.image.resize2d(x, (12, 10), layout="NCHW"),
    "layer_norm": lambda x: op.nn.layer_norm(x, constant(8), constant(8), axes=[-1]),
    "group_norm": lambda x: op.nn.group_norm(x, constant(16), constant(16), 4, 1, [2, 3]),
    "instance_norm": lambda x: op.nn.instance_norm(x, constant(16), constant(16), 1, [2, 3]),
    "prelu": lambda x: op.nn.prelu(x, constant(16), 1),
    "pad": lambda x: op.nn.pad(x, [0, 0, 0, 0, 1, 2, 0, 1]),
    "strided_slice": lambda x: op.strided_slice(x, [1, 2], [1, 6], [9, -9], [1, -2]),
    "flip": lambda x: op.flip(x, 1),
    "tile": lambda x: op.tile(x, (1, 2, 1, 3)),
    "repeat": lambda x: op.repeat(x, 2, 1),
    "take": lambda x: op.take(x, relax.const([3, 1], "int64"), 1),
    "cumsum": lambda x: op.cumsum(x, 1),
    "argmax": lambda x: op.astype(op.argmax(x, 1), "float16"),
    "max": lambda x: op.max(x, [1], keepdims=True),
    "squeeze": lambda x: op.squeeze(op.max(x, [2], keepdims=True), [2]),
    "expand_dims": lambda x: op.expand_dims(x, 2),
    "broadcast_to": lambda x: op.broadcast_to(x, (3, 2, 16, 8, 8)),
    "flatten": lambda x: op.nn.batch_flatten(x),
    "where": lambda x: op.where(op.greater(x, op.negative(x)), x, op.multiply(x, constant(1))),
    "log_softmax": lambda x: op.nn.log_softmax(x, 1),
}


def test_what_lies_behind_a_convolution_has_loops_and_is_the_same() -> None:
    """Of operators that ConvertLayout carries the layout through, and of others."""

    def body(x: Any) -> relax.Expr:
        image = conv(x, 16, 3, 16)
        return relax.Tuple([behind(image) for behind in BETWEEN.values()])

    mod = module(body)
    x = np.random.default_rng(0).standard_normal(IMAGE).astype("float16")
    after = converted(mod)
    assert layouts(after) == ["NHWC"]
    for name, wanted, got in zip(BETWEEN, run_all(mod, x), run_all(after, x), strict=True):
        assert wanted.shape == got.shape, name
        assert relative_difference(got, wanted) < 2e-2, name


def run_all(mod: IRModule, x: np.ndarray) -> list[np.ndarray]:
    """All outputs, of TVM's own build for the CPU."""
    machine = relax.VirtualMachine(tvm.compile(mod, CPU), tvm.cpu())
    return [output.numpy() for output in machine["main"](tvm.runtime.tensor(x))]


def run(mod: IRModule, x: np.ndarray) -> np.ndarray:
    """Of TVM's own build for the CPU."""
    machine = relax.VirtualMachine(tvm.compile(mod, CPU), tvm.cpu())
    return machine["main"](tvm.runtime.tensor(x)).numpy()


def test_between_convolutions_nothing_is_copied() -> None:
    """A kernel for each convolution, and one for either end."""
    launches = calls(fuse(module(residual), find_device("nvidia/h200")).mod)
    assert [str(call.op.name) for call in launches] == ["relax.call_tir"] * (4 + 2)
