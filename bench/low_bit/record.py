"""What is measured of products with weights of a few bits, as JSON lines: one a system."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.lines import rewrite
from bench.open_shapes.record import Provenance

RESULTS = "low_bit.jsonl"
# Systems: our product with codes; of halves; with a kernel that decodes the matrix to memory first.
OURS, FLOATS, APART = "tvm_tile", "tvm_tile float16", "tvm_tile decoded first"
CUBLAS, GEMLITE = "cublas", "gemlite"
PEERS = (CUBLAS, "int4pack", "int8pack", "int_mm", "scaled_mm", GEMLITE)
SYSTEMS = (OURS, FLOATS, APART, *PEERS)

Key = tuple[str, str, str, str, str]


@dataclass(frozen=True, slots=True)
class Measured:
    """One system's product of one format.

    Attributes:
        family: of the product, as the next four: see :class:`bench.low_bit.products.Product`.
        name: its name in the family.
        vectors: how many.
        rows: of the matrix.
        depth: of the sum.
        format: of the weights.
        system: whose kernels.
        status: ``"ok"``, or why there is no time that counts.
        least_bytes: that the product reads and writes: codes, scales, vectors, the result.
        floor_us: these over the device record's bandwidth of reading.
        median_us: with a cold cache, in microseconds.
        first_quartile_us: of the same runs.
        third_quartile_us: of the same runs.
        repeats: how many.
        error: norm of the difference over norm of the float64 product of what the codes mean;
            ``None`` where that is no number.
        tolerance: what ``error`` must not exceed.
        rules: that wrote our kernels, in their order.
        obstacle: why no kernel of ours multiplies these codes themselves; empty where one does.
        provenance: where and of what.
    """

    family: str
    name: str
    vectors: int
    rows: int
    depth: int
    format: str
    system: str
    status: str
    least_bytes: float
    floor_us: float
    median_us: float | None = None
    first_quartile_us: float | None = None
    third_quartile_us: float | None = None
    repeats: int = 0
    error: float | None = None
    tolerance: float | None = None
    rules: str = ""
    obstacle: str = ""
    provenance: Provenance | None = None

    @property
    def gpu(self) -> str:
        """It ran on."""
        return "" if self.provenance is None else self.provenance.gpu

    @property
    def key(self) -> Key:
        """What no two records share."""
        return (self.gpu, self.family, self.name, self.format, self.system)

    @property
    def is_right(self) -> bool:
        """Whether its time counts."""
        return self.status == "ok" and self.median_us is not None


def read(path: Path) -> dict[Key, Measured]:
    """The records of a file, of several with one key the last; none where there is no file.

    A line that a killed run left half-written is skipped.
    """
    found: dict[Key, Measured] = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        try:
            fields: dict[str, Any] = json.loads(line)
        except json.JSONDecodeError:
            continue
        origin = fields.pop("provenance")
        made = Measured(**fields, provenance=Provenance(**origin) if origin else None)
        found[made.key] = made
    return found


def tidy(path: Path, chosen: Iterable[Measured]) -> None:
    """Write a file anew, in order, with these records alone."""
    rewrite(path, sorted(chosen, key=lambda record: record.key))
