"""Small functions with awkward extents, and the rules that should take them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from kernels import Case, Input
from tvm import relax
from tvm.relax import op

Shape = tuple[int, ...]


def case(name: str, rules: str, body: Callable[..., Any], *inputs: Shape | Input) -> Case:
    specs = (entry if isinstance(entry, Input) else Input(entry) for entry in inputs)
    return Case(name, rules, body, tuple(specs))


def i64(*shape: int) -> Input:
    return Input(shape, "int64")


def i32(*shape: int) -> Input:
    return Input(shape, "int32")


def i8(*shape: int) -> Input:
    return Input(shape, "int8")


def boolean(*shape: int) -> Input:
    return Input(shape, "bool")


def scalar(value: float) -> Any:
    return relax.const(np.float32(value))


def mm(transposed: str, **options: Any) -> Callable[..., Any]:
    """A product whose operands are stored as ``transposed`` says: ``"NT"`` has B by columns."""

    def body(a: Any, b: Any) -> Any:
        left, right = (
            _swap_last(x) if letter == "T" else x
            for x, letter in zip((a, b), transposed, strict=True)
        )
        return op.matmul(left, right, **options)

    return body


def _swap_last(x: Any) -> Any:
    rank = len(x.ty.shape)
    return op.permute_dims(x, [*range(rank - 2), rank - 1, rank - 2])


def conv(**options: Any) -> Callable[..., Any]:
    return lambda x, w: op.nn.conv2d(x, w, **options)


def pool(kind: str, size: Any, **options: Any) -> Callable[..., Any]:
    return lambda x: getattr(op.nn, kind)(x, size, **options)


def along(name: str, axis: Any = None, **options: Any) -> Callable[..., Any]:
    return lambda x: getattr(op, name)(x, axis, **options)


def gelu(x: Any) -> Any:
    return op.nn.gelu(x)


def bias_relu(body: Callable[..., Any], *, shape: Shape) -> Callable[..., Any]:
    return lambda x, w, b: op.nn.relu(op.add(body(x, w), op.reshape(b, shape)))


def residual(body: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, w, r: op.nn.relu(op.add(body(x, w), r))


ELEMENTWISE = (
    # A vector may go on from row to row, but not from channel to channel.
    case("relu_odd_planes", "elementwise", lambda x: op.nn.relu(x), (16, 12, 33, 35)),
    case("add_odd_planes", "elementwise", op.add, (16, 12, 33, 35), (16, 12, 33, 35)),
    case("bias_of_odd_planes", "elementwise", op.add, (16, 12, 33, 36), (12, 1, 1)),
    case("bias_of_small_planes", "elementwise", op.add, (64, 48, 6, 6), (48, 1, 1)),
    case("add_scalars", "elementwise", op.add, (), ()),
    case("add_one_element", "elementwise", op.add, (1,), (1,)),
    case("add_rank1", "elementwise", op.add, (1031,), (1031,)),
    case("add_row", "elementwise", op.add, (19, 36), (36,)),
    case("add_column", "elementwise", op.add, (19, 36), (19, 1)),
    case("outer_add_rank3", "elementwise", op.add, (2, 3, 1), (3, 5)),
    case("add_rank6", "elementwise", op.add, (2, 1, 3, 1, 2, 4), (1, 3, 1, 2, 1, 4)),
    case("add_scalar_to_many", "elementwise", op.multiply, (70, 1000), ()),
    case("large_vectorized", "elementwise", lambda x: op.exp(op.negative(x)), (300, 2048)),
    case("large_prime", "elementwise", op.tanh, (300_007,)),
    case("gelu", "elementwise", op.nn.gelu, (13, 77)),
    case("silu_chain", "elementwise", lambda x, y: op.multiply(op.nn.silu(x), y), (7, 33), (7, 33)),
    case("clip_power", "elementwise", lambda x: op.power(op.clip(x, 0.1, 2), scalar(1.7)), (41,)),
    case("where", "elementwise", op.where, boolean(5, 1), (5, 9), (9,)),
    case("compare", "elementwise", lambda x, y: op.less(x, y), (5, 64), (64,)),
    case("logical", "elementwise", lambda a, b: op.logical_or(a, op.logical_not(b)),
         boolean(64, 16), boolean(16)),
    case("int64_arithmetic", "elementwise", lambda a, b: op.add(op.multiply(a, a), b),
         i64(6, 20), i64(20)),
    case("int32_floor_divide", "elementwise", lambda a: op.floor_divide(a, relax.const(3, "int32")),
         i32(45)),
    case("int8_add", "elementwise", op.add, i8(8, 48), i8(48)),
    case("cast_bool_to_float", "elementwise", lambda a: op.astype(a, "float32"), boolean(8, 32)),
    case("cast_float_to_int8", "elementwise", lambda a: op.astype(a, "int8"), (8, 32)),
    case("cast_int64_to_float", "elementwise", lambda a: op.astype(a, "float32"), i64(8, 32)),
    case("two_outputs", "elementwise elementwise", lambda x: (op.exp(x), op.sqrt(op.abs(x))),
         (9, 40)),
)  # fmt: skip

MOVES = (
    case("transpose", "elementwise", lambda x: op.permute_dims(x, [1, 0]), (37, 53)),
    case("nchw_to_nhwc", "elementwise", lambda x: op.permute_dims(x, [0, 2, 3, 1]), (2, 3, 5, 8)),
    case("transpose_rank6", "elementwise",
         lambda x: op.permute_dims(x, [0, 5, 3, 1, 4, 2]), (2, 3, 2, 4, 3, 2)),
    case("window_partition", "elementwise",
         lambda x: op.reshape(op.permute_dims(op.reshape(x, (2, 2, 4, 2, 4, 6)),
                                              [0, 1, 3, 2, 4, 5]), (8, 16, 6)), (2, 8, 8, 6)),
    case("concat_first", "elementwise", lambda x, y: op.concat((x, y), 0), (3, 8), (2, 8)),
    case("concat_last", "elementwise", lambda *x: op.concat(x, -1), (4, 3), (4, 5), (4, 1)),
    case("concat_of_results", "elementwise",
         lambda x, y: op.concat((op.nn.relu(x), op.exp(y)), 1), (2, 3, 7), (2, 4, 7)),
    case("split", "elementwise elementwise elementwise",
         lambda x: (lambda parts: (op.exp(parts[0]), op.nn.relu(parts[1])))(op.split(x, 2, 1)),
         (5, 12)),
    case("slice_with_strides", "elementwise",
         lambda x: op.strided_slice(x, [0, 1], [1, 2], [9, 17], [2, 3]), (9, 17)),
    case("slice_backwards", "elementwise",
         lambda x: op.strided_slice(x, [1], [15], [2], [-3]), (4, 17)),
    case("flip", "elementwise", lambda x: op.flip(x, 1), (4, 16)),
    case("take_rows", "elementwise", lambda x, i: op.take(x, i, 0), (4, 40), i64(7)),
    case("take_columns", "elementwise", lambda x, i: op.take(x, i, 1), (5, 4), i32(2, 3)),
    case("gather_elements", "elementwise", lambda x, i: op.gather_elements(x, i, 1),
         (5, 4), i64(5, 9)),
    case("gather_nd", "elementwise", lambda x, i: op.gather_nd(x, i), (4, 4, 6), i64(5, 2)),
    case("one_hot", "elementwise",
         lambda i: op.one_hot(i, relax.prim_value(1.0), relax.prim_value(0.0), 5, -1), i32(7)),
    case("pad", "elementwise", lambda x: op.nn.pad(x, [0, 0, 1, 2, 3, 0]), (2, 5, 6)),
    case("pad_reflect", "elementwise",
         lambda x: op.nn.pad(x, [0, 0, 2, 2], pad_mode="reflect"), (3, 7)),
    case("tile", "elementwise", lambda x: op.tile(x, (2, 3)), (3, 5)),
    case("repeat", "elementwise", lambda x: op.repeat(x, 3, 1), (3, 5)),
    case("upper_triangle", "elementwise", lambda x: op.triu(x, 1), (6, 9)),
    case("resize_nearest", "elementwise",
         lambda x: op.image.resize2d(x, (10, 14), layout="NCHW", method="nearest_neighbor"),
         (1, 3, 5, 7)),
    case("resize_linear", "elementwise",
         lambda x: op.image.resize2d(x, (9, 11), layout="NCHW", method="linear"), (1, 2, 5, 7)),
)  # fmt: skip

REDUCTIONS = (
    case("sum_all", "row", along("sum"), (3, 5, 7)),
    case("sum_all_keepdims", "row", along("sum", keepdims=True), (3, 5, 7)),
    case("sum_first", "window", along("sum", [0]), (3, 5, 7)),
    case("sum_middle", "window", along("sum", [1]), (3, 5, 7)),
    case("sum_last", "window", along("sum", [2]), (3, 5, 7)),
    case("sum_outer", "row", along("sum", [0, 2]), (3, 5, 7)),
    case("sum_image", "row", along("sum", [2, 3], keepdims=True), (2, 5, 14, 14)),
    case("sum_long_vector", "row", along("sum"), (4099,)),
    case("sum_one_element", "window", along("sum"), (1,)),
    case("sum_one_element_each", "window", along("sum", [2, 3]), (2, 64, 1, 1)),
    case("mean_of_relu_one_element_each", "window",
         lambda x: op.mean(op.nn.relu(x), [2, 3]), (2, 64, 1, 1)),
    case("sum_long_rows", "row", along("sum", [1]), (3, 2053)),
    case("sum_long_columns", "column", along("sum", [0]), (2053, 67)),
    # Depth fits the threads, outputs do not fit the blocks.
    case("sum_short_rows", "row", along("sum", [1]), (5000, 49)),
    case("sum_even_rows", "row", along("sum", [1]), (1031, 64)),
    case("sum_even_columns", "column", along("sum", [0]), (2048, 66)),
    case("sum_many_rows", "window", along("sum", [1]), (1031, 9)),
    case("sum_few_columns", "row", along("sum", [0]), (517, 3)),
    case("mean_last", "row", along("mean", [-1]), (11, 130)),
    case("mean_all", "row", along("mean"), (11, 13)),
    case("max_first", "column", along("max", [0]), (197, 33)),
    case("min_last", "row", along("min", [1]), (5, 197)),
    case("prod_last", "window", along("prod", [1]), (5, 9)),
    case("sum_int64", "row", along("sum", [1]), i64(5, 77)),
    case("sum_int32_first", "column", along("sum", [0]), i32(99, 34)),
    case("max_int8", "row", along("max", [1]), i8(5, 77)),
    case("sum_of_squares_root", "row",
         lambda x: op.sqrt(op.sum(op.multiply(x, x), [1])), (9, 100)),
    case("argmax_last", "dlight", lambda x: op.argmax(x, -1), (5, 33)),
    case("argmax_first", "dlight", lambda x: op.argmax(x, 0), (33, 5)),
    case("argmin_all", "dlight", lambda x: op.argmin(x), (4, 9)),
    case("vector_matrix", "contraction", lambda x, w: op.matmul(x, w), (300,), (300, 50)),
    case("matrix_vector", "contraction", lambda x, w: op.matmul(x, w), (50, 300), (300,)),
    case("dot", "row", lambda x, w: op.matmul(x, w), (301,), (301,)),
)  # fmt: skip

ROWS = (
    case("softmax", "rows", lambda x: op.nn.softmax(x, -1), (3, 5, 77)),
    case("softmax_middle", "rows", lambda x: op.nn.softmax(x, 1), (2, 19, 5)),
    case("softmax_first", "rows", lambda x: op.nn.softmax(x, 0), (19, 5)),
    case("softmax_one_element_rows", "rows", lambda x: op.nn.softmax(x, -1), (7, 1)),
    case("softmax_one_row", "rows", lambda x: op.nn.softmax(x, -1), (1, 2053)),
    case("softmax_many_rows", "rows", lambda x: op.nn.softmax(x, -1), (997, 6)),
    case("softmax_scaled_masked", "rows",
         lambda x, m: op.nn.softmax(op.add(op.multiply(x, scalar(0.3)), m), -1),
         (2, 4, 9, 33), (9, 33)),
    case("log_softmax", "rows", lambda x: op.nn.log_softmax(x, -1), (5, 300)),
    case("layer_norm", "rows", lambda x, g, b: op.nn.layer_norm(x, g, b, [-1]),
         (3, 7, 96), (96,), (96,)),
    case("layer_norm_two_axes", "rows", lambda x, g, b: op.nn.layer_norm(x, g, b, [-2, -1]),
         (5, 7, 12), (7, 12), (7, 12)),
    case("layer_norm_of_sum", "rows",
         lambda x, y, g, b: op.nn.layer_norm(op.add(x, y), g, b, [-1]),
         (5, 97), (5, 97), (97,), (97,)),
    case("rms_norm", "rows", lambda x, g: op.nn.rms_norm(x, g, [-1]), (3, 7, 100), (100,)),
    # Channels are summed: neighbouring rows lie side by side, and several threads share each.
    case("channel_norm", "rows",
         lambda x: op.subtract(x, op.mean(x, [1], keepdims=True)), (2, 96, 13, 11)),
    case("channel_softmax", "rows", lambda x: op.nn.softmax(x, 1), (2, 130, 9, 7)),
    case("channel_mean_few", "rows",
         lambda x: op.subtract(x, op.mean(x, [1], keepdims=True)), (1, 48, 5, 5)),
    # A result goes to a whole plane.
    case("channel_attention", "rows",
         lambda p, w, x: op.multiply(op.nn.conv2d(p, w), x),
         (1, 48, 1, 1), (40, 48, 1, 1), (1, 40, 21, 19)),
    case("channel_attention_one_element", "rows",
         lambda p, w, x: op.multiply(op.nn.conv2d(p, w), x),
         (2, 1, 1, 1), (16, 1, 1, 1), (2, 16, 32, 32)),
    case("group_norm", "dlight",
         lambda x, g, b: op.nn.group_norm(x, g, b, 3, 1, [2, 3]), (2, 12, 5, 7), (12,), (12,)),
    case("instance_norm", "dlight",
         lambda x, g, b: op.nn.instance_norm(x, g, b, 1, [2, 3]), (2, 6, 5, 7), (6,), (6,)),
    case("variance", "rows", along("variance", [-1]), (6, 50)),
    case("std_all", "rows", along("std"), (6, 50)),
)  # fmt: skip

MATMULS = (
    case("mm_1x1x1", "window", mm("NN"), (1, 1), (1, 1)),
    case("mm_primes", "contraction", mm("NN"), (17, 19), (19, 23)),
    case("mm_NN", "contraction", mm("NN"), (64, 96), (96, 80)),
    case("mm_NT", "contraction elementwise", mm("NT"), (33, 40), (50, 40)),
    case("mm_TN", "contraction", mm("TN"), (40, 33), (40, 50)),
    case("mm_TT", "contraction elementwise", mm("TT"), (40, 33), (50, 40)),
    case("mm_NT_few_rows", "contraction", mm("NT"), (7, 40), (50, 40)),
    case("mm_NT_batched_few_rows", "contraction", mm("NT"), (2, 1, 5, 32), (4, 49, 32)),
    case("mm_NT_one_row", "contraction", mm("NT"), (1, 512), (100, 512)),
    case("mm_TN_one_row", "contraction", mm("TN"), (512, 1), (512, 100)),
    case("mm_K197", "contraction", mm("NN"), (49, 197), (197, 64)),
    case("mm_K1", "window", mm("NN"), (33, 1), (1, 65)),
    case("mm_M1", "contraction", mm("NN"), (1, 512), (512, 100)),
    case("mm_N1", "contraction", mm("NN"), (100, 512), (512, 1)),
    case("mm_deep", "contraction", mm("NN"), (4, 4096), (4096, 5)),
    case("mm_deep_prime", "contraction", mm("NN"), (8, 2053), (2053, 24)),
    case("mm_batched", "contraction", mm("NN"), (3, 17, 20), (3, 20, 31)),
    case("mm_batched_NT", "contraction elementwise", mm("NT"), (2, 4, 49, 32), (2, 4, 49, 32)),
    case("mm_batch_by_one", "contraction", mm("NN"), (3, 5, 17, 20), (20, 31)),
    case("mm_broadcast_batch", "contraction", mm("NN"), (3, 1, 9, 20), (1, 2, 20, 31)),
    case("mm_vector_by_batch", "window", mm("NN"), (20,), (3, 20, 31)),
    case("mm_bias_relu", "contraction",
         lambda x, w, b: op.nn.relu(op.add(op.matmul(x, w), b)), (1024, 32), (32, 1024), (1024,)),
    case("mm_bias_gelu", "contraction",
         lambda x, w, b: op.nn.gelu(op.add(op.matmul(x, w), b)), (31, 64), (64, 45), (45,)),
    case("mm_residual", "contraction",
         residual(mm("NT")), (31, 64), (45, 64), (31, 45)),
    case("mm_of_producer", "contraction elementwise",
         lambda x, w: op.matmul(op.nn.relu(x), w), (31, 64), (64, 45)),
    case("mm_same_operand", "contraction",
         lambda x: op.matmul(x, _swap_last(x)), (31, 64)),
    case("mm_heads", "contraction elementwise elementwise",
         lambda q, k: op.matmul(op.permute_dims(op.reshape(q, (2, 9, 4, 16)), [0, 2, 1, 3]),
                                op.permute_dims(op.reshape(k, (2, 9, 4, 16)), [0, 2, 3, 1])),
         (2, 9, 64), (2, 9, 64)),
    case("mm_of_batches", "contraction", mm("NN"), (3, 5, 40), (40, 36)),
    case("mm_of_batches_of_producer", "contraction elementwise",
         lambda x, w: op.matmul(op.nn.relu(x), w), (3, 5, 40), (40, 36)),
    case("mm_int32", "contraction", mm("NN"), i32(17, 19), i32(19, 23)),
    case("mm_int64", "contraction", mm("NN"), i64(17, 19), i64(19, 23)),
    case("mm_int8", "contraction", mm("NN", out_dtype="int32"), i8(32, 64), i8(64, 32)),
    case("mm_dequantized", "contraction elementwise",
         lambda x, w, s: op.matmul(x, op.multiply(op.astype(w, "float32"), s)),
         (9, 64), i8(64, 48), (48,)),
    case("einsum", "contraction", lambda a, b: op.einsum((a, b), "bij,bkj->bik"),
         (2, 9, 20), (2, 11, 20)),
)  # fmt: skip

CONVOLUTIONS = (
    case("conv3x3", "contraction", conv(padding=1), (1, 6, 9, 11), (16, 6, 3, 3)),
    case("conv1x1", "contraction", conv(), (2, 13, 7, 7), (24, 13, 1, 1)),
    case("conv1x1_stride", "contraction", conv(strides=2), (2, 13, 15, 10), (24, 13, 1, 1)),
    case("conv1x1_stride_one_image", "contraction", conv(strides=(1, 3)),
         (1, 13, 8, 10), (24, 13, 1, 1)),
    case("conv1x1_residual", "contraction",
         residual(conv()), (3, 16, 6, 10), (24, 16, 1, 1), (3, 24, 6, 10)),
    case("conv1x1_scaled_rows", "contraction",
         lambda x, w, s: op.multiply(op.nn.conv2d(x, w), s),
         (2, 16, 6, 10), (24, 16, 1, 1), (6, 1)),
    case("conv_stem", "contraction", conv(strides=2, padding=3), (1, 3, 29, 31), (8, 3, 7, 7)),
    case("conv_dilated", "contraction", conv(dilation=2, padding=2), (1, 5, 12, 12), (7, 5, 3, 3)),
    case("conv_uneven", "contraction", conv(strides=(2, 1), padding=(0, 1, 2, 0)),
         (1, 4, 11, 13), (6, 4, 3, 2)),
    case("conv_groups", "window", conv(groups=3, padding=1), (1, 12, 8, 9), (18, 4, 3, 3)),
    # The best tiles' blocks would straddle the groups of five filters.
    case("conv_groups_of_five", "contraction",
         conv(groups=2, strides=2, padding=(1, 2, 1, 2)), (2, 16, 8, 13), (10, 8, 3, 3)),
    case("conv_two_channels", "window", conv(), (1, 1, 28, 28), (2, 1, 5, 5)),
    case("conv_to_one_pixel", "contraction", conv(), (1, 16, 4, 4), (10, 16, 4, 4)),
    case("conv_depthwise", "window", conv(groups=10, padding=1), (1, 10, 13, 15), (10, 1, 3, 3)),
    case("conv_depthwise_stride", "window", conv(groups=8, strides=2, padding=2),
         (2, 8, 14, 14), (8, 1, 5, 5)),
    case("conv_depthwise_multiplier", "window", conv(groups=4), (1, 4, 9, 9), (8, 1, 3, 3)),
    case("conv_depthwise_large", "window", conv(groups=16, padding=3),
         (1, 16, 56, 56), (16, 1, 7, 7)),
    case("conv_nhwc", "contraction",
         conv(padding=1, data_layout="NHWC", kernel_layout="HWIO", out_layout="NHWC"),
         (1, 9, 11, 6), (3, 3, 6, 16)),
    case("conv_nhwc_depthwise", "window",
         conv(padding=1, groups=8, data_layout="NHWC", kernel_layout="HWOI", out_layout="NHWC"),
         (1, 9, 11, 8), (3, 3, 8, 1)),
    # Strips overhang the output, planes share a block, and threads the rows of a copy.
    case("conv_depthwise_overhang", "window", conv(groups=6, padding=1),
         (3, 6, 29, 23), (6, 1, 3, 3)),
    case("conv_depthwise_dilated", "window", conv(groups=4, padding=2, dilation=2),
         (2, 4, 31, 17), (4, 1, 3, 3)),
    case("conv_depthwise_uneven", "window",
         conv(groups=5, strides=(2, 1), padding=(0, 3, 2, 0)), (2, 5, 33, 19), (5, 1, 5, 4)),
    case("conv_depthwise_small_planes", "window", conv(groups=64, padding=1),
         (2, 64, 7, 7), (64, 1, 3, 3)),
    case("conv_depthwise_of_relu", "window",
         lambda x, w: op.nn.conv2d(op.nn.relu(x), w, padding=1, groups=6),
         (1, 6, 19, 18), (6, 1, 3, 3)),
    case("conv_nhwc_depthwise_stride", "window",
         conv(padding=2, strides=2, groups=40, data_layout="NHWC", kernel_layout="HWOI",
              out_layout="NHWC"), (2, 15, 17, 40), (5, 5, 40, 1)),
    case("conv_depthwise_prime", "window", conv(groups=3, padding=2), (2, 3, 37, 11), (3, 1, 5, 5)),
    case("conv_depthwise_valid_stride", "window", conv(groups=3, strides=2),
         (1, 3, 39, 14), (3, 1, 5, 3)),
    case("conv_depthwise_row", "window", conv(groups=4, padding=(0, 2)),
         (3, 4, 1, 29), (4, 1, 1, 5)),
    case("conv_of_many_images", "contraction", conv(padding=1, strides=2),
         (37, 5, 7, 7), (19, 5, 3, 3)),
    case("conv_bias_relu", "contraction", bias_relu(conv(padding=1), shape=(1, 12, 1, 1)),
         (1, 8, 10, 10), (12, 8, 3, 3), (12,)),
    case("conv_residual", "contraction", residual(conv(padding=1)),
         (1, 8, 7, 7), (8, 8, 3, 3), (1, 8, 7, 7)),
    case("depthwise_bias_relu", "window",
         bias_relu(conv(padding=1, groups=8), shape=(1, 8, 1, 1)),
         (1, 8, 10, 10), (8, 1, 3, 3), (8,)),
    case("conv_padded_before", "contraction elementwise",
         lambda x, w: op.nn.conv2d(op.nn.pad(x, [0, 0, 0, 0, 0, 1, 0, 1]), w, strides=2),
         (1, 4, 8, 8), (8, 4, 3, 3)),
    case("conv_of_relu", "contraction elementwise",
         lambda x, w: op.nn.conv2d(op.nn.relu(x), w, padding=1), (1, 4, 8, 8), (8, 4, 3, 3)),
    case("conv1d", "contraction", lambda x, w: op.nn.conv1d(x, w, strides=2, padding=2),
         (2, 6, 31), (8, 6, 5)),
    case("conv1d_depthwise", "window", lambda x, w: op.nn.conv1d(x, w, padding=3, groups=6),
         (2, 6, 31), (6, 1, 4)),
    case("conv3d", "contraction", lambda x, w: op.nn.conv3d(x, w, padding=1),
         (1, 3, 5, 6, 7), (8, 3, 3, 3, 3)),
    case("conv2d_transpose", "contraction",
         lambda x, w: op.nn.conv2d_transpose(x, w, strides=2, padding=1, output_padding=1),
         (1, 6, 5, 7), (6, 8, 3, 3)),
    case("conv1d_transpose", "contraction",
         lambda x, w: op.nn.conv1d_transpose(x, w, strides=2, padding=1), (1, 6, 9), (6, 8, 4)),
    case("conv2d_transpose_groups", "window",
         lambda x, w: op.nn.conv2d_transpose(x, w, strides=2, groups=2),
         (1, 8, 5, 5), (8, 4, 2, 2)),
)  # fmt: skip

POOLS = (
    case("max_pool", "window", pool("max_pool2d", 3, strides=2, padding=1), (1, 5, 12, 13)),
    case("max_pool_large", "window", pool("max_pool2d", 3, strides=2, padding=1),
         (2, 7, 65, 57)),
    case("avg_pool_overlapping", "window", pool("avg_pool2d", 3, padding=1), (2, 7, 35, 37)),
    case("max_pool_strided_points", "window", pool("max_pool2d", 1, strides=2),
         (8, 16, 27, 27)),
    case("global_pool_many", "row", lambda x: op.nn.adaptive_avg_pool2d(x, (1, 1)),
         (9, 520, 5, 5)),
    case("max_pool_ceil", "window", pool("max_pool2d", 3, strides=2, ceil_mode=True),
         (1, 5, 12, 12)),
    case("max_pool_dilated", "window", pool("max_pool2d", 2, dilation=3), (1, 5, 12, 12)),
    case("avg_pool", "window", pool("avg_pool2d", 3, strides=2, padding=1), (1, 5, 12, 13)),
    case("avg_pool_count_padding", "window",
         pool("avg_pool2d", 3, strides=1, padding=1, count_include_pad=True), (1, 5, 12, 13)),
    case("avg_pool_ceil", "window", pool("avg_pool2d", (3, 2), strides=2, ceil_mode=True),
         (1, 5, 12, 12)),
    case("global_pool", "row", lambda x: op.nn.adaptive_avg_pool2d(x, (1, 1)), (2, 9, 7, 7)),
    case("max_pool_nhwc", "window", pool("max_pool2d", 2, strides=2, layout="NHWC"),
         (1, 8, 8, 12)),
    case("avg_pool3d_overlapping", "window", pool("avg_pool3d", 3, strides=2, padding=1),
         (1, 3, 7, 9, 8)),
    case("max_pool1d", "window", pool("max_pool1d", 3, strides=2, padding=1), (2, 5, 17)),
    case("avg_pool3d", "window", pool("avg_pool3d", 2, strides=2), (1, 3, 4, 6, 8)),
    case("adaptive_pool", "window", lambda x: op.nn.adaptive_avg_pool2d(x, (3, 2)),
         (1, 4, 6, 8)),
)  # fmt: skip

CASES = (*ELEMENTWISE, *MOVES, *REDUCTIONS, *ROWS, *MATMULS, *CONVOLUTIONS, *POOLS)
