"""What the papers and the networks say about their workloads: the files in ``data``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

Sizes = tuple[tuple[str, int | str], ...]


def read_facts(name: str) -> dict[str, Any]:
    """One file of facts; each says its ``source``."""
    text = (Path(__file__).parent / "data" / f"{name}.json").read_text(encoding="utf-8")
    facts: dict[str, Any] = json.loads(text)
    return facts


def sizes(facts: Mapping[str, int | str]) -> Sizes:
    """Facts as a workload holds them: sorted pairs."""
    return tuple(sorted(facts.items()))
