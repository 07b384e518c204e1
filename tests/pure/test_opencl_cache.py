"""PoCL's cache: where it is, and that it does not grow for ever."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tvm_tile.files.opencl_cache import bounded_caches, forget_programs


def program(folder: Path, name: str, hours: float, size: int = 1000) -> Path:
    path = folder / "kcache" / "AB" / name
    path.mkdir(parents=True)
    file = path / "program.bc"
    file.write_bytes(bytes(size))
    for place in (file, path):
        os.utime(place, (time.time() - 3600 * hours,) * 2)
    return path


def test_the_oldest_go_and_those_in_use_stay(tmp_path: Path) -> None:
    old, older, used = (program(tmp_path, f"{h}", h) for h in (3, 9, 0.1))
    forget_programs(tmp_path, 2500)
    assert (old.exists(), older.exists(), used.exists()) == (True, False, True)
    forget_programs(tmp_path, 0)  # looked already, within the hour
    assert old.exists()
    os.utime(tmp_path / "looked", (0, 0))
    forget_programs(tmp_path, 0)
    assert (old.exists(), used.exists()) == (False, True)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"TVM_TILE_CACHE": "{}/own"}, "{}/own/pocl"),
        ({"TVM_TILE_CACHE": "", "XDG_CACHE_HOME": "{}/xdg"}, "{}/xdg/tvm_tile/pocl"),
        ({"HOME": "{}/me", "POCL_CACHE_DIR": "{}/users"}, "{}/users"),
        ({"HOME": "{}/me", "POCL_KERNEL_CACHE": "0"}, None),
        ({}, None),
    ],
)
def test_where_it_is(tmp_path: Path, given: dict[str, str], expected: str | None) -> None:
    environment = {name: value.format(tmp_path) for name, value in given.items()}
    before = dict(environment)
    with bounded_caches(environment):
        found = environment.get("POCL_CACHE_DIR")
        assert found == (None if expected is None else expected.format(tmp_path))
        assert environment["PYOPENCL_NO_CACHE"] == "1"
        if found and "users" not in found:
            assert Path(found).stat().st_mode & 0o777 == 0o700
    assert environment == before
