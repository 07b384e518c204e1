"""TVM finds the Relax pipeline through the entry point, and pays nothing for it."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys

import pytest

INSTALLED = any(
    entry.value == "tvm_tile._autoload:register"
    for entry in importlib.metadata.entry_points(group="tvm.backends")
)


@pytest.mark.skipif(not INSTALLED, reason="tvm_tile is on the path, but not installed")
def test_import_tvm_registers_the_pipeline_lazily() -> None:
    code = (
        "import sys, tvm; from tvm.relax.pipeline import PIPELINE_MAP; "
        "assert 'tvm_tile' in PIPELINE_MAP; "
        "loaded = {name for name in sys.modules if name.startswith('tvm_tile.')}; "
        "assert loaded <= {'tvm_tile._autoload', 'tvm_tile._version', 'tvm_tile.compat', "
        "'tvm_tile.errors', 'tvm_tile.device', 'tvm_tile.device.device', "
        "'tvm_tile.device.cuda', 'tvm_tile.device.rocm', 'tvm_tile.device.emulated'}, loaded"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.skipif(not INSTALLED, reason="tvm_tile is on the path, but not installed")
def test_the_registered_pipeline_is_a_pass() -> None:
    import tvm

    assert isinstance(tvm.relax.get_pipeline("tvm_tile"), tvm.ir.transform.Pass)
