"""Functions of TVM's that compute on the host, in NumPy, whatever device their argument is on.

Their results are in the host's memory, where a kernel that reads them ends with an illegal access.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from tvm_tile.registered import wrap_function

_HOST_FUNCTIONS = "relax.run.nonzero", "relax.run.unique"


@functools.cache
def return_to_the_device() -> None:
    """Let TVM's functions on the host return tensors on the device that their argument is on."""
    for name in _HOST_FUNCTIONS:
        wrap_function(name, _on_device)


def _on_device(former: Callable[..., Any]) -> Callable[..., Any]:
    """A function whose tensors are on the device of its first argument."""

    def run(tensor: Any, *others: Any) -> Any:
        import tvm_ffi

        device = tensor.device
        if device.type == "cpu":
            return former(tensor, *others)
        # Copies wait for the null stream, and kernels may run on another one, torch's.
        device.sync(tvm_ffi.get_raw_stream(device))
        results = former(tensor, *others)
        moved = [_copied(one, device) for one in _several(results)]
        device.sync()
        return moved[0] if hasattr(results, "shape") else moved

    return run


def _several(results: Any) -> list[Any]:
    return [results] if hasattr(results, "shape") else list(results)


def _copied(result: Any, device: Any) -> Any:
    from tvm import runtime

    return runtime.tensor(result.numpy(), device)
