"""One built function: its host code and its kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm_tile.build.dispatch import dispatcher
from tvm_tile.build.program import Kernel
from tvm_tile.errors import BuildError


@dataclass(frozen=True, slots=True)
class Rounding:
    """Roundings in which a kernel's compiler may differ from the kernel's text.

    Attributes:
        contract: products may be fused into sums.
        exact_quotients: whether quotients of float32 must be rounded correctly.
    """

    contract: bool
    exact_quotients: bool


@dataclass(frozen=True, slots=True)
class Built:
    """One PrimFunc, built.

    Attributes:
        host: its host code, a TVM IRModule of packed functions that launch the kernels.
        kernels: its kernels.
        roundings: how each of them was compiled.
        spare: number of kernels, the last ones, that a call at the greatest extents does not
            launch.
    """

    host: Any
    kernels: tuple[Kernel, ...]
    roundings: tuple[Rounding, ...]
    spare: int = 0

    @property
    def launched(self) -> tuple[Kernel, ...]:
        """The kernels that a call at the greatest extents launches."""
        return self.kernels[: len(self.kernels) - self.spare]


def combined(
    name: str, func: Any, names: Sequence[str], parts: Sequence[Built | BuildError]
) -> Built | BuildError:
    """A function of several schedules, of which the host takes one.

    Args:
        name: name of the function.
        func: the function.
        names: names of its own schedule and of its alternatives.
        parts: these, built in the same order.

    Returns:
        What is built; or why a schedule does not build.
    """
    built = [part for part in parts if isinstance(part, Built)]
    if len(built) < len(parts):
        return next(part for part in parts if isinstance(part, BuildError))
    # Schedules are named by what they are: those for several extents may be the same one.
    known = dict(zip(names, built, strict=True))
    host = dispatcher(name, func, names, [known[own].host for own in names])
    for part in known.values():
        host.update(part.host)
    kernels = tuple(kernel for part in known.values() for kernel in part.kernels)
    roundings = tuple(rounding for part in known.values() for rounding in part.roundings)
    return Built(host, kernels, roundings, len(kernels) - len(built[0].kernels))
