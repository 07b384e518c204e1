"""What may go wrong on the way to AMD's machine code is an error of ours, and leaves nothing."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import tvm_tile.build.hip
import tvm_tile.build.zig
from tvm_tile.build.hip import compile_hip, hip_compiler
from tvm_tile.build.hip_math import math_library
from tvm_tile.errors import BuildError, CompilerNotFoundError
from tvm_tile.files.store import Store

KERNEL = 'extern "C" __global__ void __launch_bounds__(64) k(float* x) {{ {} }}'
FINE = KERNEL.format("x[threadIdx.x] = sinf(x[threadIdx.x]);")


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder for temporary files, which is empty again after every test."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield folder
    assert list(folder.iterdir()) == []


def compiler_that(does: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a program in place of Zig."""
    program = folder / "zig"
    program.write_text(f"#!/bin/sh\n{does}\n")
    program.chmod(0o755)
    monkeypatch.setattr(tvm_tile.build.zig, "zig_folder", lambda: folder)


@pytest.mark.parametrize(
    "text",
    [
        "}{ not C at all \x00 \xff",
        KERNEL.format("x[0] = there_is_no_such_function(x[1]);"),
        KERNEL.format('asm volatile("no such instruction");'),
        # An intrinsic that the code generator cannot select ends the compiler.
        KERNEL.format("x[0] = (float)__builtin_exp((double)x[1]);"),
        KERNEL.format("__shared__ float much[1 << 20]; much[threadIdx.x] = x[0]; x[1] = much[7];"),
    ],
    ids=["garbage", "unknown_function", "unknown_instruction", "not_selectable", "too_much_shared"],
)
def test_text_that_does_not_compile(text: str) -> None:
    with pytest.raises(BuildError):
        compile_hip(text, "gfx942")


def test_an_unknown_processor() -> None:
    with pytest.raises(BuildError):
        compile_hip(FINE, "gfx0")


@pytest.mark.parametrize("signal", ["KILL", "SEGV", "ABRT"])
def test_a_compiler_that_is_killed(
    signal: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler_that(f"touch left; kill -{signal} $$", tmp_path, monkeypatch)
    with pytest.raises(BuildError, match="it ended with -"):
        compile_hip(KERNEL.format("x[0] = 1;"), "gfx942")


def test_a_compiler_that_says_what_is_no_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler_that(r"printf '\377\376' >&2; exit 1", tmp_path, monkeypatch)
    with pytest.raises(BuildError):
        compile_hip(KERNEL.format("x[0] = 1;"), "gfx942")


def test_without_the_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tvm_tile.build.zig, "_found", lambda: None)
    assert hip_compiler() == "none"
    with pytest.raises(CompilerNotFoundError, match=r"tvm_tile\[rocm\]"):
        compile_hip(KERNEL.format("x[0] = 1;"), "gfx942")


def test_the_library_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path / "store", "1")
    made = math_library(store)
    compiler_that("exit 1", tmp_path, monkeypatch)
    assert math_library(Store(tmp_path / "store", "1")) == made


def test_without_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    assert compile_hip(FINE, "gfx942").startswith(b"\x7fELF")
