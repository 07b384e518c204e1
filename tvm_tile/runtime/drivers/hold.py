"""A kernel that keeps an NVIDIA GPU busy while the host launches what is to be watched behind it.

A profiler makes launches slower than the kernels that they launch: without this the GPU would wait
for the host in the middle of a run. The kernel ends by itself, whatever the host does meanwhile, so
that a model whose host waits for the GPU within a run is slower, and does not hang.
"""

from __future__ import annotations

import ctypes
from typing import Any

from tvm_tile.errors import DriverError

HOLD = "tvm_tile_hold"
"""What the kernel is called."""

_PTX = f"""
.version 7.0
.target sm_75
.address_size 64
.visible .entry {HOLD}(.param .u64 nanoseconds)
{{
  .reg .u64 %most, %begin, %now;
  .reg .pred %waits;
  ld.param.u64 %most, [nanoseconds];
  mov.u64 %begin, %globaltimer;
again:
  mov.u64 %now, %globaltimer;
  sub.u64 %now, %now, %begin;
  setp.lt.u64 %waits, %now, %most;
  @%waits bra again;
  ret;
}}
"""


class Hold:
    """The kernel, in the current context of CUDA.

    Args:
        driver: the module ``cuda.bindings.driver``.

    Raises:
        DriverError: the driver does not take it.
    """

    def __init__(self, driver: Any) -> None:
        self._driver = driver
        module = checked("cuModuleLoadData", driver.cuModuleLoadData(_PTX.encode() + b"\0"))
        found = driver.cuModuleGetFunction(module, HOLD.encode())
        self._function = checked("cuModuleGetFunction", found)

    def launch(self, nanoseconds: int) -> None:
        """Keep the stream that the next kernels go to busy for so long.

        Raises:
            DriverError: the kernel cannot be launched.
        """
        import tvm_ffi

        stream = tvm_ffi.get_raw_stream(tvm_ffi.device("cuda", 0))
        one = 1, 1, 1
        parameters = (nanoseconds,), (ctypes.c_uint64,)
        launched = self._driver.cuLaunchKernel(self._function, *one, *one, 0, stream, parameters, 0)
        checked("cuLaunchKernel", launched)


def checked(name: str, answer: tuple[Any, ...]) -> Any:
    """Result of a function of the driver, if any.

    Args:
        name: the function's.
        answer: status of the function, and its result.

    Raises:
        DriverError: the status is that of an error.
    """
    status, *given = answer
    if int(status):
        raise DriverError(
            f"{name} must succeed",
            str(status),
            "look for the driver's messages in the kernel's log (dmesg)",
        )
    return given[0] if given else None
