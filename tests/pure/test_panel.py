"""Chunks in AMD's shared memory: each unit has a place, and lanes served together are apart."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from operators import einsum

from tvm_tile.device.rocm import MI300X, ROCM_DEVICES
from tvm_tile.tile.units.matrix_layout import MatrixLayout, layout_of
from tvm_tile.tile.units.panel import Panel, panel_of
from tvm_tile.tile.units.product import Product, find_product

PANELS = [
    Panel(rows, units * 16 // element, is_turned, 16 // element, element, 1)
    for rows in (16, 32, 64, 128, 256)
    for units in (4, 8, 16, 32)
    for element in (1, 2, 4)
    for is_turned in (False, True)
]
TURNED = [
    replace(panel, runs=runs)
    for panel in PANELS
    if panel.is_turned
    for runs in (1, 2, 4, 8, 16)
    if 4 <= runs * panel.element <= 16
]
# Lanes that a 16-byte load is served for at a time (CDNA); those of a store are neighbours.
TOGETHER = [
    [*range(first, first + 4), *range(second, second + 4)]
    for half in (0, 32)
    for first, second in ((half, half + 20), (half + 4, half + 16), (half + 8, half + 28))
] + [[*range(12, 16), *range(24, 28)], [*range(44, 48), *range(56, 60)]]
LAYOUTS = sorted(
    {layout_of(i, d.warp_size) for d in ROCM_DEVICES for i in d.matrix_instructions}, key=str
)


def product(
    layout: str, dtype: str = "float16", m: int = 512, n: int = 512, k: int = 512
) -> Product:
    left, right = "mk" if layout[0] == "N" else "km", "kn" if layout[1] == "N" else "nk"
    found = find_product(einsum(left, right, "mn", dtype, m=m, n=n, k=k))
    assert found is not None
    return found


def banks(units: list[int]) -> int:
    """Most of some different units that lie on one of eight banks of 16 bytes."""
    found = [unit % 8 for unit in set(units)]
    return max(found.count(bank) for bank in found)


@pytest.mark.parametrize("panel", PANELS, ids=str)
class TestPlaces:
    def test_every_unit_has_one(self, panel: Panel) -> None:
        places = [
            panel.offset(line, unit)
            for line, unit in itertools.product(range(panel.rows), range(panel.units))
        ]
        assert sorted(places) == list(range(panel.size // 16))

    @pytest.mark.parametrize("layout", LAYOUTS, ids=str)
    def test_loads_meet_in_no_bank(self, panel: Panel, layout: MatrixLayout) -> None:
        if panel.element != layout.element or panel.rows < layout.size:
            return
        for line, step, unit in itertools.product(
            range(0, panel.rows, layout.size),
            range(0, panel.units, layout.step),
            range(layout.units),
        ):
            loaded = []
            for lane in range(layout.wave):
                row, first = layout.operand(lane)
                own = panel.offset(line + row, first + step + unit)
                # The wave's first row is a multiple of its rows: here of all that follow.
                assert panel.moved(panel.offset(row, first), line, step + unit) == own
                loaded.append(own)
            groups = TOGETHER if layout.wave == 64 else [range(i, i + 8) for i in range(0, 32, 8)]
            assert all(banks([loaded[lane] for lane in group]) == 1 for group in groups)

    def test_behind_another_everything_is_as_far_on(self, panel: Panel) -> None:
        behind = replace(panel, start=256 * 16)
        for line, unit in itertools.product((0, 5, 15), (0, 1)):
            start = behind.offset(line, unit)
            assert start == panel.offset(line, unit) + 256
            for rows, units in itertools.product(
                range(0, panel.rows, 16), range(0, panel.units, 2)
            ):
                assert behind.moved(start, rows, units) == behind.offset(line + rows, unit + units)


@pytest.mark.parametrize("panel", [p for p in PANELS if not p.is_turned], ids=str)
def test_stores_of_units_meet_in_no_bank(panel: Panel) -> None:
    stored = []
    for patch in range(panel.patches):
        row, depth = panel.position(patch)
        stored.append(panel.offset(row, depth // panel.unit))
    assert sorted(stored) == list(range(panel.size // 16))
    assert all(banks(stored[first : first + 8]) == 1 for first in range(0, len(stored), 8))


@pytest.mark.parametrize("panel", TURNED, ids=str)
class TestTurnedPatches:
    def test_they_are_the_chunk(self, panel: Panel) -> None:
        elements = set()
        for patch in range(panel.patches):
            row, depth = panel.position(patch)
            own = itertools.product(range(panel.unit), range(panel.runs))
            elements |= {(row + i, depth + k) for i, k in own}
        assert elements == set(itertools.product(range(panel.rows), range(panel.depth)))
        assert panel.patches * panel.unit * panel.runs == panel.rows * panel.depth

    def test_stores_of_a_row_meet_in_no_bank(self, panel: Panel) -> None:
        lanes = 128 // (panel.runs * panel.element)  # that are served together
        across = panel.rows // panel.unit
        for first in range(0, panel.patches, lanes):
            for line in range(panel.unit):
                stored = []
                for patch in range(first, min(first + lanes, panel.patches)):
                    row, depth = panel.position(patch)
                    stored.append(panel.offset(row + line, depth // panel.unit))
                # Few rows leave a wave several depths of the same banks.
                assert banks(stored) <= max(1, 8 // across)


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
@pytest.mark.parametrize("threads", [64, 256, 512])
def test_patches_leave_one_to_every_thread_where_they_can(dtype: str, threads: int) -> None:
    of = product("TN", dtype)
    element = of.left.tensor.element_size
    for rows, line in itertools.product((16, 64, 256), (64, 128)):
        panel = panel_of(of, of.left, rows, line // element, threads)
        assert panel.is_turned
        assert 4 <= panel.runs * element <= 16
        assert panel.patches >= threads or panel.runs * element == 4


def test_panels_are_as_their_operands() -> None:
    of = product("TT")
    left = panel_of(of, of.left, 128, 32, 256)
    right = panel_of(of, of.right, 64, 32, 256)
    assert (left.is_turned, right.is_turned) == (True, False)
    assert (left.runs, right.runs) == (2, 1)
    assert left.number == right.number == 4


@pytest.mark.parametrize(
    ("k", "dtype", "width", "number"),
    [
        (512, "float16", 8, 4),
        (500, "float16", 4, 4),
        (510, "float16", 2, 4),
        (511, "float16", 1, 2),
        (512, "int8", 16, 4),
        (508, "int8", 4, 4),
        (510, "int8", 1, 1),
        (511, "float32", 1, 4),
    ],
)
def test_loads_are_as_wide_as_strides_allow(k: int, dtype: str, width: int, number: int) -> None:
    of = product("NT", dtype, k=k)
    panel = panel_of(of, of.left, 64, 64 // of.left.tensor.element_size, MI300X.warp_size)
    assert (panel.width, panel.number) == (width, number)
