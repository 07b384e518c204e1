"""Products with matrices of all kinds of codes: kernels' texts on the CPU, next to NumPy."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from coded_products import A100, H200, Case, assert_builds, choices
from emulated import Arguments, emulated_error
from warp_emulator import COMPILER

from tvm_tile.device import Device
from tvm_tile.graph.codes import numbers_of, numpy_dtype, pack, spread
from tvm_tile.graph.tensor_format import E2M1, E4M3, E5M2, E8M0, Code, Entries, Floats, Integers
from tvm_tile.tile.rules import CODED

pytestmark = pytest.mark.bank(12)

needs_compiler = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")
VECTORS, ROWS, DEPTH, GROUP = 32, 64, 512, 32
_SCALED = "scaled weights"
GROUPS = DEPTH // GROUP
KINDS = [(E2M1, "float16"), (E5M2, "float16"), (E4M3, "float16"), (E2M1, "bfloat16")]
KINDS += [(E4M3, "bfloat16"), (E5M2, "bfloat16")]
CASES = [
    Case(VECTORS, ROWS, DEPTH, code, GROUP, dtype=dtype, scale=scale)
    for code, dtype in KINDS
    for scale in (dtype, "float32", E8M0)
]
CASES.append(replace(CASES[0], scale=E4M3))
INTEGERS = [
    Case(VECTORS, ROWS, DEPTH, Integers(bits, is_signed), 64, zero, dtype=dtype)
    for dtype in ("float16", "bfloat16")
    for bits in (2, 4, 8)
    for is_signed in (False, True)
    for zero in ("", "int8", "uint8")
]
INTEGERS = [case for case in INTEGERS if CODED in [c.rule for c in choices(case)[1]]]
TABLES = [
    Case(VECTORS, ROWS, DEPTH, Entries(bits), group, dtype=dtype)
    for dtype in ("float16", "bfloat16")
    for bits, group in ((4, GROUP), (2, 64))
]
CASES += INTEGERS + TABLES


def name(case: Case) -> str:
    """Of a test."""
    return f"{case.format}, {case.dtype}"


def table_of(case: Case) -> np.ndarray:
    """Numbers of all sizes: the bits of halves of any sign and exponent, but the highest one."""
    assert isinstance(case.code, Entries)
    count = 1 << case.code.bits
    spread_ = np.arange(count) * (0x7C00 // count) + np.arange(count) * 7 % 16
    bits = (spread_ | (np.arange(count) % 3 % 2) << 15).astype(np.uint16)
    return bits.view(np.float16).astype(numpy_dtype(case.dtype))


def numbers(case: Case) -> np.ndarray:
    """What the codes mean, in their order."""
    return table_of(case) if isinstance(case.code, Entries) else numbers_of(case.code)


def finite(code: Code) -> np.ndarray:
    """Codes of finite numbers."""
    if isinstance(code, Entries):
        return np.arange(1 << code.bits, dtype=np.uint8)
    return np.flatnonzero(np.isfinite(numbers_of(code))).astype(np.uint8)


def special(code: Code) -> np.ndarray:
    """Codes of infinities and NaN."""
    if isinstance(code, Entries):
        return np.zeros(0, np.uint8)
    return np.flatnonzero(~np.isfinite(numbers_of(code))).astype(np.uint8)


def mixed(rng: np.random.Generator, values: np.ndarray, count: int) -> np.ndarray:
    """Each value as often as any other, in any order."""
    return rng.permutation(np.resize(values, count))


def scales_of(case: Case, rng: np.random.Generator) -> np.ndarray:
    """All finite ones of a kind of a byte, random ones of others."""
    (shared,) = case.format.scales
    shape = shared.shape((ROWS, DEPTH))
    if isinstance(shared.stored, Floats):
        return mixed(rng, finite(shared.stored), math.prod(shape)).reshape(shape)
    numbers = rng.uniform(-1, 1, shape) * 2.0 ** rng.integers(-9, 9, shape)
    return numbers.astype(np.float16).astype(numpy_dtype(shared.stored))


def zeros_of(case: Case, rng: np.random.Generator) -> np.ndarray | None:
    """All numbers of their element type."""
    zero = case.format.zero
    if zero is None:
        return None
    every = np.arange(256).astype(np.uint8).view(np.dtype(str(zero.stored)))
    shape = zero.shape((ROWS, DEPTH))
    return mixed(rng, every, math.prod(shape)).reshape(shape)


@dataclass(frozen=True, slots=True)
class Kept:
    """What is kept of a matrix: codes, and what boxes of them share; and whether a kernel is to
    scale weights, which are the format's then, and not sums."""

    case: Case
    codes: np.ndarray
    scales: np.ndarray
    zeros: np.ndarray | None = None
    scales_weights: bool = False

    def product(self, x: np.ndarray) -> np.ndarray:
        """The product and its ReLU in float64, rounded once."""
        form, shape = self.case.format, self.codes.shape
        with np.errstate(all="ignore"):  # NaN and infinities are meant
            weights = numbers(self.case).astype(np.float64)[self.codes]
            if form.zero is not None:
                weights -= spread(form.zero, self.zeros, shape).astype(np.float64)
            weights *= spread(form.scales[0], self.scales, shape).astype(np.float64)
            if self.scales_weights:
                weights = weights.astype(x.dtype).astype(np.float64)
            sums = np.einsum("mk,nk->mn", x.astype(np.float64), weights)
            return np.maximum(sums, 0).astype(x.dtype)

    def arguments(self, x: np.ndarray, names: list[str]) -> Arguments:
        """Of the function whose parameters have these names, with no bias."""
        *inputs, output = names
        case = self.case
        table = [table_of(case)] if isinstance(case.code, Entries) else []
        zeros = [] if self.zeros is None else [self.zeros]
        kept = [pack(self.codes, case.code.bits), *table, *zeros, self.scales]
        arrays = {"x": x, "bias": np.zeros(ROWS, x.dtype)}
        arrays |= {f"p{place}": array for place, array in enumerate(kept)}
        values = self.product(x)
        given = {**{name: arrays[name] for name in inputs}, output: np.zeros_like(values)}
        return Arguments(given, {output: values}, frozenset({output}))


