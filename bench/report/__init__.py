"""The report: Markdown tables and pictures of what is in a results folder.

    python -m bench report [--results bench/results]

Reads ``SUITE.jsonl``, ``SUITE.again.jsonl`` (a second run, for repeatability),
``metaschedule/*.history.json``, ``traffic.jsonl`` and ``code.jsonl``; writes ``REPORT.md``,
``SUITE.md``, ``traffic.md``, ``code.md`` and PNGs beside them. The same records give the same
bytes.
"""

from __future__ import annotations

from pathlib import Path

from bench.code import record as built
from bench.report import code, coscheduling, decoding, predictions, repeat, traffic, welding
from bench.report.data import Suite, load
from bench.report.index import index
from bench.report.markdown import join
from bench.report.tables import page
from bench.traffic import record as measured


class NoRecords(SystemExit):
    """There is nothing to report; ends the program with exit status 1 and its message."""


def main(results: Path) -> list[Path]:
    """Write the report into the results folder.

    Returns:
        The files that were written.

    Raises:
        NoRecords: the folder has no ``SUITE.jsonl`` with records.
    """
    suites = load(results)
    moved = tuple(measured.read(results / measured.FILE).values())
    made = tuple(built.read(results / built.FILE).values())
    if not suites and not moved and not made:
        raise NoRecords(
            f"no records in {results}: there must be a SUITE.jsonl with at least one; "
            "measure with `python -m bench run --suite SUITE --systems A,B,...` first"
        )
    written = []
    images = {}
    for suite in suites:
        drawn = pictures(suite, results)
        images[suite.name] = [path.name for path in drawn]
        written += drawn
        worth = join(
            decoding.section(suite),
            welding.section(suite, moved),
            coscheduling.section(suite),
            predictions.fronts(suite),
        )
        text = page(suite, images[suite.name], worth, repeat.unlike(suite))
        written.append(_write(results / f"{suite.name}.md", text))
    if moved:
        written.append(_write(results / "traffic.md", traffic.page(moved)))
    if made:
        written.append(_write(results / "code.md", code.page(made)))
    predicted = (predictions.section(suites), traffic.section(moved))
    text = index(suites, images, predicted)
    written.append(_write(results / "REPORT.md", text))
    return written


def pictures(suite: Suite, results: Path) -> list[Path]:
    """Draw those of a suite that have data."""
    from bench.report.plots import compile_time, coschedule, floor, roofline, speed_up
    from bench.report.plots.style import styled

    name = suite.name
    drawn: list[Path | None] = []
    with styled():
        for dtype in suite.dtypes:
            drawn.append(speed_up.draw(suite, dtype, results / f"{name}_speedup_{dtype}.png"))
            drawn.append(floor.draw(suite, dtype, results / f"{name}_floor_{dtype}.png"))
        drawn.append(coschedule.draw(suite, results / f"{name}_coschedule.png"))
        # Only operators of `ops` are tuned; its roofline is the one that the papers show.
        histories = compile_time.read_histories(results / "metaschedule")
        main_suite = name == "ops"
        prefix = "" if main_suite else f"{name}_"
        drawn.append(roofline.draw(suite, results / f"{prefix}roofline.png"))
        if main_suite:
            drawn.append(compile_time.draw(suite, histories, results / "compile_time.png"))
    return [path for path in drawn if path is not None]


def _write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path
