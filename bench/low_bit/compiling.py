"""Our compilations, all of them made side by side in other processes before anything is timed."""

from __future__ import annotations

import multiprocessing
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.low_bit.formats import FORMATS, LowBit
from bench.low_bit.products import Product
from bench.low_bit.record import APART, FLOATS, OURS
from bench.open_shapes.compiling import begin_worker, reason

if TYPE_CHECKING:
    from tvm_tile import CompiledModel

NOT_COMPILED = "was not compiled"
_REASON = ".txt"


@dataclass(frozen=True, slots=True)
class Request:
    """A product to compile.

    Attributes:
        system: :data:`OURS`; :data:`FLOATS`, the product of halves; or :data:`APART`, where a
            kernel of its own decodes the matrix to memory ahead of the product.
        format: name of how weights are kept; empty for halves.
        vectors: of the product.
        rows: of the matrix.
        depth: of the sum.
    """

    system: str
    format: str
    vectors: int
    rows: int
    depth: int

    @property
    def file(self) -> str:
        """Name of the saved model."""
        words = self.system, self.format, self.vectors, self.rows, self.depth
        return "_".join(str(word).replace(" ", "_") for word in words if word) + ".tvmtile"


def requests_of(low: LowBit, product: Product) -> tuple[Request, ...]:
    """What is compiled for a product in a format."""
    sizes = product.vectors, product.rows, product.depth
    apart = (Request(APART, low.name, *sizes),) if low.is_decoded else ()
    return (Request(FLOATS, "", *sizes), Request(OURS, low.name, *sizes), *apart)


@dataclass(frozen=True, slots=True)
class Models:
    """Saved models of one state of the code, for one device.

    Attributes:
        folder: where they are.
        device: name of its record.
    """

    folder: Path
    device: str

    def compile(
        self, wanted: Iterable[Request], jobs: int, say: Callable[[str], None], ends: float
    ) -> None:
        """Compile those that are not there, ``jobs`` at once; none is begun after ``ends``."""
        missing = [one for one in dict.fromkeys(wanted) if not self._is_done(one)]
        if not missing:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        start = time.monotonic()
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(jobs, context, initializer=begin_worker) as pool:
            asked = [pool.submit(compile_one, one, self) for one in missing]
            for count, _ in enumerate(as_completed(asked), 1):
                if count % 100 == 0:
                    say(f"{count} of {len(missing)} compiled, {time.monotonic() - start:.0f} s")
                if time.monotonic() > ends:
                    pool.shutdown(cancel_futures=True)
                    break
        say(f"{len(missing)} products compiled in {time.monotonic() - start:.0f} s")

    def load(self, request: Request) -> CompiledModel | str:
        """The compiled model, or why there is none."""
        import tvm_tile

        path = self.folder / request.file
        if path.exists():
            return tvm_tile.load(path)
        told = path.with_suffix(_REASON)
        return told.read_text(encoding="utf-8") if told.exists() else NOT_COMPILED

    def keep(self, request: Request, made: CompiledModel | str) -> None:
        """Write a model, or why there is none, into the folder."""
        path = self.folder / request.file
        if isinstance(made, str):
            path.with_suffix(_REASON).write_text(made, encoding="utf-8")
        else:
            made.save(path)

    def _is_done(self, request: Request) -> bool:
        path = self.folder / request.file
        return path.exists() or path.with_suffix(_REASON).exists()


def compile_one(request: Request, models: Models) -> None:
    """Compile a product and keep it; whatever goes wrong is kept in its place."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            made: Any = compiled(request, models.device)
    except Exception as error:  # the others are to be compiled
        made = reason(error)
    models.keep(request, made)


def compiled(request: Request, device: str) -> CompiledModel:
    """A product, compiled."""
    import tvm_tile
    from bench.low_bit.modules import coded_module, float_module
    from tvm_tile.stages.forced import Forced

    sizes = request.vectors, request.rows, request.depth
    low = FORMATS.get(request.format)
    mod, weights = coded_module(low, *sizes) if low else float_module(*sizes)
    # One worker: others compile at the same time.
    options = Forced(low_bit=True, weld=request.system != APART, parallel_builds=1, cache=False)
    return tvm_tile.compile(mod, device, weights=weights, options=options)


def rules_of(model: CompiledModel) -> str:
    """The rules that wrote a model's kernels."""
    return " + ".join(kernel.rule for kernel in model.report.kernels)


def obstacle(model: CompiledModel, low: LowBit) -> str:
    """Why codes are not multiplied by the kernel that reads them; empty where they are."""
    report = model.report
    if report.fallbacks:
        return "; ".join(dict.fromkeys(kernel.fallback for kernel in report.fallbacks))
    if not low.is_decoded or _is_one(report.kernels):
        return ""
    told = dict.fromkeys(own.reason for own in report.decisions if own.reason)
    return "; ".join(told) or "another kernel decodes them"


def _is_one(kernels: Sequence[Any]) -> bool:
    return len(kernels) == 1
