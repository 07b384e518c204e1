"""Headers of emulators that g++ reads once, not again for each kernel: most of its work."""

from __future__ import annotations

import atexit
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

COMPILER = shutil.which("g++")
_FOLDER = Path(__file__).parent


@cache
def scratch() -> Path:
    """A folder for what is compiled once in this process."""
    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@cache
def reading(header: str, *options: str) -> tuple[str, ...]:
    """A command that compiles what begins with this header, with these options and others that
    tell of the output only; no macro that the header knows may be defined in between."""
    assert COMPILER is not None
    folder = Path(tempfile.mkdtemp(dir=scratch()))
    command = (COMPILER, "-w", *options)
    made = folder / f"{header}.gch"
    subprocess.run([*command, "-x", "c++-header", "-o", made, _FOLDER / header], check=True)
    return (*command, f"-I{folder}", f"-I{_FOLDER}")
