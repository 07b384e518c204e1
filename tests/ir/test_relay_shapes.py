"""Relay's operators on shapes and parts of tensors, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from relay_operators import Known, equal, run

_X = np.arange(24, dtype="float32").reshape(2, 3, 4)
_NONE = np.zeros((0, 3), "float32")
_SLICE = {"strides": (), "slice_mode": "end", "axes": None}


def _numbers(*shape: int, dtype: str = "float32") -> np.ndarray:
    count = int(np.prod(shape))
    return np.arange(count).reshape(shape).astype(dtype)


@pytest.mark.parametrize(
    ("codes", "shape"),
    [
        ((4, 0, 2), (4, 3, 2)),
        ((6, 1, -1), (6, 1, 4)),
        ((-2, 1, 1), (2, 3, 4, 1, 1)),
        ((-3, 4), (6, 4)),
        ((0, -3), (2, 12)),
        ((-4, 1, 2, -2), (1, 2, 3, 4)),
        ((2, -4, -1, 3, -2), (2, 1, 3, 4)),
        ((0, -4, 3, -1, 0), (2, 3, 1, 4)),
        ((-1,), (24,)),
    ],
)
def test_codes_of_a_reshape(codes: tuple[int, ...], shape: tuple[int, ...]) -> None:
    equal(run("reshape", _X, newshape=codes, allowzero=False), _X.reshape(shape))
    known = Known(codes, "int64")
    equal(run("dyn.reshape", _X, known, newshape=(), allowzero=False), _X.reshape(shape))


@pytest.mark.parametrize("codes", [(5, -1), (-1, -1), (-4, 5, 2, -2), (0, 0, 0, 0), (-5,)])
def test_codes_that_mean_no_shape(codes: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"tensor|reshape|times"):
        run("reshape", _X, newshape=codes, allowzero=False)


def test_reshapes_of_no_elements() -> None:
    equal(run("reshape", _NONE, newshape=(3, 0), allowzero=True), _NONE.reshape(3, 0))
    equal(run("reshape", _NONE, newshape=(0, -1), allowzero=False), _NONE)


def test_reshape_from_the_right() -> None:
    x = _numbers(10, 5, 4)
    found = run("contrib_reverse_reshape", x, newshape=(-1, 0), allowzero=False)
    equal(found, x.reshape(50, 4))


def test_reshape_like() -> None:
    like = _numbers(5, 6, 4, 7)
    part = {"lhs_begin": 0, "lhs_end": 2, "rhs_begin": 1, "rhs_end": 2}
    equal(run("reshape_like", _X, like, **part), _X.reshape(6, 4))
    part = {"lhs_begin": -3, "lhs_end": -1, "rhs_begin": 1, "rhs_end": -2}
    equal(run("reshape_like", _X, like, **part), _X.reshape(6, 4))
    whole = {"lhs_begin": 0, "lhs_end": None, "rhs_begin": 0, "rhs_end": None}
    equal(run("reshape_like", _X, _numbers(4, 6), **whole), _X.reshape(4, 6))


@pytest.mark.parametrize(("axis", "shape"), [(None, (3,)), ((0,), (3, 1)), ((-1, 0), (3,))])
def test_squeeze(axis: Any, shape: tuple[int, ...]) -> None:
    equal(run("squeeze", _numbers(1, 3, 1), axis=axis), _numbers(*shape))


@pytest.mark.parametrize(
    ("axis", "count", "shape"),
    [(0, 1, (1, 2, 3)), (-1, 2, (2, 3, 1, 1)), (1, 2, (2, 1, 1, 3)), (-3, 1, (1, 2, 3))],
)
def test_expand_dims(axis: int, count: int, shape: tuple[int, ...]) -> None:
    equal(run("expand_dims", _numbers(2, 3), axis=axis, num_newaxis=count), _numbers(*shape))


@pytest.mark.parametrize("axes", [None, (), (1, 2, 0), (0, -1, 1)])
def test_transpose(axes: Any) -> None:
    equal(run("transpose", _X, axes=axes), _X.transpose(axes or None))


def test_batch_flatten() -> None:
    equal(run("nn.batch_flatten", _X), _X.reshape(2, 12))


@pytest.mark.parametrize(("sections", "axis"), [(2, 2), (1, 0), ((1, 3), 2), ((0, 3), 2), (3, -2)])
def test_split(sections: Any, axis: int) -> None:
    found = run("split", _X, indices_or_sections=sections, axis=axis)
    expected = np.split(_X, sections, axis)
    assert isinstance(found, tuple)
    for part, wanted in zip(found, expected, strict=True):
        equal(part, wanted)
    with pytest.raises(ValueError, match="parts"):
        run("split", _X, indices_or_sections=5, axis=2)


def test_concatenate_and_stack() -> None:
    y = _X + 1
    for axis in (0, 1, -1):
        equal(
            run("concatenate", [_X, y, _X[:, :, :]], axis=axis), np.concatenate([_X, y, _X], axis)
        )
        equal(run("stack", [_X, y], axis=axis), np.stack([_X, y], axis))
    equal(run("concatenate", [_NONE, _numbers(2, 3)], axis=0), _numbers(2, 3))
    equal(run("concatenate", [_NONE, _NONE], axis=1), np.zeros((0, 6), "float32"))
    flags = np.array([True, False])
    equal(run("concatenate", [flags, ~flags], axis=0), np.concatenate([flags, ~flags]))
    with pytest.raises(ValueError, match="types"):
        run("concatenate", [flags, np.zeros(2, "int8")], axis=0)


def test_broadcasts() -> None:
    x = _numbers(3, 1, dtype="int8")
    equal(run("broadcast_to", x, shape=(2, 3, 4), dtype=""), np.broadcast_to(x, (2, 3, 4)))
    equal(run("dyn.broadcast_to", x, Known([3, 2])), np.broadcast_to(x, (3, 2)))
    equal(run("broadcast_to_like", x, _X), np.broadcast_to(x, (2, 3, 4)))
    equal(run("collapse_sum_to", _X, Known([3, 1])), _X.sum((0, 2), keepdims=True)[0])
    equal(run("collapse_sum_like", _X, _numbers(3, 4)), _X.sum(0))
    with pytest.raises(NotImplementedError, match="run time"):
        run("dyn.broadcast_to", x, np.array([3, 2]))


def test_repetitions() -> None:
    equal(run("tile", _X, reps=(2, 1, 3)), np.tile(_X, (2, 1, 3)))
    equal(run("tile", _numbers(3), reps=(2, 2)), np.tile(_numbers(3), (2, 2)))
    equal(run("tile", _X, reps=(2,)), np.tile(_X, 2))
    equal(run("repeat", _X, repeats=2, axis=-2), np.repeat(_X, 2, 1))
    equal(run("reverse", _X, axis=-1), _X[..., ::-1])


def test_reverse_sequence() -> None:
    lengths = np.array([1, 3, 9], "int32")
    found = run("reverse_sequence", _X, lengths, seq_axis=2, batch_axis=1)
    expected = _X.copy()
    expected[:, 1, :3] = _X[:, 1, 2::-1]
    expected[:, 2] = _X[:, 2, ::-1]
    equal(found, expected)


@pytest.mark.parametrize("indexing", ["ij", "xy"])
@pytest.mark.parametrize("sizes", [(3,), (3, 4), (2, 3, 4)])
def test_meshgrid(indexing: Any, sizes: tuple[int, ...]) -> None:
    vectors = [_numbers(size) for size in sizes]
    found = run("meshgrid", vectors, indexing=indexing)
    for part, wanted in zip(found, np.meshgrid(*vectors, indexing=indexing), strict=True):
        equal(part, wanted)


def test_fifo_buffer() -> None:
    new, buffer = _numbers(2, 2) + 100, _numbers(2, 5)
    expected = np.concatenate([buffer, new], 1)[:, -5:]
    equal(run("nn.fifo_buffer", new, buffer, axis=1), expected)


def test_shapes_as_tensors() -> None:
    equal(run("shape_of", _X, dtype="int64"), np.array([2, 3, 4], "int64"))
    equal(run("vm.shape_of", _X, dtype=""), np.array([2, 3, 4], "int32"))
    equal(run("shape_of", np.float32(1), dtype="int32"), np.zeros(0, "int32"))
    equal(run("ndarray_size", _X, dtype="int32"), np.int32(24))


@pytest.mark.parametrize(
    ("attributes", "place"),
    [
        ({"begin": (0, 1), "end": (2, 3)}, np.s_[0:2, 1:3]),
        ({"begin": (1, -3, 0), "end": (2, 9, 4), "strides": (1, 1, 2)}, np.s_[1:2, -3:9, 0:4:2]),
        (
            {"begin": (-1, -1), "end": (-9, -9), "strides": (-1, -2), "axes": (1, 2)},
            np.s_[:, ::-1, ::-2],
        ),
        ({"begin": (1,), "end": (3,), "strides": (1,), "axes": (-1,)}, np.s_[:, :, 1:3]),
        ({"begin": (3,), "end": (-1,), "strides": (-1,), "axes": (2,)}, np.s_[:, :, 3:-1:-1]),
        ({"begin": (2,), "end": (0,), "strides": (-1,), "axes": (2,)}, np.s_[:, :, 2:0:-1]),
        ({"begin": (None, 1), "end": (None, None)}, np.s_[:, 1:]),
        ({"begin": (1, -2, 0), "end": (1, -1, 3), "slice_mode": "size"}, np.s_[1:2, -2:, 0:3]),
        (
            {"begin": (0, 1), "end": (-1, 2), "strides": (3,), "slice_mode": "size"},
            np.s_[:, 1:3],
        ),
        ({"begin": (5,), "end": (9,)}, np.s_[5:9]),
    ],
)
def test_strided_slice(attributes: dict[str, Any], place: Any) -> None:
    equal(run("strided_slice", _X, **{**_SLICE, **attributes}), _X[place])


def test_slice_by_known_bounds() -> None:
    bounds = [Known([0, 2]), Known([1, 0]), Known([1, -1])]
    equal(run("dyn.strided_slice", _X, *bounds, **_SLICE), _X[0:1, 2:0:-1])
    with pytest.raises(NotImplementedError, match="run time"):
        run("dyn.strided_slice", _X, np.array([0]), *bounds[1:], **_SLICE)


def test_slice_like() -> None:
    like = _numbers(1, 2, 3)
    equal(run("slice_like", _X, like, axes=()), _X[:1, :2, :3])
    equal(run("slice_like", _X, like, axes=(0, -1)), _X[:1, :, :3])


@pytest.mark.parametrize(
    ("bounds", "place"),
    [
        (([0, 1], [2, 3], [1, 2]), np.s_[0:2, 1:3:2]),
        (([1, -1, 3], [2, -9, 0], [1, -2, -2]), np.s_[1:2, ::-2, 3:0:-2]),
    ],
)
def test_strided_set(bounds: Any, place: Any) -> None:
    new = -1 - _numbers(*_X[place].shape)
    expected = _X.copy()
    expected[place] = new
    equal(run("strided_set", _X, new, *(Known(bound) for bound in bounds)), expected)


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "uint8", "int64", "bool"])
def test_pad(dtype: str) -> None:
    x = _numbers(2, 3, dtype=dtype)
    value = Known(np.array(3).astype(dtype))
    found = run("nn.pad", x, value, pad_width=((1, 0), (2, 3)), pad_mode="constant")
    expected = np.pad(x, ((1, 0), (2, 3)), constant_values=np.array(3).astype(dtype))
    equal(found, expected)
    # And with a number that is an input.
    settings = {"pad_width": ((1, 0), (2, 3)), "pad_mode": "constant"}
    equal(run("nn.pad", x, value.value, **settings), expected)


@pytest.mark.parametrize(
    ("name", "mode", "numpys"),
    [
        ("nn.pad", "edge", "edge"),
        ("nn.pad", "reflect", "reflect"),
        ("nn.mirror_pad", "SYMMETRIC", "symmetric"),
        ("nn.mirror_pad", "REFLECT", "reflect"),
    ],
)
def test_pads_of_own_elements(name: str, mode: str, numpys: Any) -> None:
    widths = ((1, 1), (2, 1), (0, 3))
    attribute = {"pad_mode": mode} if name == "nn.pad" else {"mode": mode}
    value = [Known(np.float32(0))] if name == "nn.pad" else []
    found = run(name, _X, *value, pad_width=widths, **attribute)
    equal(found, np.pad(_X, widths, mode=numpys))


def test_pads_that_are_refused() -> None:
    with pytest.raises(NotImplementedError, match="negative"):
        run("nn.pad", _X, Known(0.0), pad_width=((-1, 0), (0, 0), (0, 0)), pad_mode="constant")
    with pytest.raises(ValueError, match="elements along"):
        run("nn.mirror_pad", _X, pad_width=((2, 0), (0, 0), (0, 0)), mode="REFLECT")


def test_dilate() -> None:
    expected = np.full((2, 5, 10), 7, "float32")
    expected[:, ::2, ::3] = _X
    equal(run("nn.dilate", _X, strides=(1, 2, 3), dilation_value=7.0), expected)


def test_sliding_window() -> None:
    found = run("sliding_window", _X, axis=1, window_shape=(2, 3), strides=(1, 1))
    expected = np.lib.stride_tricks.sliding_window_view(_X, (2, 3), (1, 2))
    equal(found, expected)


def test_filled_tensors() -> None:
    equal(run("full", np.float32(2.5), shape=(2, 3), dtype="int32"), np.full((2, 3), 2, "int32"))
    equal(run("full", Known(2.5, "float32"), shape=(0, 3), dtype=""), _NONE)
    equal(run("dyn.full", Known(2, "int8"), Known([2]), dtype=""), np.full(2, 2, "int8"))
    equal(run("full_like", _X, np.float32(7)), np.full_like(_X, 7))
    for name, value in (("zeros", 0), ("ones", 1)):
        equal(run(name, shape=(2,), dtype="bool"), np.full(2, value, "bool"))
        equal(run(f"dyn.{name}", Known([2, 1]), dtype="int8"), np.full((2, 1), value, "int8"))
        equal(run(f"{name}_like", _X), np.full_like(_X, value))


@pytest.mark.parametrize(
    ("bounds", "dtype"),
    [
        ((0, 7, 1), "int32"),
        ((9, 1, -3), "int64"),
        ((0.0, 1.0, 0.25), "float32"),
        ((3, 1, 1), "int8"),
    ],
)
def test_arange(bounds: Any, dtype: str) -> None:
    given = [Known(bound, "float32" if "float" in dtype else dtype) for bound in bounds]
    equal(run("arange", *given, dtype=dtype), np.arange(*bounds, dtype=dtype))


@pytest.mark.parametrize("diagonal", [-1, 0, 2])
@pytest.mark.parametrize("dtype", ["float32", "bool"])
def test_triangles(diagonal: int, dtype: str) -> None:
    x = _numbers(2, 4, 5).astype(dtype)
    equal(run("trilu", x, Known(diagonal, "int32"), upper=True), np.triu(x, diagonal))
    equal(run("trilu", x, Known(diagonal, "int32"), upper=False), np.tril(x, diagonal))


def test_diagonals_of_matrices() -> None:
    flags = {"super_diag_right_align": True, "sub_diag_right_align": False}
    x, new = _numbers(3, 4), np.array([[0, 1, 2], [3, 4, 5], [6, 7, 0]], "float32") + 100
    # Rows: the diagonals 1, 0 and -1. Those above stand at the right, those below at the left.
    expected = x.copy()
    for k, row in ((1, new[0]), (0, new[1]), (-1, new[2][:2])):
        for place, value in enumerate(row):
            expected[place + max(-k, 0), place + max(k, 0)] = value
    equal(run("matrix_set_diag", x, new, k1=-1, k2=1, **flags), expected)
    wide = np.array([[0, 1], [2, 3]], "float32") + 100
    for is_right, values in ((True, (101, 102, 103)), (False, (100, 102, 103))):
        y = _numbers(2, 2)
        y[0, 1], y[0, 0], y[1, 1] = values
        flags = {"super_diag_right_align": is_right, "sub_diag_right_align": False}
        equal(run("matrix_set_diag", _numbers(2, 2), wide, k1=0, k2=1, **flags), y)


@pytest.mark.parametrize(
    ("source", "target", "shape", "axes"),
    [
        ("NCHW", "NHWC", (2, 8, 3, 5), None),
        ("NCHW", "NCHW4c", (2, 2, 4, 3, 5), (0, 1, 3, 4, 2)),
        ("OIHW", "OIHW2i4o", (2, 4, 2, 2, 3, 5), (0, 2, 4, 5, 3, 1)),
    ],
)
def test_layouts(source: str, target: str, shape: Any, axes: Any) -> None:
    x = _numbers(2, 8, 3, 5) if source == "NCHW" else _numbers(8, 4, 3, 5)
    expected = x.transpose(0, 2, 3, 1) if axes is None else x.reshape(shape).transpose(axes)
    found = run("layout_transform", x, src_layout=source, dst_layout=target)
    equal(found, expected)
    equal(run("layout_transform", found, src_layout=target, dst_layout=source), x)


@pytest.mark.parametrize("mode", ["DCR", "CRD"])
def test_depth_and_space(mode: str) -> None:
    x = _numbers(2, 8, 2, 3)
    attributes = {"block_size": 2, "layout": "NCHW", "mode": mode}
    if mode == "DCR":
        expected = x.reshape(2, 2, 2, 2, 2, 3).transpose(0, 3, 4, 1, 5, 2).reshape(2, 2, 4, 6)
    else:
        expected = x.reshape(2, 2, 2, 2, 2, 3).transpose(0, 1, 4, 2, 5, 3).reshape(2, 2, 4, 6)
    found = run("nn.depth_to_space", x, **attributes)
    equal(found, expected)
    if mode == "DCR":
        equal(run("nn.space_to_depth", found, block_size=2, layout="NCHW", mode=""), x)


def test_space_and_batch() -> None:
    x = _numbers(1, 2, 3, 2)
    found = run(
        "nn.space_to_batch_nd",
        x,
        block_shape=(2, 2),
        paddings=((0, 0), (0, 1)),
        pad_value=-1.0,
    )
    wide = np.pad(x, ((0, 0), (0, 0), (0, 1), (0, 0)), constant_values=-1)
    expected = wide.reshape(1, 1, 2, 2, 2, 2).transpose(2, 4, 0, 1, 3, 5).reshape(4, 1, 2, 2)
    equal(found, expected)
    back = run("nn.batch_to_space_nd", found, block_shape=(2, 2), crops=((0, 0), (0, 1)))
    equal(back, x)
