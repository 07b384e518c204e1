"""The walk over tiles and chunks, on plain numbers: every output once, every summand once."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from operators import conv_nhwc, einsum

from tvm_tile.device import find_device
from tvm_tile.graph.positions import listed_chunks
from tvm_tile.graph.tile_graph import Axis, Operator
from tvm_tile.schedule.pipelines import lists, specialised
from tvm_tile.schedule.pipelines.lists import Lists
from tvm_tile.schedule.pipelines.specialised import Boxes, PersistentBlock
from tvm_tile.schedule.tensor_cores import place as places
from tvm_tile.schedule.tensor_cores.chunks import chunk_place
from tvm_tile.schedule.tensor_cores.place import Boxed, Place
from tvm_tile.tile.products.warpgroup import construct_warpgroup
from tvm_tile.tile.products.warpgroup_tile import WarpgroupTile
from tvm_tile.tile.units.product import Operand, Product, find_product

H200 = find_device("nvidia/h200")
OPERATORS = (
    einsum("mk", "nk", "mn", m=1000, n=264, k=136),
    einsum("km", "kn", "mn", m=1000, n=264, k=136),
    einsum("bhmk", "bhkn", "bhmn", b=2, h=3, m=50, n=72, k=64),
    einsum("bmk", "nk", "bmn", b=3, m=5, n=1, k=64),
    einsum("mjk", "njk", "mn", m=4200, n=24, j=5, k=72),
    conv_nhwc(3, (13, 17), 24, 20, padding=1),
    conv_nhwc(2, (7, 9), 64, 300, stride=2, kernel=1),
    conv_nhwc(1, (1, 500), 72, 40, stride=3, kernel=1),
)


class Loops:
    """Stands in for the builder: the serial loop is at one of its turns."""

    def __init__(self) -> None:
        self.turn = self.turns = 0
        self.is_met = True
        self.builder = SimpleNamespace(
            Bind=lambda value: value, min=min, serial=self._serial, If=self._if, Then=nullcontext
        )

    def _serial(self, extent: int) -> AbstractContextManager[int]:
        self.turns = extent
        return nullcontext(self.turn)

    def _if(self, condition: bool) -> AbstractContextManager[None]:
        """What is within is run whatever the condition is, which is noted."""
        self.is_met = condition
        return nullcontext()


def boxes_of(product: Product, tile: WarpgroupTile) -> tuple[Boxes, Boxes]:
    return (product.left.free, tile.rows), (product.right.free, tile.columns)


def origins(product: Product, tile: WarpgroupTile, loops: Loops) -> Iterator[Place]:
    """The first places of all tiles of all blocks; of a cluster's, those of the first."""
    boxes = boxes_of(product, tile)
    for block in range(0, tile.grid, tile.splits):
        if tile.splits > 1:
            shared: list[Place] = []
            for rank in range(tile.splits):
                PersistentBlock(product, boxes, tile, {}, rank, block + rank, 0).for_tiles(
                    shared.append
                )
            assert all(origin == shared[0] for origin in shared)
            yield shared[0]
            continue
        for turn in itertools.count():
            loops.turn, found = turn, []
            PersistentBlock(product, boxes, tile, {}, 0, block, 0).for_tiles(found.append)
            if turn >= loops.turns:
                break
            yield from found


def values(axes: Sequence[Axis], place: Place) -> tuple[int, ...]:
    return tuple(place[axis.name] for axis in axes)


def check_cover(operand: Operand, box: tuple[int, ...], size: int, first: set[Any]) -> None:
    """Whether tiles that start at ``first`` store each row, or column, exactly once."""
    stored: Counter[tuple[int, ...]] = Counter()
    for values_of_first in first:
        origin = dict(zip((axis.name for axis in operand.free), values_of_first, strict=True))
        for position in range(size):
            place, fits = Boxed(operand, box, size).at(position, origin)
            stored[values(operand.free, place)] += all(fits)
    wanted = itertools.product(*(range(axis.extent) for axis in operand.free))
    assert +stored == Counter(wanted)


