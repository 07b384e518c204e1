"""Each lesson runs as it is printed, in a process of its own, with warnings as errors.

What it prints and draws is kept in tutorials/output/, for the documentation's pages. After a wanted
change: ``pytest tests/run/test_tutorials.py --update-golden``, then read ``git diff``.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from pages import LESSONS, ROOT, printed_by, without_clock, without_numbers

from tvm_tile.device.detect import read_gpu

pytestmark = pytest.mark.bank(4)


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.stem)
def test_lesson(lesson: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    runner = str(ROOT / "tests" / "run_lesson.py")
    done = subprocess.run(
        [sys.executable, "-W", "error", runner, str(lesson), str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    printed, kept = without_clock(done.stdout), printed_by(lesson)
    if request.config.getoption("--update-golden"):
        shutil.rmtree(kept.parent, ignore_errors=True)
        shutil.copytree(tmp_path, kept.parent)
        kept.write_text(printed, encoding="utf-8")
    elif read_gpu() is None:  # where one is, lessons measure, too, and tell more
        told = kept.read_text(encoding="utf-8")
        assert without_numbers(printed) == without_numbers(told), "pytest --update-golden"
