"""What PyTorch's samples leave out: NaN, infinities, ties, indices out of bounds, halves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
import torch.nn.functional as F  # noqa: E402

from bench.operator_cases import run_imported  # noqa: E402
from tvm_tile.errors import UnsupportedOperatorError  # noqa: E402
from tvm_tile.frontend import import_model  # noqa: E402

NAN, INF = torch.nan, torch.inf


class Model(torch.nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Any) -> Any:
        return self.function(*inputs)


def outputs(function: Callable[..., Any], *inputs: torch.Tensor) -> list[np.ndarray]:
    with torch.no_grad():
        return list(run_imported(torch.export.export(Model(function), inputs), inputs))


def check(function: Callable[..., Any], *inputs: torch.Tensor) -> None:
    """The same shapes, types, values and NaN as PyTorch's, for each result."""
    for place, (found, wanted) in enumerate(
        zip(outputs(function, *inputs), function(*inputs), strict=True)
    ):
        assert str(found.dtype) == str(wanted.dtype).removeprefix("torch.")
        exact = wanted.double().numpy()
        np.testing.assert_allclose(
            found.astype(np.float64), exact, rtol=1e-4, atol=1e-5, err_msg=f"result {place}"
        )


def special_image() -> torch.Tensor:
    image = torch.randn(2, 3, 6, 7, generator=torch.Generator().manual_seed(0))
    image[0, 0, 2, 3] = image[0, 1, 0, 0] = NAN
    image[1, 2] = -INF
    image[1, 1, 3, 3] = INF
    return image


def test_nan_and_infinities_come_through_pooling_with_places_and_through_resizing() -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            *F.max_pool2d(x, 3, 1, 1, return_indices=True),
            *F.adaptive_max_pool2d(x, (4, 3), return_indices=True),
            F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False),
            F.adaptive_avg_pool2d(x, (4, 3)),
            F.interpolate(x, (9, 10), mode="bilinear"),
            F.interpolate(x, (9, 10), mode="bicubic", align_corners=True),
            F.interpolate(x, (3, 5), mode="bilinear", antialias=True),
        )

    check(function, special_image())


def test_sizes_that_are_no_whole_multiples() -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        nearest = ("nearest", "nearest-exact")
        return (
            *(F.interpolate(x, (11, 3), mode=mode) for mode in nearest),
            *(F.interpolate(x, scale_factor=(1.7, 0.6), mode=mode) for mode in nearest),
            F.interpolate(x, scale_factor=1.3, mode="bilinear"),
            F.interpolate(x, scale_factor=1.3, mode="bicubic", recompute_scale_factor=True),
            F.interpolate(x, scale_factor=(2, 3)),
        )

    check(function, torch.randn(1, 2, 6, 7))


def test_order_with_nan_ties_and_infinities() -> None:
    x = torch.tensor([[1, NAN, 3, -INF, 1, 3, INF, NAN], [2, 2, -0.0, 0.0, INF, INF, -1, 2]])

    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            *torch.sort(x, stable=True),
            *torch.sort(x, stable=True, descending=True),
            torch.topk(x, 3).values,
            torch.topk(x, 3, largest=False).values,
            torch.kthvalue(x, 7).values,
            torch.median(x, -1).values,
            torch.nanmedian(x, -1).values,
            torch.median(x),
            torch.nanmedian(x),
            *torch.cummax(x, 1),
            *torch.cummin(x, 1),
            torch.mode(x[1:]).values,
            torch.searchsorted(torch.tensor([0.0, 1, 1, 2]), x, right=True),
        )

    check(function, x)


def test_places_of_ties_hold_the_values() -> None:
    x = torch.tensor([[3, 1, 3, 1, 2, 2, 3]])

    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (*torch.topk(x, 4), *torch.kthvalue(x, 3), *torch.mode(x), *torch.median(x, -1))

    found = outputs(function, x)
    for values, places, wanted in zip(found[::2], found[1::2], function(x)[::2], strict=True):
        np.testing.assert_array_equal(values, wanted)
        row = np.take(x.numpy()[0], places)
        np.testing.assert_array_equal(row, values)


def test_updates_that_are_nan_or_meet_at_one_place() -> None:
    index = torch.tensor([[0, 2, 0, 2], [1, 1, 3, 0]])
    x, src = torch.randn(2, 5), torch.randn(2, 4)
    src[0, 1] = NAN
    x[1, 1] = NAN

    def function(x: torch.Tensor, index: torch.Tensor, src: torch.Tensor) -> Any:
        return (
            x.scatter(1, index, src),
            x.scatter_add(1, index, src),
            *(x.scatter_reduce(1, index, src, how) for how in ("amax", "amin", "prod", "mean")),
            x.scatter_reduce(1, index, src, "amax", include_self=False),
            x.index_copy(1, index[1, 2:], src[:, :2]),
            x.index_put((index[1, :2], index[0, :2]), src[:, 0], accumulate=True),
        )

    check(function, x, index, src)


