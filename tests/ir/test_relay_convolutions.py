"""Relay's convolutions in any layout, against PyTorch in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from relay_calls import call
from relay_operators import equal

_RNG = np.random.default_rng(1)
_CONVOLUTIONS = {
    1: torch.nn.functional.conv1d,
    2: torch.nn.functional.conv2d,
    3: torch.nn.functional.conv3d,
}
_TRANSPOSED = {
    1: torch.nn.functional.conv_transpose1d,
    2: torch.nn.functional.conv_transpose2d,
    3: torch.nn.functional.conv_transpose3d,
}
_AXES = {1: "W", 2: "HW", 3: "DHW"}


def drawn(*shape: int, dtype: str = "float32") -> np.ndarray:
    if "int" in dtype:
        bounds = np.iinfo(dtype)
        return _RNG.integers(bounds.min, bounds.max, shape, endpoint=True).astype(dtype)
    return _RNG.standard_normal(shape).astype(dtype)


def laid_out(array: np.ndarray, old: str, new: str) -> np.ndarray:
    """The array in a layout; parts are of 4."""
    for letter in "cio":
        if letter in new:
            axis = old.index(letter.upper())
            shape = array.shape
            array = array.reshape(*shape[:axis], shape[axis] // 4, 4, *shape[axis + 1 :])
            old = old[: axis + 1] + letter + old[axis + 1 :]
    return np.ascontiguousarray(array.transpose([old.index(at) for at in new.replace("4", "")]))


def expected_of(
    x: np.ndarray, kernel: np.ndarray, before: list[int], after: list[int], **settings: Any
) -> np.ndarray:
    """A convolution of data padded with zeros; exact for integers."""
    wide = np.pad(x.astype("float64"), [(0, 0), (0, 0), *zip(before, after, strict=True)])
    function = _CONVOLUTIONS[len(before)]
    pair = torch.from_numpy(wide), torch.from_numpy(kernel.astype("float64"))
    return function(*pair, **settings).numpy()


@pytest.mark.parametrize(
    ("rank", "padding", "before", "after"),
    [
        (1, (2,), [2], [2]),
        (1, (0, 2), [0], [2]),
        (2, (1,), [1, 1], [1, 1]),
        (2, (1, 2), [1, 2], [1, 2]),
        (2, (0, 1, 2, 3), [0, 1], [2, 3]),
        (3, (0, 1, 2), [0, 1, 2], [0, 1, 2]),
        (3, (0, 1, 2, 1, 0, 0), [0, 1, 2], [1, 0, 0]),
    ],
)
def test_paddings(rank: int, padding: tuple[int, ...], before: list[int], after: list[int]) -> None:
    x, kernel = drawn(2, 4, *(9, 8, 7)[:rank]), drawn(6, 2, *(3, 2, 1)[:rank])
    settings: dict[str, Any] = {"stride": 2, "dilation": 2, "groups": 2}
    expected = expected_of(x, kernel, before, after, **settings).astype("float32")
    numbers = {"strides": (2,) * rank, "dilation": (2,) * rank}
    found = call(f"nn.conv{rank}d", x, kernel, padding=padding, groups=2, **numbers)
    equal(found, expected, 1e-5)


@pytest.mark.parametrize(
    ("data", "kernels", "out"),
    [
        ("NHWC", "HWIO", ""),
        ("NHWC", "OHWI", "NCHW"),
        ("NCHW", "HWIO", "NHWC"),
        ("NCHW4c", "OIHW4i4o", ""),
        ("NCHW4c", "OIHW4o", "NCHW"),
        ("HWNC", "HWOI", ""),
    ],
)
def test_layouts(data: str, kernels: str, out: str) -> None:
    x, kernel = drawn(2, 8, 6, 5), drawn(4, 8, 3, 2)
    expected = expected_of(x, kernel, [1, 1], [1, 1]).astype("float32")
    layouts = {"data_layout": data, "kernel_layout": kernels, "out_layout": out}
    arrays = laid_out(x, "NCHW", data), laid_out(kernel, "OIHW", kernels)
    found = call("nn.conv2d", *arrays, padding=(1, 1), channels=4, **layouts)
    equal(found, laid_out(expected, "NCHW", out or data), 1e-5)


@pytest.mark.parametrize(("layout", "axes"), [("OIHW", (0, 1, 2, 3)), ("HWOI", (2, 3, 0, 1))])
def test_several_kernels_for_each_channel(layout: str, axes: tuple[int, ...]) -> None:
    x, kernel = drawn(1, 4, 6, 5), drawn(4, 3, 3, 3)
    expected = expected_of(x, kernel.reshape(12, 1, 3, 3), [0, 0], [0, 0], groups=4)
    given = np.ascontiguousarray(kernel.transpose(axes))
    found = call("nn.conv2d", x, given, groups=4, channels=12, kernel_layout=layout)
    equal(found, expected.astype("float32"), 1e-5)


@pytest.mark.parametrize(
    ("types", "out", "tolerance"),
    [
        (("float64", "float64"), "", 1e-12),
        (("float16", "float16"), "float32", 2e-2),
        (("int8", "int8"), "int32", 0),
        (("uint8", "int8"), "int32", 0),
        (("int8", "int8"), "", 0),
        (("int16", "int16"), "int32", 0),
    ],
)
@pytest.mark.parametrize("name", ["nn.conv2d", "nn.conv2d_transpose"])
def test_types(name: str, types: tuple[str, str], out: str, tolerance: float) -> None:
    x, kernel = drawn(1, 3, 5, 5, dtype=types[0]), drawn(3, 3, 3, 3, dtype=types[1])
    function = _TRANSPOSED[2] if "transpose" in name else _CONVOLUTIONS[2]
    pair = (torch.from_numpy(array.astype("float64")) for array in (x, kernel))
    expected = function(*pair).numpy()
    if not tolerance:
        expected = expected.astype("int64")  # wraps around from here on
    equal(call(name, x, kernel, out_dtype=out), expected.astype(out or types[0]), tolerance)


@pytest.mark.parametrize(
    ("shape", "settings", "reason"),
    [
        ((4, 3, 3, 3), {"channels": 5}, "5 channels"),
        ((4, 2, 3, 3), {}, "on 3 channels"),
        ((4, 3, 3, 3), {"data_layout": "NCH"}, "layout OIH of"),
        ((4, 3, 3, 3), {"padding": (1, 1, 1)}, "padding"),
        ((4, 3, 3, 3), {"kernel_layout": "OIHW16x"}, "layout 'OIHW16x'"),
        ((4, 3, 3, 3), {"strides": (0, 1)}, "strides"),
    ],
)
def test_what_does_not_fit(shape: tuple[int, ...], settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        call("nn.conv2d", drawn(1, 3, 5, 5), drawn(*shape), **settings)


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("groups", [1, 2])
def test_transposed(rank: int, groups: int) -> None:
    x, kernel = drawn(2, 4, *(5, 4, 3)[:rank]), drawn(4, 3, *(3, 2, 4)[:rank])
    pair = (torch.from_numpy(array.astype("float64")) for array in (x, kernel))
    settings: dict[str, Any] = {"stride": 2, "padding": 1, "output_padding": 1, "dilation": 2}
    expected = _TRANSPOSED[rank](*pair, groups=groups, **settings).numpy().astype("float32")
    numbers = {"strides": (2,) * rank, "output_padding": (1,) * rank, "dilation": (2,) * rank}
    found = call(f"nn.conv{rank}d_transpose", x, kernel, padding=(1,), groups=groups, **numbers)
    equal(found, expected, 1e-5)


@pytest.mark.parametrize(
    ("data", "kernels", "named"),
    [
        ("NHWC", "HWIO", "HWIO"),
        ("NHWC", "HWOI", "HWOI"),
        ("NCHW", "IOHW", "OIHW"),  # TVM's name up to 0.8
        ("NCHW", "OIHW", "OIHW"),
        ("NCHW", "OIHW", "IOHW"),
        ("NHWC", "HWIO", "HWOI"),
    ],
)
def test_transposed_layouts(data: str, kernels: str, named: str) -> None:
    x, kernel = drawn(1, 4, 5, 6), drawn(4, 6, 3, 2)
    pair = (torch.from_numpy(array.astype("float64")) for array in (x, kernel))
    expected = _TRANSPOSED[2](*pair).numpy()[:, :, 1:, :-2].astype("float32")
    found = call(
        "nn.conv2d_transpose",
        laid_out(x, "NCHW", data),
        laid_out(kernel, "IOHW", kernels),
        padding=(1, 0, 0, 2),
        channels=6,
        data_layout=data,
        kernel_layout=named,
    )
    equal(found, laid_out(expected, "NCHW", data), 1e-5)


def test_more_behind_the_end_than_a_stride_is_refused() -> None:
    with pytest.raises(NotImplementedError, match="output_padding"):
        call("nn.conv1d_transpose", drawn(1, 2, 5), drawn(2, 2, 3), output_padding=(1,))


def test_padding_of_everything_is_refused() -> None:
    with pytest.raises(ValueError, match="padding"):
        call("nn.conv1d_transpose", drawn(1, 2, 2), drawn(2, 2, 2), padding=(3,))


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_gradients_of_kernels(groups: int) -> None:
    """Steps that leave out the last rows, padding, dilation; each tensor in a layout of its own."""
    x = torch.from_numpy(_RNG.standard_normal((3, 4, 10, 9)))
    kernel = torch.zeros(8, 4 // groups, 3, 2, dtype=torch.float64).requires_grad_()
    moves = {"stride": (2, 3), "padding": (1, 0), "dilation": (1, 2), "groups": groups}
    result = torch.nn.functional.conv2d(x, kernel, **moves)
    gradient = torch.from_numpy(_RNG.standard_normal(result.shape))
    result.backward(gradient)
    found = call(
        "nn.conv2d_backward_weight",
        gradient.numpy().astype("float32"),
        laid_out(x.numpy().astype("float32"), "NCHW", "NHWC"),
        strides=(2, 3),
        padding=(1, 0),
        dilation=(1, 2),
        groups=groups,
        channels=8,
        kernel_size=(3, 2),
        kernel_layout="NHWC",
        out_layout="HWIO",
    )
    assert kernel.grad is not None
    expected = laid_out(kernel.grad.numpy().astype("float32"), "OIHW", "HWIO")
    equal(found, expected, 1e-4)
