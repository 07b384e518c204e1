"""NaN, infinities, signs of zero: what PyTorch makes of them, and what we do.

Usage: python -m bench.special_values [--only relu]

Compiles each operator for the emulated device and writes bench/results/special_values.md. The exit
status is 1 where something differs without a reason.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

import tvm_tile
from bench.special_cases import Case, cases
from tvm_tile.errors import TileError

RESULTS = Path(__file__).parent / "results" / "special_values.md"
_TOLERANCE = 1e-5  # relative, of finite numbers
_SMALLEST = 2.0**-126  # below are denormal numbers
_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Verdict:
    """Of one operator.

    Attributes:
        status: ``"agrees"``, ``"excepted"``, ``"differs"`` or ``"refused"``.
        detail: examples, or the reason.
    """

    status: str
    detail: str = ""


class Module(torch.nn.Module):
    """Cases as one model."""

    def __init__(self, of: tuple[Case, ...]) -> None:
        super().__init__()
        self._cases = of

    def forward(self, *operands: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(case.function(*operands) for case in self._cases)


def results(of: tuple[Case, ...]) -> list[np.ndarray]:
    """What cases of the same operands are on the emulated device, compiled as one model."""
    operands = of[0].operands
    options = tvm_tile.Options(cache=False)
    model = tvm_tile.compile(Module(of), "emulated", example_inputs=operands, options=options)
    found = model(*(operand.numpy() for operand in operands))
    return [np.asarray(one) for one in (found if len(of) > 1 else (found,))]


def judge(case: Case, found: np.ndarray) -> Verdict:
    """Compare with PyTorch: types, NaN, infinities and signs of zero exactly."""
    wanted = case.function(*case.operands).numpy()
    if found.dtype != wanted.dtype or found.shape != wanted.shape:
        return Verdict("differs", f"{found.dtype}{found.shape}, not {wanted.dtype}{wanted.shape}")
    differs = ~_same(found, wanted)
    if not differs.any():
        return Verdict("agrees")
    if case.apart is not None and not (differs & ~case.apart(*case.operands).numpy()).any():
        return Verdict("excepted", case.reason)
    return Verdict("differs", _examples(case, found, wanted, differs))


def _same(found: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    if wanted.dtype.kind != "f":
        return np.asarray(found == wanted)
    with np.errstate(all="ignore"):
        near = np.abs(found.astype("f8") - wanted) <= _TOLERANCE * np.abs(wanted.astype("f8"))
    near |= (np.abs(found) < _SMALLEST) & (np.abs(wanted) < _SMALLEST) & (wanted != 0)
    is_zero = (wanted == 0) & (found == 0)
    signed = ~is_zero | (np.signbit(found) == np.signbit(wanted))
    finite = np.isfinite(found) & np.isfinite(wanted)
    is_nan = np.isnan(found) & np.isnan(wanted)
    return np.asarray((is_nan | (found == wanted) | (finite & near)) & signed)


def _examples(case: Case, found: np.ndarray, wanted: np.ndarray, differs: np.ndarray) -> str:
    shown = []
    for place in np.argwhere(differs)[:_SHOWN]:
        at = tuple(int(i) for i in place)
        if wanted.shape == case.operands[0].shape and wanted.ndim == 1:
            given = ", ".join(f"{operand[at]:g}" for operand in case.operands)
        else:
            given = f"at {at}"
        shown.append(f"({given}): {found[at]:g}, not {wanted[at]:g}")
    return "; ".join(shown)


def verdict(case: Case) -> Verdict:
    """Compile a case by itself, and judge it."""
    try:
        return judge(case, results((case,))[0])
    except TileError as error:
        return Verdict("refused", " ".join(str(error).split())[:120])


def table(verdicts: dict[str, Verdict]) -> str:
    """The whole file."""
    counts = [f"{sum(v.status == s for v in verdicts.values())} {s}" for s in _STATUSES]
    versions = ", ".join(f"{n} {importlib.metadata.version(n)}" for n in ("torch", "apache-tvm"))
    rows = [f"| {name} | {v.status} | {v.detail} |" for name, v in verdicts.items()]
    return "\n".join([_HEAD.format(counts=", ".join(counts), versions=versions), *rows, ""])


_STATUSES = ("agrees", "excepted", "differs", "refused")
_HEAD = """# Special values

NaN, infinities, zeros of both signs, denormal and huge numbers in float32, on the emulated device
against PyTorch on the CPU ({versions}): {counts}.
Finite results may be off by 1e-5 of their value; NaN, infinities and the sign of zero must be the
same. Of results below the smallest normal number (1.2e-38) only that they are so is asked. Made by
`python -m bench.special_values`.

| Operator | | |
| --- | --- | --- |"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="operators whose names contain this")
    only = parser.parse_args().only
    verdicts = {case.name: verdict(case) for case in cases() if only in case.name}
    for name, one in verdicts.items():
        if one.status != "agrees":
            print(f"{name}: {one.status}: {one.detail}")
    if not only:
        RESULTS.write_text(table(verdicts), encoding="utf-8")
    return int(any(one.status == "differs" for one in verdicts.values()))


if __name__ == "__main__":
    sys.exit(main())
