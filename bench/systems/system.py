"""What every system is to the runner: something that prepares a case and then runs it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from bench.workload import Case, Workload


class NotSupported(Exception):
    """The system cannot run the workload; the message is the reason, for the record."""


@dataclass(frozen=True, slots=True)
class Session:
    """What a system may use while it prepares.

    Attributes:
        device: name of the device record to compile for.
        gpu: hold it (``with session.gpu:``) for whatever runs on the GPU, and only for that:
            another process may be measuring.
        draw: makes the case's inputs on the GPU, fresh tensors at each call.
        place: copies a module to where the inputs are, in evaluation mode; its parameters are
            shared with other copies of it, and nobody may write to them.
        threads: that compiling may take of this machine's processors.
    """

    device: str
    gpu: AbstractContextManager[Any]
    draw: Callable[[], tuple[Any, ...]]
    place: Callable[[Any], Any]
    threads: int = 1


@dataclass(frozen=True, slots=True)
class Prepared:
    """A case that is ready to run.

    Attributes:
        start: given the inputs on the GPU (called once, holding the GPU), returns a function
            of no arguments that enqueues one run on the current stream and returns the
            outputs as torch tensors on the GPU, without waiting for them.
        schedule_s: the part of the preparation that is no compiler's (ours only).
        kernels: how many, where the system tells.
        fallbacks: how many of them are not the system's own work.
        predicted_s: what one run should take (ours only; None where a kernel is not our work).
        note: for the record.
        spent_s: what was spent on it before, in other runs: tuning.
        clock: for systems whose work torch's events cannot see: runs ``start``'s function as
            often as asked and returns seconds each.
    """

    start: Callable[[Sequence[Any]], Callable[[], Any]]
    schedule_s: float | None = None
    kernels: int | None = None
    fallbacks: int | None = None
    predicted_s: float | None = None
    note: str = ""
    spent_s: float = 0.0
    clock: Callable[[Callable[[], Any], int], list[float]] | None = None


class System(Protocol):
    """A system that is compared.

    Attributes:
        name: as in records.
        variant: as in records.
        preload: modules that take long to import and that processes may share.
    """

    name: str
    variant: str
    preload: tuple[str, ...]

    def missing(self) -> str:
        """Why it cannot run on this machine; empty when it can. Must be quick."""
        ...

    def version(self) -> str:
        """Such as ``"torch 2.11.0"``."""
        ...

    def warm_up(self) -> None:
        """Once in each process: what the first use costs and is no workload's, such as imports."""
        ...

    def prepare(self, workload: Workload, case: Case, session: Session) -> Prepared:
        """Compile the case.

        Raises:
            NotSupported: the system cannot run it.
        """
        ...
