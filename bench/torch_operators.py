"""Which of PyTorch's own operator samples come out right, through our import and on a device.

    python -m bench.torch_operators [--device emulated] [--only softmax] [--dtypes int8,uint8]
    python -m bench.torch_operators --device nvidia/h100 --jobs 16 --limit-s 500 --shard 0/2
    python -m bench.torch_operators --device nvidia/h100 --merge FILE.jsonl FILE.jsonl

``import``: the front door, then our loops on the CPU; not in 16 bits, and not with
``--no-import``. The device: everything of tvm_tile; float16, which the emulator lacks, is only
compiled there, for a GPU. Operators of PyTorch's core that none of these reaches have calls of
their own, ``direct``. Each job, an operator and an element type, is a line of ``--log``, and
whatever ends a process is a verdict: interrupted or out of time, a run goes on where it stopped,
and ``--retry`` runs again what did not come out right. ``--merge`` writes the lines of several
logs, the later the better, to bench/results/torch_operators.json (every sample) and .md (the
table). ``--decompositions`` only prints those of PyTorch's decompositions that compute something
else than its kernels.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import platform
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import torch

from bench.core_samples import core_operators, forms
from bench.decompositions import differing
from bench.operator_cases import operators
from bench.operator_runs import Found, judged
from bench.operator_table import BAD, DIRECT, DTYPES, Verdicts, by_dtype, table, totals

RESULTS = Path(__file__).parent / "results"
UNFINISHED = Path(__file__).parent / "out"  # not under version control
PACKAGES = ("apache-tvm", "apache-tvm-ffi", "torch", "numpy")
HALVES = ("bfloat16", "float16")


def main() -> int:
    arguments = _arguments()
    if arguments.decompositions:
        lines = differing(arguments.only, arguments.samples)
        count = sum(print(line, flush=True) is None for line in lines)
        print(f"decompositions that differ from PyTorch's kernels: {count}")
        return 0
    backends = ["import", arguments.device]
    jobs = _jobs(backends)
    if arguments.merge:
        verdicts = _read(arguments.merge)
        print(totals(backends, verdicts))
        _write(arguments, backends, verdicts, sum(job not in verdicts for job in jobs))
        return 0
    name = f"torch_operators.{arguments.device.replace('/', '_')}.jsonl"
    log = arguments.log or UNFINISHED / name
    log.parent.mkdir(parents=True, exist_ok=True)
    verdicts = _read([log])
    todo = _chosen(jobs, verdicts, arguments)
    start = time.monotonic()
    with log.open("a", encoding="utf-8") as file:
        print(file=file)  # behind a line that a killed run did not end
        for count, (job, found) in enumerate(_judged(todo, arguments), 1):
            verdicts[job] = found
            print(json.dumps([job, found]), file=file, flush=True)
            for sample, status, why, _ in found:
                if status in BAD:
                    print(f"{job}, {sample}: {status}: {why[:160]}", flush=True)
            if count % 50 == 0 or count == len(todo):
                print(f"{count}/{len(todo)} in {time.monotonic() - start:.0f} s", flush=True)
    print(totals(backends, verdicts), *by_dtype(arguments.device, verdicts), sep="\n")
    missing = sum(job not in verdicts for job in todo)
    print(f"{missing} of {len(todo)} jobs are left" if missing else f"all jobs are in {log}")
    return 0


def _judged(todo: Sequence[str], arguments: argparse.Namespace) -> Iterable[tuple[str, Found]]:
    return judged(
        arguments.device,
        todo,
        most=arguments.samples,
        workers=arguments.jobs,
        timeout=arguments.timeout,
        limit_s=arguments.limit_s,
    )


def _jobs(backends: Sequence[str]) -> list[str]:
    """All there are, those first that say most."""
    jobs = [f"{b} {name} {DIRECT}" for b in backends for name in core_operators() if forms(name)]
    known = operators()
    for dtype in DTYPES:
        kind = getattr(torch, dtype)
        own = [name for name, info in known.items() if kind in info.supported_dtypes("cpu")]
        some = [b for b in backends if b != "import" or dtype not in HALVES]
        jobs += [f"{backend} {name} {dtype}" for backend in some for name in own]
    return jobs


def _chosen(jobs: Iterable[str], verdicts: Verdicts, arguments: argparse.Namespace) -> list[str]:
    """The jobs of a run that have no verdict yet, or not the right one."""
    dtypes = arguments.dtypes.split(",") if arguments.dtypes else [*DTYPES, DIRECT]
    some = []
    for job in jobs:
        backend, name, dtype = job.split(" ")
        is_asked = backend != "import" or not arguments.no_import
        if is_asked and dtype in dtypes and arguments.only in name:
            some.append(job)
    shard, _, shards = arguments.shard.partition("/")
    some = some[int(shard) :: int(shards)]
    if arguments.retry:
        return [job for job in some if any(v[1] in BAD for v in verdicts.get(job, [[0, BAD[0]]]))]
    return [job for job in some if job not in verdicts]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="emulated", help="as in tvm_tile.compile")
    parser.add_argument("--dtypes", help=f"with commas in between: {','.join((*DTYPES, DIRECT))}")
    parser.add_argument("--only", default="", help="only operators whose name contains this")
    parser.add_argument("--samples", type=int, default=3, help="of each of PyTorch's two lists")
    parser.add_argument("--no-import", action="store_true", help="the device only")
    parser.add_argument("--jobs", type=int, default=2, help="processes at once")
    parser.add_argument("--timeout", type=float, default=150.0, help="seconds for one operator")
    parser.add_argument("--limit-s", type=float, default=float("inf"), help="for the run")
    parser.add_argument("--shard", default="0/1", help="I/N: every Nth job, from the Ith on")
    parser.add_argument("--log", type=Path, help="the file of verdicts; by default in bench/out")
    parser.add_argument("--retry", action="store_true", help="run again what was wrong or failed")
    parser.add_argument("--merge", type=Path, nargs="+", help="logs to write the table of")
    parser.add_argument("--decompositions", action="store_true", help="these only, and no compiler")
    return parser.parse_args()


def _read(logs: Iterable[Path]) -> Verdicts:
    """The verdicts in some logs; of a job that is there twice, the last."""
    verdicts: Verdicts = {}
    for log in logs:
        if log.exists():
            for line in log.read_text(encoding="utf-8").splitlines():
                try:
                    job, found = json.loads(line)
                except json.JSONDecodeError:  # empty, or a run was killed as it wrote
                    continue
                verdicts[job] = found
    return verdicts


def _write(
    arguments: argparse.Namespace, backends: list[str], verdicts: Verdicts, missing: int
) -> None:
    meta = {
        "date": time.strftime("%Y-%m-%d"),
        "python": platform.python_version(),
        "packages": {name: importlib.metadata.version(name) for name in PACKAGES},
        "backends": backends,
        "samples": arguments.samples,
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
    stem = RESULTS / f"torch_operators{'' if arguments.device == 'emulated' else '_gpu'}"
    stem.with_suffix(".json").write_text(f'{head}"verdicts": {{\n{lines}\n}}}}\n', "utf-8")
    stem.with_suffix(".md").write_text(table(backends, verdicts, meta), "utf-8")


if __name__ == "__main__":
    sys.exit(main())
