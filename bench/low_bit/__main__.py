"""Products with weights of a few bits beside cuBLAS, PyTorch's and gemlite's.

Usage: python -m bench.low_bit --device nvidia/h100 [--only V,Marlin,V16] [--formats W4A16,NF4]
           [--systems cublas,tvm_tile] [--jobs 14] [--limit-s 400] [--resume]
       python -m bench.low_bit --device nvidia/h100 --compile     (needs no GPU)
       python -m bench.low_bit --report

All of our products are compiled first, side by side, and saved to ``--models``; those that the same
code has compiled before, on whatever machine, are read from there. Then each product is measured in
one format after the other, all systems in turns. A record is written at once to a file of JSON
lines, and ``--resume`` leaves out what is there of this GPU. The page and the picture are written
at the end from all lines. Products come in families: V (one vector), V16, V32, V64, V128 (more of
them), M (thousands) and Marlin. gemlite tunes each of its kernels at the first call, which takes
long: it takes part only where ``--systems`` names it.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
import time
from pathlib import Path

from bench.__main__ import commit
from bench.lines import append
from bench.low_bit import record
from bench.low_bit.formats import FORMATS
from bench.low_bit.products import FAMILIES, Product, products
from bench.low_bit.record import GEMLITE, SYSTEMS
from bench.low_bit.report import write
from bench.machine import probe
from bench.open_shapes.record import Provenance

_FOLDER = Path(__file__).parents[1]
_MODULES = ("formats.py", "modules.py", "compiling.py")  # that decide what is compiled


def main(argv: list[str] | None = None) -> int:
    """Parse the command line and do what it says; the exit status."""
    parsed = _arguments(argv)
    for name, known in (("only", FAMILIES), ("formats", FORMATS), ("systems", SYSTEMS)):
        unknown = [word for word in getattr(parsed, name).split(",") if word not in known]
        if unknown:
            print(f"--{name} is of {', '.join(known)}, not {', '.join(unknown)}", file=sys.stderr)
            return 2
    path = parsed.results / record.RESULTS
    if not parsed.report and (status := _measure(parsed, path)):
        return status
    if parsed.compile:
        return 0
    records = record.read(path).values()
    if path.exists():
        record.tidy(path, records)
    for written in write(records, parsed.results):
        print(written)
    return 1 if any(one.status.startswith("wrong") for one in records) else 0


def _measure(parsed: argparse.Namespace, path: Path) -> int:
    from bench.low_bit.compiling import Models, requests_of

    ends = time.monotonic() + parsed.limit_s
    chosen = _chosen(parsed)
    models = Models(parsed.models / _fingerprint() / parsed.device.replace("/", "_"), parsed.device)
    systems = parsed.systems.split(",")
    wanted = [
        request
        for product, name in chosen
        for request in requests_of(FORMATS[name], product)
        if request.system in systems
    ]
    models.compile(wanted, parsed.jobs, _say, ends)
    if parsed.compile:
        return 0
    return _run(parsed, path, models, chosen, ends)


def _run(
    parsed: argparse.Namespace,
    path: Path,
    models: object,
    chosen: list[tuple[Product, str]],
    ends: float,
) -> int:
    import torch

    from bench.gpu import CudaStage, HostStage
    from bench.low_bit.compiling import NOT_COMPILED
    from bench.low_bit.measure import Bench
    from bench.worker import release_memory
    from tvm_tile.device import find_device

    on_gpu = torch.cuda.is_available()
    if not on_gpu and parsed.device != "emulated":
        print("times are taken on a GPU, and none is here", file=sys.stderr)
        return 2
    origin = _provenance(parsed)
    _say(f"{origin.gpu}, driver {origin.driver}, {origin.versions}")
    bench = Bench(
        models,  # type: ignore[arg-type]
        find_device(parsed.device).read_bandwidth,
        CudaStage() if on_gpu else HostStage(),
        "cuda" if on_gpu else "cpu",
        tuple(parsed.systems.split(",")),
        origin,
    )
    known = record.read(path) if parsed.resume else {}
    done = [key for key, one in known.items() if one.status != NOT_COMPILED]
    for product, name in chosen:
        if time.monotonic() > ends:
            _say("out of time; --resume goes on")
            return 0
        place = origin.gpu, product.family, product.name, name
        without = frozenset(key[-1] for key in done if key[:-1] == place)
        for made in bench.measured(FORMATS[name], product, without):
            append(path, made)
            _say(_line(made))
        release_memory()
    return 0


def _chosen(parsed: argparse.Namespace) -> list[tuple[Product, str]]:
    """Products and formats, family by family as the command line has them."""
    return [
        (product, name)
        for family in parsed.only.split(",")
        for product in products()
        if product.family == family
        for name in parsed.formats.split(",")
    ]


def _line(made: record.Measured) -> str:
    us = "" if made.median_us is None else f"{made.median_us:.1f} us, floor {made.floor_us:.1f}, "
    error = "" if made.error is None else f", error {made.error:.0e}"
    place = f"{made.family} {made.name} {made.format} {made.system}"
    return f"{place}: {us}{made.status}{error} {made.rules}"


def _say(line: str) -> None:
    print(line, flush=True)


def _fingerprint() -> str:
    """A sum of all code that decides what is compiled."""
    root, total = _FOLDER.parent, hashlib.sha256()
    own = [_FOLDER / "low_bit" / name for name in _MODULES]
    for file in sorted([*own, *(root / "tvm_tile").rglob("*.py")]):
        total.update(str(file.relative_to(root)).encode() + b"\0" + file.read_bytes())
    return total.hexdigest()[:16]


def _provenance(parsed: argparse.Namespace) -> Provenance:
    machine = probe(["tvm_tile", "torch"], with_peaks=False)
    words = ("device", "only", "formats", "systems")
    given = [f'--{word} "{getattr(parsed, word)}"' for word in words]
    command = " ".join(["python -m bench.low_bit", *given])
    at = parsed.commit or commit()
    return Provenance(machine.gpu, machine.driver, machine.versions, at, command, machine.date)


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.low_bit",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    processors = len(os.sched_getaffinity(0))
    plain = ",".join(name for name in SYSTEMS if name != GEMLITE)
    parser.add_argument("--device", default="nvidia/h100", help="name of its record")
    parser.add_argument("--only", default=",".join(FAMILIES), metavar="A,B", help="families")
    parser.add_argument("--formats", default=",".join(FORMATS), metavar="A,B")
    parser.add_argument("--systems", default=plain, metavar="A,B")
    parser.add_argument("--jobs", type=int, default=max(1, processors - 1), help="at once")
    parser.add_argument("--models", type=Path, default=_FOLDER / "out" / "low_bit")
    parser.add_argument("--results", type=Path, default=_FOLDER / "results")
    parser.add_argument("--commit", default="", help="for the records; by default git's")
    parser.add_argument("--limit-s", type=float, default=float("inf"), help="begin nothing later")
    parser.add_argument("--resume", action="store_true", help="leave out what was measured")
    parser.add_argument("--compile", action="store_true", help="and measure nothing")
    parser.add_argument("--report", action="store_true", help="compile and measure nothing")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
