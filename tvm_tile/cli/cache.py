"""``tvm-tile cache``: where compiled models are kept, and their parts, and how to have fewer."""

from __future__ import annotations

import argparse
import os
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tvm_tile.cli.output import describe_size, print_table
from tvm_tile.cli.verbosity import tell
from tvm_tile.errors import OptionError
from tvm_tile.files.opencl_cache import POCL_FOLDER, in_use_since, programs_of
from tvm_tile.files.store import MODEL_FOLDER, cache_folder, entries_of
from tvm_tile.files.stored_entries import Entry, forget_oldest

_SIZE = re.compile(r"(\d+(?:\.\d+)?)([KMGT]?)(i?)B?", re.IGNORECASE)
_FACTORS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}


@dataclass(frozen=True, slots=True)
class Contents:
    """Content of the cache's folder.

    Attributes:
        folder: the folder's path.
        models: whole compiled models.
        kept: schedules and machine code, for any device.
        programs: PoCL's, of the emulated device.
    """

    folder: Path
    models: tuple[Entry, ...]
    kept: tuple[Entry, ...]
    programs: tuple[Entry, ...]


def contents_of(folder: Path) -> Contents:
    """Content of a folder now; empty where the folder does not exist."""
    models, kept = entries_of(folder / MODEL_FOLDER), entries_of(folder)
    return Contents(folder, tuple(models), tuple(kept), tuple(programs_of(folder / POCL_FOLDER)))


def add(commands: Any) -> None:
    """Tell the parser of the command."""
    text = "Show or clear what is kept for the next compilation."
    sub = commands.add_parser("cache", help=text, description=text)
    sub.set_defaults(run=run)
    actions = {"show": _show, "path": _path, "prune": _prune, "clear": _clear}
    sub.set_defaults(actions=actions)
    sub.add_argument(
        "action",
        nargs="?",
        choices=tuple(actions),
        default="show",
        help="show size and entries (the default); print the folder's path; prune what was not "
        "used for longest, down to --limit; clear all",
    )
    sub.add_argument("--limit", type=size, metavar="SIZE", help="of prune, such as 500M or 1G")
    sub.add_argument("--cache", help="the folder; by default the one that compilations use")


def size(text: str) -> int:
    """The bytes in ``500M`` (of 1,000,000), ``1GiB`` (of 1,073,741,824) or ``4096``.

    Raises:
        argparse.ArgumentTypeError: it is no such text.
    """
    found = _SIZE.fullmatch(text)
    if found is None or (found[3] and not found[2]):
        raise argparse.ArgumentTypeError(f"{text!r} does not look like 500M, 1G or 1GiB")
    base = 1024 if found[3] else 1000
    return int(float(found[1]) * base ** _FACTORS[found[2].upper()])


def run(arguments: argparse.Namespace) -> None:
    """Do what was asked for with the cache."""
    if (arguments.action == "prune") != (arguments.limit is not None):
        arguments.parser.error("--limit and prune go together: cache prune --limit 1G")
    folder = cache_folder(arguments.cache or True, os.environ)
    if folder is None:
        raise OptionError(
            "there must be a cache",
            "TVM_TILE_CACHE is empty, or there is no home: nothing is kept",
            "name a folder by TVM_TILE_CACHE or --cache",
        )
    arguments.actions[arguments.action](folder, arguments)


def _path(folder: Path, _: argparse.Namespace) -> None:
    """Print the folder of the cache."""
    print(folder)


def _show(folder: Path, _: argparse.Namespace) -> None:
    """Print size and age of what the cache keeps."""
    contents = contents_of(folder)
    print(folder)
    headings = ("what", "entries", "size", "first used", "last used")
    rows = [
        _row("compiled models", contents.models),
        _row("schedules and machine code", contents.kept),
        _row("PoCL's programs (emulated)", contents.programs),
    ]
    print_table([headings, *rows], names=1)


def _row(name: str, entries: tuple[Entry, ...]) -> tuple[str, ...]:
    """Cells on one kind of entries."""
    total = describe_size(sum(entry.size for entry in entries))
    if not entries:
        return name, "0", total, "-", "-"
    days = (time.strftime("%Y-%m-%d", time.localtime(end(entries).used)) for end in (min, max))
    return (name, str(len(entries)), total, *days)


def _prune(folder: Path, arguments: argparse.Namespace) -> None:
    """Remove entries down to a limit."""
    _forget(contents_of(folder), arguments.limit, arguments)


def _clear(folder: Path, arguments: argparse.Namespace) -> None:
    """Remove all entries."""
    _forget(contents_of(folder), 0, arguments)


def _forget(contents: Contents, limit: int, arguments: argparse.Namespace) -> None:
    """Remove down to a limit of all entries together, but nothing that somebody may be reading.

    An entry of ours may go at any time: whoever has it open reads on, others make it again.
    """
    since = in_use_since()
    busy = [entry for entry in contents.programs if entry.used > since]
    entries = (*contents.models, *contents.kept)
    idle = [*entries, *(entry for entry in contents.programs if entry.used <= since)]
    in_use = sum(entry.size for entry in busy)
    removed = forget_oldest(idle, max(0, limit - in_use))
    left = in_use + sum(entry.size for entry in idle) - sum(entry.size for entry in removed)
    freed = describe_size(sum(entry.size for entry in removed))
    print(f"{contents.folder}: {len(removed)} entries removed, {freed}; {describe_size(left)} left")
    if left > limit:
        text = f"{len(busy)} programs of PoCL's stay: they may be in use, as within the last hour"
        tell(text, arguments.verbosity)
