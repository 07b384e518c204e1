"""Options of :func:`tvm_tile.compile`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields, replace
from types import MappingProxyType
from typing import Any, Literal, get_args

from tvm_tile.device import Device, with_tf32
from tvm_tile.errors import DeviceAbsentError, OptionError
from tvm_tile.errors.arguments import (
    check_bound,
    check_count,
    check_flag,
    check_folder,
    check_share,
)
from tvm_tile.errors.closest import did_you_mean
from tvm_tile.plan.rprogram import Bounds, Control
from tvm_tile.tile.cover import MAX_LOSS

# What says how the compilation goes about it, and nothing about the result.
_ON_THE_WAY = frozenset({"parallel_builds", "exclusive", "cache", "cache_bytes"})


@dataclass(frozen=True, slots=True)
class Options:
    """How to compile.

    Attributes:
        cuda_graph: capture launches into CUDA graphs where the device can replay them; the default.
        parallel_builds: kernels compiled at once, at least 1; ``None``, the default: one a
            processor.
        topk: number of schedules of each kernel, the best by predicted time, that are built and run
            to keep the fastest, 1 by default. Above 1 the GPU must be present, and the emulated
            device is refused, as its times say nothing about a GPU. With 0 and 1 the schedule with
            the least predicted time is taken, and no GPU is touched.
        exclusive: held (``with exclusive:``) while a kernel's schedules are timed; by default a
            lock among this user's processes on this machine.
        tf32: False by default; True lets tensor cores multiply float32 operands, of which they read
            ten bits of mantissa and leave out the rest; the sums are float32. Errors are then about
            1e-3 of the sum of the products' magnitudes, instead of 1e-7.
        low_bit: False by default; True keeps matrices of weights that arrive as codes of 1 to 8
            bits as these codes, with their scales, zero points and tables, in memory and in saved
            models, and decodes them on the device, to the very bits that folding gives. On NVIDIA
            GPUs products of up to 32 rows, on Hopper of more, too, multiply integer codes of 2, 4
            and 8 bits themselves where that is predicted to be faster; ahead of all others a kernel
            of its own decodes the matrix in each call, which saves memory and costs time. False
            folds them to floating-point numbers. ``explain()`` tells of each.
        weld: True, the default, joins functions that TVM's own fusion leaves apart: reductions with
            the operators ahead of them and behind them, products with the readers of their values.
            False keeps the groups of one stock FuseOps, which shows how much joining gains; all
            else is the same.
        coschedule: True, the default, puts kernels that are too small to fill the device into
            persistent kernels (Rammer) where the model predicts less time; the report has their
            plans. On CUDA devices only. All blocks of a persistent kernel are resident at once, so
            that it runs beside no other cooperative kernel. False launches each kernel by itself,
            which shows how much co-scheduling gains; all else is the same.
        control: the place of loops whose iterations are kernels only. ``"host"``, the default: on
            the host, which launches each kernel of each iteration, and reads each condition back.
            ``"kernel"``: loops, branches and functions that call themselves in persistent kernels
            (Cocktailer), where all that they hold can be part of one: CUDA devices, known shapes;
            of loops that stay on the host the report says why. ``"auto"``: in a kernel where the
            model predicts less time than the host takes, as calibrated (``device/times.py``,
            HostFlowTimes).
        most_iterations: the most iterations of a loop inside a kernel that only its data end, each
            time that it is entered; 4,000,000 by default. With one more the kernel ends and the
            call raises a BoundError; the next call runs as usual. To find that out, the host waits
            for each kernel with such a loop, or with a function that calls itself.
        most_depth: the most calls of such functions within one another, for which the kernel has
            memory; 256 by default.
        dependent_launches: let kernels of CUDA graphs start while the one before them ends, and
            wait for its end themselves (programmatic dependent launches, from compute capability
            9.0 on). ``"auto"``, the default: kernels for which less time is predicted, by numbers
            of the device's record that ``tvm-tile calibrate`` measures. True: each kernel that can,
            on devices that support it. False: none.
        max_loss: the largest share of time, at least 0, that a kernel of open extents may be
            predicted to lose against the best tile for any of the extents that tiles are ranked
            for; 0.02, a fiftieth, by default. A smaller share needs more tiles, one of which runs
            in each call; 0 takes the best tile of each extent. Kernels whose extents are known are
            not affected.
        cache: the place of compiled models, schedules and machine code for the next compilation,
            which then does not make again what it finds there: a folder; True, the default, for
            that of the environment variable ``TVM_TILE_CACHE`` or else the user's cache folder;
            False for none. A model that is measured or verified while it is compiled is compiled
            each time.
        cache_bytes: bytes that the cache may grow to, 4 GiB by default, a quarter of it schedules
            and machine code; what was not used for longest goes first, and a model whose weights
            would take half of the rest is not kept.
        verify: False by default; True runs each kernel, once it is built, on random inputs next to
            what NumPy makes of its function, and schedules another way what differs, as is done
            with what does not build: the device must be present. Persistent kernels are not among
            them, nor is the model as a whole: see :meth:`tvm_tile.CompiledModel.verify`.

    Raises:
        OptionError: an option is of another type, or out of its range.
    """

    cuda_graph: bool = True
    parallel_builds: int | None = None
    topk: int = 1
    exclusive: AbstractContextManager[Any] | None = None
    tf32: bool = False
    low_bit: bool = False
    weld: bool = True
    coschedule: bool = True
    control: Control = "host"
    most_iterations: int = Bounds().iterations
    most_depth: int = Bounds().depth
    dependent_launches: bool | Literal["auto"] = "auto"
    max_loss: float = MAX_LOSS
    cache: bool | str | os.PathLike[str] = True
    cache_bytes: int = 4 << 30
    verify: bool = False

    def __post_init__(self) -> None:
        for name in ("cuda_graph", "tf32", "low_bit", "weld", "coschedule", "verify"):
            check_flag(name, getattr(self, name))
        if self.control not in get_args(Control):
            wanted = ", ".join(map(repr, get_args(Control)))
            remedy = did_you_mean(str(self.control), get_args(Control), '"host"')
            raise OptionError(f"control must be one of {wanted}", repr(self.control), remedy)
        if self.control != "host" and not self.coschedule:
            raise OptionError(
                "loops inside kernels are kernels that are co-scheduled",
                f"control={self.control!r}, coschedule=False",
                "leave one of them out",
            )
        check_bound("most_iterations", self.most_iterations)
        check_bound("most_depth", self.most_depth)
        if self.dependent_launches != "auto":
            check_flag('dependent_launches, if not "auto",', self.dependent_launches)
        if self.dependent_launches is True and not self.cuda_graph:
            raise OptionError(
                "dependent_launches=True is for kernels of CUDA graphs",
                "cuda_graph=False",
                "leave one of them out",
            )
        check_count("topk", self.topk, 0, "use 1 for the model's first choice, more to measure")
        if self.parallel_builds is not None:
            check_count("parallel_builds", self.parallel_builds, 1, "use None for one a processor")
        check_share("max_loss", self.max_loss, "use 0.02 for a fiftieth, 0 for the best tiles")
        check_folder("cache", self.cache)
        check_count("cache_bytes", self.cache_bytes, 0, "use cache=False for no cache")
        if self.exclusive is not None and not isinstance(self.exclusive, AbstractContextManager):
            raise OptionError(
                "exclusive must be a context manager", repr(self.exclusive), "use a lock, or None"
            )

    @property
    def bounds(self) -> Bounds:
        """Bounds at which kernels with loops and recursion give up."""
        return Bounds(self.most_iterations, self.most_depth)

    def told(self) -> tuple[str, ...]:
        """Options that the result depends on and that differ from the defaults: ``"tf32=True"``."""
        usual = Options()
        names = [field.name for field in fields(self) if field.name not in _ON_THE_WAY]
        given = {name: getattr(self, name) for name in names}
        return tuple(f"{n}={v!r}" for n, v in given.items() if v != getattr(usual, n))

    def check_device(self, device: Device) -> None:
        """Refuse what a device does not have.

        Raises:
            OptionError: the device has no dependent launches, which were asked for.
        """
        if self.dependent_launches is True and not device.supports_dependent_launches:
            raise OptionError(
                "dependent_launches=True needs a GPU of compute capability 9.0 or later",
                device.name,
                'use "auto", which leaves them off where there are none',
            )

    def notes(self, device: Device) -> Iterator[str]:
        """Sentences on options that may make the model slower."""
        if not self.weld:
            yield "weld is off: kernels are the groups of TVM's own fusion"
        if not self.coschedule:
            yield "coschedule is off: each kernel is launched by itself"
        if self.control != "host" and not device.supports_grid_barrier:
            yield f"loops stay on the host: {device.name} runs no persistent kernels"


def checked_options(
    options: Options | Mapping[str, Any] | None,
    named: Mapping[str, Any] = MappingProxyType({}),
    others: Iterable[str] = (),
) -> Options:
    """The options that were passed, or the defaults.

    Args:
        options: as they are, or by name.
        named: further ones by name, which come before ``options``.
        others: names that may be meant where none of an option is.

    Raises:
        OptionError: something else was passed, or a name is none of an option.
    """
    if options is not None and not isinstance(options, Options | Mapping):
        raise OptionError(
            "options must be tvm_tile.Options, or options by name",
            repr(options)[:200],
            'options={"tf32": True}',
        )
    base = options if isinstance(options, Options) else Options()
    given = {**(options if isinstance(options, Mapping) else {}), **named}
    known = [field.name for field in fields(Options)]
    for name in given:
        if name not in known:
            raise OptionError(
                f"options are {', '.join(known)}",
                repr(name),
                did_you_mean(str(name), (*known, *others), "leave it out"),
            )
    return replace(base, **given)


def with_options(device: Device, options: Options) -> Device:
    """A device's record as the options want it seen.

    Raises:
        DeviceAbsentError: they ask for measurements that the device cannot give.
        OptionError: they ask for what the device does not have.
    """
    options.check_device(device)
    if options.topk > 1:
        _check_measurable(device)
    return with_tf32(device) if options.tf32 else device


def _check_measurable(device: Device) -> None:
    """Refuse to measure candidates on the emulated device."""
    if device.is_emulated:
        raise DeviceAbsentError(
            "candidates are measured on a GPU, which must be present",
            f"the device is {device.name}: the CPU's times say nothing about any GPU",
            "compile with Options(topk=1), which measures nothing, or where the GPU is",
        )
