"""The records of a results folder as suites, rows and columns, in the order of the tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import suites
from bench.code import record as code
from bench.record import Record, read
from bench.traffic import record as traffic

OURS = "tvm_tile"
UNFUSED = "tvm_tile_unfused"
NO_COSCHEDULE = "tvm_tile_no_coschedule"
AGAIN = ".again"
DTYPES = ("float32", "float16", "bfloat16")
# In the order of the columns: peers, and the name by which a record's versions say theirs.
LIBRARIES = {
    "torch": "torch",
    "torch_graph": "torch",
    "torch_compile": "torch.compile",
    "dlight": "tvm",
    "metaschedule": "tvm",
    "jax": "jax",
    "onnxruntime": "onnxruntime",
}
_ABSENT = ("missing", "not supported")


@dataclass(frozen=True, slots=True)
class Column:
    """A system in the tables and plots: its variants apart, numbers of trials together."""

    system: str
    variant: str

    @property
    def is_ours(self) -> bool:
        """Ours as it is meant to be used."""
        return self.system == OURS

    @property
    def is_peer(self) -> bool:
        """Another's work: neither ours nor ours with something switched off."""
        return not self.system.startswith(OURS)

    def __str__(self) -> str:
        return f"{self.system} {self.variant}".rstrip()


@dataclass(frozen=True, slots=True)
class Row:
    """One workload and what each system did with it."""

    workload: str
    family: str
    dtype: str
    batch: int | None
    cells: Mapping[Column, Record]

    @property
    def name(self) -> str:
        """The workload, with its batch size where it has one."""
        return self.workload if self.batch is None else f"{self.workload} b{self.batch}"

    @property
    def floor_ms(self) -> float | None:
        """The hardware's limit; ours before another's, for each run measures its own peaks."""
        floors = [record.floor_ms for record in self.cells.values() if record.floor_ms]
        return floors[0] if floors else None

    def ms(self, column: Column) -> float | None:
        """The median, if the system ran and was right."""
        record = self.cells.get(column)
        return record.median_ms if record is not None and record.is_right else None

    def speed_up(self, ours: Column, peer: Column) -> float | None:
        """How many times faster ``ours`` is, if both are right."""
        mine, its = self.ms(ours), self.ms(peer)
        return its / mine if mine and its else None

    def fraction(self, column: Column) -> float | None:
        """Of the floor: 1 is the hardware's limit."""
        ms = self.ms(column)
        floor = self.cells[column].floor_ms if ms else None
        return floor / ms if ms and floor else None


@dataclass(frozen=True, slots=True)
class Suite:
    """What was measured of a suite, and what a second run of it measured.

    ``columns`` leaves out systems that could run none of it.
    """

    name: str
    records: tuple[Record, ...]
    again: tuple[Record, ...]
    rows: tuple[Row, ...]
    columns: tuple[Column, ...]

    @property
    def ours(self) -> tuple[Column, ...]:
        """Of ours, the one to compare first."""
        return tuple(column for column in self.columns if column.is_ours)

    @property
    def others(self) -> tuple[Column, ...]:
        """The peers, then ours with something switched off."""
        return tuple(column for column in self.columns if not column.is_ours)

    @property
    def dtypes(self) -> tuple[str, ...]:
        """In the order of the tables."""
        return tuple(dict.fromkeys(row.dtype for row in self.rows))

    def of_dtype(self, dtype: str) -> tuple[Row, ...]:
        """Its rows of one dtype."""
        return tuple(row for row in self.rows if row.dtype == dtype)

    def label(self, column: Column) -> str:
        """The column's name with trials and version, such as ``"torch_graph (torch 2.11.0)"``."""
        records = [record for record in self.records if column_of(record) == column]
        if not column.is_peer:
            return str(column)
        library = LIBRARIES.get(column.system, column.system)
        version = _span(_version(record, library) for record in records)
        trials = _span(_trials(record) for record in records if record.variant.isdigit())
        if version and library.replace(".", "_") == column.system:
            return f"{column} {version}"
        facts = (trials and f"{trials} trials", version and f"{library} {version}")
        shown = ", ".join(fact for fact in facts if fact)
        return f"{column} ({shown})" if shown else str(column)


