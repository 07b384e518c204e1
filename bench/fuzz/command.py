"""Random graphs for ever: draw, compile, compare, shrink what fails.

    python -m bench fuzz --seed 0 --count 500 --device emulated
    python -m bench fuzz --seed 0 --count 500 --device nvidia/h200 --compile-only
    python -m bench fuzz --open            of open extents: compiled once, called with several
    python -m bench fuzz --door both       through PyTorch's export and through ONNX, each graph
    python -m bench fuzz --again           only the findings: which are still there?

Interrupted, it goes on where it stopped. Each seed gives the same graph for ever, as long as the
operators in this folder are the same.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from bench.fuzz.drawing import Misfit
from bench.fuzz.graph import Graph
from bench.fuzz.judge import Settings, Verdict, dtype_of, settings_of
from bench.fuzz.record import FIXED, OPEN, Finding, Tally, read, reproducer, signature, write
from bench.fuzz.shrink import shrink
from bench.fuzz.worker import graph_of, make_worker
from bench.isolated import Crash, Worker, run_jobs

_FAILED = ("wrong", "error", "crash")
# Of these there are many alike: others are made small before.
_LATER = (("wrong", "import"), ("wrong", "special values"))
_UNFINISHED = Path(__file__).parent.parent / "out"  # not under version control
_MOST_JOBS = 150  # a process: what models leave behind in memory grows


def run(arguments: argparse.Namespace, commit: str) -> int:
    """Run the command; 1 where anything was found, else 0."""
    judge, end = Asker(arguments.timeout), time.monotonic() + arguments.limit_s
    try:
        if arguments.again:
            return _judge_again(arguments, commit, judge)
        _UNFINISHED.mkdir(exist_ok=True)
        name = f"{_stem(arguments)}.{arguments.device.replace('/', '_')}.{commit}.jsonl"
        log = Log(_UNFINISHED / name)
        _judge_new(arguments, log)
        _shrink_failed(arguments, commit, log, judge, end)
    finally:
        judge.stop()
    stem = _stem(arguments)
    tallies, findings = read(arguments.results, stem)
    fresh: dict[str, Tally] = {}
    for seed, verdict, seconds in log.verdicts():
        door = _settings(seed, arguments).door
        tally = fresh.get(door) or Tally(arguments.device, door, commit)
        fresh[door] = tally.with_verdict(verdict, seconds)
    tallies |= {tally.key: tally for tally in fresh.values()}
    write(arguments.results, tallies.values(), findings.values(), stem)
    for tally in fresh.values():
        print(f"{tally.door}: {sum(tally.counts.values())} graphs: {tally.counts}")
    return any(tally.counts.get(status, 0) for tally in fresh.values() for status in _FAILED)


@dataclass(frozen=True, slots=True)
class Log:
    """What was done for a device and a commit, a line each, so that nothing is done twice."""

    path: Path

    def add(self, **line: Any) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            print(json.dumps(line), file=file)

    def verdicts(self) -> Iterator[tuple[int, Verdict, float]]:
        """(seed, verdict, the CPU's seconds) of each graph."""
        for line in self._lines():
            if "shrunk" not in line:
                seed, seconds = line.pop("seed"), line.pop("seconds")
                yield seed, Verdict(**line), seconds

    def shrunk(self) -> set[int]:
        """Seeds of graphs that were made smaller."""
        return {line["shrunk"] for line in self._lines() if "shrunk" in line}

    def _lines(self) -> Iterator[dict[str, Any]]:
        if self.path.exists():
            for line in self.path.read_text(encoding="utf-8").splitlines():
                yield json.loads(line)


def _judge_new(arguments: argparse.Namespace, log: Log) -> None:
    """Judge the graph of each seed that has no verdict yet."""
    done = {seed for seed, _, _ in log.verdicts()}
    seeds = range(arguments.seed, arguments.seed + arguments.count)
    jobs = {_job(seed, arguments): seed for seed in seeds if seed not in done}
    results = run_jobs(
        make_worker,
        list(jobs),
        workers=arguments.workers,
        timeout=arguments.timeout,
        limit_s=arguments.limit_s,
        most_jobs=_MOST_JOBS,
        is_spoiled=lambda result: result["status"] == "error" and "CUDA" in result["detail"],
    )
    for job, result in results:
        seconds = 0.0 if isinstance(result, Crash) else result.pop("seconds")
        verdict = Verdict("crash", str(result)) if isinstance(result, Crash) else Verdict(**result)
        log.add(seed=jobs[job], seconds=seconds, **asdict(verdict))
        if verdict.status in _FAILED:
            print(f"seed {jobs[job]}: {verdict.status}: {verdict.reason}", flush=True)


def _shrink_failed(
    arguments: argparse.Namespace, commit: str, log: Log, judge: Asker, end: float
) -> None:
    """Make each failing graph small, and a finding, until the time of ``end``."""
    stem = _stem(arguments)
    tallies, findings = read(arguments.results, stem)
    shrunk = log.shrunk()
    failed = [(s, v) for s, v, _ in log.verdicts() if v.status in _FAILED and s not in shrunk]
    for seed, verdict in sorted(failed, key=lambda pair: pair[1].kind in _LATER):
        if time.monotonic() > end:
            print(f"not made small: {sum(s not in log.shrunk() for s, _ in failed)} graphs")
            return
        settings = _settings(seed, arguments)
        try:
            graph = graph_of(seed, dtype_of(seed, arguments.device), settings)
        except Misfit:
            continue
        small = shrink(graph, settings, verdict, judge, limit_s=arguments.shrink_s)
        name = signature(*small)
        known = findings[name].seeds if name in findings else ()
        seeds = tuple(dict.fromkeys([*known, seed]))[:10]
        if not known:
            print(f"\nseed {seed}: {name}\n  {small[2].reason}: {small[2].detail[-400:]}")
            print("\n".join(f"    {line}" for line in reproducer(small[0])), flush=True)
        findings[name] = Finding(name, seeds, commit, *small)
        write(arguments.results, tallies.values(), findings.values(), stem)
        log.add(shrunk=seed)


def _judge_again(arguments: argparse.Namespace, commit: str, judge: Asker) -> int:
    """Keep the findings that are still there."""
    stem = _stem(arguments)
    tallies, findings = read(arguments.results, stem)
    kept = {}
    for name, finding in findings.items():
        verdict = judge(finding.graph, finding.settings)
        print(f"{verdict.status}: {name}", flush=True)
        if verdict.kind == finding.verdict.kind:
            kept[name] = replace(finding, verdict=verdict, commit=commit)
    write(arguments.results, tallies.values(), kept.values(), stem)
    return bool(kept)


def _stem(arguments: argparse.Namespace) -> str:
    """What files of results are called, without their endings."""
    return OPEN if arguments.open else FIXED


def _settings(seed: int, arguments: argparse.Namespace) -> Settings:
    run = not arguments.compile_only
    settings = settings_of(seed, arguments.device, run=run, is_open=arguments.open)
    settings = replace(settings, special=settings.special and not arguments.no_special)
    return replace(settings, door=arguments.door) if arguments.door else settings


def _job(seed: int, arguments: argparse.Namespace) -> str:
    settings = _settings(seed, arguments)
    dtype = dtype_of(seed, arguments.device)
    return json.dumps({"seed": seed, "dtype": dtype, "settings": asdict(settings)})


@dataclass(slots=True)
class Asker:
    """Judges graphs one at a time in a process of its own, a new one after each crash."""

    timeout: float
    _worker: Worker | None = None
    _left: int = field(default=0)

    def __call__(self, graph: Graph, settings: Settings) -> Verdict:
        if self._left == 0:
            self.stop()
        if self._worker is None:
            self._worker, self._left = Worker(make_worker), _MOST_JOBS
        self._left -= 1
        job = json.dumps({"graph": graph.to_data(), "settings": asdict(settings)})
        try:
            result = self._worker.call(job, self.timeout)
        except Crash as crash:
            self.stop()
            return Verdict("crash", str(crash))
        del result["seconds"]
        return Verdict(**result)

    def stop(self) -> None:
        """End its process."""
        if self._worker is not None:
            self._worker.stop()
        self._worker = None
