"""What becomes of one function: host code and kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tvm_tile.build.dispatch import dispatcher
from tvm_tile.build.program import Kernel
from tvm_tile.errors import BuildError


@dataclass(frozen=True, slots=True)
class Rounding:
    """What the compiler of a kernel may round otherwise than it is written.

    Attributes:
        contract: products may be fused into sums.
        exact_quotients: those of float32 must be rounded correctly.
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
        spare: how many kernels, the last ones, a call at the greatest extents does not launch.
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
    name: str, func: Any, names: Sequence[str], parts: Mapping[str, Built | BuildError]
) -> Built | BuildError:
    """A function of several schedules, of which the host takes one.

    Args:
        name: of the function.
        func: the function.
        names: of its own schedule, and of its alternatives, some of which may be one.
        parts: these by name, built, its own schedule first.

    Returns:
        What is built; or why a schedule does not build.
    """
    for part in parts.values():
        if isinstance(part, BuildError):
            return part
    known = {own: part for own, part in parts.items() if isinstance(part, Built)}
    host = dispatcher(name, func, names, [known[own].host for own in names])
    built = list(known.values())
    for part in built:
        host.update(part.host)
    kernels = tuple(kernel for part in built for kernel in part.kernels)
    roundings = tuple(rounding for part in built for rounding in part.roundings)
    return Built(host, kernels, roundings, len(kernels) - len(built[0].kernels))
