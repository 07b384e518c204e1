"""Each lesson runs as it is printed, in a process of its own, with warnings as errors."""

from __future__ import annotations

import functools
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
LESSONS = sorted((ROOT / "tutorials").glob("[0-9]*.py"))


@functools.cache
def run(lesson: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", str(lesson)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.stem)
def test_lesson(lesson: Path) -> None:
    done = run(lesson)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


def without_numbers(text: str) -> str:
    """Numbers are the model's, names hold sums of contents: what is left is what is told."""
    return re.sub(r"_[0-9a-f]{8,}|[0-9.]+", "#", text)


def test_the_readme_shows_what_lesson_5_prints() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    section = readme[readme.index("\n## Co-scheduling") :]
    sample = section.split("```\n")[1]
    assert sample.startswith("co-scheduled:\n")
    (lesson,) = (lesson for lesson in LESSONS if lesson.stem.startswith("05"))
    assert without_numbers(sample) in without_numbers(run(lesson).stdout)
