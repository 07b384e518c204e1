"""Ctrl-C and ``kill`` amid a compiler that has started processes of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from test_command_line import onnx_file  # noqa: F401

# It never ends, and neither does what it starts; the numbers of both are in a file.
NVCC = """#!/bin/sh
[ "$1" = --version ] && exec echo fake
sleep 600 &
echo "$$ $!" > "$PIDS.new" && mv "$PIDS.new" "$PIDS"
wait
"""
WITHOUT_NVRTC = """
import sys
from tvm_tile.build import cuda
cuda.nvrtc_architectures = lambda: ()
from tvm_tile.cli import main
sys.exit(main())
"""


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + 900
    while not path.exists():
        assert time.monotonic() < deadline, "the compiler was not started"
        time.sleep(0.05)


def is_running(process: int) -> bool:
    try:
        stat = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"  # ended, and nobody has asked how


@pytest.mark.parametrize(
    ("number", "status", "said"),
    [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")],
)
def test_nothing_is_left(
    number: signal.Signals,
    status: int,
    said: str,
    onnx_file: Path,  # noqa: F811
    tmp_path: Path,
) -> None:
    programs, scratch, outputs = (tmp_path / name for name in ("bin", "tmp", "out"))
    for folder in (programs, scratch, outputs):
        folder.mkdir()
    (programs / "nvcc").write_text(NVCC)
    (programs / "nvcc").chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{programs}:{os.environ['PATH']}",
        "PIDS": str(tmp_path / "pids"),
        "TMPDIR": str(scratch),
    }
    words = ["compile", str(onnx_file), "--device", "nvidia/h200", "--input", "x=3x4"]
    process = subprocess.Popen(
        [sys.executable, "-c", WITHOUT_NVRTC, *words, "-o", str(outputs / "m.tvmtile")],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_for(tmp_path / "pids")
    process.send_signal(number)
    out, err = process.communicate(timeout=900)
    assert (process.returncode, out, err) == (status, "", f"tvm-tile: {said}\n")
    started = map(int, (tmp_path / "pids").read_text().split())
    assert not [one for one in started if is_running(one)]
    assert not list(scratch.iterdir())
    assert not list(outputs.iterdir())
