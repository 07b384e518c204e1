"""Products of weights with blocks of zeros, beside dense ones and PyTorch's of its layout BSR.

Usage: python -m bench.zero_blocks --device nvidia/h200 [--results DIR]

Halves, weights pruned by blocks to a share of them. Each product is timed as
``bench/quantized_products.py`` does it, with a cold cache and with a warm one, and compared with
float64 arithmetic. One JSON line each goes to ``zero_blocks.jsonl``. ``--self-test`` needs no GPU:
it compiles small products for an H200.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

import tvm_tile
from bench.gpu import CudaStage, queued_seconds
from bench.open_shapes.record import Provenance
from bench.protocol import measure, relative_error
from bench.quantized_products import Measured, arguments, measure_all
from tvm_tile import CompiledModel, Options

# (rows, columns, depth): a square, and the layers of Llama 3 8B.
PRODUCTS = (
    *((rows, 8192, 8192) for rows in (1, 16, 64, 256, 4096)),
    *((16, 14336, 4096), (16, 4096, 14336), (2048, 14336, 4096), (2048, 4096, 14336)),
)
_SMALL = (1024, 2048, 2048)
_BOX = 64
DENSITIES = (1.0, 0.5, 0.25, 0.1)
_WARM_RUNS = 20


def layer(sizes: tuple[int, int, int], density: float, where: str) -> tuple[nn.Linear, Tensor]:
    """A linear layer of halves with a share of its blocks, and rows for it."""
    rows, columns, depth = sizes
    torch.manual_seed(0)
    module = nn.Linear(depth, columns, bias=False, device=where, dtype=torch.float16)
    module = tvm_tile.prune(module, blocks=(_BOX, _BOX), density=density)
    return module.requires_grad_(False), torch.randn(rows, depth, device=where).half()


def compiled(module: nn.Module, x: Tensor, device: str) -> CompiledModel:
    """A layer by us, whose zeros are skipped."""
    options = Options(cache=False, zeros="skip")
    return tvm_tile.compile(module.cpu(), device, example_inputs=(x.cpu(),), options=options)


def main(argv: list[str] | None = None) -> int:
    """Parse the command line and do what it says; the exit status."""
    parsed = arguments("zero_blocks", __doc__, argv)
    if parsed.self_test:
        return _self_test()
    return measure_all(parsed, "zero_blocks", PRODUCTS, _measured)


def _measured(
    sizes: tuple[int, int, int], device: str, stage: CudaStage, origin: Provenance
) -> list[Measured]:
    """All densities of one product, by us and by PyTorch; prints each."""
    runs: dict[str, Callable[[], Any]] = {}
    told, expected = {}, {}
    for density in DENSITIES:
        module, x = layer(sizes, density, "cuda")
        variant = f"{density:.0%} of blocks"
        whole = x.double() @ module.weight.double().T
        own = compiled(module, x, device)
        kernels = "; ".join(f"{k.rule}: {k.tile}" for k in own.report.kernels)
        weight = module.cuda().weight
        sparse = weight if density == 1 else weight.to_sparse_bsr((_BOX, _BOX))
        pairs: dict[str, tuple[Callable[[], Any], str]] = {
            "tvm_tile": (lambda own=own, x=x: own(x), kernels),
            "torch": (lambda w=sparse, x=x: nn.functional.linear(x, w), ""),
        }
        for system, (run, text) in pairs.items():
            name = f"{system} {variant}"
            runs[name], told[name], expected[name] = run, (system, variant, text), whole
    with torch.no_grad():  # BSR's kernels take no tensors of inference mode
        cold = measure(runs, stage, cold=True)
        found = []
        for name, run in runs.items():
            system, variant, kernels = told[name]
            error = relative_error(torch.as_tensor(run()), expected[name])
            warm_us = queued_seconds(run, _WARM_RUNS) * 1e6
            one = Measured(
                *(device, system, variant, *sizes, cold[name].median_ms * 1e3, warm_us, error),
                kernels=kernels,
                provenance=origin,
            )
            shape = "x".join(map(str, sizes))
            times = f"{one.cold_us:9.1f} us cold {warm_us:9.1f} us warm"
            print(f"{shape:18} {name:24} {times}  error {error:.1e}  {one.kernels}", flush=True)
            found.append(one)
    return found


def _self_test() -> int:
    """Compile small products for an H200: the fewer blocks, the less time is predicted."""
    times = []
    for density in DENSITIES:
        (kernel,) = compiled(*layer(_SMALL, density, "cpu"), "nvidia/h200").report.kernels
        print(f"{density:.0%} of blocks: {kernel.seconds * 1e6:.1f} us, {kernel.tile}")
        times.append(kernel.seconds)
    return int(times != sorted(times, reverse=True))


if __name__ == "__main__":
    sys.exit(main())
