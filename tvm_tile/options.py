"""Options of :func:`tvm_tile.compile`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType
from typing import Any, ClassVar, Literal, get_args

from tvm_tile.device import Device, with_tf32
from tvm_tile.errors import DeviceAbsentError, OptionError
from tvm_tile.errors.arguments import (
    check_count,
    check_flag,
    check_folder,
    check_share,
)
from tvm_tile.errors.closest import did_you_mean
from tvm_tile.plan.rprogram import Bounds, Control
from tvm_tile.report.skipped_zeros import Zeros
from tvm_tile.tile.coded.choice import LowBit
from tvm_tile.tile.cover import MAX_LOSS

# What says how the compilation goes about it, and nothing about the result.
_ON_THE_WAY = frozenset({"parallel_builds", "exclusive", "cache", "cache_bytes"})


@dataclass(frozen=True, slots=True)
class Options:
    """How to compile: what the compiler cannot know by itself.

    Attributes:
        cuda_graph: capture launches into CUDA graphs where the device can replay them; the default.
        topk: number of schedules of each kernel, the best by predicted time, that are built and run
            to keep the fastest, 1 by default. Above 1 the GPU must be present, and the emulated
            device is refused, as its times say nothing about a GPU. With 0 and 1 the schedule with
            the least predicted time is taken, and no GPU is touched.
        tf32: False by default; True lets tensor cores multiply float32 operands, of which they read
            ten bits of mantissa and leave out the rest; the sums are float32. Errors are then about
            1e-3 of the sum of the products' magnitudes, instead of 1e-7.
        low_bit: whether matrices of weights that arrive as codes of 1 to 8 bits stay codes, with
            their scales, zero points and tables, in memory and in saved models, and are decoded on
            the device, to the very bits that folding gives. "auto", the default, keeps those whose
            products are predicted to take no longer so, and all where the device's memory would
            not hold the folded weights; it folds the others to floating-point numbers. True keeps
            all: the least memory; where no kernel multiplies codes, one of its own decodes the
            matrix in each call, which costs time. False folds all. ``explain()`` tells of each.
        zeros: treatment of zeros among constant weights. "multiply", the default, multiplies them
            as all numbers, so that a zero times an infinity is NaN as it is anywhere. "skip" lets
            kernels leave out blocks of zeros, 64 columns by 128 bytes, say, or two zeros in each
            four that are summed up (2:4), where that is predicted to be faster: such a product is
            then zero. ``explain("memory")`` tells of each such matrix, by default what skipping
            would save.
        bounds: the most iterations of a loop inside a kernel that only its data end, 4,000,000 by
            default, and the most calls of a function within one another, 256 by default. With one
            more the kernel ends and the call raises a BoundError; the next call runs as usual. To
            find that out, the host waits for each kernel with such a loop, or with a function that
            calls itself. By default loops run on the host, which sets them no bounds; measurements
            put them into kernels (``stages/forced.py``).
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
    topk: int = 1
    tf32: bool = False
    low_bit: LowBit = "auto"
    zeros: Zeros = "multiply"
    bounds: Bounds = field(default_factory=Bounds)
    max_loss: float = MAX_LOSS
    cache: bool | str | os.PathLike[str] = True
    cache_bytes: int = 4 << 30
    verify: bool = False

    # Fields of Forced (stages/forced.py), which users need not set.
    weld: ClassVar[bool] = True
    coschedule: ClassVar[bool] = True
    control: ClassVar[Control] = "auto"
    dependent_launches: ClassVar[bool | Literal["auto"]] = "auto"
    exclusive: ClassVar[AbstractContextManager[Any] | None] = None
    parallel_builds: ClassVar[int | None] = None

    def __post_init__(self) -> None:
        for name in ("cuda_graph", "tf32", "verify"):
            check_flag(name, getattr(self, name))
        if self.low_bit != "auto":
            check_flag('low_bit, if not "auto",', self.low_bit)
        if self.zeros not in get_args(Zeros):
            raise OptionError(
                'zeros must be "multiply" or "skip"', repr(self.zeros)[:200], 'zeros="skip"'
            )
        check_count("topk", self.topk, 0, "use 1 for the model's first choice, more to measure")
        if not isinstance(self.bounds, Bounds):
            raise OptionError(
                "bounds must be tvm_tile.Bounds",
                repr(self.bounds)[:200],
                "bounds=tvm_tile.Bounds(iterations=100, depth=10)",
            )
        check_share("max_loss", self.max_loss, "use 0.02 for a fiftieth, 0 for the best tiles")
        check_folder("cache", self.cache)
        check_count("cache_bytes", self.cache_bytes, 0, "use cache=False for no cache")

    def told(self) -> tuple[str, ...]:
        """Options that the result depends on and that differ from the defaults: ``"tf32=True"``."""
        usual = Options()
        names = [field.name for field in fields(self) if field.name not in _ON_THE_WAY]
        given = {name: getattr(self, name) for name in names}
        return tuple(f"{n}={v!r}" for n, v in given.items() if v != getattr(usual, n))

    def check_device(self, device: Device) -> None:
        """Refuse what a device does not have.

        Raises:
            DeviceAbsentError: candidates are to be measured on the emulated device.
        """
        if self.topk > 1 and device.is_emulated:
            raise DeviceAbsentError(
                "candidates are measured on a GPU, which must be present",
                f"the device is {device.name}: the CPU's times say nothing about any GPU",
                "compile with Options(topk=1), which measures nothing, or where the GPU is",
            )

    def notes(self, device: Device) -> Iterator[str]:
        """Sentences on what may make a model for ``device`` slower, or not as fast as was asked."""
        instructions = {instruction.intrinsic for instruction in device.matrix_instructions}
        if self.zeros == "skip" and "wgmma" not in instructions:
            yield "zeros are multiplied: what skips them are kernels for Hopper's tensor cores"


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
    known = [field.name for field in fields(base)]
    for name in given:
        if name not in known:
            is_decided = hasattr(base, str(name))
            how = "leave it out: the compiler decides it" if is_decided else "leave it out"
            remedy = did_you_mean(str(name), (*known, *others), how)
            raise OptionError(f"options are {', '.join(known)}", repr(name), remedy)
    return replace(base, **given)


def with_options(device: Device, options: Options) -> Device:
    """A device's record as the options want it seen.

    Raises:
        DeviceAbsentError: they ask for measurements that the device cannot give.
        OptionError: they ask for what the device does not have.
    """
    options.check_device(device)
    return with_tf32(device) if options.tf32 else device


def require_no_runs(options: Options) -> None:
    """Refuse options by which a compilation runs kernels.

    Raises:
        OptionError: candidates are to be measured, or kernels to be verified.
    """
    if options.topk > 1 or options.verify:
        raise OptionError(
            "a prediction builds and runs no kernel",
            f"topk={options.topk}" if options.topk > 1 else "verify=True",
            "leave it out, or compile the model",
        )
