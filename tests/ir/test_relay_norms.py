"""Relay's normalizations and Fourier transforms, against PyTorch and NumPy in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from relay_calls import call
from relay_operators import equal

_RNG = np.random.default_rng(3)
_TOLERANCES = {"float16": 1e-2, "float32": 2e-5, "float64": 1e-12}


def drawn(*shape: int, dtype: str = "float32") -> np.ndarray:
    return _RNG.standard_normal(shape).astype(dtype)


def normalized(
    x: np.ndarray, axes: tuple[int, ...], epsilon: float, gamma: Any, beta: Any, axis: int
) -> np.ndarray:
    """Less the mean, by the deviation, along axes; then scaled and moved along one."""
    wide = x.astype("float64")
    mean, variance = wide.mean(axes, keepdims=True), wide.var(axes, keepdims=True)
    line = [-1 if i == axis % x.ndim else 1 for i in range(x.ndim)]
    scale, shift = (np.asarray(v, "float64").reshape(line) for v in (gamma, beta))
    return (wide - mean) / np.sqrt(variance + epsilon) * scale + shift


@pytest.mark.parametrize("dtype", list(_TOLERANCES))
@pytest.mark.parametrize("axis", [1, -1])
@pytest.mark.parametrize(("center", "scale"), [(True, True), (False, True), (True, False)])
def test_layer_norm(dtype: str, axis: int, center: bool, scale: bool) -> None:
    x = drawn(3, 5, 5, dtype=dtype)
    gamma, beta = drawn(5, dtype=dtype), drawn(5, dtype=dtype)
    found = call("nn.layer_norm", x, gamma, beta, axis=axis, center=center, scale=scale)
    used = gamma if scale else np.ones(5), beta if center else np.zeros(5)
    expected = normalized(x, (axis,), 1e-5, *used, axis).astype(dtype)
    equal(found, expected, _TOLERANCES[dtype])


@pytest.mark.parametrize("dtype", list(_TOLERANCES))
@pytest.mark.parametrize("axis", [1, 3, -1])
def test_batch_norm(dtype: str, axis: int) -> None:
    x = drawn(2, 4, 3, 4, dtype=dtype)
    gamma, beta, mean = (drawn(4, dtype=dtype) for _ in range(3))
    variance = np.abs(drawn(4, dtype=dtype)) + np.array(0.5, dtype)
    for flags in ({}, {"center": False}, {"scale": False}):
        found = call("nn.batch_norm", x, gamma, beta, mean, variance, axis=axis, **flags)
        line = [-1 if i == axis % 4 else 1 for i in range(4)]
        g, b, m, v = (a.astype("float64").reshape(line) for a in (gamma, beta, mean, variance))
        g, b = 1 if "scale" in flags else g, 0 if "center" in flags else b
        expected = (x.astype("float64") - m) / np.sqrt(v + 1e-5) * g + b
        equal(found[0], expected.astype(dtype), _TOLERANCES[dtype])
        equal(found[1], mean)
        equal(found[2], variance)


@pytest.mark.parametrize("axis", [1, -1])
@pytest.mark.parametrize("flags", [{}, {"center": False}, {"scale": False}])
def test_instance_norm(axis: int, flags: dict[str, bool]) -> None:
    x, gamma, beta = drawn(2, 6, 5, 6), drawn(6), drawn(6)
    found = call("nn.instance_norm", x, gamma, beta, axis=axis, epsilon=1e-3, **flags)
    used = np.ones(6) if "scale" in flags else gamma, np.zeros(6) if "center" in flags else beta
    axes = tuple(i for i in (1, 2, 3) if i != axis % 4)
    equal(found, normalized(x, axes, 1e-3, *used, axis).astype("float32"), 2e-5)


@pytest.mark.parametrize("axis", [1, 3])
def test_group_norm(axis: int) -> None:
    x, gamma, beta = drawn(2, 6, 5, 6), drawn(6), drawn(6)
    first = np.moveaxis(x, axis, 1).astype("float64")
    tensors = (torch.from_numpy(array.astype("float64")) for array in (first, gamma, beta))
    data, weight, bias = tensors
    made = torch.nn.functional.group_norm(data, 3, weight, bias, 1e-5).numpy()
    found = call("nn.group_norm", x, gamma, beta, num_groups=3, axis=axis)
    equal(found, np.moveaxis(made, 1, axis).astype("float32"), 2e-5)
    with pytest.raises(ValueError, match="4 groups"):
        call("nn.group_norm", x, gamma, beta, num_groups=4, axis=axis)


@pytest.mark.parametrize("axis", [(1,), (1, 2), (-1,)])
def test_l2_normalize(axis: tuple[int, ...]) -> None:
    x = drawn(2, 3, 4)
    x[0] = 0
    squares = (x.astype("float64") ** 2).sum(axis, keepdims=True)
    expected = (x / np.sqrt(np.maximum(squares, 1e-4))).astype("float32")
    equal(call("nn.l2_normalize", x, eps=1e-4, axis=axis), expected, 1e-5)


@pytest.mark.parametrize("axis", [1, 3])
@pytest.mark.parametrize("size", [3, 5])
def test_lrn(axis: int, size: int) -> None:
    x = drawn(1, 7, 3, 7)
    first = torch.from_numpy(np.moveaxis(x, axis, 1).astype("float64"))
    settings = {"alpha": 0.1, "beta": 0.5}
    made = torch.nn.functional.local_response_norm(first, size, **settings, k=1.5).numpy()
    found = call("nn.lrn", x, size=size, axis=axis, bias=1.5, **settings)
    equal(found, np.moveaxis(made, 1, axis).astype("float32"), 1e-5)


def test_norms_of_integers_are_refused() -> None:
    ones = np.ones((2, 3, 4, 4), "int32")
    with pytest.raises(NotImplementedError, match="a norm of int32"):
        call("nn.lrn", ones)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("inverse", [True, False])
def test_dft(dtype: str, inverse: bool) -> None:
    real, imaginary = drawn(2, 3, 10, dtype=dtype), drawn(2, 3, 10, dtype=dtype)
    function = np.fft.ifft if inverse else np.fft.fft
    expected = function(real.astype("float64") + 1j * imaginary)
    found = call("dft", real, imaginary, inverse=inverse)
    equal(found[0], expected.real.astype(dtype), _TOLERANCES[dtype])
    equal(found[1], expected.imag.astype(dtype), _TOLERANCES[dtype])


@pytest.mark.parametrize("normalized", [True, False])
@pytest.mark.parametrize("onesided", [True, False])
def test_stft(normalized: bool, onesided: bool) -> None:
    x, window = drawn(2, 20), drawn(6)
    expected = torch.stft(
        torch.from_numpy(x.astype("float64")),
        6,
        4,
        6,
        torch.from_numpy(window.astype("float64")),
        center=False,
        normalized=normalized,
        onesided=onesided,
        return_complex=True,
    )
    settings = {"n_fft": 6, "hop_length": 4, "win_length": 6}
    found = call("stft", x, window, normalized=normalized, onesided=onesided, **settings)
    equal(found, torch.view_as_real(expected).numpy().astype("float32"), 1e-4)
