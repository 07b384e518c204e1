"""Relay's pools, against PyTorch in float64 and sums by hand."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from relay_calls import call
from relay_operators import equal

_RNG = np.random.default_rng(2)
_EXTENTS = (9, 8, 7)
_SIZES, _STRIDES = (3, 2, 2), (2, 3, 1)


def pooled(x: np.ndarray, kind: str, settings: dict[str, Any], dilation: int = 1) -> np.ndarray:
    """Each window by hand: its elements, and how many it has with those of the padding."""
    rank = x.ndim - 2
    padding, strides, sizes = (settings[n] for n in ("padding", "strides", "pool_size"))
    rounded = math.ceil if settings.get("ceil_mode") else math.floor
    counts = []
    for i in range(rank):
        reach = (sizes[i] - 1) * dilation + 1
        room = x.shape[i + 2] + padding[i] + padding[i + rank] - reach
        counts.append(rounded(room / strides[i]) + 1)
    result = np.zeros((*x.shape[:2], *counts), x.dtype)
    for at in itertools.product(*map(range, counts)):
        places = [
            [p for k in range(sizes[i]) if 0 <= (p := own * strides[i] - padding[i] + k * dilation)
             < x.shape[i + 2]]
            for i, own in enumerate(at)
        ]  # fmt: skip
        window = x[np.ix_(range(x.shape[0]), range(x.shape[1]), *places)]
        axes = tuple(range(2, x.ndim))
        if kind == "max":
            result[(..., *at)] = window.max(axes)
            continue
        total = window.sum(axes)
        number = math.prod(sizes if settings["count_include_pad"] else map(len, places))
        whole = np.sign(total) * (abs(total) // number)
        result[(..., *at)] = whole if "int" in str(x.dtype) else total / number
    return result


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("kind", ["max", "avg"])
@pytest.mark.parametrize("dilation", [1, 2])
def test_windows(rank: int, kind: str, dilation: int) -> None:
    x = _RNG.standard_normal((2, 3, *_EXTENTS[:rank])).astype("float32")
    settings: dict[str, Any] = {
        "pool_size": _SIZES[:rank],
        "strides": _STRIDES[:rank],
        "padding": (1, 0, 1, 0, 1, 1)[: 2 * rank],
    }
    if kind == "avg":
        settings["count_include_pad"] = False
    found = call(f"nn.{kind}_pool{rank}d", x, dilation=(dilation,) * rank, **settings)
    equal(found, pooled(x, kind, settings, dilation), 1e-5)


@pytest.mark.parametrize("kind", ["max", "avg"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
@pytest.mark.parametrize(("ceil_mode", "counted"), [(True, False), (False, True)])
def test_rounding_up_and_counting(kind: str, dtype: str, ceil_mode: bool, counted: bool) -> None:
    x = (_RNG.standard_normal((1, 2, 8, 10)) * 20).astype(dtype)
    settings: dict[str, Any] = {"pool_size": (3, 3), "strides": (2, 2), "padding": (1, 1, 1, 1)}
    settings |= {"ceil_mode": ceil_mode}
    if kind == "avg":
        settings["count_include_pad"] = counted
    found = call(f"nn.{kind}_pool2d", x, **settings)
    equal(found, pooled(x, kind, settings), 0 if dtype == "int32" else 1e-5)


@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_averages_of_windows_behind_the_data(dtype: str) -> None:
    x = (_RNG.standard_normal((1, 2, 5, 7)) * 20).astype(dtype)
    settings = {"pool_size": (2, 3), "strides": (5, 2), "padding": (0, 0, 0, 0)}
    settings |= {"ceil_mode": True, "count_include_pad": True}
    equal(call("nn.avg_pool2d", x, **settings), pooled(x, "avg", settings), 1e-5)
    without = call("nn.avg_pool2d", x, **settings | {"count_include_pad": False})
    assert not without[:, :, 1].any()


def test_maxima_of_bytes_and_infinities() -> None:
    small = _RNG.integers(-128, 127, (1, 2, 6, 6)).astype("int8")
    settings = {"pool_size": (2, 2), "strides": (2, 2), "padding": (0, 0, 0, 0)}
    equal(call("nn.max_pool2d", small, **settings), pooled(small, "max", settings))
    lowest = np.full((1, 1, 4, 4), -np.inf, "float32")
    equal(call("nn.max_pool2d", lowest, pool_size=(3, 3), padding=(1,)), lowest)


@pytest.mark.parametrize(("layout", "axes"), [("NHWC", (0, 2, 3, 1)), ("NCHW4c", ())])
@pytest.mark.parametrize("name", ["nn.max_pool2d", "nn.avg_pool2d", "nn.global_avg_pool2d"])
def test_layouts(layout: str, axes: tuple[int, ...], name: str) -> None:
    x = _RNG.standard_normal((2, 8, 6, 5)).astype("float32")
    settings = {} if "global" in name else {"pool_size": (2, 3), "padding": (1, 0)}

    def laid_out(array: np.ndarray) -> np.ndarray:
        if axes:
            return np.ascontiguousarray(array.transpose(axes))
        batch, channels, *rest = array.shape
        split = array.reshape(batch, channels // 4, 4, *rest)
        return np.ascontiguousarray(split.transpose(0, 1, 3, 4, 2))

    found = call(name, laid_out(x), layout=layout, **settings)
    equal(found, laid_out(call(name, x, **settings)), 1e-6)


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("kind", ["max", "avg"])
@pytest.mark.parametrize("sizes", [(1, 1, 1), (4, 3, 2), (3, 4, 7), (2,)])
def test_adaptive(rank: int, kind: str, sizes: tuple[int, ...]) -> None:
    x = _RNG.standard_normal((2, 3, *_EXTENTS[:rank]))
    function = getattr(torch.nn.functional, f"adaptive_{kind}_pool{rank}d")
    wanted = sizes[:rank] if len(sizes) > 1 else sizes * rank
    expected = function(torch.from_numpy(x), wanted).numpy().astype("float32")
    given = wanted if len(sizes) > 1 else sizes
    found = call(f"nn.adaptive_{kind}_pool{rank}d", x.astype("float32"), output_size=given)
    equal(found, expected, 1e-5)


@pytest.mark.parametrize("kind", ["max", "avg"])
def test_pools_of_everything(kind: str) -> None:
    x = _RNG.standard_normal((2, 3, 5, 7)).astype("float32")
    expected = x.max((2, 3), keepdims=True) if kind == "max" else x.mean((2, 3), keepdims=True)
    equal(call(f"nn.global_{kind}_pool2d", x), expected, 1e-5)
    equal(call(f"nn.adaptive_{kind}_pool2d", x, output_size=None), x)
    whole = _RNG.integers(-50, 50, (1, 2, 3, 3)).astype("int32")
    totals = whole.sum((2, 3), keepdims=True)
    mean = (np.sign(totals) * (abs(totals) // 9)).astype("int32")
    most = whole.max((2, 3), keepdims=True)
    equal(call(f"nn.global_{kind}_pool2d", whole), most if kind == "max" else mean)


@pytest.mark.parametrize("kind", ["max", "avg"])
@pytest.mark.parametrize("counted", [True, False])
def test_gradients(kind: str, counted: bool) -> None:
    x = torch.from_numpy(_RNG.standard_normal((1, 2, 6, 8))).requires_grad_()
    windows: dict[str, Any] = {"kernel_size": (3, 2), "stride": (2, 2), "padding": 1}
    own = {"count_include_pad": counted} if kind == "avg" else {}
    made = getattr(torch.nn.functional, f"{kind}_pool2d")(x, **windows, **own)
    outer = torch.from_numpy(_RNG.standard_normal(tuple(made.shape)))
    (expected,) = torch.autograd.grad(made, x, outer)
    found = call(
        f"nn.{kind}_pool2d_grad",
        outer.numpy().astype("float32"),
        x.detach().numpy().astype("float32"),
        pool_size=(3, 2),
        strides=(2, 2),
        padding=(1, 1),
        **own,
    )
    equal(found, expected.numpy().astype("float32"), 1e-5)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "bool"])
def test_averages_that_are_refused(dtype: str) -> None:
    with pytest.raises(NotImplementedError):
        call("nn.avg_pool2d", np.zeros((1, 1, 4, 4), dtype), pool_size=(2, 2))


@pytest.mark.parametrize("kind", ["max", "avg"])
def test_windows_that_do_not_fit(kind: str) -> None:
    with pytest.raises(ValueError, match="windows of"):
        call(f"nn.{kind}_pool2d", np.zeros((1, 1, 2, 4), "float32"), pool_size=(3, 3))