def error(kept: Kept, x: np.ndarray, place: float, folder: Path) -> float:
    """Of a kernel; ``place`` is that of its tile, from 0, the best one, to 1."""
    func, offered = choices(kept.case)
    found = [choice for choice in offered if choice.rule == CODED]
    found = [own for own in found if own.tile.endswith(_SCALED) == kept.scales_weights]
    of = kept.arguments(x, [str(param.name) for param in func.params])
    return emulated_error(found[int(place * (len(found) - 1))](), of, H200, folder, late=True)


def unequal(found: np.ndarray, wanted: np.ndarray) -> float:
    """How many elements are other numbers; NaN is NaN."""
    found, wanted = found.astype(np.float64), wanted.astype(np.float64)
    return float(np.sum(~((found == wanted) | (np.isnan(found) & np.isnan(wanted)))))


def scales_weights(case: Case) -> bool:
    """Whether some tile of a case does."""
    return any(choice.tile.endswith(_SCALED) for choice in choices(case)[1])


BY_WEIGHT = [case for case in CASES if scales_weights(case)]


@needs_compiler
@pytest.mark.parametrize(
    ("case", "by_weight"),
    [*((case, False) for case in CASES), *((case, True) for case in BY_WEIGHT)],
    ids=lambda own: name(own) if isinstance(own, Case) else str(own),
)
def test_every_number_is_exact(
    case: Case, by_weight: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each vector chooses one column, as it is or with its sign turned: one in each group."""
    monkeypatch.setattr("emulated.relative_difference", unequal)
    rng = np.random.default_rng(0)
    columns = np.arange(GROUPS) * GROUP + rng.integers(0, GROUP, GROUPS)
    x = np.zeros((VECTORS, DEPTH), numpy_dtype(case.dtype))
    x[np.arange(GROUPS) * 2, columns], x[np.arange(GROUPS) * 2 + 1, columns] = 1, -1
    codes = mixed(rng, finite(case.code), ROWS * DEPTH).reshape(ROWS, DEPTH)
    codes[:, columns] = mixed(rng, finite(case.code), ROWS * GROUPS).reshape(ROWS, GROUPS)
    kept = Kept(case, codes, scales_of(case, rng), zeros_of(case, rng), by_weight)
    assert error(kept, x, 0.5, tmp_path) == 0


@needs_compiler
@pytest.mark.parametrize("case", [case for case in CASES if case.scale != "float32"], ids=name)
def test_products_are_right(case: Case, tmp_path: Path) -> None:
    """Of moderate numbers, with infinities and NaN in some rows, of the best tile's kernel."""
    rng = np.random.default_rng(1)
    case = replace(case, vectors=5)
    x = rng.standard_normal((5, DEPTH)).astype(numpy_dtype(case.dtype))
    moderate = np.flatnonzero(np.abs(numbers(case).astype(np.float64)) < 16).astype(np.uint8)
    codes = mixed(rng, moderate, ROWS * DEPTH).reshape(ROWS, DEPTH)
    (shared,) = case.format.scales
    shape = shared.shape((ROWS, DEPTH))
    if isinstance(shared.stored, Floats):
        sizes = np.abs(numbers_of(shared.stored))
        near = np.flatnonzero((sizes > 0.1) & (sizes < 2)).astype(np.uint8)
        scales = mixed(rng, near, math.prod(shape)).reshape(shape)
        scales[3, 5] = special(shared.stored)[0]
    else:
        scales = rng.uniform(-1, 1, shape).astype(numpy_dtype(shared.stored))
        scales[3, 5] = np.nan
    for number, code in enumerate(special(case.code)):
        codes[ROWS - 1 - number, rng.integers(DEPTH)] = code
    tolerance = 2e-3 if case.dtype == "float16" else 1e-2
    assert error(Kept(case, codes, scales, zeros_of(case, rng)), x, 0, tmp_path) < tolerance


@pytest.mark.parametrize("device", [A100, H200], ids=lambda d: d.name)
@pytest.mark.parametrize(
    "case",
    [*(case for case in CASES if case.scale == E8M0), *TABLES, *INTEGERS[-1:]],
    ids=name,
)
def test_kernels_build(case: Case, device: Device) -> None:
    assert_builds(replace(case, vectors=4), device)


@pytest.mark.parametrize(
    "case",
    [
        Case(1, 64, 512, E2M1, zero="int8"),
        Case(1, 64, 512, E8M0),
        Case(1, 64, 512, Floats(3, 2, True, 32)),
        Case(1, 64, 512, E2M1, group=4),
        Case(1, 64, 512, Entries(8)),
        Case(1, 64, 512, Entries(4), zero="int8"),
        Case(1, 64, 512, Integers(4, is_signed=True), scale="float64"),
    ],
    ids=name,
)
def test_others_are_left_alone(case: Case) -> None:
    assert not choices(case)[1]
