"""Our compilations: one for all extents here, those of known ones in other processes."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

from bench.open_shapes.models import OpenModel, find_model, module_of

if TYPE_CHECKING:
    from tvm_tile import CompiledModel

_LONGEST_REASON = 300


@dataclass(frozen=True, slots=True)
class Made:
    """What became of a compilation.

    Attributes:
        status: ``"ok"``, or why there is none.
        seconds: it took.
        kernels: that were built.
        fallbacks: those of them that no rule of ours wrote.
    """

    status: str
    seconds: float
    kernels: int | None = None
    fallbacks: int | None = None


@dataclass(frozen=True, slots=True)
class Request:
    """A compilation for one extent.

    Attributes:
        model: its name.
        extent: that it is for.
        is_masked: whether it takes a mask besides.
        device: name of the device record.
        cache: a folder of schedules and machine code, or none.
        path: of the saved model that is to be made.
    """

    model: str
    extent: int
    is_masked: bool
    device: str
    cache: Path | None
    path: Path


def begin_worker() -> None:
    """Begin a process of several that compile side by side, each with one thread."""
    import torch

    torch.set_num_threads(1)
    warm_up()


def warm_up() -> None:
    """What a process's first compilation costs besides: imports, a first export."""
    from bench.systems.tvm_tile import TvmTile

    TvmTile().warm_up()


def compile_static(request: Request) -> Made:
    """Compile a model for one extent and save it; whatever goes wrong is the status."""
    model = find_model(request.model)
    module = module_of(request.model, is_masked=request.is_masked)
    start = time.perf_counter()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            place = request.extent, request.device, request.cache
            made = _compile(model, module, *place, is_masked=request.is_masked)
        seconds = time.perf_counter() - start
        made.save(request.path)
    except Exception as error:  # the others are to be compiled
        return Made(reason(error), time.perf_counter() - start)
    return _described(made, seconds)


def compile_open(
    model: OpenModel, module: Any, device: str, cache: Path | None
) -> tuple[CompiledModel | None, Made]:
    """Compile a model for all of its extents; whatever goes wrong is the status."""
    from tvm_tile import Open

    shape: list[Any] = list(model.input(model.high).shape)
    shape[model.axis] = Open(model.low, model.high, name=model.extent)
    start = time.perf_counter()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            sizes = {model.argument: tuple(shape)}
            made = _compile(model, module, model.high, device, cache, sizes=sizes)
    except Exception as error:  # the others are to be measured
        return None, Made(reason(error), time.perf_counter() - start)
    return made, _described(made, time.perf_counter() - start)


def _compile(
    model: OpenModel,
    module: Any,
    extent: int,
    device: str,
    cache: Path | None,
    *,
    sizes: dict[str, Any] | None = None,
    is_masked: bool = False,
) -> CompiledModel:
    import torch

    import tvm_tile
    from tvm_tile.stages.forced import Forced

    given = [model.input(extent)]
    if is_masked:
        given.append(model.mask_input(extent))
    example = tuple(torch.zeros(one.shape, dtype=getattr(torch, one.dtype)) for one in given)
    # One worker: others compile at the same time, and seconds are those of one processor.
    options = Forced(parallel_builds=1, cache=False if cache is None else cache)
    return tvm_tile.compile(module, device, inputs=sizes, example_inputs=example, options=options)


def _described(model: CompiledModel, seconds: float) -> Made:
    kernels = len(model.report.kernels)
    return Made("ok", seconds, kernels, len(model.report.fallbacks))


def reason(error: BaseException) -> str:
    """What went wrong, on one line."""
    text = f"failed: {type(error).__name__}: {error}"
    return " ".join(text.split())[:_LONGEST_REASON]


class Lowerings:
    """Counts the functions that this process lowers to kernels."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> int:
        """So many until now."""
        return self.count

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count within."""
        from tvm_tile.build import lower

        plain = lower.lower_module

        def counted(*args: Any, **kwargs: Any) -> Any:
            self.count += 1
            return plain(*args, **kwargs)

        with mock.patch.object(lower, "lower_module", counted):
            yield