def _trials(record: Record) -> str:
    """Of this operator, where the note says it; else the most of any."""
    own = re.match(r"best of (\d+) trials", record.note)
    return own.group(1) if own else record.variant


def load(results: Path) -> tuple[Suite, ...]:
    """The suites of a folder, in the benchmark's order; a file without records is none."""
    others = (traffic.FILE, code.FILE)
    files = (path for path in sorted(results.glob("*.jsonl")) if path.name not in others)
    paths = (path for path in files if not path.stem.endswith(AGAIN) and _is_of_a_suite(path))
    found = (suite(path.stem, read(path).values(), _again(path)) for path in paths)
    order = {name: place for place, name in enumerate(suites.names())}
    return tuple(
        sorted(
            (suite for suite in found if suite.records),
            key=lambda suite: (order.get(suite.name, len(order)), suite.name),
        )
    )


def _is_of_a_suite(path: Path) -> bool:
    """Whether a file's lines are records; those of random graphs and architectures are others."""
    with path.open(encoding="utf-8") as file:
        return '"suite":' in file.readline()


def suite(name: str, records: Iterable[Record], again: Iterable[Record] = ()) -> Suite:
    """Arrange records."""
    ordered = tuple(sorted(records, key=_place))
    here = {column_of(r) for r in ordered if not r.status.startswith(_ABSENT)}
    columns = sorted(here, key=column_place)
    return Suite(name, ordered, tuple(sorted(again, key=_place)), _rows(ordered), tuple(columns))


def column_of(record: Record) -> Column:
    """Where a record belongs: the number of trials is a fact of it, not another system."""
    return Column(record.system, "" if record.variant.isdigit() else record.variant)


def natural(text: str) -> tuple[tuple[int, int, str], ...]:
    """A sort key in which C2 is before C10."""
    parts = re.findall(r"\d+|\D+", text)
    return tuple((0, int(p), "") if p.isdecimal() else (1, 0, p) for p in parts)


def column_place(column: Column) -> tuple[Any, ...]:
    """A sort key: ours, top1 before top10, the peers, and last ours with something switched off."""
    switched_off = not column.is_ours and not column.is_peer
    known = list(LIBRARIES)
    rank = known.index(column.system) if column.system in LIBRARIES else len(known)
    rank = -1 if column.is_ours else rank
    return (switched_off, rank, natural(column.system), natural(column.variant))


def _rows(ordered: tuple[Record, ...]) -> tuple[Row, ...]:
    cells: dict[tuple[str, str, str, int | None], dict[Column, Record]] = {}
    for record in ordered:
        key = (record.workload, record.family, record.dtype, record.batch)
        row = cells.setdefault(key, {})
        column = column_of(record)
        # Records come by number of trials: the last that is right.
        if column not in row or record.is_right or not row[column].is_right:
            row[column] = record
    return tuple(Row(*key, row) for key, row in cells.items())


def _place(record: Record) -> tuple[Any, ...]:
    dtype = DTYPES.index(record.dtype) if record.dtype in DTYPES else len(DTYPES)
    return (
        (dtype, record.dtype, record.family, natural(record.workload), record.batch or 0),
        column_place(column_of(record)),
        natural(record.variant),
    )


def _again(path: Path) -> Iterable[Record]:
    return read(path.with_name(f"{path.stem}{AGAIN}.jsonl")).values()


def _version(record: Record, library: str) -> str:
    entries = (entry.strip().partition(" ") for entry in record.versions.split(","))
    found = next((version for name, _, version in entries if name == library), "")
    return re.sub(r"\+\w+", "", found)  # of torch 2.11.0+cu130 the build says nothing here


def _span(values: Iterable[str]) -> str:
    """The one value, or the first and the last."""
    ordered = sorted({value for value in values if value}, key=natural)
    return "–".join(dict.fromkeys((ordered[0], ordered[-1]))) if ordered else ""
