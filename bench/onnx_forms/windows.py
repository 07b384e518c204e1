"""Convolutions, pools, resizing: operators that read windows."""

from __future__ import annotations

from typing import Any

import numpy as np

from bench.onnx_forms.form import Draw, Form, form


def _window(
    d: Draw, rank: int, extents: list[int], most: int = 3
) -> tuple[list[int], dict[str, Any]]:
    """A kernel that fits, with strides, dilations and padding."""
    kernel = [d.int(1, min(most, extent)) for extent in extents]
    attrs = d.some({"strides": d.ints(1, 3, rank)})
    if d.maybe(0.4):
        dilations = d.ints(1, 2, rank)
        attrs["dilations"] = [
            1 if (k - 1) * dilation + 1 > extent else dilation
            for k, dilation, extent in zip(kernel, dilations, extents, strict=True)
        ]
    if d.maybe(0.3):
        attrs["auto_pad"] = d.choose("SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET")
    elif d.maybe(0.6):
        attrs["pads"] = [d.int(0, (k - 1) // 1) for k in kernel * 2]
    return kernel, attrs


def conv(d: Draw) -> Form:
    rank = d.choose(1, 2, 2, 3)
    groups = d.choose(1, 1, 2, 3)
    inner, outer = groups * d.int(1, 3), groups * d.int(1, 3)
    extents = d.ints(3, 9, rank)
    kernel, attrs = _window(d, rank, extents)
    bias = d.normal((outer,)) if d.maybe() else None
    return form(
        "Conv",
        d.normal([d.int(1, 2), inner, *extents]),
        d.normal([outer, inner // groups, *kernel]),
        *([bias] if bias is not None else []),
        constants=(1, 2) if d.maybe() else (),
        group=groups,
        **attrs,
        **d.some({"kernel_shape": kernel}),
    )


def conv_transpose(d: Draw) -> Form:
    rank = d.choose(1, 2, 2, 3)
    groups = d.choose(1, 1, 2)
    inner, outer = groups * d.int(1, 3), d.int(1, 3)
    extents = d.ints(2, 6, rank)
    kernel = d.ints(1, 4, rank)
    strides = d.ints(1, 3, rank)
    attrs: dict[str, Any] = d.some({"kernel_shape": kernel}) | {"strides": strides}
    dilations = d.ints(1, 2, rank) if d.maybe(0.3) else [1] * rank
    if d.maybe(0.3):
        attrs["dilations"] = dilations
    else:
        dilations = [1] * rank
    if d.maybe(0.4):
        attrs["output_padding"] = [
            d.int(0, max(s, k) - 1) for s, k in zip(strides, dilations, strict=True)
        ]
    full = [
        (e - 1) * s + (k - 1) * g + 1
        for e, s, k, g in zip(extents, strides, kernel, dilations, strict=True)
    ]
    how = d.choose("pads", "auto", "shape", "none")
    if how == "pads":
        attrs["pads"] = [
            d.int(0, min(k, max(0, (f - 1) // 2)))
            for k, f in zip(kernel * 2, full * 2, strict=True)
        ]
    elif how == "auto":
        attrs["auto_pad"] = d.choose("SAME_UPPER", "SAME_LOWER", "VALID")
    elif how == "shape":
        attrs["output_shape"] = [max(1, f - d.int(0, k)) for f, k in zip(full, kernel, strict=True)]
        attrs |= d.some({"auto_pad": d.choose("SAME_UPPER", "SAME_LOWER")}, 0.4)
    bias = d.normal((outer * groups,)) if d.maybe() else None
    return form(
        "ConvTranspose",
        d.normal([d.int(1, 2), inner, *extents]),
        d.normal([inner, outer, *kernel]),
        *([bias] if bias is not None else []),
        constants=(1, 2) if d.maybe() else (),
        group=groups,
        **attrs,
    )


def pool(d: Draw) -> Form:
    op_type = d.choose("MaxPool", "AveragePool", "LpPool")
    rank = d.choose(1, 2, 2, 3)
    extents = d.ints(3, 9, rank)
    kernel, attrs = _window(d, rank, extents)
    results = 1
    opset = d.choose(13, 19, 21)
    if op_type == "AveragePool":
        attrs |= d.some({"count_include_pad": d.int(0, 1)})
        if opset < 19:
            attrs.pop("dilations", None)
    if op_type == "LpPool":
        attrs |= d.some({"p": d.int(1, 3)})
        if opset < 18:
            attrs.pop("dilations", None)
    if op_type == "MaxPool" and d.maybe(0.3):
        results = 2
        attrs |= d.some({"storage_order": d.int(0, 1)}, 0.3)
    if not (op_type == "LpPool" and opset < 18):
        attrs |= d.some({"ceil_mode": 1}, 0.4)
    x = d.normal([d.int(1, 2), d.int(1, 3), *extents])
    return form(op_type, x, results=results, opset=opset, kernel_shape=kernel, **attrs)


def global_pool(d: Draw) -> Form:
    op_type = d.choose("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
    attrs = d.some({"p": d.int(1, 3)}) if op_type == "GlobalLpPool" else {}
    return form(op_type, d.normal(d.shape(d.int(3, 5))), **attrs)


def resize(d: Draw) -> Form:
    rank = d.choose(3, 4, 4, 5)
    x = d.normal([d.int(1, 2), d.int(1, 2), *d.ints(2, 7, rank - 2)])
    mode = d.choose("nearest", "linear", "cubic")
    if mode == "cubic":
        x = d.normal([1, 2, *d.ints(3, 7, 2)])
    spatial = x.ndim - 2
    frame = d.choose(
        "half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel",
        "half_pixel_symmetric", "tf_crop_and_resize",
    )  # fmt: skip
    attrs: dict[str, Any] = {"mode": mode} | d.some({"coordinate_transformation_mode": frame}, 0.8)
    if mode == "nearest":
        rounding = d.choose("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
        attrs |= d.some({"nearest_mode": rounding}, 0.7)
    if mode == "cubic":
        attrs |= d.some({"cubic_coeff_a": d.choose(-0.5, -0.75), "exclude_outside": 1})
    if mode != "nearest":
        attrs |= d.some({"antialias": 1}, 0.25)
    crops = attrs.get("coordinate_transformation_mode") == "tf_crop_and_resize"
    if crops:
        attrs |= d.some({"extrapolation_value": 2.5})
    axes: list[int] | None = None
    if d.maybe(0.3):
        axes = [i + 2 - (x.ndim if d.maybe(0.3) else 0) for i in range(spatial)]
        attrs["axes"] = axes
    roi = None
    if crops:
        low, high = d.rng.uniform(-0.2, 0.4, spatial), d.rng.uniform(0.6, 1.2, spatial)
        outer = 0 if axes is not None else 2
        roi = np.array([*[0] * outer, *low, *[1] * outer, *high], "float32")
    outer_ones = [] if axes is not None else [1.0, 1.0]
    if d.maybe():
        scales = [d.choose(0.5, 0.6, 0.75, 1.0, 1.5, 2.0, 2.3, 3.0) for _ in range(spatial)]
        scales = [max(s, 1.01 / e) for s, e in zip(scales, x.shape[2:], strict=True)]
        return form(
            "Resize", x, roi, np.array([*outer_ones, *scales], "float32"), constants=(1, 2), **attrs
        )
    sizes = d.ints(1, 12, spatial)
    if d.maybe(0.25):
        if axes is not None:  # the reference evaluator takes no negative ones here
            attrs["axes"] = [axis % x.ndim for axis in axes]
        attrs["keep_aspect_ratio_policy"] = d.choose("not_larger", "not_smaller")
    outer_sizes = [] if axes is not None else list(x.shape[:2])
    return form("Resize", x, roi, None, np.array([*outer_sizes, *sizes]), constants=(1, 3), **attrs)


def upsample(d: Draw) -> Form:
    x = d.normal([1, d.int(1, 2), *d.ints(2, 5, 2)])
    scales = np.array([1, 1, *[d.choose(1.0, 2.0, 2.5, 3.0) for _ in range(2)]], "float32")
    return form("Upsample", x, scales, constants=(1,), opset=9, mode=d.choose("nearest", "linear"))


def grid_sample(d: Draw) -> Form:
    x = d.normal([d.int(1, 2), d.int(1, 2), *d.ints(2, 6, 2)])
    grid = d.rng.uniform(-1.4, 1.4, (x.shape[0], *d.ints(1, 5, 2), 2)).astype("float32")
    mode = d.choose("linear", "nearest", "cubic")
    return form(
        "GridSample", x, grid, opset=20, mode=mode, align_corners=d.int(0, 1),
        **d.some({"padding_mode": d.choose("zeros", "border", "reflection")}, 0.8),
    )  # fmt: skip


def affine_grid(d: Draw) -> Form:
    rank = d.choose(2, 3)
    n = d.int(1, 3)
    corners = d.int(0, 1)  # one element has no two corners
    size = np.array([n, d.int(1, 3), *d.ints(1 + corners, 5, rank)])
    theta = d.normal((n, rank, rank + 1))
    return form("AffineGrid", theta, size, constants=(1,), align_corners=corners)


def col2im(d: Draw) -> Form:
    rank = d.choose(1, 2, 2, 3)
    image = d.ints(3, 8, rank)
    block, attrs = _window(d, rank, image)
    attrs.pop("auto_pad", None)
    strides = attrs.get("strides", [1] * rank)
    dilations = attrs.get("dilations", [1] * rank)
    pads = attrs.get("pads", [0] * 2 * rank)
    count = 1
    for i in range(rank):
        span = image[i] + pads[i] + pads[i + rank] - dilations[i] * (block[i] - 1) - 1
        count *= span // strides[i] + 1
    x = d.normal((d.int(1, 2), d.int(1, 2) * int(np.prod(block)), count))
    return form("Col2Im", x, np.array(image), np.array(block), constants=(1, 2), **attrs)


def deform_conv(d: Draw) -> Form:
    groups, offsets = d.choose(1, 2), d.choose(1, 2)
    inner, outer = 2 * groups, groups * d.int(1, 2)
    extents, kernel = d.ints(4, 7, 2), d.ints(1, 3, 2)
    strides, dilations, pads = d.ints(1, 2, 2), d.ints(1, 1, 2), d.ints(0, 1, 4)
    out = [
        (e + pads[i] + pads[i + 2] - dilations[i] * (kernel[i] - 1) - 1) // strides[i] + 1
        for i, e in enumerate(extents)
    ]
    taps = int(np.prod(kernel))
    return form(
        "DeformConv",
        d.normal((1, inner, *extents)),
        d.normal((outer, inner // groups, *kernel)),
        d.normal((1, offsets * taps * 2, *out)),
        d.normal((outer,)) if d.maybe() else None,
        d.normal((1, offsets * taps, *out)) if d.maybe() else None,
        group=groups, offset_group=offsets, strides=strides, dilations=dilations, pads=pads,
        **d.some({"kernel_shape": kernel}),
    )  # fmt: skip


def max_unpool(d: Draw) -> Form:
    n, c, h, w = d.int(1, 2), d.int(1, 2), d.int(1, 3), d.int(1, 3)
    strides, kernel = [2, 2], [2, 2]
    indices = np.zeros((n, c, h, w), "int64")
    for i in np.ndindex(n, c, h, w):
        row, column = 2 * i[2] + d.int(0, 1), 2 * i[3] + d.int(0, 1)
        indices[i] = ((i[0] * c + i[1]) * 2 * h + row) * 2 * w + column
    return form("MaxUnpool", d.normal((n, c, h, w)), indices, kernel_shape=kernel, strides=strides)


def roi_align(d: Draw) -> Form:
    x = d.normal((2, 2, *d.ints(4, 9, 2)))
    count = d.int(1, 4)
    low = d.rng.uniform(0, 4, (count, 2))
    boxes = np.concatenate([low, low + d.rng.uniform(0.5, 6, (count, 2))], 1).astype("float32")
    return form(
        "RoiAlign", x, boxes, d.rng.integers(0, 2, count), constants=(2,) if d.maybe() else (),
        output_height=d.int(1, 4), output_width=d.int(1, 4),
        **d.some({
            "mode": d.choose("avg", "max"), "sampling_ratio": d.int(0, 3),
            "spatial_scale": d.choose(0.5, 1.0, 0.75),
            "coordinate_transformation_mode": d.choose("half_pixel", "output_half_pixel"),
        }),
    )  # fmt: skip


def max_roi_pool(d: Draw) -> Form:
    x = d.normal((2, 2, *d.ints(4, 9, 2)))
    count = d.int(1, 4)
    low = d.rng.integers(0, 4, (count, 2))
    boxes = np.concatenate(
        [d.rng.integers(0, 2, (count, 1)), low, low + d.rng.integers(0, 6, (count, 2))], 1
    )
    return form(
        "MaxRoiPool", x, boxes.astype("float32"), pooled_shape=d.ints(1, 3, 2),
        **d.some({"spatial_scale": d.choose(0.5, 1.0)}),
    )  # fmt: skip


def shuffle(d: Draw) -> Form:
    block = d.int(1, 3)
    if d.maybe():
        x = d.normal((d.int(1, 2), block * block * d.int(1, 2), *d.ints(1, 3, 2)))
        return form("DepthToSpace", x, blocksize=block, **d.some({"mode": d.choose("CRD", "DCR")}))
    x = d.normal((d.int(1, 2), d.int(1, 3), *(block * e for e in d.ints(1, 3, 2))))
    return form("SpaceToDepth", x, blocksize=block)


def lrn(d: Draw) -> Form:
    x = d.normal(d.shape(4))
    return form(
        "LRN", x, size=d.choose(1, 3, 5), **d.some({"alpha": 0.3, "beta": 0.6, "bias": 2.0})
    )


WINDOWS = (
    conv, conv_transpose, pool, pool, global_pool, resize, resize, resize, upsample, grid_sample,
    affine_grid, col2im, deform_conv, max_unpool, roi_align, max_roi_pool, shuffle, lrn,
)  # fmt: skip
