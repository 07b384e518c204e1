"""Relay's operators on images, against sums by hand in float64 and PyTorch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from relay_calls import call
from relay_operators import Known, equal

pytestmark = pytest.mark.bank(6)

_RNG = np.random.default_rng(5)


def drawn(*shape: int, dtype: str = "float32") -> np.ndarray:
    return _RNG.standard_normal(shape).astype(dtype)


def place(frame: str, at: int, old: int, new: int) -> float:
    if frame == "align_corners":
        return at * (old - 1) / (new - 1) if new > 1 else 0.0
    if frame == "asymmetric":
        return at * old / new
    if frame == "tf_half_pixel_for_nn":
        return (at + 0.5) * old / new
    if frame == "pytorch_half_pixel" and new == 1:
        return 0.0
    return (at + 0.5) * old / new - 0.5


_ROUNDINGS = {
    "round": lambda p: math.floor(p + 0.5),
    "floor": lambda p: math.floor(p + 1e-5),
    "ceil": lambda p: math.ceil(p - 1e-5),
    "round_prefer_floor": lambda p: math.ceil(p - 0.5),
    "round_prefer_ceil": lambda p: math.floor(p + 0.5),
}


def cubic(distance: float, a: float) -> float:
    if distance <= 1:
        return (a + 2) * distance**3 - (a + 3) * distance**2 + 1
    return a * distance**3 - 5 * a * distance**2 + 8 * a * distance - 4 * a


def matrix(
    old: int, new: int, method: str, frame: str, rounding: str, alpha: float, exclude: bool
) -> np.ndarray:
    """Shares of the elements of the image (columns) in those of the result (rows)."""
    shares = np.zeros((new, old))
    for row in range(new):
        p = place(frame, row, old, new)
        first = math.floor(p)
        if method == "nearest_neighbor":
            parts = [(_ROUNDINGS[rounding](p), 1.0)]
        elif method == "linear":
            parts = [(first, 1 - (p - first)), (first + 1, p - first)]
        else:
            parts = [(k, cubic(abs(p - k), alpha)) for k in range(first - 1, first + 3)]
        if exclude:
            parts = [(k, share) for k, share in parts if 0 <= k < old]
            total = sum(share for _, share in parts)
            parts = [(k, share / total) for k, share in parts]
        for k, share in parts:
            shares[row, min(max(k, 0), old - 1)] += share
    return shares


def resized(x: np.ndarray, axes: Sequence[int], sizes: Sequence[int], **how: Any) -> np.ndarray:
    value = x.astype("float64")
    for axis, size in zip(axes, sizes, strict=True):
        one = matrix(x.shape[axis], size, **how)
        value = np.moveaxis(np.tensordot(one, value, (1, axis)), 0, axis)
    return value


@pytest.mark.parametrize("method", ["nearest_neighbor", "linear", "cubic"])
@pytest.mark.parametrize("frame", ["half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel"])  # fmt: skip  # noqa: E501
@pytest.mark.parametrize("sizes", [(10, 18), (3, 4), (7, 1)])
def test_resize2d(method: str, frame: str, sizes: tuple[int, int]) -> None:
    x = drawn(1, 2, 5, 6)
    how = {"method": method, "coordinate_transformation_mode": frame, "rounding_method": ""}
    rounding = "round" if frame == "align_corners" else "floor"
    expected = resized(
        x, (2, 3), sizes, method=method, frame=frame, rounding=rounding, alpha=-0.5, exclude=False
    )
    equal(call("image.resize2d", x, size=sizes, **how), expected.astype("float32"), 1e-5)


@pytest.mark.parametrize("rounding", list(_ROUNDINGS))
@pytest.mark.parametrize("frame", ["half_pixel", "asymmetric"])
def test_roundings(rounding: str, frame: str) -> None:
    x = drawn(1, 1, 8, 6)
    how = {"rounding_method": rounding, "coordinate_transformation_mode": frame}
    for sizes in ((4, 11), (13, 3)):
        expected = resized(
            x, (2, 3), sizes, method="nearest_neighbor", frame=frame, rounding=rounding,
            alpha=0, exclude=False,
        )  # fmt: skip
        found = call("image.resize2d", x, size=sizes, method="nearest_neighbor", **how)
        equal(found, expected.astype("float32"))


def test_one_axis_of_a_plane_whose_channels_are_last() -> None:
    x = drawn(1, 5, 6, 3)
    found = call("image.resize2d", x, size=(5, 3), layout="NHWC", method="linear")
    equal(found, (x[:, :, ::2] + x[:, :, 1::2]) / 2, 1e-6)


@pytest.mark.parametrize("rounding", list(_ROUNDINGS))
def test_whole_multiples_of_a_plane_are_repeated(rounding: str) -> None:
    """Relay divides their places as integers, whatever it rounds by; of a line it does not."""
    x = drawn(1, 1, 3, 2)
    how = {"rounding_method": rounding, "coordinate_transformation_mode": "asymmetric"}
    found = call("image.resize2d", x, size=(6, 6), method="nearest_neighbor", **how)
    equal(found, x.repeat(2, 2).repeat(3, 3))


@pytest.mark.parametrize("exclude", [True, False])
@pytest.mark.parametrize("alpha", [-0.75, -0.5, 0.0])
def test_cubic_attributes(exclude: bool, alpha: float) -> None:
    x = drawn(1, 2, 5, 6, dtype="float64")
    expected = resized(
        x, (2, 3), (8, 9), method="cubic", frame="half_pixel", rounding="", alpha=alpha,
        exclude=exclude,
    )  # fmt: skip
    found = call(
        "image.resize2d", x, size=(8, 9), method="cubic", cubic_alpha=alpha, cubic_exclude=exclude
    )
    equal(found, expected, 1e-12)


@pytest.mark.parametrize(
    ("name", "layout", "axes"),
    [
        ("image.resize1d", "NCW", (2,)),
        ("image.resize1d", "NWC", (1,)),
        ("image.resize2d", "NHWC", (1, 2)),
        ("image.resize2d", "NCHW4c", (2, 3)),
        ("image.resize3d", "NCDHW", (2, 3, 4)),
        ("image.resize3d", "NDHWC", (1, 2, 3)),
    ],
)
def test_layouts(name: str, layout: str, axes: tuple[int, ...]) -> None:
    shape = [2] * (5 if "4c" in layout else len(layout))
    for i, axis in enumerate(axes):
        shape[axis] = 4 + i
    shape[-1] = 4 if "4c" in layout else shape[-1]
    x, sizes = drawn(*shape), tuple(7 - i for i in range(len(axes)))
    how = {"method": "linear", "frame": "half_pixel", "rounding": "", "alpha": 0.0}
    expected = resized(x, axes, sizes, exclude=False, **how).astype("float32")
    equal(call(name, x, size=sizes, layout=layout), expected, 1e-5)
    if name == "image.resize2d":
        region = Known(np.zeros(4), "float32")
        size = Known(sizes, "int32")
        equal(call("dyn.image.resize2d", x, size, region, layout=layout), expected, 1e-5)


def test_types() -> None:
    x = _RNG.integers(-(2**31), 2**31, (1, 1, 3, 3)).astype("int32")
    how = {"method": "nearest_neighbor", "coordinate_transformation_mode": "asymmetric"}
    found = call("image.resize2d", x, size=(6, 6), rounding_method="floor", **how)
    equal(found, x.repeat(2, 2).repeat(2, 3))
    half = drawn(1, 1, 3, 3, dtype="float16")
    found = call("image.resize2d", half, size=(6, 6), out_dtype="float32")
    equal(found, call("image.resize2d", half.astype("float32"), size=(6, 6)), 1e-2)
    with pytest.raises(NotImplementedError, match="linear interpolation of int32"):
        call("image.resize2d", x, size=(6, 6))


def test_nearest_of_shifted_pixels() -> None:
    x = drawn(1, 1, 5, 7)
    frame, method = "tf_half_pixel_for_nn", "nearest_neighbor"
    how = {"method": method, "coordinate_transformation_mode": frame, "rounding_method": ""}
    expected = resized(
        x, (2, 3), (3, 9), method=method, frame=frame, rounding="floor", alpha=0, exclude=False
    )
    equal(call("image.resize2d", x, size=(3, 9), **how), expected.astype("float32"))


def test_a_region() -> None:
    x = drawn(1, 1, 5, 5)
    how = {"coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 9.0}
    found = call("image.resize2d", x, size=(3, 2), roi=(0.0, 0.5, 1.0, 1.5), **how)
    expected = np.array([[[[x[0, 0, i, 2], 9] for i in (0, 2, 4)]]], "float32")
    equal(found, expected, 1e-5)


@pytest.mark.parametrize("corners", [True, False])
@pytest.mark.parametrize("method", ["nearest_neighbor", "bilinear", "bicubic"])
def test_upsampling(corners: bool, method: str) -> None:
    x = drawn(1, 4, 5, 3)
    frame = "align_corners" if corners else "asymmetric"
    expected = resized(
        x, (1, 2), (8, 8), method=method.removeprefix("bi"), frame=frame,
        rounding="round" if corners else "floor", alpha=-0.5, exclude=False,
    )  # fmt: skip
    settings = {"scale_h": 2.0, "scale_w": 1.5, "layout": "NHWC", "align_corners": corners}
    found = call("nn.upsampling", x, method=method, **settings)
    equal(found, expected.astype("float32"), 1e-5)


def test_upsampling3d() -> None:
    x = drawn(1, 2, 3, 4, 2)
    settings = {"scale_d": 2.0, "scale_h": 1.5, "scale_w": 3.0, "method": "trilinear"}
    expected = resized(
        x, (2, 3, 4), (6, 6, 6), method="linear", frame="half_pixel", rounding="", alpha=0,
        exclude=False,
    )  # fmt: skip
    equal(call("nn.upsampling3d", x, **settings), expected.astype("float32"), 1e-5)


@pytest.mark.parametrize("method", ["bilinear", "nearest_neighbor"])
@pytest.mark.parametrize("size", [(3, 4), (1, 1)])
def test_crop_and_resize(method: str, size: tuple[int, int]) -> None:
    x = drawn(2, 6, 7, 3)
    boxes = np.array([[0.1, 0.2, 0.8, 0.9], [0.72, 0.1, -0.2, 1.3]], "float32")
    which = np.array([1, 0], "int32")
    settings = {"crop_size": size, "layout": "NHWC", "extrapolation_value": 5.0}
    found = call("image.crop_and_resize", x, boxes, which, method=method, **settings)
    expected = np.full((2, *size, 3), 5.0)
    for n, i, j in np.ndindex(2, *size):
        at = []
        for axis, own in enumerate((i, j)):
            low, high = float(boxes[n, axis]), float(boxes[n, axis + 2])
            last, count = x.shape[axis + 1] - 1, size[axis]
            at.append(
                low * last + own * (high - low) * last / (count - 1)
                if count > 1
                else (low + high) / 2 * last
            )
        if not (0 <= at[0] <= 5 and 0 <= at[1] <= 6):
            continue
        if method == "bilinear":
            (t, y), (s, z) = (math.modf(p) for p in at)
            a, b = int(y), int(z)
            c, d = min(a + 1, 5), min(b + 1, 6)
            image = x[which[n]].astype("float64")
            top = image[a, b] * (1 - s) + image[a, d] * s
            bottom = image[c, b] * (1 - s) + image[c, d] * s
            expected[n, i, j] = top * (1 - t) + bottom * t
        else:
            expected[n, i, j] = x[which[n], math.floor(at[0] + 0.5), math.floor(at[1] + 0.5)]
    equal(found, expected.astype("float32"), 1e-4)


@pytest.mark.parametrize("method", ["bilinear", "nearest", "bicubic"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize(("rank", "corners"), [(2, True), (2, False), (3, False)])
def test_grid_sample(method: str, padding: str, rank: int, corners: bool) -> None:
    x = drawn(2, 3, *(5, 6, 4)[:rank])
    grid = drawn(2, rank, *(4, 3, 2)[:rank])
    settings = {"method": method, "padding_mode": padding, "align_corners": corners}
    settings["layout"] = "NCHW" if rank == 2 else "NCDHW"
    if method == "bicubic" and rank == 3:
        with pytest.raises(NotImplementedError, match="bicubic"):
            call("image.grid_sample", x, grid, **settings)
        return
    expected = torch.nn.functional.grid_sample(
        torch.from_numpy(x.astype("float64")),
        torch.from_numpy(np.moveaxis(grid, 1, -1).astype("float64")),
        method,
        padding,
        corners,
    )
    found = call("image.grid_sample", x, grid, **settings)
    equal(found, expected.numpy().astype("float32"), 1e-4)


def test_affine_grid() -> None:
    theta = drawn(2, 2, 3)
    expected = torch.nn.functional.affine_grid(
        torch.from_numpy(theta.astype("float64")), [2, 1, 4, 5], align_corners=True
    )
    found = call("image.affine_grid", theta, target_shape=(4, 5))
    equal(found, np.moveaxis(expected.numpy(), -1, 1).astype("float32"), 1e-5)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_dilation2d(layout: str) -> None:
    x, kernel = drawn(1, 2, 6, 7), drawn(2, 3, 2)
    wide = np.pad(x, [(0, 0), (0, 0), (1, 2), (0, 1)])
    expected = np.full((1, 2, 3, 6), -np.inf, "float32")
    for i, j in np.ndindex(3, 2):
        part = wide[:, :, 2 * i : 2 * i + 5 : 2, j * 2 : j * 2 + 6]
        np.maximum(expected, part + kernel[None, :, i, j, None, None], out=expected)
    settings = {"strides": (2, 1), "dilations": (2, 2), "padding": (1, 0, 2, 1)}
    if layout == "NHWC":
        x, kernel = x.transpose(0, 2, 3, 1), kernel.transpose(1, 2, 0)
        expected = expected.transpose(0, 2, 3, 1)
        settings |= {"data_layout": "NHWC", "kernel_layout": "HWI"}
    arrays = np.ascontiguousarray(x), np.ascontiguousarray(kernel)
    equal(call("image.dilation2d", *arrays, **settings), np.ascontiguousarray(expected), 1e-6)


@pytest.mark.parametrize("multiplied", [True, False])
def test_correlation(multiplied: bool) -> None:
    a, b = drawn(1, 2, 8, 9), drawn(1, 2, 8, 9)
    settings = {"kernel_size": 3, "max_displacement": 2, "stride1": 2, "stride2": 2}
    found = call("nn.correlation", a, b, padding=(3,), is_multiply=multiplied, **settings)
    wide = [np.pad(v.astype("float64"), [(0, 0), (0, 0), (3, 3), (3, 3)]) for v in (a, b)]
    expected = np.zeros((1, 9, 4, 5))
    for q, i, j in np.ndindex(9, 4, 5):
        y, x = 2 * i + 2, 2 * j + 2
        y2, x2 = y + (q // 3 - 1) * 2, x + (q % 3 - 1) * 2
        one, other = wide[0][0, :, y : y + 3, x : x + 3], wide[1][0, :, y2 : y2 + 3, x2 : x2 + 3]
        expected[0, q, i, j] = (one * other if multiplied else abs(one - other)).mean()
    equal(found, expected.astype("float32"), 1e-5)


@pytest.mark.parametrize("groups", [1, 2])
def test_deformable_convolution(groups: int) -> None:
    x, kernel = drawn(1, 4, 6, 6), drawn(3, 4, 3, 3)
    offsets = drawn(1, groups * 18, 3, 3)
    settings: dict[str, Any] = {"strides": (2, 2), "padding": (1, 1), "deformable_groups": groups}
    found = call("nn.deformable_conv2d", x, offsets, kernel, **settings)
    expected = np.zeros((1, 3, 3, 3))
    for c, i, j, y, z in np.ndindex(4, 3, 3, 3, 3):
        own = c // (4 // groups) * 18 + (i * 3 + j) * 2
        row = 2 * y - 1 + i + float(offsets[0, own, y, z])
        column = 2 * z - 1 + j + float(offsets[0, own + 1, y, z])
        if not (0 <= row < 6 and 0 <= column < 6):
            continue
        (t, top), (s, left) = math.modf(row), math.modf(column)
        for a, share in ((int(top), 1 - t), (int(top) + 1, t)):
            for b, part in ((int(left), 1 - s), (int(left) + 1, s)):
                if max(a, b) < 6:
                    expected[0, :, y, z] += kernel[:, c, i, j] * x[0, c, a, b] * share * part
    equal(found, expected.astype("float32"), 1e-4)
