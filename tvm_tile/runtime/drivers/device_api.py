"""A device's memory, given to TVM: its C++ interface ``DeviceAPI``, made with ctypes.

TVM asks the global function ``device_api.NAME`` for a pointer to a C++ object, and TVM's packages
hold none for AMD's GPUs. On Linux a C++ object is a pointer to a table of functions (the Itanium
C++ ABI), so no compiler is needed to make one. The table here is a copy of the base class's own
one, which TVM's library exports, with the functions that depend on the device put in their places
(``tvm/runtime/device_api.h`` of TVM 0.27). The places are checked: each function of the base class
that the library exports must be where this module expects it.
"""

from __future__ import annotations

import ctypes
from ctypes import CFUNCTYPE, c_int, c_int32, c_int64, c_size_t, c_uint8, c_uint16, c_void_p
from typing import Any, Protocol

from tvm_tile.errors import InstallationError

_TABLE = "_ZTVN3tvm7runtime9DeviceAPIE"
# The functions follow an offset and the type information.
_FIRST_FUNCTION = 2 * ctypes.sizeof(c_void_p)

_CLASS = "_ZN3tvm7runtime9DeviceAPI"
# The table, in order, with the rest of the symbol where the base class exports what it does.
_FUNCTIONS = (
    ("complete destructor", ""),
    ("deleting destructor", ""),
    ("SetDevice", ""),
    ("GetAttr", ""),
    ("GetDataSize", "11GetDataSizeERK8DLTensorNS_3ffi8OptionalINS5_6StringEvEE"),
    ("GetTargetProperty", ""),
    ("AllocDataSpace", ""),
    (
        "AllocDataSpace of a shape",
        "14AllocDataSpaceE8DLDeviceiPKl10DLDataTypeNS_3ffi8OptionalINS6_6StringEvEE",
    ),
    ("FreeDataSpace", ""),
    ("CopyDataFromTo of tensors", "14CopyDataFromToEP8DLTensorS3_Pv"),
    ("CreateStream", "12CreateStreamE8DLDevice"),
    ("FreeStream", "10FreeStreamE8DLDevicePv"),
    ("StreamSync", ""),
    ("SetStream", "9SetStreamE8DLDevicePv"),
    ("GetCurrentStream", "16GetCurrentStreamE8DLDevice"),
    ("SyncStreamFromTo", "16SyncStreamFromToE8DLDevicePvS3_"),
    ("AllocWorkspace", "14AllocWorkspaceE8DLDevicem10DLDataType"),
    ("FreeWorkspace", "13FreeWorkspaceE8DLDevicePv"),
    ("SupportsDevicePointerArithmeticsOnHost", ""),
    ("CopyDataFromTo", "14CopyDataFromToEPKvmPvmm8DLDeviceS5_10DLDataTypeS4_"),
)


class DeviceMemory(Protocol):
    """Functions of a device that TVM calls.

    No exception can pass through C++: the implementation notes failures.
    """

    def set_device(self, index: int) -> None:
        """Make a device the one that the calling thread uses."""

    def attribute(self, index: int, kind: int) -> int | None:
        """A ``DeviceAttrKind`` of a device; None for one that is not known."""

    def allocate(self, index: int, size: int) -> int | None:
        """The address of ``size`` bytes; None where there are none."""

    def free(self, index: int, address: int | None) -> None:
        """Give memory back; None is none."""

    def copy(self, source: Place, destination: Place, size: int, stream: int | None) -> None:
        """Copy ``size`` bytes between this device's memory and its own or the host's."""

    def synchronize_stream(self, index: int, stream: int | None) -> None:
        """Wait for a stream."""


class DLDevice(ctypes.Structure):
    """A device as DLPack numbers it."""

    _fields_ = (("type", c_int32), ("index", c_int32))


class _DLDataType(ctypes.Structure):
    _fields_ = (("code", c_uint8), ("bits", c_uint8), ("lanes", c_uint16))


class _Any(ctypes.Structure):
    """``TVMFFIAny``: a tagged value of 16 bytes."""

    _fields_ = (("type_index", c_int32), ("_padding", c_int32), ("integer", c_int64))


