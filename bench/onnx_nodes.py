"""Which of ONNX's own node tests pass, through TVM's CPU build and through tvm_tile.

Usage: python -m bench.onnx_nodes [--device emulated] [--only test_softmax] [--workers 2]

Writes bench/results/onnx_nodes.json (every case) and .md (the table). Interrupted, it goes on
where it stopped. ``--retry`` runs again what did not pass, ``--fresh`` everything.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from bench.isolated import Crash, run_jobs
from bench.node_cases import NodeCase, float_cases, judge, run_compiled, run_imported, run_stock

RESULTS = Path(__file__).parent / "results"
UNFINISHED = Path(__file__).parent / "out"  # not under version control
STATUSES = ("passed", "unsupported", "failed", "not run")
HALVES = frozenset({"float16", "bfloat16"})
PACKAGES = ("apache-tvm", "apache-tvm-ffi", "onnx", "numpy")

# backend -> case -> [status, detail]
Verdicts = dict[str, dict[str, list[str]]]


def make_worker(device: str) -> Callable[[str], list[str]]:
    """In a worker process: a function from ``"backend case"`` to [status, detail]."""
    cases = {case.name: case for case in float_cases()}
    runs = {"tvm": run_stock, "import": run_imported, device: run_compiled(device)}

    def work(job: str) -> list[str]:
        backend, name = job.split(" ")
        if backend == "emulated" and cases[name].dtypes & HALVES:
            return ["not run", "OpenCL on the CPU has no half precision"]
        verdict = judge(cases[name], runs[backend])
        return [verdict.status, verdict.detail]

    return work


def main() -> int:
    arguments = _arguments()
    stem = RESULTS / f"onnx_nodes{'' if arguments.device == 'emulated' else '_gpu'}"
    cases = float_cases()
    backends = ["tvm", "import", arguments.device]
    progress = UNFINISHED / f"{stem.name}.progress"
    if arguments.fresh:
        progress.unlink(missing_ok=True)
    verdicts: Verdicts = {backend: {} for backend in backends}
    if not arguments.fresh:
        verdicts |= _read_results(stem.with_suffix(".json"), backends)
    for backend in arguments.backends or backends:
        verdicts[backend] = _still_valid(verdicts[backend], arguments.only, arguments.retry)
    _read_progress(progress, verdicts)
    todo = [
        f"{backend} {case.name}"
        for backend in (arguments.backends or backends)
        for case in cases
        if arguments.only in case.name and case.name not in verdicts[backend]
    ]
    RESULTS.mkdir(exist_ok=True)
    UNFINISHED.mkdir(exist_ok=True)
    start = time.monotonic()
    with progress.open("a", encoding="utf-8") as log:
        results = run_jobs(
            partial(make_worker, arguments.device),
            todo,
            workers=arguments.workers,
            timeout=arguments.timeout,
        )
        for count, (job, result) in enumerate(results, 1):
            verdict = ["failed", f"crash: {result}"] if isinstance(result, Crash) else result
            backend, name = job.split(" ")
            verdicts[backend][name] = verdict
            print(json.dumps([backend, name, verdict]), file=log, flush=True)
            if count % 50 == 0 or count == len(todo):
                print(f"{count}/{len(todo)} in {time.monotonic() - start:.0f} s", flush=True)
    print(_totals(cases, backends, verdicts))
    if all(case.name in verdicts[backend] for backend in backends for case in cases):
        _write(stem, cases, backends, verdicts)
        progress.unlink()
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="emulated", help="as in tvm_tile.compile")
    parser.add_argument("--backends", nargs="*", help="only these: tvm, import, the device")
    parser.add_argument("--only", default="", help="only cases whose name contains this")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--timeout", type=float, default=60.0, help="seconds for one case")
    parser.add_argument("--retry", action="store_true", help="run again what did not pass")
    parser.add_argument("--fresh", action="store_true", help="run everything again")
    return parser.parse_args()


def _read_results(path: Path, backends: list[str]) -> Verdicts:
    if not path.exists():
        return {}
    cases = json.loads(path.read_text(encoding="utf-8"))["cases"]
    return {
        backend: {name: entry[backend] for name, entry in cases.items() if backend in entry}
        for backend in backends
    }


def _still_valid(verdicts: dict[str, list[str]], only: str, retry: bool) -> dict[str, list[str]]:
    """The verdicts of earlier runs without those that this run makes anew."""
    if not only and not retry:
        return verdicts
    return {
        name: verdict
        for name, verdict in verdicts.items()
        if only not in name or (retry and verdict[0] == "passed")
    }


def _read_progress(path: Path, verdicts: Verdicts) -> None:
    if path.exists():
        for line in path.read_text(encoding="utf-8").splitlines():
            backend, name, verdict = json.loads(line)
            verdicts.setdefault(backend, {})[name] = verdict


def regressions(cases: Sequence[NodeCase], device: str, verdicts: Verdicts) -> list[str]:
    """Cases that TVM's default CPU build passes and tvm_tile does not."""
    return [
        case.name
        for case in cases
        if verdicts["tvm"].get(case.name, [""])[0] == "passed"
        and verdicts[device].get(case.name, ["passed"])[0] not in ("passed", "not run")
    ]


