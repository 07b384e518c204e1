"""Files of one JSON object a line."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


def line_of(record: DataclassInstance) -> str:
    """A record as a line."""
    return json.dumps(asdict(record)) + "\n"


def rewrite(path: Path, records: Iterable[Any]) -> None:
    """Write a file anew, one line a record: all or nothing."""
    beside = path.with_suffix(".tmp")
    beside.write_text("".join(map(line_of, records)), encoding="utf-8")
    os.replace(beside, path)
