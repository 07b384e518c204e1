"""Options that force what a compilation decides by itself.

They are for measuring what each decision gains, and for tests; they are no part of the public
interface.
"""

# Each field hides a class attribute of Options, for which mypy has no word.
# mypy: disable-error-code="misc"

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal, get_args

from tvm_tile.device import Device
from tvm_tile.errors import OptionError
from tvm_tile.errors.arguments import check_count, check_flag
from tvm_tile.errors.closest import did_you_mean
from tvm_tile.options import Options
from tvm_tile.plan.rprogram import Control


@dataclass(frozen=True, slots=True, kw_only=True)
class Forced(Options):
    """Options, and what no user sets: it is for measuring what each decision gains, and for tests.

    It stands wherever options do, ``tvm_tile.compile(model, options=Forced(weld=False))``, and is
    no part of the public interface. What is not named is decided as with :class:`Options`.

    Attributes:
        weld: True, the default, joins functions that TVM's own fusion leaves apart: reductions with
            the operators ahead of them and behind them, products with the readers of their values.
            False keeps the groups of one stock FuseOps.
        coschedule: True, the default, puts kernels that are too small to fill the device into
            persistent kernels (Rammer) where the model predicts less time; the report has their
            plans. On CUDA devices only. All blocks of a persistent kernel are resident at once, so
            that it runs beside no other cooperative kernel. False launches each kernel by itself.
        control: the place of loops whose iterations are kernels only. ``"auto"``, the default: in
            a persistent kernel (Cocktailer) where the model predicts less time than the host takes,
            as calibrated (``device/times.py``, HostFlowTimes). ``"kernel"``: loops, branches and
            functions that call themselves in persistent kernels, where all that they hold can be
            part of one: CUDA devices, known shapes; of loops that stay on the host the report says
            why. ``"host"``: on the host, which launches each kernel of each iteration, and reads
            each condition back; so all loops are where ``coschedule`` is off.
        dependent_launches: let kernels of CUDA graphs start while the one before them ends, and
            wait for its end themselves (programmatic dependent launches, from compute capability
            9.0 on). ``"auto"``, the default: kernels for which less time is predicted, by numbers
            that ``tvm-tile calibrate`` measures; the records that are built in have none of these
            numbers, and then no kernel starts early. True: each kernel that can, on devices that
            support it. False: none.
        exclusive: held (``with exclusive:``) while a kernel's schedules are timed; by default a
            lock among this user's processes on this machine.
        parallel_builds: kernels compiled at once, at least 1; ``None``, the default: one a
            processor.

    Raises:
        OptionError: an option is of another type, or out of its range, or two exclude each other.
    """

    weld: bool = True
    coschedule: bool = True
    control: Control = "auto"
    dependent_launches: bool | Literal["auto"] = "auto"
    exclusive: AbstractContextManager[Any] | None = None
    parallel_builds: int | None = None

    def __post_init__(self) -> None:
        Options.__post_init__(self)  # super() knows the class as it was without slots
        check_flag("weld", self.weld)
        check_flag("coschedule", self.coschedule)
        if self.control not in get_args(Control):
            wanted = ", ".join(map(repr, get_args(Control)))
            remedy = did_you_mean(str(self.control), get_args(Control), '"auto"')
            raise OptionError(f"control must be one of {wanted}", repr(self.control), remedy)
        if self.control == "kernel" and not self.coschedule:
            raise OptionError(
                "loops inside kernels are kernels that are co-scheduled",
                f"control={self.control!r}, coschedule=False",
                "leave one of them out",
            )
        if self.dependent_launches != "auto":
            check_flag('dependent_launches, if not "auto",', self.dependent_launches)
        if self.dependent_launches is True and not self.cuda_graph:
            raise OptionError(
                "dependent_launches=True is for kernels of CUDA graphs",
                "cuda_graph=False",
                "leave one of them out",
            )
        if self.exclusive is not None and not isinstance(self.exclusive, AbstractContextManager):
            raise OptionError(
                "exclusive must be a context manager", repr(self.exclusive), "use a lock, or None"
            )
        if self.parallel_builds is not None:
            check_count("parallel_builds", self.parallel_builds, 1, "use None for one a processor")

    def check_device(self, device: Device) -> None:
        """Refuse what a device does not have.

        Raises:
            DeviceAbsentError: candidates are to be measured on the emulated device.
            OptionError: the device has no dependent launches, which were asked for.
        """
        Options.check_device(self, device)
        if self.dependent_launches is True and not device.supports_dependent_launches:
            raise OptionError(
                "dependent_launches=True needs a GPU of compute capability 9.0 or later",
                device.name,
                'use "auto", which leaves them off where there are none',
            )

    def notes(self, device: Device) -> Iterator[str]:
        """Sentences on what was forced, which may make the model slower, and on options."""
        yield from Options.notes(self, device)
        if not self.weld:
            yield "weld is off: kernels are the groups of TVM's own fusion"
        if not self.coschedule:
            yield "coschedule is off: each kernel is launched by itself"
        if self.control == "kernel" and not device.supports_grid_barrier:
            yield f"loops stay on the host: {device.name} runs no persistent kernels"
