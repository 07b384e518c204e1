"""``tvm-tile predict``."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

from tvm_tile.cli.model import SOURCE, add_model_command, add_options, options_of
from tvm_tile.cli.output import print_table
from tvm_tile.cli.spelling import in_words
from tvm_tile.cli.verbosity import tell

if TYPE_CHECKING:
    from tvm_tile.report.shown import Report


def add(commands: Any) -> None:
    """Tell the parser of the command."""
    text = "Tell what a model would take on GPUs, without one, and without building it."
    sub = add_model_command(commands, "predict", run, text, SOURCE, on_many=True)
    add_options(sub)
    sub.add_argument("--json", action="store_true", help="the reports, for other programs")


def run(arguments: argparse.Namespace) -> None:
    """Print a table of what runs of a model are predicted to take, a line a device."""
    from tvm_tile.oracle import Oracle
    from tvm_tile.report.screen.report_json import json_of

    given = {"inputs": dict(arguments.inputs) or None, "params": arguments.params}
    oracle = Oracle(*(arguments.device or ["auto"]), options=options_of(arguments))
    reports = list(oracle.on_all(arguments.model, **given).values())
    for note in dict.fromkeys(note for report in reports for note in report.notes):
        tell(f"note: {in_words(note)}", arguments.verbosity)
    if arguments.json:
        print(json.dumps([json.loads(json_of(report, "time")) for report in reports], indent=1))
        return
    headings = ("device", "us a run", "launches", "MB moved", "MB of weights", "MB between", "fell")
    print_table([headings, *map(_row, reports)], names=1)


def _row(report: Report) -> tuple[str, ...]:
    """Cells on a device; times of a record that nobody measured are estimates."""
    return (
        report.device,
        f"{report.at_least}{report.predicted_seconds * 1e6:.1f}{' (~)' * report.is_estimated}",
        str(report.launch_count),
        *(f"{size / 1e6:.2f}" for size in (report.traffic, report.weights, report.planned)),
        str(len(report.fallbacks)),
    )
