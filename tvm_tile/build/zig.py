"""Zig's clang and lld, from the package ``ziglang``: a compiler for AMD's GPUs that pip installs.

All tools are one program, which runs as a process of its own: what a code generator cannot select
ends that process, never this one.
"""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import os
import subprocess
from pathlib import Path

from tvm_tile.errors import BuildError, CompilerNotFoundError


def zig_folder() -> Path:
    """Folder of Zig, with its libraries' sources.

    Raises:
        CompilerNotFoundError: the package ziglang is not installed.
    """
    folder = _found()
    if folder is None:
        raise CompilerNotFoundError(
            "clang and lld for AMD GPUs, which the package ziglang brings (the extra rocm)",
            "ziglang is not installed",
            'pip install "tvm_tile[rocm]"',
        )
    return folder


def zig_version() -> str:
    """The version of the package; ``"none"`` where it is not installed."""
    return "none" if _found() is None else importlib.metadata.version("ziglang")


@functools.cache
def _found() -> Path | None:
    """Folder of the package ``ziglang``; ``None`` where it is not installed."""
    found = importlib.util.find_spec("ziglang")
    return None if found is None or found.origin is None else Path(found.origin).parent


def run_zig(tool: str, *arguments: str | Path, folder: str | Path) -> None:
    """Run one of Zig's tools.

    Args:
        tool: such as ``"clang"`` or ``"ld.lld"``.
        arguments: arguments for the tool; paths are absolute or within ``folder``.
        folder: a temporary one, where the tool runs and keeps what it likes.

    Raises:
        CompilerNotFoundError: the package ziglang is not installed.
        BuildError: the tool did not accept its input, or crashed.
    """
    # A clang that crashes leaves its input in the folder for temporary files.
    places = ("ZIG_GLOBAL_CACHE_DIR", "ZIG_LOCAL_CACHE_DIR", "TMPDIR")
    done = subprocess.run(
        [zig_folder() / "zig", tool, *arguments],
        cwd=folder,
        env={**os.environ, **dict.fromkeys(places, str(folder))},
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode != 0:
        raise BuildError(
            f"{tool} must accept the kernel",
            done.stderr.strip() or f"it ended with {done.returncode}",
            "report it with the kernel's source; the schedule that made it is at fault",
        )
