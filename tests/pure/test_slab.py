"""Chunks in shared memory: every unit has a place, and what a warp touches at once is apart."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from operators import conv_nhwc, einsum

from tvm_tile.graph.tile_graph import Axis, Operator
from tvm_tile.tile.units.product import Product, find_product, fold_window
from tvm_tile.tile.units.slab import FRAGMENT, UNIT, Slab, leaves, vector_width

SLABS = [
    Slab(rows, depth, is_transposed, 8)
    for rows in (16, 32, 64, 128, 256)
    for depth in (32, 64)
    for is_transposed in (False, True)
]
UNIT_BYTES, LINE_BYTES = 16, 128


def product(operator: Operator) -> Product:
    found = find_product(operator)
    assert found is not None
    return found


def are_on_all_banks(addresses: list[int]) -> bool:
    """Of eight units, whose 128 bytes are what shared memory moves at once."""
    assert len(addresses) == 8
    return {address // UNIT_BYTES % 8 for address in addresses} == set(range(8))


@pytest.mark.parametrize("slab", SLABS, ids=str)
class TestPlaces:
    def test_every_unit_has_one(self, slab: Slab) -> None:
        places = [
            slab.offset(line, unit)
            for line, unit in itertools.product(range(slab.lines), range(slab.units))
        ]
        assert sorted(places) == list(range(0, slab.size, UNIT_BYTES))
        assert slab.size == slab.rows * slab.depth * 2

    def test_behind_another_everything_is_as_far_on(self, slab: Slab) -> None:
        behind = replace(slab, start=2 * slab.size)
        for lane, (row, depth) in itertools.product(range(32), self.fragments(slab)):
            first = slab.moved(slab.fragment(lane, 0, is_right=True), row, depth)
            moved = behind.moved(behind.fragment(lane, 0, is_right=True), row, depth)
            assert moved == first + behind.start

    def test_copies_of_neighbours_meet_in_no_bank(self, slab: Slab) -> None:
        units = [divmod(number, slab.units) for number in range(slab.lines * slab.units)]
        for first in range(0, len(units), 8):
            assert are_on_all_banks([slab.offset(*at) for at in units[first : first + 8]])

    @pytest.mark.parametrize("width", [2, 4])
    def test_narrow_copies_meet_in_no_bank(self, slab: Slab, width: int) -> None:
        narrow = replace(slab, width=width)
        at_once = LINE_BYTES // (2 * width)  # lanes that bring 128 bytes
        for first, copy in itertools.product(
            range(0, slab.lines * slab.units, at_once), range(UNIT // width)
        ):
            addresses = [
                narrow.offset(*divmod(n, slab.units)) + 2 * narrow.element(n, copy)
                for n in range(first, first + at_once)
            ]
            assert len({address // (2 * width) % at_once for address in addresses}) == at_once

    @pytest.mark.parametrize("width", [1, 2, 4, 8])
    def test_copies_bring_whole_units(self, slab: Slab, width: int) -> None:
        narrow = replace(slab, width=width)
        for thread in range(32):
            begins = {narrow.element(thread, copy) for copy in range(UNIT // width)}
            assert begins == set(range(0, UNIT, width))

    @pytest.mark.parametrize("is_right", [False, True])
    def test_loads_of_a_warp_meet_in_no_bank(self, slab: Slab, *, is_right: bool) -> None:
        for row, depth in self.fragments(slab):
            found = [
                slab.moved(slab.fragment(lane, 0, is_right=is_right), row, depth)
                for lane in range(32)
            ]
            for matrix in range(4):
                assert are_on_all_banks(found[matrix * 8 : matrix * 8 + 8])

    @pytest.mark.parametrize("is_right", [False, True])
    def test_fragments_are_what_they_should_be(self, slab: Slab, *, is_right: bool) -> None:
        places = {
            slab.offset(line, unit): slab.position(line, unit)
            for line, unit in itertools.product(range(slab.lines), range(slab.units))
        }
        for row, depth in self.fragments(slab):
            # The unit that lane r of each eight points out: its row or its depth is r further.
            for lane in range(32):
                matrix, within = divmod(lane, 8)
                lower, deeper = divmod(matrix, 2) if is_right else reversed(divmod(matrix, 2))
                down, along = (0, within) if slab.is_turned else (within, 0)
                at = slab.moved(slab.fragment(lane, 0, is_right=is_right), row, depth)
                assert places[at] == (row + lower * 8 + down, depth + deeper * 8 + along)

    @pytest.mark.parametrize("warp_rows", [16, 32, 64])
    def test_warps_start_at_rows_of_their_own(self, slab: Slab, warp_rows: int) -> None:
        for first in range(0, slab.rows, warp_rows):
            for row, lane in itertools.product(range(0, warp_rows, FRAGMENT), range(32)):
                if first + row >= slab.rows:
                    continue
                own = slab.moved(slab.fragment(lane, first, is_right=False), row, FRAGMENT)
                whole = slab.moved(slab.fragment(lane, 0, is_right=False), first + row, FRAGMENT)
                assert own == whole

    @staticmethod
    def fragments(slab: Slab) -> itertools.product[tuple[int, int]]:
        return itertools.product(range(0, slab.rows, FRAGMENT), range(0, slab.depth, FRAGMENT))


class TestWidths:
    @pytest.mark.parametrize(
        ("columns", "width"), [(64, 8), (8, 8), (100, 4), (50, 2), (197, 1), (1, 1), (4, 4)]
    )
    @pytest.mark.parametrize("layout", ["mk", "km"])
    def test_strides_of_a_matrix(self, layout: str, columns: int, width: int) -> None:
        extents = {"m": 96, "k": 96, layout[1]: max(columns, 2), "n": 32}
        left = product(einsum(layout, "nk", "mn", "float16", **extents))
        expected = width if columns > 1 else 2
        assert vector_width(left.left, left.depth) == expected

    @pytest.mark.parametrize(("channels", "width"), [(64, 8), (12, 4), (6, 2), (3, 1)])
    def test_channels_of_an_image(self, channels: int, width: int) -> None:
        of = product(conv_nhwc(2, (14, 14), channels, 64, kernel=3, padding=1))
        assert vector_width(of.left, of.depth) == width

    def test_a_row_of_a_window(self) -> None:
        """Rows overlap: from one to the next there are ``stride`` pixels."""
        of = fold_window(product(conv_nhwc(2, (14, 14), 4, 64, kernel=7, stride=1)), 32)
        assert of.depth.extent == 28
        assert vector_width(of.left, of.depth) == 4

    def test_what_begins_elsewhere(self) -> None:
        of = product(einsum("mk", "nk", "mn", "float16", m=64, n=64, k=64))
        *first, last = of.left.indices
        shifted = replace(of.left, indices=(*first, replace(last, offset=2)))
        assert vector_width(shifted, of.depth) == 2

    def test_a_part_of_a_sum(self) -> None:
        of = product(einsum("mk", "nk", "mn", "float16", m=64, n=64, k=64))
        assert vector_width(of.left, Axis("k", 36, is_reduce=True)) == 4

    def test_one_element_goes_through_registers(self) -> None:
        assert [Slab(64, 32, False, width).is_by_element for width in (1, 2, 4, 8)] == [
            True,
            *(False,) * 3,
        ]


class TestOutside:
    def test_a_matrix_is_never_left(self) -> None:
        of = product(einsum("mk", "kn", "mn", "float16", m=10, n=20, k=30))
        assert leaves(of, of.left) == leaves(of, of.right) == [(False, False)] * 2

    @pytest.mark.parametrize(("padding", "is_left"), [(1, True), (0, False)])
    def test_an_image(self, padding: int, *, is_left: bool) -> None:
        of = product(conv_nhwc(2, (16, 16), 8, 64, kernel=3, padding=padding))
        inside, along = (False, False), (is_left, is_left)
        assert leaves(of, of.left) == [inside, along, along, inside]
        assert leaves(of, of.right) == [inside] * 4

    def test_an_image_that_is_left_on_one_side(self) -> None:
        of = product(conv_nhwc(2, (16, 16), 8, 64, kernel=3, padding=1))
        shape = (2, 17, 18, 8)
        larger = replace(of.left, tensor=replace(of.left.tensor, shape=shape))
        assert leaves(of, larger)[1:3] == [(True, False)] * 2
