"""What is measured of tiles of products with codes, as JSON lines: one a tile."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.__main__ import commit
from bench.lines import read_keyed
from bench.machine import probe
from bench.open_shapes.record import Provenance
from tvm_tile.tile.coded.few_vectors import CodedProduct, CodedTile

TILES = "coded_tiles.jsonl"
# A tile that is further off is wrong.
TOLERANCE = 2e-3
_FIRST_INSTRUCTIONS = 3  # that decoded a pair in the kernels that were measured first

Key = tuple[str | int, ...]
Shape = tuple[int, int, int, int]
"""Parts, strips, stacked and run of a tile, which tell it from the product's others."""


@dataclass(frozen=True, slots=True)
class MeasuredTile:
    """One tile of one product.

    Attributes:
        device: name of the record that the kernel was built for.
        vectors: of the product, as the next six: see :class:`CodedProduct`.
        rows: of the matrix.
        depth: of the sum.
        bits: of a code.
        group: elements of the sum that share a scale.
        beside: bytes of scales.
        parts: of the tile, as the next three: see :class:`CodedTile`.
        strips: warps that have rows of their own.
        stacked: strips of rows of a warp.
        run: bytes of a lane's load.
        us: median of so many runs with a cold cache, in microseconds.
        repeats: how many.
        error: norm of the difference over norm of what wider arithmetic gives; ``None`` where
            that is no number.
        cublas_us: ``torch.matmul`` with the decoded matrix in float16, measured likewise.
        int4pack_us: ``torch._weight_int4pack_mm``; ``None`` where it does not run.
        provenance: where and of what.
        instructions: that the kernel decoded a pair of codes by.
    """

    device: str
    vectors: int
    rows: int
    depth: int
    bits: int
    group: int
    beside: int
    parts: int
    strips: int
    stacked: int
    run: int
    us: float
    repeats: int
    error: float | None
    cublas_us: float
    int4pack_us: float | None
    provenance: Provenance
    instructions: float = _FIRST_INSTRUCTIONS

    @property
    def key(self) -> Key:
        """What no two records share."""
        own = self.product
        sizes = own.vectors, own.rows, own.depth, own.bits, own.group, own.beside
        return (self.device, *sizes, *self.shape)

    @property
    def product(self) -> CodedProduct:
        """What was computed."""
        sizes = self.vectors, self.rows, self.depth
        return CodedProduct(*sizes, self.bits, self.group, self.beside, self.instructions)

    @property
    def shape(self) -> Shape:
        """Of the tile."""
        return self.parts, self.strips, self.stacked, self.run

    @property
    def is_right(self) -> bool:
        """Whether its time counts."""
        return self.error is not None and self.error <= TOLERANCE


def shape_of(tile: CodedTile) -> Shape:
    """A tile's, as the records have it."""
    return tile.parts, tile.strips, tile.stacked, tile.run


def here(device: str, at: str, more: str) -> Provenance:
    """Of what is measured now: a device's name, a commit or "" for git's, and a command's rest."""
    machine = probe(["tvm_tile", "torch"], with_peaks=False)
    program, _, rest = more.partition(" ")
    command = f"python -m bench.coded_tiles{program} --device {device} {rest}".rstrip()
    return Provenance(
        machine.gpu, machine.driver, machine.versions, at or commit(), command, machine.date
    )


def read_all(path: Path) -> dict[Key, MeasuredTile]:
    """A file's records, of all devices; none where there is no file."""
    return read_keyed(path, _revived)


def read(path: Path, device: str) -> list[MeasuredTile]:
    """A file's records of a device, in order; none where there is no file."""
    known = read_all(path).values()
    return sorted((one for one in known if one.device == device), key=lambda one: one.key)


def by_product(records: list[MeasuredTile]) -> dict[CodedProduct, list[MeasuredTile]]:
    """The right ones, product by product."""
    found = defaultdict(list)
    for one in records:
        if one.is_right:
            found[one.product].append(one)
    return dict(found)


def _revived(fields: dict[str, Any]) -> MeasuredTile:
    return MeasuredTile(**fields | {"provenance": Provenance(**fields["provenance"])})
