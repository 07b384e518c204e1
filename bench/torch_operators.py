"""Which of PyTorch's own operator samples come out right, through our import and on a device.

Usage: python -m bench.torch_operators [--device emulated] [--only softmax] [--workers 2]

``import``: the front door, then our loops on the CPU, for every sample. The device: everything of
tvm_tile, for ``--samples`` of them. Operators of PyTorch's core that none of these reaches have
calls of their own, ``direct``. Writes bench/results/torch_operators.json (every sample) and
.md (the table). Interrupted or out of time, it goes on where it stopped. ``--retry`` runs again
what did not come out right, ``--fresh`` everything. ``--decompositions`` only prints those of
PyTorch's decompositions that compute something else than its kernels.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import platform
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from bench.core_samples import core_operators, core_samples, forms
from bench.decompositions import differing
from bench.isolated import Crash, run_jobs
from bench.operator_cases import (
    COUNTS,
    Sample,
    judge,
    operators,
    run_compiled,
    run_imported,
    samples,
)
from bench.operator_table import DIRECT, Verdicts, table, totals

RESULTS = Path(__file__).parent / "results"
UNFINISHED = Path(__file__).parent / "out"  # not under version control
PACKAGES = ("apache-tvm", "apache-tvm-ffi", "torch", "numpy")
DTYPES = {str(dtype).removeprefix("torch."): dtype for dtype in COUNTS}
GOOD = ("right", "refused")


def make_worker(device: str, most: int) -> Callable[[str], list[list[object]]]:
    """In a worker process: a function from ``"backend operator dtype [place]"`` to verdicts."""
    known = operators()
    runs = {"import": run_imported, device: run_compiled(device)}
    made: dict[tuple[str, str], list[Sample]] = {}

    def work(job: str) -> list[list[object]]:
        backend, name, dtype, *place = job.split(" ")
        if (name, dtype) not in made:
            made.clear()
            direct = dtype == DIRECT
            made[name, dtype] = (
                core_samples(name) if direct else samples(known[name], DTYPES[dtype])
            )
        chosen = made[name, dtype]
        if backend != "import" and dtype != DIRECT:
            chosen = chosen[:: max(1, len(chosen) // most)][:most]
        if place:
            chosen = chosen[int(place[0]) : int(place[0]) + 1]
        verdicts = judge(chosen, runs[backend]) if chosen else []
        return [
            [sample.index, verdict.status, verdict.detail, sorted(verdict.used)]
            for sample, verdict in zip(chosen, verdicts, strict=True)
        ]

    return work


def main() -> int:
    arguments = _arguments()
    if arguments.decompositions:
        lines = differing(arguments.only, arguments.samples)
        count = sum(print(line, flush=True) is None for line in lines)
        print(f"decompositions that differ from PyTorch's kernels: {count}")
        return 0
    stem = RESULTS / f"torch_operators{'' if arguments.device == 'emulated' else '_gpu'}"
    backends = ["import", arguments.device]
    progress = UNFINISHED / f"{stem.name}.progress"
    if arguments.fresh:
        progress.unlink(missing_ok=True)
    verdicts = {} if arguments.fresh else _read(stem.with_suffix(".json"))
    verdicts = _still_valid(verdicts, arguments.only, arguments.retry)
    _read_progress(progress, verdicts)
    jobs = [f"{b} {name} {DIRECT}" for b in backends for name in core_operators() if forms(name)]
    jobs += [f"{b} {name} {dtype}" for b in backends for dtype in DTYPES for name in operators()]
    todo = [job for job in jobs if arguments.only in job.split(" ")[1] and job not in verdicts]
    UNFINISHED.mkdir(exist_ok=True)
    _run(arguments, todo, verdicts, progress)
    print(totals(backends, verdicts))
    RESULTS.mkdir(exist_ok=True)
    _write(stem, arguments, backends, verdicts, sum(job not in verdicts for job in jobs))
    progress.unlink()
    return 0


def _run(
    arguments: argparse.Namespace, todo: list[str], verdicts: Verdicts, progress: Path
) -> None:
    """Run jobs; one that ends its process is run again, a sample at a time."""
    start = time.monotonic()
    make = partial(make_worker, arguments.device, arguments.samples)
    options = {"workers": arguments.workers, "timeout": arguments.timeout}
    limit = {"limit_s": arguments.limit}
    with progress.open("a", encoding="utf-8") as log:
        for count, (job, result) in enumerate(run_jobs(make, todo, **options, **limit), 1):
            if isinstance(result, Crash):
                places = [f"{job} {place}" for place in range(max(COUNTS.values()))]
                result = []
                for single, part in run_jobs(make, places, **options):
                    crash = [int(single.split(" ")[3]), "crash", str(part), []]
                    result += [crash] if isinstance(part, Crash) else part
            verdicts[job] = result
            print(json.dumps([job, result]), file=log, flush=True)
            if count % 20 == 0 or count == len(todo):
                print(f"{count}/{len(todo)} in {time.monotonic() - start:.0f} s", flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="emulated", help="as in tvm_tile.compile")
    parser.add_argument("--only", default="", help="only operators whose name contains this")
    parser.add_argument("--samples", type=int, default=2, help="of each type, on the device")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds for one operator")
    parser.add_argument("--limit", type=float, default=float("inf"), help="seconds for the run")
    parser.add_argument("--retry", action="store_true", help="run again what is not right")
    parser.add_argument("--decompositions", action="store_true", help="these only, and no compiler")
    parser.add_argument("--fresh", action="store_true", help="run everything again")
    return parser.parse_args()


def _read(path: Path) -> Verdicts:
    if not path.exists():
        return {}
    stored = json.loads(path.read_text(encoding="utf-8"))
    return {
        job: [[*verdict[:3], [stored["operators"][i] for i in verdict[3]]] for verdict in found]
        for job, found in stored["verdicts"].items()
    }


def _read_progress(path: Path, verdicts: Verdicts) -> None:
    if path.exists():
        for line in path.read_text(encoding="utf-8").splitlines():
            job, found = json.loads(line)
            verdicts[job] = found


def _still_valid(verdicts: Verdicts, only: str, retry: bool) -> Verdicts:
    """The verdicts of earlier runs without those that this run makes anew."""
    if not only and not retry:
        return verdicts
    return {
        job: found
        for job, found in verdicts.items()
        if only not in job.split(" ")[1]
        or (retry and all(verdict[1] == "right" for verdict in found))
    }


def _write(
    stem: Path,
    arguments: argparse.Namespace,
    backends: list[str],
    verdicts: Verdicts,
    missing: int,
) -> None:
    meta = {
        "date": time.strftime("%Y-%m-%d"),
        "python": platform.python_version(),
        "packages": {name: importlib.metadata.version(name) for name in PACKAGES},
        "backends": backends,
        "samples": {str(dtype): count for dtype, count in COUNTS.items()},
        "samples on the device": arguments.samples,
        "not run": missing,
    }
    names = sorted({name for found in verdicts.values() for v in found for name in v[3]})
    number = {name: i for i, name in enumerate(names)}
    stored = {
        job: [[*verdict[:3], [number[name] for name in verdict[3]]] for verdict in found]
        for job, found in verdicts.items()
    }
    lines = ",\n".join(f" {json.dumps(job)}: {json.dumps(found)}" for job, found in stored.items())
    head = f'{{"meta": {json.dumps(meta)},\n"operators": {json.dumps(names)},\n'
    stem.with_suffix(".json").write_text(f'{head}"verdicts": {{\n{lines}\n}}}}\n', "utf-8")
    stem.with_suffix(".md").write_text(table(backends, verdicts, meta), "utf-8")


if __name__ == "__main__":
    sys.exit(main())
