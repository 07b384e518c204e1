"""How far a compilation is: one line that stays in its place, or none in a log until the end."""

from __future__ import annotations

import io
import re
import sys

import pytest

from tvm_tile.cli.progress import ConsoleProgress
from tvm_tile.errors import BuildError

LONG = "fused_conv2d_add_relu" * 9


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def fail(progress: ConsoleProgress) -> None:
    with progress:
        for done in range(1, 4):
            progress(LONG, done, 4)
        raise BuildError("it builds", "it does not", "mend it")


def told(monkeypatch: pytest.MonkeyPatch, stream: io.StringIO, **how: bool) -> list[str]:
    """The lines, one over the other, of a compilation of four kernels, the last of which fails."""
    monkeypatch.setattr(sys, "stderr", stream)
    with pytest.raises(BuildError):
        fail(ConsoleProgress(**how))
    shown = re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", stream.getvalue())
    return [line for line in re.split(r"[\r\n]+", shown) if line]


def test_a_terminal_has_one_line_with_the_time_that_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "100")
    lines = told(monkeypatch, Terminal())
    assert all(len(line) <= 100 for line in lines)
    assert lines[0].startswith("import and fuse ")
    assert re.match(r"build kernels +\S+ 3/4 \d:\d\d:\d\d \S+ left  fused_.*…", lines[-1])


def test_a_log_has_nothing_of_what_fails_but_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    assert told(monkeypatch, io.StringIO()) == []


def test_who_wants_all_gets_a_line_a_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = [f"[{done}/4] {LONG}" for done in range(1, 4)]
    assert told(monkeypatch, Terminal(), lines=True) == expected
