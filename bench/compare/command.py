"""``python -m bench compare``: what a change does to kernels, predictions and times."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from bench.compare.changes import OF_CODE, Change, compare_all, compare_times
from bench.compare.collect import Collection
from bench.compare.process import NotStarted
from bench.compare.record import key_of
from bench.compare.report import differences, page
from bench.compare.timing import Pairs, Timed
from bench.compare.trees import ROOT, NoSuchCommit, Tree, committed, measures, working
from bench.workload import Workload

KERNELS = "ops,drawn,gemm,conv,attention,norm"
FOLDER = ROOT / "bench" / "out" / "compare"
_SHOWN = 60  # lines of the page; all are in the file


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add them to a parser; the filters of workloads are not among them."""
    parser.add_argument("before", metavar="COMMIT", help="any name that git knows it by")
    parser.add_argument(
        "after", metavar="OTHER", nargs="?", help="another; by default the working tree"
    )
    parser.add_argument("--device", default="nvidia/h200", help="the record to compile for")
    parser.add_argument(
        "--machine-code",
        action="store_true",
        help="compile kernels to the end: slower, and co-scheduling knows their registers",
    )
    parser.add_argument(
        "--time",
        nargs="?",
        const="changed",
        choices=("changed", "all"),
        help="on a GPU: measure, too, what is other code at the second commit, or all",
    )
    add_process_arguments(parser)
    parser.add_argument("--afresh", action="store_true", help="use no results of earlier runs")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="for what it writes")


def add_process_arguments(parser: argparse.ArgumentParser) -> None:
    """Add how many processes compile at once, and for how long."""
    parser.add_argument(
        "--workers", type=int, default=len(os.sched_getaffinity(0)), help="processes at once"
    )
    parser.add_argument("--limit-s", type=float, default=900.0, help="for one workload")


def run(arguments: argparse.Namespace, workloads: Sequence[Workload]) -> int:
    """Compare; the exit status is that of diff: 0 if nothing differs, 1 if something does."""
    try:
        other = arguments.after
        trees = (committed(arguments.before), working() if other is None else committed(other))
        changes = _compared(arguments, trees, workloads)
    except (NoSuchCommit, NotStarted) as reason:
        print(reason, file=sys.stderr)
        return 2
    return 1 if changes else 0


def _compared(
    arguments: argparse.Namespace, trees: tuple[Tree, Tree], workloads: Sequence[Workload]
) -> tuple[Change, ...]:
    """Collect what both commits make of the workloads; print and write what differs."""
    start = time.monotonic()
    collection = Collection(
        workloads,
        arguments.device,
        arguments.machine_code,
        arguments.workers,
        arguments.limit_s,
        arguments.folder,
        measures(),
    )
    before, after = (collection.collect(tree, _say, afresh=arguments.afresh) for tree in trees)
    changes = compare_all(before, after)
    timed = _times(arguments, trees, to_time(arguments.time, workloads, changes))
    for own in timed:
        if own.before is not None and own.after is not None:
            medians = own.before.median_ms * 1e-3, own.after.median_ms * 1e-3
            changes += compare_times(after[key_of(own.workload)], *medians)
    labels = f"{trees[0].label}..{trees[1].label}"
    told = f"{labels} for {arguments.device}, {time.monotonic() - start:.0f} s"
    lines = [told, *page(before, after, changes, timed)]
    place = arguments.folder / labels
    _write(place.with_name(f"{labels}.txt"), lines)
    _write(place.with_name(f"{labels}.diff"), differences(changes, collection.texts))
    _say("\n".join(["", *lines[:_SHOWN]]))
    if len(lines) > _SHOWN:
        _say(f"... and {len(lines) - _SHOWN} lines more")
    _say(f"\nwritten to {place}.txt and .diff")
    return changes


def to_time(
    which: str | None, workloads: Sequence[Workload], changes: Sequence[Change]
) -> list[Workload]:
    """The workloads that are to be timed: the others take as long as before."""
    changed = {change.title for change in changes if change.kind in OF_CODE}
    if which == "all":
        return list(workloads)
    return [own for own in workloads if which and str(own) in changed]


def _times(
    arguments: argparse.Namespace, trees: tuple[Tree, Tree], workloads: Sequence[Workload]
) -> tuple[Timed, ...]:
    if not workloads:
        return ()
    with tempfile.TemporaryDirectory() as temporary:
        folders = (Path(temporary) / "before", Path(temporary) / "after")
        for tree, folder in zip(trees, folders, strict=True):
            tree.extract(folder)
        log = arguments.folder / "times.log"
        pairs = Pairs(folders, arguments.device, log, arguments.limit_s, arguments.workers, _say)
        return pairs.times(workloads)


def _write(path: Path, lines: Iterable[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def _say(line: str) -> None:
    print(line, flush=True)