_INTEGER = 1  # kTVMFFIInt

Place = tuple[int, DLDevice]
"""An address, and the device whose memory it is in."""


def install_device_api(name: str, memory: DeviceMemory) -> None:
    """Have TVM use a device's memory from now on; it keeps the object until the process ends.

    Args:
        name: the device as TVM names it, such as ``"rocm"``.
        memory: functions that raise nothing.

    Raises:
        InstallationError: TVM's ``DeviceAPI`` is not the one that this module knows.
    """
    import tvm_ffi

    functions = _functions(memory)
    table = (c_void_p * len(_FUNCTIONS))(*_inherited_table())
    for slot, (function, _) in enumerate(_FUNCTIONS):
        if function in functions:
            table[slot] = ctypes.cast(functions[function], c_void_p)
    instance = c_void_p(ctypes.addressof(table))
    # TVM asks once and never lets go of the address; the registered function keeps all alive.
    kept = (functions, table, instance)

    def device_api() -> c_void_p:
        return c_void_p(ctypes.addressof(kept[-1]))

    tvm_ffi.register_global_func(f"device_api.{name}", device_api, override=True)


def _inherited_table() -> list[int | None]:
    """TVM's table of virtual functions, after a check that it is laid out as expected."""
    from tvm.base import _LOADED_LIBS

    library = _LOADED_LIBS["tvm_runtime"]
    try:
        start = ctypes.addressof(c_void_p.in_dll(library, _TABLE)) + _FIRST_FUNCTION
        table = list((c_void_p * len(_FUNCTIONS)).from_address(start))
        for found, (function, symbol) in zip(table, _FUNCTIONS, strict=True):
            if symbol and found != ctypes.cast(library[_CLASS + symbol], c_void_p).value:
                raise _unknown(f"{function} is not where it should be")
    except (ValueError, AttributeError) as error:
        raise _unknown(str(error)) from error
    return table


def _unknown(current: str) -> InstallationError:
    """The error for a TVM whose library is laid out otherwise."""
    return InstallationError(
        "TVM's runtime library must have the DeviceAPI of TVM 0.27",
        current,
        "install the versions of apache-tvm and apache-tvm-ffi that tvm_tile asks for",
    )


def _functions(memory: DeviceMemory) -> dict[str, Any]:
    """The functions that depend on the device, by name; ``this`` is their first argument."""

    def get_attribute(_this: int, device: DLDevice, kind: int, result: int) -> None:
        value = memory.attribute(device.index, kind)
        if value is not None:
            found = _Any.from_address(result)
            found.type_index, found.integer = _INTEGER, value

    def allocate(_this: int, device: DLDevice, size: int, *_hints: object) -> int | None:
        return memory.allocate(device.index, size)

    def copy(
        _this: int,
        source: int | None,
        source_offset: int,
        destination: int | None,
        destination_offset: int,
        size: int,
        source_device: DLDevice,
        destination_device: DLDevice,
        _hint: _DLDataType,
        stream: int | None,
    ) -> None:
        memory.copy(
            ((source or 0) + source_offset, source_device),
            ((destination or 0) + destination_offset, destination_device),
            size,
            stream,
        )

    this, device, size, pointer = c_void_p, DLDevice, c_size_t, c_void_p
    set_device = CFUNCTYPE(None, this, device)
    get_attr = CFUNCTYPE(None, this, device, c_int, pointer)
    alloc_data_space = CFUNCTYPE(pointer, this, device, size, size, _DLDataType)
    of_pointer = CFUNCTYPE(None, this, device, pointer)
    copy_data = CFUNCTYPE(
        None, this, pointer, size, pointer, size, size, device, device, _DLDataType, pointer
    )
    return {
        "SetDevice": set_device(lambda _this, device: memory.set_device(device.index)),
        "GetAttr": get_attr(get_attribute),
        "AllocDataSpace": alloc_data_space(allocate),
        "FreeDataSpace": of_pointer(lambda _this, device, at: memory.free(device.index, at)),
        "StreamSync": of_pointer(
            lambda _this, device, stream: memory.synchronize_stream(device.index, stream)
        ),
        "CopyDataFromTo": copy_data(copy),
    }
