"""What ``torch.compile(..., backend="tvm_tile", options={...})`` takes."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from tvm_tile.arguments import check_flag
from tvm_tile.device import Device
from tvm_tile.device.detect import detect_device, resolve_device
from tvm_tile.errors import OptionError, TileError
from tvm_tile.options import Options

LOG = logging.getLogger(__name__)

_DEVICE, _FREEZE = "device", "freeze"
_NAMES = (_DEVICE, _FREEZE, *(field.name for field in fields(Options)))


@dataclass(frozen=True, slots=True)
class BackendOptions:
    """How the backend compiles.

    Attributes:
        device: what to compile for; None for the GPU that a graph's tensors are on.
        options: as of :func:`tvm_tile.compile`.
        freeze: whether weights are compiled in; see :func:`tvm_tile.torch.tvm_tile`.
    """

    device: Device | None
    options: Options
    freeze: bool = False

    @classmethod
    def of(cls, given: Mapping[str, Any] | None) -> BackendOptions:
        """The options that a user gave by name.

        Raises:
            OptionError: an option is unknown or out of its range.
            UnknownDeviceError: there is no such device.
        """
        named = dict(given or {})
        unknown = sorted(str(name) for name in named if name not in _NAMES)
        if unknown:
            raise OptionError(
                f"options of the backend tvm_tile are {', '.join(_NAMES)}",
                f"{', '.join(unknown)}",
                "leave it out, or correct its name",
            )
        device, freeze = named.pop(_DEVICE, None), named.pop(_FREEZE, False)
        check_flag(_FREEZE, freeze)
        found = None if device is None else resolve_device(device)
        return cls(found, Options(**named), freeze)

    def device_for(self, tensors_on: str) -> Device | None:
        """The device to compile for, where a graph's tensors are on torch devices of this type;
        None where PyTorch is to run the graph: with no device named, on a CPU, or on a GPU that
        there is no record of."""
        if self.device is not None or tensors_on != "cuda":
            return self.device
        try:
            return detect_device()
        except TileError as error:
            LOG.warning("PyTorch runs what is on this GPU: %s", error)
            return None
