"""Products of 8-bit codes with their scales, beside products of halves and PyTorch's own.

Usage: python -m bench.quantized_products --device nvidia/h200 [--results DIR]

Each product is timed with a cold cache, launches enqueued beforehand (median of several runs in
turns), and with a warm one (mean of runs in a row), and compared with float64 arithmetic on the
same codes. One JSON line each goes to ``quantized_products.jsonl``. ``--self-test`` needs no GPU:
it compiles small products for an H200, and runs those of integers on the emulated device.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

import tvm_tile
from bench.__main__ import commit
from bench.gpu import CudaStage, queued_seconds
from bench.lines import put, read_keyed
from bench.machine import probe
from bench.open_shapes.record import Provenance
from bench.protocol import measure, relative_error
from tvm_tile import CompiledModel, Options

_RESULTS = Path(__file__).parent / "results"
# (rows, columns, depth): a square, and the layers of Llama 3 8B for a prompt and for 32 rows.
PRODUCTS = (
    (8192, 8192, 8192),
    *((2048, 4096, 4096), (2048, 14336, 4096), (2048, 4096, 14336), (32, 14336, 4096)),
)
_SMALL = (256, 512, 1024)
_WARM_RUNS = 20
_INT8, _FP8 = torch.int8, torch.float8_e4m3fn
_LARGEST = 127


@dataclass(frozen=True, slots=True)
class Measured:
    """One way to multiply, of one product.

    Attributes:
        device: name of the record that kernels were built for.
        system: who multiplies.
        variant: what of.
        rows: of the left operand.
        columns: of the result.
        depth: of the sums.
        cold_us: median, in microseconds.
        warm_us: mean of runs in a row, in microseconds.
        error: norm of the difference over norm of what float64 gives.
        kernels: what our model is made of; empty of others.
        provenance: where and of what.
    """

    device: str
    system: str
    variant: str
    rows: int
    columns: int
    depth: int
    cold_us: float
    warm_us: float
    error: float
    kernels: str
    provenance: Provenance

    @property
    def key(self) -> tuple[Any, ...]:
        """What tells it from others."""
        return self.device, self.rows, self.columns, self.depth, self.system, self.variant

    @classmethod
    def revived(cls, data: Mapping[str, Any]) -> Measured:
        """From a line."""
        return cls(**{**data, "provenance": Provenance(**data["provenance"])})


@dataclass(frozen=True, slots=True)
class Operands:
    """Of one product: halves, and codes of both kinds, with a scale for each row of the weight."""

    x: Tensor
    w: Tensor
    scale: float
    scales: Tensor

    @classmethod
    def drawn(cls, sizes: tuple[int, int, int], where: str) -> Operands:
        """Random ones; the left one's codes have one scale."""
        rows, columns, depth = sizes
        random = torch.Generator(device=where).manual_seed(0)
        shapes = (rows, depth), (columns, depth)
        x, w = (torch.randint(-_LARGEST, _LARGEST + 1, shape, generator=random, device=where)
                for shape in shapes)  # fmt: skip
        scales = (torch.rand(columns, generator=random, device=where) + 0.5) / depth**0.5 / _LARGEST
        return cls(x.to(_INT8), w.to(_INT8), 1 / 64, scales)

    def codes(self, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Both operands' codes; of floats of 8 bits, and of halves, the numbers / 16."""
        if dtype == _INT8:
            return self.x, self.w
        x, w = ((codes.float() / 16).to(dtype) for codes in (self.x, self.w))
        return x, w

    def expected(self, dtype: torch.dtype, is_scaled: bool) -> Tensor:
        """In float64."""
        x, w = (codes.double() for codes in self.codes(dtype))
        total = x @ w.T
        return total * self.scale * self.scales.double() if is_scaled else total


class Linear(nn.Module):
    """A product of halves, or of int8 codes as they are."""

    def __init__(self, w: Tensor) -> None:
        super().__init__()
        self.register_buffer("w", w)

    def forward(self, x: Tensor) -> Tensor:
        return torch._int_mm(x, self.w.t()) if x.dtype == _INT8 else functional.linear(x, self.w)


class Decoded(nn.Module):
    """Both operands decoded to halves and then multiplied, as QDQ models write it."""

    def __init__(self, w: Tensor, scale: float, scales: Tensor) -> None:
        super().__init__()
        self.scale = scale
        self.register_buffer("w", w)
        self.register_buffer("scales", scales)

    def forward(self, x: Tensor) -> Tensor:
        left = (x.float() * self.scale).half()
        return functional.linear(left, (self.w.float() * self.scales[:, None]).half())


class Scaled(nn.Module):
    """PyTorch's product of 8-bit floats."""

    def __init__(self, w: Tensor, scale: float, scales: Tensor) -> None:
        super().__init__()
        self.register_buffer("w", w)
        self.register_buffer("scale", torch.full((1, 1), scale, device=w.device))
        self.register_buffer("scales", scales[None, :])

    def forward(self, x: Tensor) -> Tensor:
        left = self.scale.expand(x.shape[0], 1).contiguous()
        return torch._scaled_mm(
            x, self.w.t(), scale_a=left, scale_b=self.scales, out_dtype=torch.bfloat16
        )


def modules(operands: Operands) -> dict[str, tuple[nn.Module, Tensor, Tensor]]:
    """Variant -> a module, its input, and what it should give."""
    scaling = operands.scale, operands.scales
    half, byte, float8 = (operands.codes(dtype) for dtype in (torch.float16, _INT8, _FP8))
    return {
        "fp16": (Linear(half[1]), half[0], operands.expected(torch.float16, False)),
        "int8, sums": (Linear(byte[1]), byte[0], operands.expected(_INT8, False)),
        "int8, scaled": (Decoded(byte[1], *scaling), byte[0], operands.expected(_INT8, True)),
        "fp8, scaled": (Scaled(float8[1], *scaling), float8[0], operands.expected(_FP8, True)),
    }


def compiled(module: nn.Module, x: Tensor, device: str) -> CompiledModel:
    """By us."""
    options = Options(cache=False)
    return tvm_tile.compile(module.cpu(), device, example_inputs=(x.cpu(),), options=options)


def main(argv: list[str] | None = None) -> int:
    """Parse the command line and do what it says; the exit status."""
    parsed = arguments("quantized_products", __doc__, argv)
    if parsed.self_test:
        return _self_test()
    return measure_all(parsed, "quantized_products", PRODUCTS, _measured)


def measure_all(
    parsed: argparse.Namespace,
    name: str,
    products: Sequence[tuple[int, int, int]],
    measured: Callable[[tuple[int, int, int], str, CudaStage, Provenance], list[Measured]],
) -> int:
    """Measure products on the GPU that is here, and write a line for each; the exit status.

    Args:
        parsed: the device, the folder of the results, and the commit.
        name: module of this package that is run, and the file of its results.
        products: rows, columns and depth of each.
        measured: function that measures one.
    """
    if not torch.cuda.is_available():
        print("times are taken on a GPU, and none is here", file=sys.stderr)
        return 2
    machine = probe(["tvm_tile", "torch"], with_peaks=False)
    command = f"python -m bench.{name} --device {parsed.device}"
    at = parsed.commit or commit()
    origin = Provenance(machine.gpu, machine.driver, machine.versions, at, command, machine.date)
    print(f"{origin.gpu}, driver {origin.driver}, {origin.versions}", flush=True)
    path, stage = parsed.results / f"{name}.jsonl", CudaStage()
    known = read_keyed(path, Measured.revived)
    for sizes in products:
        for one in measured(sizes, parsed.device, stage, origin):
            put(path, known, one)
            known[one.key] = one
    return 0


def _measured(
    sizes: tuple[int, int, int], device: str, stage: CudaStage, origin: Provenance
) -> list[Measured]:
    """All ways to multiply of one product; prints each."""
    runs: dict[tuple[str, str], Callable[[], Any]] = {}
    expected, kernels = {}, {}
    for variant, (module, x, wanted) in modules(Operands.drawn(sizes, "cuda")).items():
        expected[variant] = wanted
        if "scaled" not in variant or variant.startswith("fp8"):
            peer = module.cuda()
            runs["torch", variant] = lambda peer=peer, x=x: peer(x)
            torch.cuda.synchronize()
        own = compiled(module, x, device)
        module.cuda()
        kernels[variant] = "; ".join(f"{k.rule}: {k.tile}" for k in own.report.kernels)
        runs["tvm_tile", variant] = lambda own=own, x=x: own(x)
    names = {f"{system} {variant}": (system, variant) for system, variant in runs}
    with torch.inference_mode():
        cold = measure({n: runs[key] for n, key in names.items()}, stage, cold=True)
        found = []
        for name, (system, variant) in names.items():
            run = runs[system, variant]
            error = relative_error(torch.as_tensor(run()), expected[variant])
            warm_us = queued_seconds(run, _WARM_RUNS) * 1e6
            one = Measured(
                device,
                system,
                variant,
                *sizes,
                cold_us=cold[name].median_ms * 1e3,
                warm_us=warm_us,
                error=error,
                kernels=kernels[variant] if system == "tvm_tile" else "",
                provenance=origin,
            )
            shape = "x".join(map(str, sizes))
            times = f"{one.cold_us:9.1f} us cold {warm_us:9.1f} us warm"
            print(f"{shape:18} {name:24} {times}  error {error:.1e}  {one.kernels}", flush=True)
            found.append(one)
    return found


def _self_test() -> int:
    """Compile small products for an H200, and run those of integers on the emulated device."""
    for variant, (module, x, wanted) in modules(Operands.drawn(_SMALL, "cpu")).items():
        kernels = compiled(module, x, "nvidia/h200").report.kernels
        print(f"{variant}: {', '.join(kernel.rule for kernel in kernels)}")
        if "int8" not in variant:
            continue
        # The emulated device has no halves: its products are in float32.
        wide = module if "sums" in variant else _Wide(module)
        found = torch.as_tensor(compiled(wide, x, "emulated")(x))
        if (error := relative_error(found, wanted)) > 1e-6:
            print(f"{variant}: off by {error:.1e}", file=sys.stderr)
            return 1
    return 0


class _Wide(nn.Module):
    """The same as :class:`Decoded`, in float32."""

    def __init__(self, decoded: Any) -> None:
        super().__init__()
        self.inner = decoded

    def forward(self, x: Tensor) -> Tensor:
        left = x.float() * self.inner.scale
        return functional.linear(left, self.inner.w.float() * self.inner.scales[:, None])


def arguments(name: str, text: str | None, argv: list[str] | None) -> argparse.Namespace:
    """What the command line says to a module of this package that measures products."""
    parser = argparse.ArgumentParser(
        prog=f"python -m bench.{name}",
        description=text,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--device", default="nvidia/h200", help="name of its record")
    parser.add_argument("--results", type=Path, default=_RESULTS)
    parser.add_argument("--commit", default="", help="for the records; by default git's")
    parser.add_argument("--self-test", action="store_true", help="measure nothing; needs no GPU")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
