"""The library of mathematics for AMD's GPUs, compiled for this machine: its accuracy.

Whether kernels with each of its functions build is in tests/ir/test_hip_functions.py.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest

from tvm_tile.build.hip_math import c_files, c_options, lay_out
from tvm_tile.build.zig import run_zig

pytestmark = pytest.mark.bank(6)

_MAPS = """
#define MAP(type, suffix) \\
  void map1##suffix(type (*f)(type), const type *x, type *y, long n) \\
  { for (long i = 0; i < n; i++) y[i] = f(x[i]); } \\
  void map2##suffix(type (*f)(type, type), const type *x, const type *z, type *y, long n) \\
  { for (long i = 0; i < n; i++) y[i] = f(x[i], z[i]); }
MAP(float, f) MAP(double, )
"""
# Where arguments of any size are meant, and where only some: name -> (least, greatest).
_ANY = (1e-30, 1e30)
_DOMAINS = {
    **dict.fromkeys(("sin", "cos", "tan", "atan", "asinh"), _ANY),
    **dict.fromkeys(("tanh", "erf"), (1e-30, 30.0)),
    **dict.fromkeys(("sinh", "cosh", "expm1"), (1e-30, 88.0)),
    **dict.fromkeys(("asin", "acos", "atanh"), (1e-30, 1.0)),
    "exp10": (1e-30, 37.0),
    "log1p": _ANY,
    "acosh": (1.0, 1e30),
}
_WIDE_ONLY = {
    "exp": (1e-30, 700.0),
    "exp2": (1e-30, 1000.0),
    **dict.fromkeys(("log", "log2", "log10"), (1e-300, 1e300)),
}
_POSITIVE = ("log", "log2", "log10", "acosh", "log1p")
_SPECIAL = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-42, -1e-42, 2.0, -3.0, 0.5])


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("mathematics")
    (folder / "maps.c").write_text(_MAPS)
    # Its functions call one another, not those of this process by the same names.
    options = ("-dynamic", "-Bsymbolic", "-OReleaseFast", "-fno-emit-implib")
    c_flags = ("-cflags", *c_options(), "--")
    files = (*c_files(), "maps.c")
    run_zig("build-lib", lay_out(folder), *options, *c_flags, *files, folder=folder)
    (built,) = folder.glob("*.so")
    return ctypes.CDLL(str(built))


def call(library: Any, name: str, *arguments: np.ndarray) -> np.ndarray:
    """One of the library's functions of all elements, which are of float32 or float64."""
    suffix = "f" if arguments[0].dtype == np.float32 else ""
    result = np.full_like(arguments[0], np.nan)
    pointers = [ctypes.c_void_p(array.ctypes.data) for array in (*arguments, result)]
    mapped = getattr(library, f"map{len(arguments)}{suffix}")
    function = ctypes.cast(getattr(library, name + suffix), ctypes.c_void_p)
    mapped(function, *pointers, ctypes.c_long(result.size))
    return result


def exact(name: str) -> Callable[..., Any]:
    """A function to 120 bits, as mpmath has it."""
    named = {"log2": lambda x: mpmath.log(x, 2), "exp2": lambda x: mpmath.mpf(2) ** x}
    named |= {"exp10": lambda x: mpmath.mpf(10) ** x, "pow": lambda x, y: mpmath.power(x, y)}
    return named.get(name) or getattr(mpmath, name)


def units_off(name: str, got: np.ndarray, *arguments: np.ndarray) -> float:
    """The largest error, in units in the last place of the exact result."""
    worst = 0.0
    with mpmath.workprec(120):
        function = exact(name)
        for value, *given in zip(got, *arguments, strict=True):
            right = function(*(mpmath.mpf(float(x)) for x in given))
            unit = np.spacing(np.abs(got.dtype.type(float(right))))
            worst = max(worst, float(abs(mpmath.mpf(float(value)) - right) / float(unit)))
    return worst


def arguments_of(domain: tuple[float, float], dtype: str, positive: bool) -> np.ndarray:
    generator = np.random.default_rng(0)
    least, greatest = np.log(domain)
    sizes = np.exp(generator.uniform(least, greatest, 1500))
    moderate = generator.uniform(domain[0], min(domain[1], 30.0), 500)
    sizes = np.concatenate([sizes, moderate]).clip(*domain)
    return (sizes if positive else sizes * generator.choice([-1, 1], sizes.size)).astype(dtype)


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        *((name, dtype) for name in _DOMAINS for dtype in ("float32", "float64")),
        *((name, "float64") for name in _WIDE_ONLY),
    ],
)
def test_functions_of_one(library: Any, name: str, dtype: str) -> None:
    domain = (_DOMAINS | _WIDE_ONLY)[name]
    x = arguments_of(domain, dtype, name in _POSITIVE)
    assert units_off(name, call(library, name, x), x) < 1.5


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ["pow", "atan2", "hypot"])
def test_functions_of_two(library: Any, name: str, dtype: str) -> None:
    x = arguments_of((1e-6, 1e6), dtype, name == "pow")
    y = np.random.default_rng(1).permutation(arguments_of((1e-3, 6.0), dtype, False))
    if name == "pow":  # negative bases have integers for exponents
        y[::3] = np.round(y[::3])
        x[::3] *= np.random.default_rng(2).choice([-1, 1], x[::3].size)
    assert units_off(name, call(library, name, x, y), x, y) < 1.5


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", [*_DOMAINS, *_WIDE_ONLY])
def test_special_values(library: Any, name: str, dtype: str) -> None:
    if dtype == "float32" and name in _WIDE_ONLY:
        return  # the compiler's
    x = _SPECIAL.astype(dtype)
    named = {"asin": "arcsin", "acos": "arccos", "atan": "arctan", "asinh": "arcsinh"}
    named |= {"acosh": "arccosh", "atanh": "arctanh"}
    own = {"erf": np.vectorize(math.erf), "exp10": lambda x: np.float_power(10.0, x)}
    with np.errstate(all="ignore"):
        function = own.get(name) or getattr(np, named.get(name, name))
        expected = function(x.astype(np.float64)).astype(dtype)
    got = call(library, name, x)
    np.testing.assert_allclose(got, expected, rtol=4 * np.finfo(dtype).eps)
    zero = expected == 0
    assert (np.signbit(got) == np.signbit(expected))[zero].all()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ["pow", "atan2", "hypot", "nextafter"])
def test_special_values_of_two(library: Any, name: str, dtype: str) -> None:
    x, y = (part.ravel().astype(dtype) for part in np.meshgrid(_SPECIAL, _SPECIAL))
    with np.errstate(all="ignore"):
        expected = getattr(np, {"pow": "power", "atan2": "arctan2"}.get(name, name))(x, y)
    got = call(library, name, x, y)
    np.testing.assert_allclose(got, expected, rtol=4 * np.finfo(dtype).eps)
