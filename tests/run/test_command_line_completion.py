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
try() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _tvm_tile; echo "${#COMPREPLY[@]} ${COMPREPLY[*]}"; }
try tvm-tile calib
try tvm-tile run --device nvidia/h2
try tvm-tile run --device = nvidia/h2
try tvm-tile compile x
"""  # noqa: E501
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
    assert answers("bash", BASH, shell_environment) == [
        "1 calibrate",
        "1 nvidia/h200",
        "1 nvidia/h200",
        "0 ",
    ]


def test_fish(shell_environment: dict[str, str]) -> None:
    assert answers("fish", FISH, shell_environment) == ["calibrate", "nvidia/h200"]


def test_zsh_reads_its_script(shell_environment: dict[str, str]) -> None:
    script = 'compdef() { echo "$@"; }; source <(tvm-tile completion zsh)'
    assert answers("zsh", script, shell_environment) == ["_tvm_tile tvm-tile"]


def test_no_other_shell_has_a_script(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["completion", "tcsh"])
    assert "bash" in capsys.readouterr().err
