"""Measured tiles, as data: what the parameters of time models are fitted to.

The operators are written down with their tiles, so that a file of samples is enough to fit again,
without the GPU and without TVM.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from tvm_tile.device import Device
from tvm_tile.errors import CalibrationError
from tvm_tile.files.json_data import revived
from tvm_tile.files.whole_file import replacing
from tvm_tile.graph.tile_graph import Operator
from tvm_tile.tile.construct import contraction_predictor
from tvm_tile.tile.few_rows.few_vectors import find_matvec
from tvm_tile.tile.few_rows.matvec import construct_matvec
from tvm_tile.tile.moves.plain import construct_plain
from tvm_tile.tile.products.matrix_cores import construct_matrix_cores
from tvm_tile.tile.products.mma import construct_mma
from tvm_tile.tile.products.warpgroup import construct_warpgroup
from tvm_tile.tile.rows.reduce import construct_reduction
from tvm_tile.tile.rtile import RProgram, RTile
from tvm_tile.tile.units.product import Product, find_product

Floats = npt.NDArray[np.float64]
_EVERY = 1 << 20  # all tiles that a construction finds


class _Tile(Protocol):
    @property
    def seconds(self) -> float: ...

    def describe(self) -> str: ...


_PRODUCTS: dict[str, Callable[[Product, Device, int], Sequence[_Tile]]] = {
    "wgmma": construct_warpgroup,
    "mma": construct_mma,
    "matrix_cores": construct_matrix_cores,
}


@dataclass(frozen=True, slots=True)
class ContractionTile:
    """A tile of a contraction, the fields of :class:`RProgram`, and its measured ``seconds``."""

    register: tuple[int, ...]
    shared: tuple[int, ...]
    groups: int
    is_prefetched: bool
    parts: int
    seconds: float

    @classmethod
    def of(cls, program: RProgram, seconds: float) -> ContractionTile:
        """Measured tile of a program."""
        shapes = program.register.shape, program.shared.shape
        return cls(*shapes, program.groups, program.is_prefetched, program.parts, seconds)

    def program(self, operator: Operator) -> RProgram:
        """The tile's program, of the operator that it was measured for."""
        shapes = RTile(self.register), RTile(self.shared)
        return RProgram(operator, *shapes, self.groups, self.is_prefetched, self.parts)


@dataclass(frozen=True, slots=True)
class ContractionSamples:
    """Tiles of one contraction on CUDA cores."""

    operator: Operator
    tiles: tuple[ContractionTile, ...]


@dataclass(frozen=True, slots=True)
class FamilySamples:
    """Tiles of one operator in another kernel family.

    Attributes:
        family: the field of :class:`~tvm_tile.device.times.KernelTimes` of its parameters.
        operator: the operator that was computed.
        tiles: (the tile as its ``describe()`` says it, measured seconds) pairs.
    """

    family: str
    operator: Operator
    tiles: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True)
class Samples:
    """All that was measured on a GPU for a fit.

    Attributes:
        gpu: the driver's name for it.
        date: year, month and day.
        contractions: one for each operator on CUDA cores.
        families: one for each operator of the other families.
    """

    gpu: str
    date: str
    contractions: tuple[ContractionSamples, ...]
    families: tuple[FamilySamples, ...]

    def write(self, path: Path) -> None:
        """Write a JSON file; ``path`` holds either its old content or all of the new one.

        Raises:
            OSError: the folder cannot be written.
        """
        with replacing(path) as file:
            file.write(json.dumps(asdict(self), indent=1, allow_nan=False).encode())

    @classmethod
    def read(cls, path: Path) -> Samples:
        """Read samples that :meth:`write` wrote.

        Raises:
            CalibrationError: the file cannot be read, or holds something else.
        """
        try:
            samples: Samples = revived(cls, json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError, RecursionError) as error:
            raise CalibrationError(
                "a file of measured tiles must be one that `tvm-tile calibrate --fit` wrote",
                f"{path}: {error}",
                "measure again",
            ) from error
        return samples


@dataclass(frozen=True, slots=True)
class TileGroup:
    """Measured tiles of one operator, and how the model predicts them.

    Attributes:
        family: the field of :class:`~tvm_tile.device.times.KernelTimes` of its parameters.
        measured: seconds, shape (tiles,).
        predict: function that predicts seconds on a device with other times than the measured one.
    """

    family: str
    measured: Floats
    predict: Callable[[Device], Floats]


def groups_of(samples: Samples, device: Device) -> tuple[TileGroup, ...]:
    """The samples as groups, those of the device they were measured on."""
    return (
        *(_contraction(own, device) for own in samples.contractions),
        *(_family(own) for own in samples.families),
    )


def _contraction(samples: ContractionSamples, device: Device) -> TileGroup:
    """Samples of products on CUDA cores as a group for the fit."""
    programs = [tile.program(samples.operator) for tile in samples.tiles]
    measured = np.array([tile.seconds for tile in samples.tiles])
    return TileGroup("contraction", measured, contraction_predictor(programs, device))


def _family(samples: FamilySamples) -> TileGroup:
    """Samples of another family as a group for the fit."""

    def predict(device: Device) -> Floats:
        seconds = tile_seconds(samples.family, samples.operator, device)
        return np.array([seconds[text] for text, _ in samples.tiles])

    return TileGroup(samples.family, np.array([seconds for _, seconds in samples.tiles]), predict)


def tile_seconds(family: str, operator: Operator, device: Device) -> Mapping[str, float]:
    """The tiles that a family's model finds for an operator, as text, and their predictions.

    Texts that several tiles share are left out.
    """
    tiles = tuple(_tiles(family, operator, device))
    counts = Counter(tile.describe() for tile in tiles)
    return {t.describe(): t.seconds for t in tiles if counts[t.describe()] == 1}


def _tiles(family: str, operator: Operator, device: Device) -> Sequence[_Tile]:
    """Tiles of an operator in a kernel family, best first."""
    if family == "elementwise":
        return construct_plain(operator, device)
    if family == "reduction":
        return construct_reduction(operator, device)
    if family == "matvec":
        rows = find_matvec(operator, device)
        return () if rows is None else construct_matvec(operator, rows, device)
    product = find_product(operator)
    return () if product is None else _PRODUCTS[family](product, device, _EVERY)
