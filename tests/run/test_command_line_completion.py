"""The scripts for the Tab key, in the shells that are here."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tvm_tile.cli import main

BASH = """
eval "$(tvm-tile completion bash)"
try() {
    COMP_LINE="$1" COMP_POINT=${#1} COMP_TYPE=9
    _python_argcomplete tvm-tile
    echo "${#COMPREPLY[@]} ${COMPREPLY[*]}"
}
try "tvm-tile calib"
try "tvm-tile run --device nvidia/h2"
try "tvm-tile run --device=nvidia/h2"
"""
FISH = """
tvm-tile completion fish | source
complete -C "tvm-tile calib"
complete -C "tvm-tile run --device nvidia/h2"
"""


@pytest.fixture
def shell_environment(tmp_path: Path) -> dict[str, str]:
    """Of a shell that finds this very command."""
    command = tmp_path / "tvm-tile"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m tvm_tile.cli "$@"\n')
    command.chmod(0o755)
    root = str(Path(__file__).parent.parent.parent)
    return {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": root}


def answers(shell: str, script: str, environment: dict[str, str]) -> list[str]:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    done = subprocess.run(
        [shell, "-c", script], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    return done.stdout.splitlines()


def test_bash(shell_environment: dict[str, str]) -> None:
    found = [line.rstrip() for line in answers("bash", BASH, shell_environment)]
    assert found == ["1 calibrate", "1 nvidia/h200", "1 nvidia/h200"]


def test_fish(shell_environment: dict[str, str]) -> None:
    calibrate, h200 = answers("fish", FISH, shell_environment)
    assert calibrate == "calibrate\tMeasure the GPU and write its device record."
    assert h200 == "nvidia/h200"


def test_zsh_reads_its_script(shell_environment: dict[str, str]) -> None:
    script = 'compdef() { echo "$@"; }; source <(tvm-tile completion zsh)'
    assert answers("zsh", script, shell_environment) == ["_python_argcomplete tvm-tile"]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("", {"compile", "doctor", "cache", "completion"}),
        ("comp", {"compile", "completion", "compare"}),
        ("--v", {"--version"}),
        ("doctor --", {"--quiet", "--verbose", "--help", "--json"}),
        ("run --input", {"--input", "--input-file"}),
        ("run --device nvidia/h", {"nvidia/h200", "nvidia/h100"}),
        ("run --device ", {"auto", "emulated", "mine.json"}),
        ("run --device=emu", {"--device=emulated"}),
        ("cache ", {"show", "path", "prune", "clear"}),
        ("completion z", {"zsh"}),
        ("run mi", {"mine.json"}),
        ("run --time --ver", {"--verbose", "--verify-key"}),
    ],
)
def test_what_may_come_next(
    line: str, expected: set[str], shell_environment: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "mine.json").touch()
    asked = f"tvm-tile {line}"
    question = {
        "_ARGCOMPLETE": "1",
        "_ARGCOMPLETE_STDOUT_FILENAME": str(tmp_path / "found"),
        "_ARGCOMPLETE_IFS": "\n",
        "COMP_LINE": asked,
        "COMP_POINT": str(len(asked)),
    }
    command = [str(tmp_path / "tvm-tile")]
    subprocess.run(command, env=shell_environment | question, cwd=tmp_path, check=True)
    found = {word.rstrip() for word in (tmp_path / "found").read_text().splitlines()}
    assert expected <= found
    assert all(word.startswith(line.split(" ")[-1]) for word in found)


def test_no_other_shell_has_a_script(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["completion", "tcsh"])
    assert "bash" in capsys.readouterr().err
