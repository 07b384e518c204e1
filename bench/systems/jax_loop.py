"""JAX for loops: ``lax.scan`` and ``lax.while_loop`` under XLA."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from bench.systems.system import NotSupported, Prepared, Session
from bench.workload import Case, Workload


class JaxLoop:
    """One jitted function; timed by the wall clock, launches included, as it cannot share events.

    With torch in the same process it must not take three quarters of the memory at its start.
    """

    name = "jax"
    variant = ""
    preload: tuple[str, ...] = ()  # XLA has threads, which forking would lose

    def missing(self) -> str:
        """It needs JAX with its GPU."""
        _leave_memory()
        try:
            import jax
        except ImportError as error:
            return str(error)
        return "" if jax.default_backend() == "gpu" else f"JAX runs on {jax.default_backend()} here"

    def version(self) -> str:
        """JAX's."""
        import jax

        return f"jax {jax.__version__}"

    def warm_up(self) -> None:
        """Its imports and its connection with the GPU."""
        _leave_memory()
        import jax

        jax.devices()

    def prepare(self, workload: Workload, case: Case, session: Session) -> Prepared:
        """Jit the case's loop."""
        if case.loop is None:
            raise NotSupported("JAX is compared on loops only")
        _leave_memory()
        import jax

        function = jax.jit(case.loop())
        return Prepared(start=lambda inputs: _started(function, inputs), clock=_wall_clock)


def _started(function: Callable[..., Any], inputs: Sequence[Any]) -> Callable[[], Any]:
    import jax
    import torch

    arrays = [jax.dlpack.from_dlpack(value.contiguous()) for value in inputs]

    def run() -> Any:
        # XLA has its own stream: the result is waited for, or torch would read too early.
        results = jax.block_until_ready(function(*arrays))
        return jax.tree.map(torch.from_dlpack, results)

    return run


def _wall_clock(run: Callable[[], Any], count: int) -> list[float]:
    samples = []
    for _ in range(count):
        start = time.perf_counter()
        run()
        samples.append(time.perf_counter() - start)
    return samples


def _leave_memory() -> None:
    import os

    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
