"""The devices tvm_tile knows, by name. No TVM is imported here.

A record (``device.py``) has sizes, rates and limits of a GPU; ``cuda.py`` and ``rocm.py`` list
them, and ``records/`` has those that ``tvm-tile calibrate`` wrote. The parameters of the model
of time are part of it (``chip_times.py``), as shares of its rates and cycles of its clock: a record
without measurements takes those of its family's measured one. Where nobody has measured what
kernels gain by starting early, or what persistent kernels take, the record says ``None`` or
``False``, and the feature is off. What only users may allow, such as products in TF32, is a view of
the record (``with_tf32``) with a key of its own, so that stored plans tell the two apart.
"""

from __future__ import annotations

from pathlib import Path

from tvm_tile.device.cuda import CUDA_DEVICES
from tvm_tile.device.device import (
    Device,
    MatrixInstruction,
    Measurement,
    Memory,
    MemoryLevel,
    Reading,
    with_tf32,
)
from tvm_tile.device.emulated import EMULATED
from tvm_tile.device.record import SUFFIX, read_record
from tvm_tile.device.rocm import ROCM_DEVICES
from tvm_tile.errors import UnknownDeviceError
from tvm_tile.errors.closest import closest

__all__ = [
    "Device",
    "MatrixInstruction",
    "Measurement",
    "Memory",
    "MemoryLevel",
    "Reading",
    "devices",
    "find_device",
    "with_tf32",
]

_DEVICES: tuple[Device, ...] = (*CUDA_DEVICES, *ROCM_DEVICES, EMULATED)


def devices() -> tuple[Device, ...]:
    """All device records: what :func:`find_device` and ``compile(device=...)`` know by name."""
    return _DEVICES


def find_device(name: str) -> Device:
    """The record of a device.

    Args:
        name: ``vendor/model`` in any case, such as ``"nvidia/h200"``, ``"emulated"``, or the
            path of a record that ``tvm-tile calibrate`` wrote, which ends in ``.json``.
            (``"auto"``, ``"cuda"`` and ``"rocm"`` are for ``compile(device=...)``.)

    Returns:
        The frozen :class:`Device` record.

    Raises:
        UnknownDeviceError: no record has that name.
        DeviceRecordError: the file is missing, or holds no device record.
    """
    if not isinstance(name, str):
        raise UnknownDeviceError(
            "a device must be a name, or a tvm_tile.Device",
            repr(name)[:200],
            'pass one such as "nvidia/h200", or "auto"',
        )
    if name.strip().lower().endswith(SUFFIX):
        return read_record(Path(name.strip()))
    wanted = name.strip().lower()
    for device in _DEVICES:
        if device.name == wanted:
            return device
    known = [device.name for device in _DEVICES]
    # People type "h200": compare with the part after the vendor as well.
    by_short_name = {full.rpartition("/")[2]: full for full in known}
    candidate = closest(wanted.rpartition("/")[2], by_short_name)
    remedy = f"use one of {', '.join(known)}; or auto, cuda or rocm for the GPU of this machine"
    if candidate is not None:
        remedy = f"did you mean {by_short_name[candidate]}? Otherwise {remedy}"
    raise UnknownDeviceError("the device must be one that tvm_tile has a record of", name, remedy)
