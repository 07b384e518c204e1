"""The public names of the package, and what importing it costs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import tvm_tile
from tvm_tile import errors

ROOT = Path(__file__).parent.parent.parent

PUBLIC = {
    "Bounds",
    "CompiledEntries",
    "CompiledModel",
    "Device",
    "Open",
    "Options",
    "Oracle",
    "Profile",
    "RelayText",
    "__version__",
    "choose",
    "compare",
    "compile",
    "devices",
    "find_device",
    "load",
    "predict",
    "prune",
    "quantize",
    "schedule",
    "together",
}


def test_all_is_the_documented_list_and_every_error() -> None:
    error_names = {name for name in vars(errors) if name.endswith("Error")}
    assert set(tvm_tile.__all__) == PUBLIC | error_names
    assert tvm_tile.__all__ == sorted(tvm_tile.__all__)
    assert set(tvm_tile.__all__) <= set(dir(tvm_tile))


def test_errors_are_the_ones_of_the_error_module() -> None:
    for name in tvm_tile.__all__:
        if name.endswith("Error"):
            assert getattr(tvm_tile, name) is getattr(errors, name)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'compiel'"):
        _ = tvm_tile.compiel


def test_importing_is_silent_and_leaves_tvm_alone() -> None:
    code = (
        "import sys, tvm_tile; tvm_tile.find_device('nvidia/h200'); "
        "heavy = {'tvm', 'tvm_ffi', 'torch', 'onnx', 'numpy', 'rich'} & set(sys.modules); "
        "assert not heavy, heavy"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_pins_in_pyproject_are_the_ones_checked_at_import() -> None:
    from tvm_tile import compat

    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert f'"apache-tvm=={compat.TVM_VERSION}",' in project
    assert f'"apache-tvm-ffi>={compat.FFI_SERIES}.' in project
