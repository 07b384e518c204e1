"""Tiles of products of few vectors with codes of 4 bits: measured.

Usage: python -m bench.coded_tiles --device nvidia/h100 [--results DIR] [--limit-s 200]

Every tile that the model offers for eight products of language models' layers is built, compared
with PyTorch and timed with a cold cache, beside cuBLAS with the matrix in float16 and PyTorch's own
product with codes. One JSON line a tile is written at once, and a page from all of the device's
lines; ``--report`` measures nothing.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from bench.coded_tiles import record
from bench.coded_tiles.report import write
from bench.lines import put
from tvm_tile.device import Device, find_device

_RESULTS = Path(__file__).parents[1] / "results"
# (vectors, rows, depth): layers of models with 4096 and 8192 features.
PRODUCTS = (
    *((1, 8192, 28672), (16, 8192, 28672), (1, 8192, 8192), (16, 8192, 8192)),
    *((1, 4096, 4096), (16, 4096, 4096), (1, 28672, 8192), (32, 8192, 8192)),
)
GROUP = 128


def main(argv: list[str] | None = None) -> int:
    """Parse the command line and do what it says; the exit status."""
    parsed = _arguments(argv)
    device = find_device(parsed.device)
    path = parsed.results / record.TILES
    if not parsed.report and (status := _measure(parsed, device, path)):
        return status
    records = record.read(path, device.name)
    if not records:
        print(f"nothing of {device.name} is in {path}", file=sys.stderr)
        return 2
    print(write(records, device, parsed.results))
    return 1 if any(not one.is_right for one in records) else 0


def _measure(parsed: argparse.Namespace, device: Device, path: Path) -> int:
    ends = time.monotonic() + parsed.limit_s
    import torch

    if not torch.cuda.is_available():
        print("times are taken on a GPU, and none is here", file=sys.stderr)
        return 2
    from bench.coded_tiles.measure import measure, product_of
    from bench.gpu import CudaStage

    limit = "" if parsed.limit_s == float("inf") else f" --limit-s {parsed.limit_s:g}"
    origin, stage = record.here(parsed.device, parsed.commit, limit), CudaStage()
    print(f"{origin.gpu}, driver {origin.driver}, {origin.versions}", flush=True)
    known = record.read_all(path)
    for sizes in PRODUCTS:
        if time.monotonic() > ends:
            print(f"left out, as {parsed.limit_s:g} s are over: {sizes}", file=sys.stderr)
            continue
        product = product_of(*sizes, GROUP)
        # Tiles that are offered no more go with the others of before.
        known = {
            key: one
            for key, one in known.items()
            if (one.device, one.product) != (device.name, product)
        }
        for one in measure(product, device, stage, origin):
            put(path, known, one)
            known[one.key] = one
    return 0


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.coded_tiles",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--device", default="nvidia/h100", help="name of its record")
    parser.add_argument("--results", type=Path, default=_RESULTS)
    parser.add_argument("--commit", default="", help="for the records; by default git's")
    parser.add_argument(
        "--limit-s", type=float, default=float("inf"), help="begin no product later"
    )
    parser.add_argument("--report", action="store_true", help="measure nothing")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
