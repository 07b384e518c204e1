"""Every exception that tvm_tile raises on purpose.

TileError
├── ModelError                  the model that came in
│   ├── ModelFileError          unreadable, missing or corrupt model file
│   ├── UnsupportedOperatorError an operator no importer knows, by name and node
│   └── DynamicShapeError       an unknown extent with no value and no bound
├── InputError                  the arguments of a call: count, dtype, rank or shape
├── OptionError                 an option out of its range
├── DeviceError                 the hardware that was asked for
│   ├── UnknownDeviceError      no such device record
│   ├── DeviceAbsentError       the GPU of this machine was asked for, and there is none
│   ├── DeviceRecordError       a device record's file: missing, corrupt or incomplete
│   ├── DriverError             a call of the GPU's driver that failed
│   │   └── DeviceMemoryError   the GPU's memory is full
│   └── DeviceTooSmallError     a kernel needs more than the device has
├── CalibrationError            a GPU could not be measured
├── VerificationError           a kernel that computes something else than its function
├── BuildError                  machine code could not be made
│   └── CompilerNotFoundError   neither NVRTC nor nvcc (nor PoCL, when emulated)
├── RunError                    a compiled model that failed while it was loaded or ran
│   └── BoundError              a loop or a recursion inside a kernel went beyond its bound
├── ProfileError                nothing tells when the kernels of a run begin and end
├── PlanError                   an execution plan that would not run rightly
├── SavedModelError             a saved file: tampered, truncated or incompatible
└── InstallationError           installed packages that are known to crash together

Each message has three parts: what is required, what is there now, and the remedy.
"""

from __future__ import annotations

from typing import Any

_FOUND, _REMEDY = "\n  found:  ", "\n  remedy: "


class TileError(Exception):
    """Base of all errors of this package.

    Args:
        requirement: sentence that says which condition must hold.
        current: sentence that says what was found instead.
        remedy: sentence that says what the user can do about it.
    """

    def __init__(self, requirement: str, current: str, remedy: str) -> None:
        self.requirement = requirement
        self.current = current
        self.remedy = remedy
        super().__init__(f"{requirement}{_FOUND}{current}{_REMEDY}{remedy}")

    @classmethod
    def from_text(cls, text: str) -> TileError:
        """The error whose ``str`` is ``text``."""
        requirement, _, rest = text.partition(_FOUND)
        current, _, remedy = rest.partition(_REMEDY)
        return cls(requirement, current, remedy)

    def __reduce__(self) -> tuple[type[TileError], tuple[Any, ...]]:
        # Errors cross process borders (parallel kernel builds); the default would pass one string.
        return type(self), (self.requirement, self.current, self.remedy)


class ModelError(TileError):
    """The model that came in cannot be compiled."""


class ModelFileError(ModelError):
    """The model file is missing, unreadable or corrupt."""


class UnsupportedOperatorError(ModelError):
    """The model uses an operator that no importer knows, or of data types that TVM lacks.

    Args:
        requirement: as in every error; so are ``current`` and ``remedy``.
        nodes: names of the operators in an exported program, where it is one.
    """

    def __init__(
        self, requirement: str, current: str, remedy: str, nodes: tuple[str, ...] = ()
    ) -> None:
        self.nodes = nodes
        super().__init__(requirement, current, remedy)

    def __reduce__(self) -> tuple[type[TileError], tuple[Any, ...]]:
        return type(self), (self.requirement, self.current, self.remedy, self.nodes)


class DynamicShapeError(ModelError):
    """An extent of the model is unknown and was given neither a value nor a bound."""


class InputError(TileError):
    """A compiled model was called with the wrong number, dtype, rank or shape of inputs."""


class OptionError(TileError):
    """An option of a compilation is out of its range."""


class DeviceError(TileError):
    """The device that was asked for does not serve."""


class UnknownDeviceError(DeviceError):
    """No device record has that name."""


class DeviceAbsentError(DeviceError):
    """The GPU of this machine is to be compiled for, or to be measured on, and is not present."""


class DeviceRecordError(DeviceError):
    """The file of a device record is missing, corrupt or incomplete."""


class DriverError(DeviceError):
    """A call of the GPU's driver failed."""


class DeviceMemoryError(DriverError):
    """The GPU's memory is full."""


class DeviceTooSmallError(DeviceError):
    """A kernel needs more of some resource than the device has."""


class CalibrationError(TileError):
    """There is no GPU to measure, its driver failed, or a measurement cannot be right."""


class VerificationError(TileError):
    """A kernel computes something else than the function that it is for."""


class BuildError(TileError):
    """Machine code could not be made from the generated source."""


class CompilerNotFoundError(BuildError):
    """No compiler for the device's code is installed."""


class RunError(TileError):
    """A compiled model failed while its code was loaded or ran."""


class BoundError(RunError):
    """A loop or a recursion inside a kernel went beyond its bound, and the kernel was ended."""


class ProfileError(TileError):
    """The profiler that tells when kernels begin and end is missing, or fails."""


class PlanError(TileError):
    """An execution plan breaks a budget, an order or a value that is still needed."""


class SavedModelError(TileError):
    """A saved model is tampered with, truncated, or from an incompatible version."""


class InstallationError(TileError):
    """Installed packages are known to crash together."""


def _below(kind: type[TileError]) -> list[type[TileError]]:
    """An exception's class with all classes below it."""
    return [kind, *(inner for one in kind.__subclasses__() for inner in _below(one))]


ALL_ERRORS: tuple[type[TileError], ...] = tuple(_below(TileError))
"""Every class of this module."""
