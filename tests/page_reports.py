"""Reports and choices of models that nobody compiled, for tests of pages."""

from __future__ import annotations

from tvm_tile.report.compiled import KernelReport, Launches, Stage
from tvm_tile.report.kernel_graph import CallValue, KernelCall, KernelGraph
from tvm_tile.report.limits import Limits, Roofs
from tvm_tile.report.page.content import Choices, Content, OfferView, SourceText, Standing
from tvm_tile.report.shown import Report

ROOFS = Roofs(4e12, 12e12, (("float32 cores", 60e12), ("float16 matrix units", 800e12)))
LIMITS = Limits(4e12, False, 1e-6, ROOFS)
BLOCK = 6  # calls of a block of transformer()
SOURCE = "// a line of a kernel's text, as long as they usually are, with <b>\n" * 100


def kernel(number: int, name: str = "") -> KernelReport:
    """One bound by its bytes, its operations, its launch or waiting, in turns."""
    seconds = (1 + number % 7) * 1.2e-6
    traffic = 4e12 * seconds * (0.8 if number % 4 == 0 else 0.1)
    arithmetic = seconds * (0.9 if number % 4 == 1 else 0.1)
    return KernelReport(
        f"fused_matmul{number}_add_0f3a99c1", "matmul add relu", "wgmma", 128, 256,
        "block 128 by 64, depth 64", seconds, traffic, "", written=traffic / 4,
        names=((name or f"encoder.layer.{number // BLOCK}.part{number % BLOCK}.dense", "relu"),),
        flops=60e12 * arithmetic, arithmetic_seconds=arithmetic,
    )  # fmt: skip


def transformer(count: int) -> KernelGraph:
    """Blocks of three calls side by side, one that takes all of them and what follows, with a
    residual; and one value that many blocks read."""
    reads: list[tuple[int, ...]] = []
    for number in range(count):
        block = number - number % BLOCK
        before = {0: (-1,), 4: (-3, -2, -1), 5: (-1, -5)}.get(number % BLOCK, (block - number - 1,))
        mask = (0,) if number % BLOCK == 4 and number > BLOCK else ()
        if number % BLOCK in (1, 2, 3):
            before = (block - number,)
        own = tuple(max(0, number + 1 + step) for step in before)
        reads.append((*own, *mask))
    calls = tuple(
        KernelCall(kernel(n).name, kernel(n).names[0], own, (n + 1,), 1000)
        for n, own in enumerate(reads)
    )
    tensors = tuple(CallValue(("1", "128", "768"), "float16", 196608) for _ in range(count + 1))
    return KernelGraph("main", calls, tensors, (("tokens", 0),), ((count,),))


def report(count: int = 12, name: str = "") -> Report:
    """A model of so many different kernels, the first of which computes ``name``."""
    kernels = tuple(kernel(n, name if n == 0 else "") for n in range(count))
    graph = transformer(count)
    calls = (KernelCall(kernels[0].name, kernels[0].names[0], (0,), (1,), 0), *graph.calls[1:])
    graph = KernelGraph(graph.function, calls, graph.tensors, graph.inputs, graph.outputs)
    return Report(
        "nvidia/h200", kernels, ("a note",), (Stage("fuse", 2.0),), launches=Launches(2, 1, count),
        weights=5_000_000, limits=LIMITS, graphs=(graph,), planned=1_000_000,
    )  # fmt: skip


def content(count: int = 12, name: str = "") -> Content:
    """The same, with a text of each kernel."""
    own = report(count, name)
    texts = {k.name: (SourceText("CUDA", k.name, SOURCE, 400),) for k in own.kernels}
    return Content(name or "a model", own, sources=texts)


def choices(name: str = "a model", latency: float | None = 0.02) -> Choices:
    """A model on two devices, with three numbers of samples each."""
    rows = (
        (f"{name} one", 1, 1e-3, None, Standing.FRONT, ""),
        (f"{name} one", 8, 2e-3, None, Standing.FRONT, ""),
        (f"{name} one", 64, 1e-2, None, Standing.TOO_LARGE, ""),
        (f"{name} two", 1, 4e-3, 2.5, Standing.POSSIBLE, name),
        (f"{name} two", 8, 5e-3, 0.4, Standing.FRONT, name),
        (f"{name} two", 64, 4e-2, 0.3, Standing.TOO_SLOW, name),
    )
    offers = tuple(
        OfferView(device, n, seconds, n / seconds, n * 1e9, 5e10, *others)
        for device, n, seconds, *others in rows
    )
    return Choices(name, offers, 1, latency, (f"note on {name}",))
