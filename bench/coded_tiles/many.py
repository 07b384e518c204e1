"""Products of many vectors with codes of 4 bits: tiles measured beside what else there is.

Usage: python -m bench.coded_tiles.many --device nvidia/h100 [--results DIR] [--limit-s 200]

Of each product some tiles of warpgroups are built, compared with float64 and timed with a cold
cache, beside cuBLAS with the matrix in float16, our own product with it, that behind a kernel that
decodes the matrix, and the best kernel for few vectors where there is one. One JSON line a tile is
written at once.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tvm import te, tirx

from bench.coded_tiles.measure import function_of, multiplied, operands_of, product_of
from bench.coded_tiles.record import here
from bench.functions import build_functions
from bench.lines import put, read_keyed
from bench.open_shapes.record import Provenance
from bench.protocol import relative_error
from tvm_tile.device import Device, find_device
from tvm_tile.graph.extract import extract
from tvm_tile.graph.tensor_format import Integers, Shared, TensorFormat
from tvm_tile.loops.decoding import decoding_loops
from tvm_tile.loops.rows import number
from tvm_tile.schedule import Scheduled, candidates
from tvm_tile.schedule.coded import schedule_coded
from tvm_tile.schedule.rule import Choice, Task
from tvm_tile.tile.coded.few_vectors import CodedProduct
from tvm_tile.tile.rules import CODED, CODED_WARPGROUP

LINES = "coded_many.jsonl"
GROUP = 128
VECTORS = (17, 32, 64, 128, 512, 4096)
MATRICES = ((4096, 4096), (8192, 8192), (28672, 8192), (8192, 28672))
_FIRST, _EVERY = 4, 12  # tiles that are measured: the first ones, and some of the others
_REPEATS = 9
_TOLERANCE = 2e-3


@dataclass(frozen=True, slots=True)
class Measured:
    """One tile of one product.

    Attributes:
        device: name of the record that the kernel was built for.
        vectors: of the product.
        rows: of the matrix.
        depth: of the sum.
        tile: in words, as ``explain()`` has it.
        us: median with a cold cache, in microseconds.
        predicted_us: by the record when it was measured.
        error: norm of the difference from float64 over its norm.
        others_us: of what was measured beside it, by its name.
        provenance: where and of what.
    """

    device: str
    vectors: int
    rows: int
    depth: int
    tile: str
    us: float
    predicted_us: float
    error: float
    others_us: dict[str, float]
    provenance: Provenance

    @property
    def key(self) -> tuple[str | int, ...]:
        """What no two records share."""
        return self.device, self.vectors, self.rows, self.depth, self.tile


def offered(product: CodedProduct, device: Device) -> list[Choice]:
    """All tiles of both kernels."""
    func = function_of(product)
    graph = extract(func)
    assert graph is not None
    return list(schedule_coded(Task(func, graph, device), 10**6))


def others(product: CodedProduct, device: Device) -> dict[str, Scheduled]:
    """A product with the decoded matrix, and what decodes it."""
    shape = product.rows, product.depth
    x, w = (
        te.placeholder([number(e) for e in sizes], "float16", name)
        for name, sizes in (("x", (product.vectors, product.depth)), ("w", shape))
    )
    bias = te.placeholder([number(product.rows)], "float16", "bias")
    scale = Shared((1, GROUP), "float16", "float16")
    form = TensorFormat(Integers(product.bits, False), "int32", "float16", None, (scale,))
    multiply = te.create_prim_func([x, w, bias, multiplied(x, w, bias, 0, gated=False)])
    functions: dict[str, tirx.PrimFunc] = {"decode": decoding_loops(form, shape), "own": multiply}
    found = {}
    for name, func in functions.items():
        plain = func.without_attr("global_symbol")
        graph = extract(plain)
        assert graph is not None
        found[name] = candidates(Task(plain, graph, device), 1)[0]
    return found


def measure(
    product: CodedProduct, device: Device, stage: Any, origin: Provenance
) -> list[Measured]:
    """Some tiles, best ranked first."""
    import torch
    import tvm

    choices = offered(product, device)
    wide = [choice for choice in choices if choice.rule == CODED_WARPGROUP]
    few = [choice for choice in choices if choice.rule == CODED][:1]
    taken = [*wide[:_FIRST], *wide[_FIRST :: max(1, len(wide) // _EVERY)]]
    made = {f"tile{rank}": choice() for rank, choice in enumerate(taken)}
    beside = others(product, device) | {f"few{rank}": c() for rank, c in enumerate(few)}
    built = build_functions({n: _marked(s) for n, s in (made | beside).items() if s}, device)
    operands = operands_of(product, "cuda")
    matrix = operands.matrix.contiguous()
    wanted = torch.relu(operands.vectors.double() @ matrix.double().T + operands.bias.double())
    output, decoded = torch.empty_like(wanted, dtype=torch.float16), torch.empty_like(matrix)

    def us(name: str, *tensors: Any) -> float:
        arguments = [tvm.runtime.from_dlpack(tensor) for tensor in tensors]
        times = stage.time(lambda: built[name](*arguments), _REPEATS, cold=True)
        return round(statistics.median(times) * 1e6, 3)

    coded = operands.packed, operands.scale
    given = (*coded, operands.vectors, operands.bias, output)
    cublas = stage.time(lambda: torch.matmul(operands.vectors, matrix.T), _REPEATS, cold=True)
    times = {
        "cublas": round(statistics.median(cublas) * 1e6, 3),
        "own": us("own", operands.vectors, matrix, operands.bias, output),
        "decode": us("decode", *coded, decoded),
        **{f"few{rank}": us(f"few{rank}", *given) for rank in range(len(few))},
    }
    found = []
    for rank, choice in enumerate(taken):
        if f"tile{rank}" not in built.names:
            print(f"does not build: {choice.tile}", file=sys.stderr)
            continue
        output.fill_(float("nan"))
        taken_us = us(f"tile{rank}", *given)
        error = float(relative_error(output, wanted))
        sizes = product.vectors, product.rows, product.depth
        seconds = round(choice.seconds * 1e6, 3)
        one = Measured(device.name, *sizes, choice.tile, taken_us, seconds, error, times, origin)
        found.append(one)
    return found


def _marked(scheduled: Scheduled) -> tirx.PrimFunc:
    return scheduled.func.with_attr("tirx.is_scheduled", True)


def describe(records: Sequence[Measured]) -> str:
    """A line of each product's fastest tile beside the others."""
    best: dict[tuple[int, ...], Measured] = {}
    for one in records:
        key = one.vectors, one.rows, one.depth
        best[key] = min(best.get(key, one), one, key=lambda each: each.us)
    return "\n".join(
        f"{key}: {one.us} us (predicted {one.predicted_us}, error {one.error:.1e}), "
        f"{one.others_us}, {one.tile}"
        for key, one in best.items()
    )


