"""Check behind kernels that have bounds, called by programs: whether they came to their end."""

from __future__ import annotations

from typing import Any

from tvm_tile.errors import BoundError
from tvm_tile.plan.rprogram import Stop
from tvm_tile.registered import REQUIRE_ENDED, register_function
from tvm_tile.registered.errors import let_errors_through


def register_require_ended() -> None:
    """Let programs of this process call it, and its errors pass."""
    let_errors_through()
    register_function(REQUIRE_ENDED, require_ended)


def require_ended(stopped: Any, name: str, iterations: int, depth: int, *results: Any) -> Any:
    """``results``, once it is known that a kernel ended as it should.

    Args:
        stopped: the word that it has left, a tensor of one: it is waited for.
        name: name of the kernel.
        iterations: the most iterations that a loop of it may have.
        depth: the most calls within one another.
        results: results of the kernel.

    Raises:
        BoundError: the kernel stopped at a bound.
    """
    import tvm_ffi

    # Copies to the host wait for the null stream; the kernel may run on another one, torch's.
    stopped.device.sync(tvm_ffi.get_raw_stream(stopped.device))
    (word,) = stopped.numpy().tolist()
    if word == Stop.ITERATIONS:
        raise BoundError(
            f"a loop inside a kernel ends after {iterations} iterations at most",
            f"a loop of {name} went on",
            "check what ends the loop; if it is right, compile with a larger "
            "Options(bounds=Bounds(iterations=...)), or with loops on the host, uncounted",
        )
    if word == Stop.DEPTH:
        raise BoundError(
            f"a recursion inside a kernel has {depth} calls within one another at most",
            f"{name} called itself once more",
            "check what ends the recursion; if it is right, compile with a larger "
            "Options(bounds=Bounds(depth=...)), or with its calls on the host, uncounted",
        )
    return results
