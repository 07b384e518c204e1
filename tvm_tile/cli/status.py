"""Exit statuses, by which the command line speaks to scripts."""

from __future__ import annotations

import signal
from enum import IntEnum

from tvm_tile.errors import (
    BuildError,
    CalibrationError,
    CompilerNotFoundError,
    DeviceError,
    DeviceRecordError,
    InstallationError,
    PlanError,
    ProfileError,
    RunError,
    TileError,
    UnknownDeviceError,
    UnsupportedOperatorError,
    VerificationError,
)


class ExitStatus(IntEnum):
    """How a command ended; `docs/command_line.md` tells users of these numbers."""

    RIGHT = 0
    DIFFERS = 1
    """Something was computed, and is wrong."""
    USAGE = 2
    """The words, files or options that were given do not serve; as of ``argparse``."""
    UNSUPPORTED = 3
    """The model cannot be compiled, or failed when it ran."""
    ENVIRONMENT = 4
    """This machine lacks something: a compiler, a GPU, memory, a package."""
    FAULT = 70
    """A fault of this package, with a traceback; ``EX_SOFTWARE`` of sysexits.h."""
    TERMINATED = 128 + signal.SIGTERM
    INTERRUPTED = 128 + signal.SIGINT


# The first class that an error is of decides, so the more special ones come first.
_STATUSES: tuple[tuple[type[Exception], ExitStatus], ...] = (
    (VerificationError, ExitStatus.DIFFERS),
    (UnsupportedOperatorError, ExitStatus.UNSUPPORTED),
    (CompilerNotFoundError, ExitStatus.ENVIRONMENT),
    (BuildError, ExitStatus.UNSUPPORTED),
    (PlanError, ExitStatus.UNSUPPORTED),
    (RunError, ExitStatus.UNSUPPORTED),
    (UnknownDeviceError, ExitStatus.USAGE),
    (DeviceRecordError, ExitStatus.USAGE),
    (DeviceError, ExitStatus.ENVIRONMENT),
    (CalibrationError, ExitStatus.ENVIRONMENT),
    (ProfileError, ExitStatus.ENVIRONMENT),
    (InstallationError, ExitStatus.ENVIRONMENT),
    (TileError, ExitStatus.USAGE),
    (OSError, ExitStatus.USAGE),
)


def status_of(error: Exception) -> ExitStatus:
    """The exit status after an error."""
    return next((status for kind, status in _STATUSES if isinstance(error, kind)), ExitStatus.FAULT)