def _revived(fields: dict[str, Any]) -> Measured:
    return Measured(**fields | {"provenance": Provenance(**fields["provenance"])})


def main(argv: list[str] | None = None) -> int:
    """Parse the command line and do what it says; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench.coded_tiles.many")
    parser.add_argument("--device", default="nvidia/h100", help="name of its record")
    parser.add_argument("--results", type=Path, default=Path(__file__).parents[1] / "results")
    parser.add_argument("--commit", default="", help="for the records; by default git's")
    parser.add_argument("--vectors", type=int, nargs="*", default=VECTORS)
    parser.add_argument("--limit-s", type=float, default=float("inf"), help="begin none later")
    parser.add_argument("--report", action="store_true", help="measure nothing")
    parsed = parser.parse_args(argv)
    device, path = find_device(parsed.device), parsed.results / LINES
    known: Mapping[Any, Measured] = read_keyed(path, _revived)
    if not parsed.report:
        from bench.gpu import CudaStage

        origin = here(parsed.device, parsed.commit, ".many")
        stage, ends = CudaStage(), time.monotonic() + parsed.limit_s
        for vectors, shape in ((v, shape) for shape in MATRICES for v in parsed.vectors):
            if time.monotonic() > ends:
                break
            found = measure(product_of(vectors, *shape, GROUP), device, stage, origin)
            print(describe(found), flush=True)
            for one in found:
                put(path, dict(known), one)
                known = {**known, one.key: one}
    records = [one for one in known.values() if one.device == device.name]
    print(describe(records))
    return 1 if any(not one.error <= _TOLERANCE for one in records) else 0


if __name__ == "__main__":
    sys.exit(main())
