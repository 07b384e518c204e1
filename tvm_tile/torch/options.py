"""Options and modes of ``torch.compile(..., backend="tvm_tile")``."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tvm_tile.device import Device
from tvm_tile.device.detect import detect_device, resolve_device
from tvm_tile.errors import OptionError, TileError
from tvm_tile.errors.arguments import check_flag
from tvm_tile.errors.closest import did_you_mean
from tvm_tile.options import Options, checked_options

LOG = logging.getLogger(__name__)

_DEVICE, _FREEZE, _OPTIONS = "device", "freeze", "options"

_MODES: Mapping[str, Mapping[str, Any]] = {
    "default": {},
    "reduce-overhead": {"cuda_graph": True},
    "max-autotune": {"cuda_graph": True, "topk": 10},
    "max-autotune-no-cudagraphs": {"cuda_graph": False, "topk": 10},
}


@dataclass(frozen=True, slots=True)
class BackendOptions:
    """How the backend compiles.

    Attributes:
        device: the device that is compiled for; None for the GPU that a graph's tensors are on.
        options: options as in :func:`tvm_tile.compile`.
        freeze: whether weights are compiled in; None where PyTorch's own setting decides that. See
            :func:`tvm_tile.torch.tvm_tile`.
    """

    device: Device | None
    options: Options
    freeze: bool | None = None

    @classmethod
    def of(cls, given: Mapping[str, Any] | None, mode: str | None = None) -> BackendOptions:
        """The options that a user gave by name, and those that a mode of PyTorch's stands for.

        What is given by name comes before ``options``. The emulated device measures nothing in any
        mode.

        Raises:
            OptionError: a mode or an option is unknown or out of its range.
            UnknownDeviceError: there is no such device.
        """
        named = dict(given or {})
        device, freeze = named.pop(_DEVICE, None), named.pop(_FREEZE, None)
        whole = named.pop(_OPTIONS, None)
        if freeze is not None:
            check_flag(_FREEZE, freeze)
        found = None if device is None else resolve_device(device)
        meant = dict(_of_mode(mode))
        if found is not None and found.is_emulated:
            meant.pop("topk", None)
        others = _DEVICE, _FREEZE, _OPTIONS
        return cls(found, checked_options(whole, {**meant, **named}, others), freeze)

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


def _of_mode(mode: str | None) -> Mapping[str, Any]:
    """The options that a mode of ``torch.compile`` stands for; none has those of the default."""
    if mode is None:
        return {}
    if mode not in _MODES:
        remedy = did_you_mean(str(mode), tuple(_MODES), "leave it out")
        raise OptionError(f"modes are {', '.join(_MODES)}", repr(mode), remedy)
    return _MODES[mode]
