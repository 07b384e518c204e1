"""No operator of no data type ends this process on its way to an AMD GPU.

Each becomes kernels, or an error of the project's own. All 5 x 15 of each operator would take half
an hour: what must be kernels is built for all floating-point types but one, types and chips by
turns; of the rest some are drawn, always the same ones.
"""

from __future__ import annotations

import random

import pytest
from hip_operators import CHIPS, DTYPES, FLOATS, OF_FLOATS, OF_OTHERS, model

import tvm_tile
from tvm_tile.errors import TileError

pytestmark = pytest.mark.bank(12)

_NOT_CACHED = tvm_tile.Options(cache=False)
_DRAWN = 120


def drawn(count: int, seed: int = 0) -> list[tuple[str, str, str]]:
    """Operators, data types and chips that TVM can put into a model."""
    generator = random.Random(seed)
    names = [*OF_FLOATS, *OF_OTHERS]
    found: list[tuple[str, str, str]] = []
    while len(found) < count:
        name, dtype = generator.choice(names), generator.choice(DTYPES)
        found.append((name, dtype, generator.choice(CHIPS)))
    return found


def outcome(name: str, dtype: str, chip: str) -> str:
    """``"kernels"``, ``"error"``, or ``"no model"`` where TVM defines no such operator."""
    try:
        mod = model(name, dtype)
    except Exception:  # whatever TVM's type inference raises
        return "no model"
    try:
        compiled = tvm_tile.compile(mod, device=chip, options=_NOT_CACHED)
    except TileError:
        return "error"
    assert all(kernel.binary.startswith(b"\x7fELF") for kernel in compiled.program.kernels)
    return "kernels"


@pytest.mark.parametrize(("name", "dtype", "chip"), drawn(_DRAWN))
def test_ends_in_kernels_or_a_typed_error(name: str, dtype: str, chip: str) -> None:
    assert outcome(name, dtype, chip) in ("kernels", "error", "no model")


@pytest.mark.parametrize("name", OF_FLOATS)
def test_what_is_defined_for_floats_becomes_kernels(name: str) -> None:
    turn = list(OF_FLOATS).index(name)
    for position, dtype in enumerate(FLOATS):
        if position == turn % len(FLOATS):
            continue
        chip = CHIPS[(turn + position) % len(CHIPS)]
        assert outcome(name, dtype, chip) == "kernels", f"{dtype} on {chip}"
