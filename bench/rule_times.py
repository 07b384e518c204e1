"""What kernels take amid models beside predictions, rule by rule: ``python -m bench.rule_times``.

Workloads of a suite are compiled side by side; then, on a machine that does nothing else, each is
watched by CUPTI, one behind the other. A kernel's time is from the end of the one before it in the
same run to its own end, the median of the runs: so what starts early counts as what it adds. A line
each goes to ``bench/results/rule_times.jsonl``, with all kernels in order; the table has, for each
rule, calls, sums, and the median ratio. A rule that is off from one is where to look next: by what
it counts, or for a kernel that is not what was meant.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.lines import put, read_keyed
from bench.open_shapes.record import Provenance
from bench.profile_sums import provenance

RESULTS = Path(__file__).parent / "results" / "rule_times.jsonl"
_RUNS = 15
_OTHERS = "(not ours)"


@dataclass(frozen=True, slots=True)
class KernelTime:
    """A launch of a kernel in a run.

    Attributes:
        name: its symbol.
        rule: rule that wrote it; for copies, and what the report does not know, what it is.
        tile: its tile, as text.
        measured_us: microseconds by which the run is longer for it.
        predicted_us: predicted ones of a launch, amid the model; 0 where there is no prediction.
    """

    name: str
    rule: str
    tile: str
    measured_us: float
    predicted_us: float


@dataclass(frozen=True, slots=True)
class ModelTimes:
    """The kernels of a workload, in the order in which they end.

    Attributes:
        suite, workload, dtype, batch: which.
        run_us: of a run from an idle device that nobody watches, the median.
        predicted_us: of a run.
        kernels: all but the first, which has none before it.
        provenance: where and of what.
    """

    suite: str
    workload: str
    dtype: str
    batch: int
    run_us: float
    predicted_us: float
    kernels: tuple[KernelTime, ...]
    provenance: Provenance

    @property
    def key(self) -> tuple[str, str, str, int]:
        """What no two records share."""
        return self.suite, self.workload, self.dtype, self.batch


def revived(fields: dict[str, Any]) -> ModelTimes:
    """A record from what JSON made of it."""
    kernels = tuple(KernelTime(**own) for own in fields.pop("kernels"))
    return ModelTimes(
        **fields | {"kernels": kernels, "provenance": Provenance(**fields["provenance"])}
    )


def chained(profile: Any) -> tuple[KernelTime, ...]:
    """The kernels of a profile's runs that have as many activities as most of them."""
    count = statistics.mode(len(run) for run in profile.runs)
    runs = [sorted(run, key=lambda own: own.end) for run in profile.runs if len(run) == count]
    known = {kernel.name: kernel for kernel in profile.report.kernels}
    found = []
    for place in range(1, count):
        own = runs[0][place]
        report = known.get(own.name) or known.get(own.name.removesuffix("_kernel"))
        seconds = statistics.median(run[place].end - run[place - 1].end for run in runs)
        predicted = 0.0 if report is None or report.fallback else report.seconds / report.launches
        rule, tile = (_OTHERS, "") if report is None else (report.rule, report.tile)
        found.append(KernelTime(own.name, rule, tile, 1e6 * seconds, 1e6 * predicted))
    return tuple(found)


def rows(found: Iterable[ModelTimes]) -> Iterator[tuple[str, ...]]:
    """Cells of a table, the headings first: rules by what they take longer than predicted."""
    yield "dtype", "batch", "rule", "launches", "measured us", "predicted us", "ratio", "median"
    groups: dict[tuple[str, int, str], list[KernelTime]] = defaultdict(list)
    for model in found:
        for kernel in model.kernels:
            if kernel.predicted_us:
                groups[model.dtype, model.batch, kernel.rule].append(kernel)
    sums = {
        key: [sum(own.measured_us for own in group), sum(own.predicted_us for own in group)]
        for key, group in groups.items()
    }
    for key in sorted(groups, key=lambda key: (*key[:2], sums[key][1] - sums[key][0])):
        measured, predicted = sums[key]
        each = statistics.median(own.measured_us / own.predicted_us for own in groups[key])
        cells = f"{measured:.0f}", f"{predicted:.0f}", f"{measured / predicted:.2f}", f"{each:.2f}"
        yield key[0], str(key[1]), key[2], str(len(groups[key])), *cells


def _compiled(suite: str, number: int, device: str, folder: str) -> str:
    """Compile a workload into a file of the folder; its name, or why there is none."""
    import torch

    import tvm_tile
    from bench.inputs import untouched
    from bench.suites import load_suite

    torch.set_num_threads(1)
    module = load_suite(suite)
    case = module.case(module.workloads()[number])
    path = Path(folder) / f"{suite}_{number}"
    options = tvm_tile.Options(cache=False)
    model = tvm_tile.compile(
        case.module, device, example_inputs=tuple(untouched(case)), options=options
    )
    model.save(path)
    return str(path)


def watched(path: str, suite: str, number: int, where: Provenance) -> ModelTimes:
    """Run a compiled workload, and watch it."""
    import torch

    import tvm_tile
    from bench.inputs import draw
    from bench.suites import load_suite

    module = load_suite(suite)
    workload = module.workloads()[number]
    model = tvm_tile.load(path)
    on = "cuda" if torch.cuda.is_available() and not model.is_emulated else "cpu"
    inputs = draw(module.case(workload), on, 0)
    profile = model.profile(*inputs, runs=_RUNS)
    which = suite, workload.name, workload.dtype, workload.batch or 1
    run, predicted = profile.seconds, model.report.predicted_seconds
    return ModelTimes(*which, 1e6 * run, 1e6 * predicted, chained(profile), where)


def main(words: Sequence[str]) -> int:
    """Compile, watch and print."""
    from bench.suites import load_suite

    parser = argparse.ArgumentParser(prog="python -m bench.rule_times", description=__doc__)
    parser.add_argument("suite", nargs="?", default="models")
    parser.add_argument("--workloads", help="only these: A,B,...")
    parser.add_argument("--dtypes", help="only these: A,B,...")
    parser.add_argument("--batches", help="only these: A,B,...")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--jobs", type=int, default=None, help="compiled at once; by default all")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--commit", default="", help="that this is, where there is no git")
    given = parser.parse_args(words)
    wanted = {
        "name": given.workloads and given.workloads.split(","),
        "dtype": given.dtypes and given.dtypes.split(","),
        "batch": given.batches and [int(batch) for batch in given.batches.split(",")],
    }
    numbers = [
        number
        for number, workload in enumerate(load_suite(given.suite).workloads())
        if all(not own or getattr(workload, name) in own for name, own in wanted.items())
    ]
    where = provenance(words, given.commit, "bench.rule_times")
    with tempfile.TemporaryDirectory() as folder:
        jobs = [(given.suite, number, given.device, folder) for number in numbers]
        with multiprocessing.get_context("spawn").Pool(given.jobs, maxtasksperchild=4) as pool:
            paths = pool.starmap(_compiled, jobs, chunksize=1)
        for path, number in zip(paths, numbers, strict=True):
            found = watched(path, given.suite, number, where)
            put(given.results, read_keyed(given.results, revived), found)
            print(
                f"{found.key}: {found.run_us:.1f} us, predicted {found.predicted_us:.1f}",
                flush=True,
            )
    for cells in rows(read_keyed(given.results, revived).values()):
        print("| " + " | ".join(cells) + " |")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