def _totals(cases: Sequence[NodeCase], backends: list[str], verdicts: Verdicts) -> str:
    titles = {"tvm": "TVM, CPU", "import": "our import, TVM's CPU build"}
    rows = ["| | passed | unsupported | failed | not run |", "| --- | --- | --- | --- | --- |"]
    for backend in backends:
        counts = Counter(status for status, _ in verdicts[backend].values())
        cells = " | ".join(str(counts[status]) for status in STATUSES)
        rows.append(f"| {titles.get(backend, f'tvm_tile, {backend}')} | {cells} |")
    lost = regressions(cases, backends[-1], verdicts)
    rows += ["", f"Passed by TVM's CPU build, not by tvm_tile: {len(lost)}"]
    return "\n".join(rows)


def _write(stem: Path, cases: Sequence[NodeCase], backends: list[str], verdicts: Verdicts) -> None:
    meta = {
        "date": time.strftime("%Y-%m-%d"),
        "python": platform.python_version(),
        "packages": {name: importlib.metadata.version(name) for name in PACKAGES},
        "backends": backends,
    }
    listed = {
        case.name: {"operator": case.operator, **{b: verdicts[b][case.name] for b in backends}}
        for case in cases
    }
    text = json.dumps({"meta": meta, "cases": listed}, indent=1)
    _replace(stem.with_suffix(".json"), text + "\n")
    _replace(stem.with_suffix(".md"), table(cases, backends, verdicts, meta))


def _replace(path: Path, text: str) -> None:
    temporary = path.with_suffix(path.suffix + ".new")
    temporary.write_text(text, encoding="utf-8")
    os.replace(temporary, path)


def table(
    cases: Sequence[NodeCase], backends: list[str], verdicts: Verdicts, meta: dict[str, Any]
) -> str:
    """The Markdown table: totals, counts by operator, and every case that did not pass."""
    device = backends[-1]
    packages = ", ".join(f"{name} {version}" for name, version in meta["packages"].items())
    lines = [
        "# ONNX node tests",
        "",
        f"Generated by `python -m bench.onnx_nodes` on {meta['date']} with {packages}.",
        f"The {len(cases)} cases of `onnx.backend.test` whose inputs and outputs are tensors, at",
        "least one of a floating-point type. Integer inputs (shapes, axes, indices) and scales",
        "that a backend does not take as inputs are bound as constants.",
        "",
        _totals(cases, backends, verdicts),
        "",
        "## By operator",
        "",
        "The third column counts what TVM's CPU build passes, the others tvm_tile's verdicts.",
        "",
        f"| operator | cases | TVM, CPU | {device}: passed | unsupported | failed | not run |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for operator in sorted({case.operator for case in cases}):
        names = [case.name for case in cases if case.operator == operator]
        stock = Counter(verdicts["tvm"][name][0] for name in names)
        ours = Counter(verdicts[device][name][0] for name in names)
        cells = " | ".join(str(ours[status]) for status in STATUSES)
        lines.append(f"| {operator} | {len(names)} | {stock['passed']} | {cells} |")
    lines += ["", "## Not passed", "", "| case | TVM, CPU | tvm_tile | why |"]
    lines.append("| --- | --- | --- | --- |")
    for case in cases:
        status, detail = verdicts[device][case.name]
        if status != "passed":
            why = " ".join(detail.replace("|", "/").split())
            lines.append(f"| {case.name} | {verdicts['tvm'][case.name][0]} | {status} | {why} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
