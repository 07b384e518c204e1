"""Tiles of convolutions of few channels, whose part of the image lies in shared memory once.

Copied chunk by chunk, as products are, the elements of an image come again for each element of the
window that they lie under: nine times for one of 3 by 3. Here a block copies what its windows reach
once, and its warps load fragments from there: a unit of eight channels of one place under the
window is what a warp's load takes of a row, wherever the row's place is. There is one chunk, the
whole sum. Blocks stay where tiles are many: they keep the weights, and copy the next tile's part of
the image while they multiply.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tvm_tile.device.device import Device, MemoryLevel
from tvm_tile.graph.tile_graph import AffineIndex
from tvm_tile.tile.products.halo_tile import whole
from tvm_tile.tile.products.store_work import BARE, SUM_BYTES, StoreWork, store_part
from tvm_tile.tile.products.warp_tile import WarpTile
from tvm_tile.tile.residency import resident_blocks
from tvm_tile.tile.tile import ranked
from tvm_tile.tile.time import AMID, WAVEFRONT, Part, Scene, Unit, Work
from tvm_tile.tile.units.product import Operand, Product
from tvm_tile.tile.units.slab import ELEMENT, FRAGMENT, UNIT, UNIT_BYTES, leaves, vector_width
from tvm_tile.tile.units.unit import MmaUnit

_BANKS = 8  # of a unit each
_LARGEST_SUM = 512  # elements: each of its steps is written out
_BOXES = ((16, 16), (8, 16), (8, 8), (4, 16), (4, 32), (2, 32), (8, 32), (2, 64), (1, 64), (1, 128))
_WARPS = ((8, 1), (4, 1), (4, 2), (2, 2))  # along rows and columns
_MOST_COLUMNS = 128
_MOST_SUMS = 64  # of a thread
_FIXED_REGISTERS = 20
_OF_A_PLACE = 12  # instructions that find where a unit lies, and whether it does


@dataclass(frozen=True, slots=True)
class ImageTile(WarpTile[MmaUnit]):
    """How warps compute a tile of a convolution from a part of its image.

    Attributes:
        box: extent of each of the left operand's free axes in a block's tile.
        places: extents of what the tile's windows reach, of each dimension but the channels.
        channels: units of eight channels of a place.
        apart: units from one row to the next.
        tiles: tiles of the output.
    """

    box: tuple[int, ...] = ()
    places: tuple[int, ...] = ()
    channels: int = 0
    apart: int = 1
    tiles: int = 0

    @property
    def units(self) -> int:
        """Units of the part of the image."""
        return math.prod(self.places) * self.channels

    @property
    def steps(self) -> int:
        """Instructions of a depth of 16 in a sum."""
        return self.depth // FRAGMENT

    @property
    def turns(self) -> int:
        """Tiles of a block, at most."""
        return -(-self.tiles // self.grid)

    @property
    def pitch(self) -> int:
        """Units from one column of the weights to the next: as odd a number, all banks serve."""
        return self.depth // UNIT | 1

    @property
    def image(self) -> int:
        """The first unit of the first stage's part of the image, behind the weights."""
        return whole(self.columns * self.pitch, _BANKS)

    @property
    def zeros(self) -> int:
        """Number of the first of eight zero units, which are behind a part of the image."""
        return whole(self.units, _BANKS)

    @property
    def image_units(self) -> int:
        """Units of a stage."""
        return self.zeros + _BANKS

    @property
    def corners(self) -> int:
        """The first byte of the warps' corners for sums that go out, behind all else."""
        return (self.image + self.stages * self.image_units) * UNIT_BYTES

    def swizzled(self, unit: Any) -> Any:
        """Where a unit of the image lies; rows that a warp loads at once are ``apart`` units apart.

        Units change places within eight, by the number of the eight. Takes expressions, too.
        """
        power = self.apart & -self.apart  # of two, the greatest that divides it
        spread = min(power, _BANKS)
        return unit ^ (unit // max(power, _BANKS) % spread) if spread > 1 else unit

    def describe(self) -> str:
        """The tile in one line, for people."""
        box = "x".join(map(str, self.box))
        warps = f"{self.warps[0]} by {self.warps[1]} {self.unit.warps}"
        stays = ", in turns" if self.stages > 1 else ""
        return f"image {box} by {self.columns}, depth {self.depth}, {warps}{stays}"


def construct_image(
    product: Product, device: Device, count: int, work: StoreWork = BARE, scene: Scene = AMID
) -> tuple[ImageTile, ...]:
    """The best tiles, best first; none where channels are many, or in no units of eight.

    Args:
        product: a convolution.
        device: the device that computes it.
        count: the most tiles that are wanted.
        work: work on the sums before they are stored.
        scene: where the kernel runs.
    """
    if not product.steps or not product.left.free or not _has_units(product):
        return ()
    told = (
        replace(tile, work=work_of(product, device, tile, work)) for tile in _tiles(product, device)
    )
    return ranked(told, device, scene, count)


def _has_units(product: Product) -> bool:
    """Whether both operands have whole units of channels, and each other dimension no channel."""
    depth = product.depth
    summed = depth.extent * math.prod(axis.extent for axis in product.steps)
    operands = (product.left, product.right)
    return (
        depth.extent % UNIT == 0
        and summed <= _LARGEST_SUM
        and all(operand.is_depth_major for operand in operands)
        and all(operand.is_within_reach for operand in operands)
        and not any(any(side) for side in leaves(product, product.right))
        and all(vector_width(operand, depth) == UNIT for operand in operands)
        and all(operand.indices[-1] == AffineIndex(((depth.name, 1),)) for operand in operands)
    )


def _tiles(product: Product, device: Device) -> Iterator[ImageTile]:
    """All tiles of a convolution that fit the device."""
    capacity = device.memory(MemoryLevel.SHARED).capacity
    taps = math.prod(axis.extent for axis in product.steps)
    depth = whole(taps * product.depth.extent, FRAGMENT)
    # Blocks that stay keep all weights.
    stages = (1, 2) if product.batches == 1 and product.right.extent <= _MOST_COLUMNS else (1,)
    for shape, warps in itertools.product(_BOXES, _WARPS):
        box = _box(product.left, shape)
        rows, columns = math.prod(shape) // warps[0], _columns(product.right.extent, warps[1])
        if rows % FRAGMENT or rows * columns // MmaUnit().warp > _MOST_SUMS:
            continue
        tile = ImageTile(MmaUnit(), rows, columns, warps, depth, 0, box=box)
        tile = _reaching(tile, product)
        for count in stages:
            staged = _filled(replace(tile, stages=count), device)
            if staged.shared_bytes <= capacity and (count == 1 or staged.turns > 1):
                yield staged


def _columns(extent: int, warps: int) -> int:
    """Columns of a warp, of several that share as few tiles' columns as there can be."""
    tiles = -(-extent // _MOST_COLUMNS)
    return whole(-(-extent // tiles), FRAGMENT * warps) // warps


def _box(left: Operand, box: tuple[int, int]) -> tuple[int, ...]:
    """A box of the image's free axes, the last two of which have more than one place."""
    if len(left.free) == 1:
        return (math.prod(box),)
    return (*(1 for _ in left.free[:-2]), *box)


def _reaching(tile: ImageTile, product: Product) -> ImageTile:
    """The tile with what it reaches of the image, and how many there are."""
    left = product.left
    extents = dict(zip((axis.name for axis in left.free), tile.box, strict=True))
    extents |= {axis.name: axis.extent for axis in product.steps}
    places = tuple(index.span(extents) for index in left.indices[:-1])
    channels = product.depth.extent // UNIT
    own = [index.coefficient(left.free[-1].name) for index in left.indices[:-1]]
    apart = sum(step * math.prod(places[n + 1 :]) for n, step in enumerate(own))
    boxes = (-(-axis.extent // size) for axis, size in zip(left.free, tile.box, strict=True))
    return replace(
        tile,
        places=places,
        channels=channels,
        apart=apart * channels,
        tiles=product.batches * math.prod(boxes) * -(-product.right.extent // tile.columns),
    )


def _filled(tile: ImageTile, device: Device) -> ImageTile:
    """The tile with its memory, registers and blocks, which stay if there are two stages."""
    fragments = 2 * (tile.warp_rows + tile.warp_columns) * FRAGMENT * ELEMENT
    tile = replace(
        tile,
        shared_bytes=tile.corners + math.prod(tile.store_shape) * SUM_BYTES,
        registers=tile.sums + fragments // (4 * tile.unit.warp) + _FIXED_REGISTERS,
        grid=tile.tiles,
    )
    if tile.stages == 1:
        return tile
    present = resident_blocks(device, tile) * device.multi_processor_count
    return replace(tile, grid=max(1, min(tile.tiles, present)))


def work_of(product: Product, device: Device, tile: ImageTile, work: StoreWork) -> Work:
    """What the kernel of a tile does; ``work`` is that on its sums before they are stored."""
    warp, warps = tile.unit.warp, math.prod(tile.warps)
    rows, columns = tile.warp_rows // FRAGMENT, tile.warp_columns // FRAGMENT
    loaded = warps * tile.steps * (rows + columns)
    weights = _copies(tile.columns * (tile.depth // UNIT), warp)
    image = _copies(tile.image_units, warp)
    turn = replace(
        image,
        repeats=tile.turns,
        operations=image.operations + loaded + warps * tile.steps * rows * columns * 2,
        moves=image.moves + loaded,
        wavefronts=image.wavefronts + loaded * FRAGMENT * FRAGMENT * ELEMENT / WAVEFRONT,
        flops=2 * tile.rows * tile.columns * tile.depth,
        loads=1 if tile.turns > 1 else 0,
        barriers=1,
        steps=tile.steps,
        ahead=tile.stages,
    )
    shape = (warps, tile.warp_rows, tile.warp_columns)
    written = product.write.tensor.size
    stored = store_part(work, tile.sum_layout, shape, written, tile.tiles)
    return Work(
        blocks=tile.grid,
        resident=resident_blocks(device, tile),
        warps=warps,
        parts=(
            replace(weights, loads=1, arrivals=1, barriers=1),
            turn,
            replace(stored, repeats=tile.turns * stored.repeats),
        ),
        read=product.left.read_size + product.right.read_size + work.read_bytes,
        written=written,
        unit=Unit.WARP,
        dtype=product.left.tensor.dtype,
    )


def _copies(units: int, warp: int) -> Part:
    """What a block does to ask for some units."""
    size = units * UNIT_BYTES
    each = units / warp
    return Part(fills=size, operations=each * _OF_A_PLACE, moves=each, wavefronts=size / WAVEFRONT)


def units_of_sum(tile: ImageTile, product: Product) -> list[int | None]:
    """Units from a row's first place to those of its sum; ``None`` for those behind its end."""
    found: list[int | None] = []
    for number in range(tile.depth // UNIT):
        tap, channel = divmod(number, tile.channels)
        place = {}
        for axis in reversed(product.steps):
            tap, place[axis.name] = divmod(tap, axis.extent)
        found.append(None if tap else units_to(tile, product, place) + channel)
    return found


def units_to(tile: ImageTile, product: Product, place: Mapping[str, Any]) -> Any:
    """Units from the first place that a tile reaches to another one, told by values of axes."""
    total: Any = 0
    for number, index in enumerate(product.left.indices[:-1]):
        below = math.prod(tile.places[number + 1 :]) * tile.channels
        for name, coefficient in index.terms:
            total = total + place.get(name, 0) * (coefficient * below)
    return total
