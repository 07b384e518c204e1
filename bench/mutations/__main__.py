"""Damage saved models and cache entries; each must be refused by name, or do no harm.

Usage: python -m bench.mutations [--files 2000] [--entries 500] [--seed 0]

Works in processes of their own, so that a crash or a hang is a finding. Writes
bench/results/mutations.md; the exit status is 1 where there is a finding.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from bench.isolated import Crash, run_jobs
from bench.mutations.judge import CACHE, FILES, make_worker

RESULT = Path(__file__).parent.parent / "results" / "mutations.md"
_TIMEOUT_S = 60.0


def main() -> int:
    arguments = _arguments()
    jobs = [
        f"{kind}/{arguments.seed + number}"
        for position, kind in enumerate(FILES)
        for number in range(position, arguments.files, len(FILES))
    ]
    jobs += [f"{CACHE}/{arguments.seed + number}" for number in range(arguments.entries)]
    results: dict[str, Any] = {}
    for job, result in run_jobs(make_worker, jobs, workers=arguments.workers, timeout=_TIMEOUT_S):
        results[job] = (f"crash: {result}", 0.0, 0) if isinstance(result, Crash) else result
        if len(results) % 100 == 0:
            print(f"{len(results)}/{len(jobs)}", flush=True)
    findings = sorted(
        f"{job}: {outcome}"
        for job, (outcome, _, _) in results.items()
        if outcome.startswith(("untyped", "crash"))
    )
    text = _report(results, findings, arguments)
    print(text)
    RESULT.write_text(text, encoding="utf-8")
    return int(bool(findings))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, default=2000, help="damaged saved models")
    parser.add_argument("--entries", type=int, default=500, help="damaged caches")
    parser.add_argument("--seed", type=int, default=0, help="of the first of each")
    parser.add_argument("--workers", type=int, default=1)
    return parser.parse_args()


def _report(results: dict[str, Any], findings: list[str], arguments: argparse.Namespace) -> str:
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for job, (outcome, _, _) in results.items():
        counts[job.partition("/")[0]][outcome.partition(":")[0]] += 1
    columns = ("right", "harmless", "refused", "untyped", "crash")
    rows = [
        f"| {kind} | {' | '.join(str(of[column]) for column in columns)} |"
        for kind, of in counts.items()
    ]
    seconds = max(seconds for _, seconds, _ in results.values())
    peak = max(peak for _, _, peak in results.values()) / 1e6
    return "\n".join(
        [
            "# Damaged and forged files",
            "",
            f"`python -m bench.mutations --files {arguments.files} --entries {arguments.entries} "
            f"--seed {arguments.seed}`, emulated device, commit {_commit()}.",
            "",
            "Right: it ran and gave the numbers of the undamaged file. Harmless: it loaded and was "
            "explained, and was not run, because its sums were recomputed: what such a file does "
            "when it runs is in the hands of whoever made it (see docs/saved_models.md). "
            "Refused: an error of `tvm_tile.errors`.",
            "",
            f"| | {' | '.join(columns)} |",
            f"| --- |{' ---: |' * len(columns)}",
            *rows,
            "",
            f"The slowest took {seconds:.1f} s; no worker had more than {peak:.2f} GB.",
            *(f"\n* {finding}" for finding in findings),
            "",
        ]
    )


def _commit() -> str:
    words = ["git", "rev-parse", "--short", "HEAD"]
    done = subprocess.run(words, cwd=RESULT.parent, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


if __name__ == "__main__":
    sys.exit(main())