@pytest.fixture
def loops(monkeypatch: pytest.MonkeyPatch) -> Loops:
    stand_in = Loops()
    monkeypatch.setattr(specialised, "ib", stand_in.builder)
    monkeypatch.setattr(places, "ib", stand_in.builder)
    return stand_in


def every_tile(operator: Operator) -> Iterator[tuple[Product, WarpgroupTile]]:
    product = find_product(operator)
    assert product is not None
    tiles = construct_warpgroup(product, H200, 100)
    assert tiles
    return ((product, tile) for tile in tiles)


@pytest.mark.parametrize("operator", OPERATORS)
def test_every_output_is_stored_once(operator: Operator, loops: Loops) -> None:
    for product, tile in every_tile(operator):
        met = list(origins(product, tile, loops))
        batches, rows, columns = (
            {values(axes, origin) for origin in met}
            for axes in (product.batch, product.left.free, product.right.free)
        )
        # As many as there are pairs of rows and columns in all batches, and no two the same.
        assert len(met) == tile.tiles == len(batches) * len(rows) * len(columns)
        assert len({tuple(sorted(origin.items())) for origin in met}) == len(met)
        assert len(batches) == product.batches
        check_cover(product.left, tile.rows, tile.block_rows, rows)
        check_cover(product.right, tile.columns, tile.width, columns)


@pytest.mark.parametrize("operator", OPERATORS)
def test_every_summand_is_met_once(operator: Operator, loops: Loops) -> None:
    for product, tile in every_tile(operator):
        met: Counter[tuple[int, ...]] = Counter()
        boxes = boxes_of(product, tile)
        for rank in range(tile.splits):
            first, count = PersistentBlock(product, boxes, tile, {}, rank, rank, 0).own_chunks({})
            for chunk in range(count):
                place = chunk_place(product, tile.depth, first + chunk)
                met[values((*product.steps, product.depth), place)] += 1
        depth = range(0, product.depth.extent, tile.depth)
        steps = (range(axis.extent) for axis in product.steps)
        assert met == Counter(itertools.product(*steps, depth))


@pytest.mark.parametrize("rows", [1, 70, 300, 1000])
def test_tiles_of_lists_are_walked_once(
    rows: int, loops: Loops, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of all rows, or of those of a call; the busiest multiprocessor walks what the model says."""
    monkeypatch.setattr(lists, "tirx", SimpleNamespace(Cast=lambda _, value: int(value)))
    monkeypatch.setattr(lists, "in_register", lambda value: value)
    kept = np.random.default_rng(0).random((10, 40)) < 0.4
    listed = listed_chunks(np.kron(kept, np.ones((64, 64))), 64, "table")
    product = find_product(einsum("mk", "nk", "mn", m=1000, n=640, k=40 * 64))
    assert product is not None
    product = replace(product, right=replace(product.right, listed=listed))
    device = replace(H200, multi_processor_count=12)
    own: list[Place]
    (row,), (column,) = product.left.free, product.right.free
    for tile in construct_warpgroup(product, device, 100):
        boxes, limits = boxes_of(product, tile), {} if rows == 1000 else {row.name: rows}
        (size,) = tile.columns
        found = Lists(listed, listed.table(), column, size)
        met: Counter[tuple[int, int]] = Counter()
        walked: Counter[int] = Counter()
        for number in range(0, tile.grid, tile.splits):
            block = PersistentBlock(product, boxes, tile, limits, 0, number, 0, found)
            if number // tile.splits >= block._count(block._counts()):
                continue  # it has left
            loops.turns = 1
            for turn in itertools.count():
                loops.turn, own = turn, []
                block.for_tiles(own.append)
                if turn >= loops.turns:
                    break
                if loops.is_met:
                    first = own[0][column.name]
                    met[own[0][row.name], first] += 1
                    groups = kept[first // 64 : -(-(first + size) // 64)]
                    walked[number % 12] += int(groups.any(axis=0).sum())
        wanted = itertools.product(range(0, rows, tile.rows[0]), range(0, 640, size))
        assert met == Counter(wanted), tile.describe()
        if rows == 1000 and tile.splits == 1:
            share = max(walked.values()) / (-(-tile.tiles // 12) * tile.chunks)
            assert share == pytest.approx(tile.walked), tile.describe()
