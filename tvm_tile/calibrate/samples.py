"""Measured tiles, as data: what the model of time is fitted to.

What a kernel does is written down beside its times, so that a file of samples is enough to fit
again, without the GPU and without TVM.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from tvm_tile.errors import CalibrationError
from tvm_tile.files.json_data import revived
from tvm_tile.files.whole_file import replacing
from tvm_tile.tile.time import Work


@dataclass(frozen=True, slots=True)
class TileSample:
    """One measured tile.

    Attributes:
        function: name of the function that it computes.
        rule: name of the rule that wrote it.
        rank: its place in that rule's order.
        tile: itself, in words.
        predicted: seconds that were predicted amid others when it was measured.
        works: what its kernels do, one behind the other; empty where it does not say.
        cold: measured seconds by itself, with nothing in a cache.
        warm: measured seconds in a graph behind a different kernel, from the end of that to its
            own, what it reads in the second-level cache and its code in no cache of instructions.
    """

    function: str
    rule: str
    rank: int
    tile: str
    predicted: float
    works: tuple[Work, ...]
    cold: float = field(kw_only=True)
    warm: float = field(kw_only=True)


@dataclass(frozen=True, slots=True)
class Samples:
    """All that was measured on a GPU for a fit.

    Attributes:
        gpu: the driver's name for it.
        date: year, month and day.
        tiles: one for each tile; those of a function are neighbours.
        origin: what else is to be known of where the times are from: driver, versions, command.
    """

    gpu: str
    date: str
    tiles: tuple[TileSample, ...]
    origin: str = ""

    @property
    def functions(self) -> Mapping[str, tuple[TileSample, ...]]:
        """The tiles of each function, by its name, in the order of the file."""
        found: dict[str, list[TileSample]] = defaultdict(list)
        for tile in self.tiles:
            found[tile.function].append(tile)
        return {name: tuple(own) for name, own in found.items()}

    def write(self, path: Path) -> None:
        """Write a file of a line a tile; ``path`` holds its old content or all of the new one.

        Raises:
            OSError: the folder cannot be written.
        """
        head = json.dumps({"gpu": self.gpu, "date": self.date, "origin": self.origin})
        with replacing(path) as file:
            file.write("\n".join([head, *map(_line, self.tiles), ""]).encode())

    @classmethod
    def read(cls, path: Path) -> Samples:
        """The samples in a file.

        Raises:
            CalibrationError: the file cannot be read, or holds something else.
        """
        try:
            head, *lines = path.read_text(encoding="utf-8").splitlines()
            tiles = [json.loads(line) for line in lines]
            found: Samples = revived(cls, json.loads(head) | {"tiles": tiles})
            return found
        except (OSError, ValueError, TypeError, RecursionError) as error:
            raise CalibrationError(
                "the file must hold measured tiles",
                f"{path}: {error}",
                "measure with `tvm-tile calibrate --fit`",
            ) from error


def _line(tile: TileSample) -> str:
    """A tile as a line of a file."""
    return json.dumps(_told(tile))


def _told(data: Any) -> Any:
    """Frozen data for JSON, without what is as by default."""
    if is_dataclass(data):
        pairs = ((own, getattr(data, own.name)) for own in fields(data))
        return {own.name: _told(value) for own, value in pairs if not _is_default(own, value)}
    if isinstance(data, tuple):
        return [_told(item) for item in data]
    return data.value if isinstance(data, Enum) else data


def _is_default(own: Any, value: Any) -> bool:
    """Whether a field's value is what it is where nobody says it."""
    return isinstance(value, int | float | str | Enum) and value == own.default
