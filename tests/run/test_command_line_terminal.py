"""Reports on terminals: in colours and as wide as there is room; plain elsewhere."""

from __future__ import annotations

import io
import re
import sys

import pytest

from tvm_tile.cli.terminal import show
from tvm_tile.report.screen.table import Part, Table

LONG = "encoder.layers.7.attention + encoder.layers.7.norm + " * 5 + "end"
ROWS = (("rule", "time", "computes"), ("mma", "1.5 us", LONG), ("row", "20 us", "[bold]x[/bold]"))
PARTS: list[Part] = [
    "nvidia/h200: a run takes 14.0 us at 13.02 TB/s",
    "share   time    calls  bound by  computes",
    "12.5 %  1.7 us  1      launch    [red]layer1.0.conv2[/red]",
    "note: not measured",
    Table(ROWS, indent=2),
]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(monkeypatch: pytest.MonkeyPatch) -> str:
    """What a terminal of some columns is sent."""
    made = Terminal()
    monkeypatch.setattr(sys, "stdout", made)
    show(lambda _: PARTS)
    return made.getvalue()


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "80")


def without_colours(text: str) -> str:
    return re.sub(r"\x1b\[[\d;]*m", "", text)


def test_a_terminal_has_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    found = shown(monkeypatch)
    assert "\x1b[36m13.02 TB/s\x1b[0m" in found
    assert "\x1b[33mnote:\x1b[0m" in found
    assert "layer1.0.conv2" in found  # no number of a name is one of the report's
    assert without_colours(found).splitlines()[:4] == PARTS[:4]


@pytest.mark.parametrize(("columns", "most"), [(40, 80), (80, 80), (130, 130), (900, 200)])
def test_tables_are_as_wide_as_the_terminal(
    monkeypatch: pytest.MonkeyPatch, columns: int, most: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    *_, heading, first, second = without_colours(shown(monkeypatch)).splitlines()
    assert heading.split() == ["rule", "time", "computes"]
    assert len(first) == most
    start, end = first[heading.index("computes") :].split("…")
    assert LONG.startswith(start)
    assert LONG.endswith(end)
    assert second == "  row   20 us   [bold]x[/bold]"


def test_no_colours_where_none_are_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    assert not re.search(r"\x1b\[3\d", shown(monkeypatch))


def test_files_and_pipes_have_a_line_for_each_row(capsys: pytest.CaptureFixture[str]) -> None:
    show(lambda width: [f"{width} columns", *PARTS])
    found = capsys.readouterr().out.splitlines()
    assert found[:5] == ["100 columns", *PARTS[:4]]
    assert f"  mma   1.5 us  {LONG}" in found
