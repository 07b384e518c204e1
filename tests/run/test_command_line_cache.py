"""``tvm-tile cache``: on a cache that a compilation has filled, and while one is filling it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from test_command_line import onnx_file  # noqa: F401

from tvm_tile.cli import main
from tvm_tile.files.store import entries_of


@pytest.fixture
def cache(onnx_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:  # noqa: F811
    folder = tmp_path / "cache"
    monkeypatch.setenv("TVM_TILE_CACHE", str(folder))
    words = ["run", str(onnx_file), "--device", "emulated", "--input", "x=3x4", "--quiet"]
    assert main(words) == 0
    assert entries_of(folder)
    return folder


def old_program(folder: Path, size: int) -> Path:
    path = folder / "pocl" / "kcache" / "AB" / "CDEF"
    path.mkdir(parents=True)
    (path / "program.bc").write_bytes(bytes(size))
    for place in (path / "program.bc", path):
        os.utime(place, (time.time() - 7200,) * 2)
    return path


def test_show_path_prune_and_clear(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    count = len(entries_of(cache))
    program = old_program(cache, 3_000_000)
    assert main(["cache"]) == 0
    folder, heading, models, kept, programs = capsys.readouterr().out.splitlines()
    assert (folder, heading.split()[:2]) == (str(cache), ["what", "entries"])
    assert re.search(rf"models +{len(entries_of(cache / 'models'))} ", models)
    assert re.search(rf"code +{count} ", kept)
    assert re.search(r"emulated\) +\d+ .*3(\.\d+)? MB ", programs)

    assert main(["cache", "path"]) == 0
    assert capsys.readouterr().out == f"{cache}\n"

    assert main(["cache", "prune", "--limit", "2.9M"]) == 0
    assert ": 1 entries removed, 3 MB; " in capsys.readouterr().out
    assert not program.exists()
    assert len(entries_of(cache)) == count

    others = cache / "ab"
    others.mkdir(exist_ok=True)
    (others / "notes.txt").write_text("mine")
    assert main(["cache", "clear", "--quiet"]) == 0
    assert not entries_of(cache)
    assert (others / "notes.txt").read_text() == "mine"


def test_a_model_compiles_as_before_once_its_cache_is_cleared(
    cache: Path,
    onnx_file: Path,  # noqa: F811
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["run", str(onnx_file), "--device", "emulated", "--input", "x=3x4"]
    assert main(words) == 0
    before = capsys.readouterr().out
    assert main(["cache", "clear"]) == 0
    capsys.readouterr()
    assert main(words) == 0
    assert capsys.readouterr().out == before
    assert entries_of(cache)


def test_the_cache_may_be_cleared_while_others_compile(
    cache: Path,
    onnx_file: Path,  # noqa: F811
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["run", str(onnx_file), "--device", "emulated", "--input", "x=3x4", "-q"]
    assert main(words) == 0
    expected = capsys.readouterr().out
    code = (
        "import sys; from tvm_tile.cli import main\n"
        "for _ in range(5): status = main(sys.argv[1:]); assert status == 0, status\n"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", code, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    while other.poll() is None:
        assert main(["cache", "clear", "-q"]) == 0
    out, err = other.communicate()
    assert (other.returncode, out.decode(), err.decode()) == (0, 5 * expected, "")


def test_without_a_cache_there_is_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TVM_TILE_CACHE", "")
    assert main(["cache"]) == 2
    assert "nothing is kept" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["prune"], ["clear", "--limit", "1G"], ["--limit", "1G"]])
def test_a_limit_is_of_prune_alone(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(["cache", *words])
    assert exit_.value.code == 2
    assert "cache prune --limit 1G" in capsys.readouterr().err
