"""TVM's own schedules, for what no rule of ours takes."""

from __future__ import annotations

from typing import Any

import tvm
from tvm.s_tir import dlight as dl

from tvm_tile.compat import make_target
from tvm_tile.device.device import Device


def apply_dlight(func: Any, device: Device) -> Any:
    """Schedule one PrimFunc with the rules of TVM's default GPU pipeline."""
    rules = (
        dl.gpu.Matmul(),
        dl.gpu.GEMV(),
        dl.gpu.Reduction(),
        dl.gpu.GeneralReduction(),
        dl.gpu.Fallback(),
    )
    # dlight schedules the module that it is given in place: give it one of its own.
    module = tvm.IRModule({"main": func})
    with make_target(device):
        return dl.ApplyDefaultSchedule(*rules)(module)["main"]