def test_a_static_key_value_cache_is_updated() -> None:
    def function(cache: torch.Tensor, new: torch.Tensor, places: torch.Tensor) -> Any:
        return cache.index_copy(2, places, new), torch.ops.aten.index_put(
            cache, (None, None, places), new + 1
        )

    cache, new = torch.randn(1, 2, 6, 3), torch.randn(1, 2, 2, 3)
    check(function, cache, new, torch.tensor([4, 1]))


def test_indices_from_data_never_reach_foreign_memory() -> None:
    x, index = torch.arange(4.0), torch.tensor([10**12, -(10**12), 2])

    def read(x: torch.Tensor, index: torch.Tensor) -> Any:
        return x[index], torch.gather(x, 0, index), F.embedding(index, x[:, None])

    first, second, third = outputs(read, x, torch.tensor([0, 1, 2]))
    np.testing.assert_array_equal(first, [0, 1, 2])
    program = torch.export.export(Model(read), (x, torch.tensor([0, 1, 2])))
    first, second, third = run_imported(program, (x, index))
    np.testing.assert_array_equal(first, [3, 0, 2])  # the nearest elements
    np.testing.assert_array_equal(second, [3, 0, 2])
    np.testing.assert_array_equal(third[:, 0], [3, 0, 2])

    def write(x: torch.Tensor, index: torch.Tensor) -> Any:
        one = torch.ones(3)
        return (
            x.scatter(0, index, one),
            x.index_put((index,), one),
            x.scatter_add(0, index, one),
            x.index_put((index,), one, accumulate=True),
        )

    program = torch.export.export(Model(write), (x, torch.tensor([0, 1, 2])))
    left_out = np.array([0, 1, 1, 3], np.float32)  # only the place that exists
    added = np.array([0, 1, 3, 3], np.float32)
    for place, found in enumerate(run_imported(program, (x, index))):
        np.testing.assert_array_equal(found, added if place > 1 else left_out)


@pytest.mark.parametrize(
    "function",
    [lambda x, i: x[i], lambda x, i: x.gather(0, i), lambda x, i: x.scatter(0, i, 1.0)],
)
def test_a_known_index_out_of_bounds_is_refused(function: Callable[..., Any]) -> None:
    class Known(torch.nn.Module):
        """An index that is a buffer."""

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("index", torch.tensor([0, 3]))

        def forward(self, x: torch.Tensor) -> Any:
            return function(x, self.index)

    program = torch.export.export(Known(), (torch.randn(4),))
    program.state_dict["index"][1] = 4
    with pytest.raises(UnsupportedOperatorError, match="out of bounds"):
        import_model(program)


def test_sums_of_halves_are_in_float32() -> None:
    x = torch.full((1, 1, 64, 65), 1.0, dtype=torch.float16)
    x[..., ::2] = 1 / 1024

    def function(x: torch.Tensor) -> Any:
        return (
            F.avg_pool2d(x, 64, 1, divisor_override=64),
            F.adaptive_avg_pool2d(x, (1, 2)),
            torch.zeros(1, dtype=x.dtype).scatter_add(
                0, torch.zeros(4160, dtype=torch.int64), x.flatten()
            ),
        )

    for found, wanted in zip(outputs(function, x), function(x.double()), strict=True):
        np.testing.assert_allclose(found.astype(np.float64), wanted, rtol=1e-3)


def test_points_outside_and_nan_of_a_grid() -> None:
    grid = torch.tensor([[-3.0, 0.2], [0.3, 2.6], [7.0, -9.0], [1.0, -1.0]]).reshape(1, 2, 2, 2)

    def function(x: torch.Tensor, grid: torch.Tensor) -> Any:
        return tuple(
            F.grid_sample(x, grid, mode, padding, align_corners=corners)
            for mode, padding, corners in (
                ("bilinear", "zeros", False),
                ("nearest", "border", True),
                ("bicubic", "reflection", False),
            )
        )

    x = torch.randn(1, 2, 4, 5)
    check(function, x, grid)
    grid[0, 0, 0] = NAN
    with torch.no_grad():
        program = torch.export.export(Model(function), (x, grid))
    for found in run_imported(program, (x, grid)):
        assert np.isfinite(found[0, :, 1, 1]).all()
