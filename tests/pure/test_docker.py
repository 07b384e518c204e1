"""The Dockerfile, as far as it is checked without Docker: what it copies, and what pip is told."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "docker" / "Dockerfile").read_text(encoding="utf-8")
COPIED = [
    source
    for sources in re.findall(r"^COPY (?!--from)(.*) \S+$", DOCKERFILE, re.MULTILINE)
    for source in sources.split()
]


@pytest.fixture
def project() -> dict[str, Any]:
    tomllib = pytest.importorskip("tomllib")
    content: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return content["project"]


def test_what_is_copied_is_there_and_not_ignored() -> None:
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert all((ROOT / source).exists() for source in COPIED)
    assert sorted(COPIED) == sorted(line[1:] for line in ignored if line.startswith("!"))


def test_extras_python_and_command_are_the_package_s(project: dict[str, Any]) -> None:
    extras = re.findall(r"EXTRAS=([\w,]+)", DOCKERFILE)
    assert extras == ["cuda,torch", "cuda"]
    assert {extra for one in extras for extra in one.split(",")} <= set(
        project["optional-dependencies"]
    )
    versions = re.findall(r"^FROM python:3\.(\d+)-slim", DOCKERFILE, re.MULTILINE)
    least = int(project["requires-python"].removeprefix(">=3."))
    assert len(set(versions)) == 1
    assert int(versions[0]) >= least
    assert f'ENTRYPOINT ["{next(iter(project["scripts"]))}"]' in DOCKERFILE


@pytest.mark.skipif(importlib.util.find_spec("hatchling") is None, reason="needs hatchling")
def test_a_wheel_is_built_of_what_is_copied(tmp_path: Path) -> None:
    for source in COPIED:
        if (ROOT / source).is_dir():
            shutil.copytree(ROOT / source, tmp_path / source)
        else:
            shutil.copy(ROOT / source, tmp_path)
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel"]
    subprocess.run(build, cwd=tmp_path, check=True, capture_output=True)
    (wheel,) = (tmp_path / "dist").glob("tvm_tile-*.whl")
    assert "tvm_tile/device/records/nvidia_h200.json" in zipfile.ZipFile(wheel).namelist()
