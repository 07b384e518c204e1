"""Kernels of every rule under Oclgrind, which finds accesses that no barrier orders.

It knows no waves: kernels that exchange values within them are in ``tests/ir/test_wave_races.py``.
"""

from __future__ import annotations

import math
import pickle
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from amd_on_cpu import on_the_cpu
from kernel_cases import CASES
from kernels import launch_extents, prim_functions
from rowwise_cases import ROWWISE
from tvm import DataType, IRModule

from tvm_tile.build import Builder, Program
from tvm_tile.device import Device, find_device
from tvm_tile.device.rocm import ROCM_DEVICES
from tvm_tile.passes import schedule_module

EMULATED = find_device("emulated")
BY_RULE = {
    "elementwise": "add_row",
    "transpose": "transpose_large",
    "row": "sum_image",
    "column": "max_first",
    "rows": "softmax_middle",
    "window": "conv_depthwise",
    "matvec": "matvec_rows",
    "contraction": "mm_NT",
    "scan": "cumsum_rows",
    "sort": "sort_rows",
}
SCRIPT = Path(__file__).parent.parent / "oclgrind_run.py"
OCLGRIND = shutil.which("oclgrind")

pytestmark = pytest.mark.skipif(OCLGRIND is None, reason="Oclgrind is not installed")


def launches(name: str, device: Device = EMULATED) -> list[tuple[Any, ...]]:
    """Each kernel of a case: name, text, blocks, threads, bytes of its arguments."""
    (case,) = (case for case in (*CASES, *ROWWISE) if case.name == name)
    functions = prim_functions(case, device)
    scheduled, _ = schedule_module(IRModule(functions), device)
    found = []
    for symbol, func in functions.items():
        function = scheduled[symbol]
        program = Builder(device).build_functions({symbol: function})[symbol]
        assert isinstance(program, Program)
        (kernel,) = program.kernels
        extents = launch_extents(function)
        blocks, threads = (
            tuple(extents.get(f"{kind}.{axis}", 1) for axis in "xyz")
            for kind in ("blockIdx", "threadIdx")
        )
        sizes = {str(param.name): bytes_of(param) for param in func.params}
        signature = kernel.source.partition(f"{kernel.name}(")[2].partition(")")[0]
        given = [sizes[param] for param in re.findall(r"(\w+)_ptr\b", signature)]
        found.append((kernel.name, kernel.source, blocks, threads, given))
    return found


def bytes_of(param: Any) -> int:
    return (
        math.prod(int(extent) for extent in param.ty.shape)
        * DataType(str(param.ty.dtype)).bits
        // 8
    )


def races(kernels: list[tuple[Any, ...]], folder: Path) -> int:
    """How many Oclgrind reports."""
    assert OCLGRIND is not None
    (folder / "launches").write_bytes(pickle.dumps(kernels))
    command = [OCLGRIND, "--data-races", sys.executable, SCRIPT, folder / "launches"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=900)
    assert "all ran" in done.stdout
    return (done.stdout + done.stderr).count("data race")


@pytest.mark.parametrize("device", [EMULATED, *ROCM_DEVICES], ids=lambda device: device.name)
def test_no_rule_has_races(device: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = device if device is EMULATED else on_the_cpu(device, monkeypatch)
    found = [launch for name in BY_RULE.values() for launch in launches(name, own)]
    assert races(found, tmp_path) == 0


def test_without_barriers_there_are_races(tmp_path: Path) -> None:
    (launch,) = launches(BY_RULE["contraction"])
    name, source, *rest = launch
    bare = source.replace("barrier(CLK_LOCAL_MEM_FENCE);", "")
    assert bare != source
    assert races([(name, bare, *rest)], tmp_path) > 0
