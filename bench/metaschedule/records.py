"""What tuning leaves in a folder: MetaSchedule's database of each operator, and its history.

For an operator ``C0`` in float32:

* ``C0_float32.records.json.xz``: ``database_tuning_record.json`` of MetaSchedule, compressed
  (a trace repeats itself: 1 MB becomes 20 KB);
* ``C0_float32.workload.json.xz``: its ``database_workload.json``;
* ``C0_float32.history.json``: seconds, trials and best time after every round.
"""

from __future__ import annotations

import json
import lzma
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

_PARTS = {"records": "database_tuning_record.json", "workload": "database_workload.json"}


class DatabaseError(Exception):
    """A file of the folder is not what tuning writes; the message says which, and what to do."""


@dataclass(frozen=True, slots=True)
class Round:
    """Totals since tuning began, in all runs together.

    Attributes:
        trials: candidates tried.
        valid: those that compiled and ran.
        seconds: wall-clock, without waiting for the GPU.
        best_s: seconds of the best kernel so far; None before the first valid one.
        search_s: of ``seconds``, MetaSchedule's search and cost model.
        build_s: lowering and NVRTC.
        measure_s: loading and timing kernels.
    """

    trials: int
    valid: int
    seconds: float
    best_s: float | None
    search_s: float
    build_s: float
    measure_s: float


@dataclass(frozen=True, slots=True)
class History:
    """How the tuning of one operator went.

    Attributes:
        workload: its name in the suite.
        dtype: its dtype.
        rounds: in order.
        exhausted: the search found no further candidate.
        conditions: of each run: GPU, cores, operators tuned at once, versions.
    """

    workload: str
    dtype: str
    rounds: tuple[Round, ...] = ()
    exhausted: bool = False
    conditions: tuple[str, ...] = field(default=())

    @property
    def last(self) -> Round:
        """The totals so far."""
        return self.rounds[-1] if self.rounds else Round(0, 0, 0.0, None, 0.0, 0.0, 0.0)

    def after(self, totals: Round) -> History:
        """With one more round."""
        return replace(self, rounds=(*self.rounds, totals))


@dataclass(frozen=True, slots=True)
class Records:
    """The files of one operator in a folder."""

    folder: Path
    workload: str
    dtype: str

    def exist(self) -> bool:
        """Whether a round of it was ever finished."""
        return self._path("records.json.xz").exists()

    def read_history(self) -> History:
        """How the tuning went; empty when there was none.

        Raises:
            DatabaseError: the file is damaged.
        """
        path = self._path("history.json")
        if not path.exists():
            return History(self.workload, self.dtype)
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            rounds = tuple(Round(**entry) for entry in content.pop("rounds"))
            conditions = tuple(content.pop("conditions"))
            return History(**content, rounds=rounds, conditions=conditions)
        except (ValueError, TypeError, KeyError) as error:
            raise _damaged(path, error) from error

    @contextmanager
    def open(self) -> Iterator[Database]:
        """MetaSchedule's database, unpacked; :meth:`Database.save` writes it back.

        Raises:
            DatabaseError: a file is damaged.
        """
        from tvm.s_tir.meta_schedule.database import JSONDatabase

        with tempfile.TemporaryDirectory() as scratch:
            for part, name in _PARTS.items():
                packed = self._path(f"{part}.json.xz")
                if packed.exists():
                    (Path(scratch) / name).write_bytes(_unpacked(packed))
            try:
                database = JSONDatabase(work_dir=scratch)
            except Exception as error:  # TVM raises whatever it likes
                raise _damaged(self._path("records.json.xz"), error) from error
            yield Database(self, Path(scratch), database)

    def write(self, part: str, data: bytes) -> None:
        """Replace one file; all or nothing."""
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self._path(part)
        beside = path.with_name(path.name + ".tmp")
        beside.write_bytes(data)
        os.replace(beside, path)

    def _path(self, part: str) -> Path:
        return self.folder / f"{self.workload}_{self.dtype}.{part}"


@dataclass(frozen=True, slots=True)
class Database:
    """An open database.

    Attributes:
        tvm: MetaSchedule's own object.
    """

    records: Records
    scratch: Path
    tvm: Any

    def save(self, history: History) -> None:
        """Write records and history to the folder."""
        for part, name in _PARTS.items():
            text = (self.scratch / name).read_bytes()
            self.records.write(f"{part}.json.xz", lzma.compress(text))
        text = json.dumps(asdict(history), indent=1)
        self.records.write("history.json", text.encode() + b"\n")


def _unpacked(path: Path) -> bytes:
    try:
        return lzma.decompress(path.read_bytes())
    except (lzma.LZMAError, EOFError) as error:
        raise _damaged(path, error) from error


def _damaged(path: Path, error: Exception) -> DatabaseError:
    reason = " ".join(str(error).split())[-200:]
    operator = path.name.partition(".")[0]
    return DatabaseError(
        f"{path} is not what tuning wrote ({type(error).__name__}: {reason}); "
        f"restore it, or remove {path.parent / operator}.* to tune anew"
    )
