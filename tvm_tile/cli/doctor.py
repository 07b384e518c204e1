"""``tvm-tile doctor``: what works on this machine, and what is missing for what."""

from __future__ import annotations

import argparse
import json
import platform
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from tvm_tile._version import __version__
from tvm_tile.cli.capabilities import Capability, capabilities
from tvm_tile.cli.devices import device_of_auto
from tvm_tile.cli.output import print_table
from tvm_tile.cli.status import ExitStatus
from tvm_tile.compat import installed_versions


def add(commands: Any) -> None:
    """Tell the parser of the command."""
    text = "Tell what works on this machine, and what is missing for what."
    sub = commands.add_parser("doctor", help=text, description=text)
    sub.set_defaults(run=run)
    sub.add_argument("--json", action="store_true", help="for other programs")


def run(arguments: argparse.Namespace) -> ExitStatus:
    """Look for all capabilities, and print them."""
    tvm, ffi = installed_versions()
    versions = {
        "tvm-tile": __version__,
        "apache-tvm": tvm,
        "apache-tvm-ffi": ffi,
        "python": platform.python_version(),
    }
    found = tuple(capabilities())
    if arguments.json:
        content = {
            "versions": versions,
            "auto": device_of_auto(),
            "capabilities": [asdict(one) for one in found],
        }
        print(json.dumps(content, indent=1))
    else:
        print(", ".join(f"{name} {version}" for name, version in versions.items()))
        print_table(list(rows_of(found)), names=3)
        print(f"auto is {device_of_auto()} on this machine")
    is_able = any(one.compiles and one.is_ready for one in found)
    return ExitStatus.RIGHT if is_able else ExitStatus.ENVIRONMENT


def rows_of(found: Sequence[Capability]) -> Iterator[tuple[str, str, str]]:
    """Rows of a table for people, each remedy below what it is for."""
    for one in found:
        yield "ok" if one.is_ready else "--", one.name, one.found
        if one.remedy:
            yield "", "", f"remedy: {one.remedy}"
