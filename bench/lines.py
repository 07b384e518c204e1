"""Files of one JSON object a line."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


def line_of(record: DataclassInstance) -> str:
    """A record as a line."""
    return json.dumps(asdict(record)) + "\n"


Keyed = TypeVar("Keyed")


def read_keyed(path: Path, revived: Callable[[dict[str, Any]], Keyed]) -> dict[Any, Keyed]:
    """A file's records by ``key``, of several with one the last; empty where there is no file."""
    if not path.exists():
        return {}
    lines = path.read_text(encoding="utf-8").splitlines()
    records: list[Any] = [revived(json.loads(line)) for line in lines]
    return {record.key: record for record in records}


def put(path: Path, records: dict[Any, Any], record: Any) -> None:
    """Write ``records`` with one more, or in place of the one with its key; all or nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    known = records | {record.key: record}
    rewrite(path, (known[key] for key in sorted(known)))


def append(path: Path, record: DataclassInstance) -> None:
    """Add a record to a file, so that it is there whatever comes next."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+", encoding="utf-8") as file:
        file.seek(max(0, file.tell() - 1))
        if file.read() not in ("", "\n"):
            file.write("\n")  # a killed run left half a line: ours must not be its other half
        file.write(line_of(record))


def rewrite(path: Path, records: Iterable[Any]) -> None:
    """Write a file anew, one line a record: all or nothing."""
    beside = path.with_suffix(".tmp")
    beside.write_text("".join(map(line_of, records)), encoding="utf-8")
    os.replace(beside, path)
