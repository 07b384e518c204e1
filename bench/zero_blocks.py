"""Products of weights with zeros, in blocks and two of each four, beside dense ones and PyTorch's.

Usage: python -m bench.zero_blocks --device nvidia/h200 [--results DIR]

Halves, weights pruned by blocks to a share of them, or to two numbers in each four. PyTorch has the
first in its layout BSR, the second by cuSPARSELt, whose algorithm is searched for each product, or
where that is missing by CUTLASS. Each product is timed as
``bench/quantized_products.py`` does it, with a cold cache and with a warm one, and compared with
float64 arithmetic. One JSON line each goes to ``zero_blocks.jsonl``. ``--self-test`` needs no GPU:
it compiles small products for an H200.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.sparse import SparseSemiStructuredTensor, to_sparse_semi_structured

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
_WARM_RUNS = 20
_SEARCHED = 8  # rows of which cuSPARSELt takes multiples


@dataclass(frozen=True, slots=True)
class Kept:
    """What pruning leaves of a weight: a share of its blocks, or a pattern such as 2:4."""

    density: float = 1.0
    pattern: str | None = None

    def pruned(self, module: nn.Module) -> nn.Module:
        """A copy of a module whose weights are pruned so."""
        if self.pattern is not None:
            return tvm_tile.prune(module, self.pattern)
        return tvm_tile.prune(module, blocks=(_BOX, _BOX), density=self.density)

    def by_torch(self, weight: Tensor, x: Tensor) -> tuple[Tensor, str]:
        """The weight as PyTorch multiplies it without zeros, and by what, where that is told."""
        if self.pattern is None:
            is_whole = self.density == 1
            return (weight, "") if is_whole else (weight.to_sparse_bsr((_BOX, _BOX)), "")
        has_library = torch.backends.cusparselt.is_available()
        if SparseSemiStructuredTensor._FORCE_CUTLASS or not has_library:
            return to_sparse_semi_structured(weight), "CUTLASS"
        if len(x) % _SEARCHED:
            return to_sparse_semi_structured(weight), "cuSPARSELt"
        found = torch._cslt_sparse_mm_search(torch._cslt_compress(weight), x.t())
        sparse = to_sparse_semi_structured(weight)
        sparse.alg_id_cusparselt = found  # of some releases' functions no argument
        return sparse, f"cuSPARSELt, algorithm {found}"

    def __str__(self) -> str:
        return self.pattern or f"{self.density:.0%} of blocks"


BLOCKS = tuple(Kept(density) for density in (1.0, 0.5, 0.25, 0.1))
WAYS = (*BLOCKS, Kept(pattern="2:4"))


def layer(sizes: tuple[int, int, int], kept: Kept, where: str) -> tuple[nn.Module, Tensor]:
    """A linear layer of halves that is pruned, and rows for it."""
    rows, columns, depth = sizes
    torch.manual_seed(0)
    module = nn.Linear(depth, columns, bias=False, device=where, dtype=torch.float16)
    pruned = kept.pruned(module).requires_grad_(False)
    return pruned, torch.randn(rows, depth, device=where).half()


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
    """All that one product may have kept, by us and by PyTorch; prints each."""
    runs: dict[str, Callable[[], Any]] = {}
    told, expected = {}, {}
    for kept in WAYS:
        module, x = layer(sizes, kept, "cuda")
        variant = str(kept)
        whole = x.double() @ module.weight.double().T
        own = compiled(module, x, device)
        kernels = "; ".join(f"{k.rule}: {k.tile}" for k in own.report.kernels)
        weight = module.cuda().weight
        sparse, library = kept.by_torch(weight, x)
        pairs: dict[str, tuple[Callable[[], Any], str]] = {
            "tvm_tile": (lambda own=own, x=x: own(x), kernels),
            "torch": (lambda w=sparse, x=x: nn.functional.linear(x, w), library),
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
    """Compile small products for an H200: the fewer blocks, the less time is predicted, and of two
    in four less than of all."""
    times = []
    for kept in WAYS:
        (kernel,) = compiled(*layer(_SMALL, kept, "cpu"), "nvidia/h200").report.kernels
        print(f"{kept}: {kernel.seconds * 1e6:.1f} us, {kernel.tile}")
        times.append(kernel.seconds)
    *blocks, two_of_four = times
    is_less = blocks == sorted(blocks, reverse=True) and two_of_four < blocks[0]
    return int(not is_less)


if __name__ == "__main__":
    sys.exit(main())
