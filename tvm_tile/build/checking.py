"""Whether one scheduled function builds."""

from __future__ import annotations

from typing import Any

from tvm_tile.build.lower import Builder
from tvm_tile.device.device import Device


def check_kernel(prim_func: Any, device: Device) -> None:
    """Build the kernels of one scheduled PrimFunc and throw the result away.

    Raises:
        CompilerNotFoundError: no compiler for the device is installed.
        BuildError: they do not build; the message is the compiler's.
    """
    import tvm

    failures = Builder(device).find_failures(tvm.IRModule({"checked": prim_func}))
    if failures:
        raise failures["checked"]
