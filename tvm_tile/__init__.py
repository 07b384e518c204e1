"""Compile neural networks for GPUs with Apache TVM, without tuning.

>>> import tvm_tile
>>> model = tvm_tile.compile("detector.onnx", device="nvidia/h200")  # doctest: +SKIP

Names are resolved on first use: importing this package imports neither TVM nor a model
library.

Raises:
    InstallationError: at import, when the installed packages are known to crash together.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tvm_tile._version import __version__
from tvm_tile.compat import check_installation

if TYPE_CHECKING:
    from tvm_tile.compiling import compile
    from tvm_tile.device import Device, devices, find_device
    from tvm_tile.errors import (
        BoundError,
        BuildError,
        CalibrationError,
        CompilerNotFoundError,
        DeviceAbsentError,
        DeviceError,
        DeviceMemoryError,
        DeviceRecordError,
        DeviceTooSmallError,
        DriverError,
        DynamicShapeError,
        InputError,
        InstallationError,
        ModelError,
        ModelFileError,
        OptionError,
        PlanError,
        ProfileError,
        RunError,
        SavedModelError,
        TileError,
        UnknownDeviceError,
        UnsupportedOperatorError,
        VerificationError,
    )
    from tvm_tile.frontend import RelayText, together
    from tvm_tile.graph.open_extents import Open
    from tvm_tile.options import Options
    from tvm_tile.oracle import Oracle, choose, predict
    from tvm_tile.plan.rprogram import Bounds
    from tvm_tile.report.shown import Profile
    from tvm_tile.runtime import CompiledEntries, CompiledModel, load
    from tvm_tile.runtime.comparing import compare
    from tvm_tile.schedule.ranking import schedule
    from tvm_tile.torch.prune import prune
    from tvm_tile.torch.quantize import quantize

__all__ = [
    "BoundError",
    "Bounds",
    "BuildError",
    "CalibrationError",
    "CompiledEntries",
    "CompiledModel",
    "CompilerNotFoundError",
    "Device",
    "DeviceAbsentError",
    "DeviceError",
    "DeviceMemoryError",
    "DeviceRecordError",
    "DeviceTooSmallError",
    "DriverError",
    "DynamicShapeError",
    "InputError",
    "InstallationError",
    "ModelError",
    "ModelFileError",
    "Open",
    "OptionError",
    "Options",
    "Oracle",
    "PlanError",
    "Profile",
    "ProfileError",
    "RelayText",
    "RunError",
    "SavedModelError",
    "TileError",
    "UnknownDeviceError",
    "UnsupportedOperatorError",
    "VerificationError",
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
]

# Where each public name lives, other than the errors.
_HOMES = {
    "Bounds": "tvm_tile.plan.rprogram",
    "CompiledEntries": "tvm_tile.runtime",
    "CompiledModel": "tvm_tile.runtime",
    "Device": "tvm_tile.device",
    "Open": "tvm_tile.graph.open_extents",
    "Options": "tvm_tile.options",
    "Oracle": "tvm_tile.oracle",
    "Profile": "tvm_tile.report.shown",
    "RelayText": "tvm_tile.frontend",
    "compare": "tvm_tile.runtime.comparing",
    "compile": "tvm_tile.compiling",
    "choose": "tvm_tile.oracle",
    "together": "tvm_tile.frontend",
    "predict": "tvm_tile.oracle",
    "devices": "tvm_tile.device",
    "find_device": "tvm_tile.device",
    "load": "tvm_tile.runtime",
    "prune": "tvm_tile.torch.prune",
    "quantize": "tvm_tile.torch.quantize",
}

check_installation()


def __getattr__(name: str) -> Any:
    if name == "torch":
        return importlib.import_module("tvm_tile.torch")
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name == "schedule":
        # The package of the rules is this function, too; see there.
        return importlib.import_module("tvm_tile.schedule")
    value = getattr(importlib.import_module(_HOMES.get(name, "tvm_tile.errors")), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
