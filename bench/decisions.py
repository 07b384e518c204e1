"""``python -m bench decisions``: what is decided of networks, beside what was decided before.

A text of each network and device has a line a kernel: its calls, operators, rule, tile, blocks by
threads, and predicted seconds with all their digits. The lines are sorted, and nothing in them
depends on hashes or on the machine. ``tests/golden`` compares some of these texts, too.
"""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Sequence
from pathlib import Path

from bench.compare.collect import Collection
from bench.compare.command import add_process_arguments
from bench.compare.record import Compiled, Kernel, Key, plain_name
from bench.compare.trees import ROOT, measures, working
from bench.workload import Workload

FOLDER = ROOT / "tests" / "golden" / "decisions"
DEVICES = ("nvidia/h200", "nvidia/h100", "amd/mi300x", "emulated")
_RESULTS = ROOT / "bench" / "out" / "decisions"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add them to a parser; the filters of workloads are not among them."""
    parser.add_argument("--devices", default=",".join(DEVICES), help="records: A,B,...")
    parser.add_argument("--update", action="store_true", help="rewrite the texts that differ")
    add_process_arguments(parser)
    parser.add_argument("--folder", type=Path, default=FOLDER, help="of the texts")


def run(arguments: argparse.Namespace, workloads: Sequence[Workload]) -> int:
    """Compile, and compare with the texts; the exit status is that of diff."""
    limits = arguments.workers, arguments.limit_s
    differs = False
    for device in arguments.devices.split(","):
        collection = Collection(workloads, device, False, *limits, _RESULTS, measures())
        for compiled in collection.collect(working(), _say).values():
            path = arguments.folder / file_name(compiled.key, device)
            before = path.read_text(encoding="utf-8") if path.exists() else ""
            after = text(compiled)
            differs |= before != after
            texts = before.splitlines(), after.splitlines()
            lines = difflib.unified_diff(*texts, "before", str(path), n=0, lineterm="")
            _say("\n".join(lines))
            if arguments.update and compiled.status == "ok":
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(after, encoding="utf-8")
    return int(differs)


def file_name(key: Key, device: str) -> str:
    """Where the text of a workload for a device is within the folder."""
    return f"{device.replace('/', '_')}/{'_'.join(map(str, key))}.txt"


def text(compiled: Compiled) -> str:
    """What was decided of a network, ending with what a run is predicted to take."""
    lines = sorted(map(_line, compiled.kernels))
    whole = f"{compiled.title}: {compiled.status}, {compiled.predicted_s!r} s"
    return "\n".join([*lines, whole, ""])


def _line(kernel: Kernel) -> str:
    seconds = f"{kernel.seconds!r} s"
    shape = f"{kernel.grid} x {kernel.block}"
    operators = " ".join(map(plain_name, kernel.operators.split()))
    facts = operators, kernel.rule, kernel.tile, shape, seconds, kernel.fallback
    return f"{kernel.calls} of " + " | ".join(filter(None, facts))


def _say(line: str) -> None:
    if line:
        print(line, flush=True)
