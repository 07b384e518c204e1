"""Open extents beside compilations for known ones, padding and PyTorch's dynamic shapes.

Usage: python -m bench.open_shapes --device nvidia/h100 --results DIR --commit HASH
           [--models bert_base,resnet50] [--points 64] [--jobs 14] [--resume] [--limit-s 600]

Of each model, fp16 with random weights, so many extents are measured, all ways in turns at each:

* ``open``: one compilation of ours for all extents;
* ``static``: a compilation of ours for each of the extents, made beforehand side by side;
* ``padded``: compilations of ours for powers of two; inputs are copied into the next longer one;
* ``dynamic``: ``torch.compile(dynamic=True)``, in each of ``--modes`` and in captured graphs.

Each result is compared with eager PyTorch in float32 and written at once, to two files of JSON
lines; a run that is cut off is gone on with by ``--resume``. ``--report`` writes the page and the
picture from what is there.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

from bench.__main__ import commit
from bench.machine import probe
from bench.open_shapes import record as records
from bench.open_shapes.models import MODELS
from bench.open_shapes.record import SYSTEMS, Compilation, Point, Provenance
from bench.open_shapes.report import write
from bench.open_shapes.statics import statics
from bench.open_shapes.systems import PLAIN, REDUCED, TUNED

_RESULTS = Path(__file__).parents[1] / "results"


def main(argv: list[str] | None = None) -> int:
    """Parse the command line and do what it says; the exit status."""
    parsed = _arguments(argv)
    if not parsed.report:
        status = _measure(parsed)
        if status:
            return status
    records.tidy(parsed.results / records.POINTS, Point)
    records.tidy(parsed.results / records.COMPILATIONS, Compilation)
    for path in write(parsed.results):
        print(path)
    return 0


def _measure(parsed: argparse.Namespace) -> int:
    ends = time.monotonic() + parsed.limit_s
    systems = tuple(parsed.systems.split(","))
    unknown = [name for name in systems if name not in SYSTEMS]
    unknown += [name for name in parsed.models.split(",") if name not in MODELS and ":" not in name]
    if unknown:
        print(f"there is no {', '.join(unknown)}", file=sys.stderr)
        return 2
    import torch

    if torch.cuda.is_available():
        # The same accuracy for all: float32 means float32.
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.allow_tf32 = False
        torch.backends.cudnn.benchmark = True
    elif parsed.device != "emulated":
        print("times are taken on a GPU, and none is here", file=sys.stderr)
        return 2
    from bench.open_shapes.measure import Measurement, Plan

    origin = _provenance(parsed)
    print(f"{origin.gpu}, driver {origin.driver}, {origin.versions}", flush=True)
    for name in parsed.models.split(","):
        if not parsed.resume:
            _forget(parsed.results, name, systems)
        plan = Plan(
            name,
            systems,
            tuple(parsed.modes.split(",")),
            parsed.device,
            parsed.results,
            parsed.points,
            parsed.low,
            parsed.seed,
            parsed.jobs,
            parsed.cache,
            ends,
        )
        with statics(name, parsed.device, parsed.jobs, parsed.cache) as compiled:
            Measurement(plan, origin, compiled, lambda line: print(line, flush=True)).run()
    return 0


def _forget(results: Path, model: str, systems: tuple[str, ...]) -> None:
    """Records of these systems are about to be made anew."""
    for name, kind in ((records.POINTS, Point), (records.COMPILATIONS, Compilation)):
        kept = records.read(results / name, kind).values()  # type: ignore[type-var]
        records.keep(
            results / name, [r for r in kept if r.model != model or r.system not in systems]
        )


def _provenance(parsed: argparse.Namespace) -> Provenance:
    names = ["tvm_tile", "torch"]
    names += ["torch_compile"] if "dynamic" in parsed.systems.split(",") else []
    machine = probe(names, with_peaks=False)
    words = ("models", "systems", "modes", "device", "points", "jobs", "seed", "low", "cache")
    given = [f"--{word} {value}" for word in words if (value := getattr(parsed, word)) is not None]
    command = " ".join(["python -m bench.open_shapes", *given])
    at = parsed.commit or commit()
    return Provenance(machine.gpu, machine.driver, machine.versions, at, command, machine.date)


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.open_shapes",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    processors = len(os.sched_getaffinity(0))
    parser.add_argument("--device", default="nvidia/h200", help="name of its record")
    parser.add_argument("--models", default=",".join(MODELS), metavar="A,B")
    parser.add_argument("--systems", default=",".join(SYSTEMS), metavar="A,B")
    modes = f"of torch.compile: {PLAIN}, {REDUCED}, {TUNED}"
    parser.add_argument("--modes", default=f"{PLAIN},{TUNED}", metavar="A,B", help=modes)
    parser.add_argument("--points", type=int, default=64, help="extents of each model")
    parser.add_argument("--low", type=int, help="the least extent, instead of the model's")
    parser.add_argument("--seed", type=int, default=1, help="of extents and inputs")
    parser.add_argument("--jobs", type=int, default=max(1, processors - 2), help="at once")
    parser.add_argument("--cache", type=Path, help="folder of schedules and machine code")
    parser.add_argument("--results", type=Path, default=_RESULTS)
    parser.add_argument("--commit", default="", help="for the records; by default git's")
    parser.add_argument("--limit-s", type=float, default=float("inf"), help="begin nothing later")
    parser.add_argument("--resume", action="store_true", help="leave out what was measured")
    parser.add_argument("--report", action="store_true", help="measure nothing")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
