"""Lesson 2: one operator, searched for by Ansor's successor and constructed by tvm_tile.

Ansor and AutoTVM are gone from TVM; MetaSchedule took their place. Run this lesson with
`PYTHONPATH=. python tutorials/02_against_ansor.py` (it uses the benchmark, which is not installed).
With an NVIDIA GPU and XGBoost it tunes before your eyes, for a few minutes. Without, it replays
what was recorded on one, and says so. `--results FOLDER` names other records than the project's
own.
"""

from __future__ import annotations

import argparse
import importlib.util
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

import tvm_tile
from bench import record
from bench.functions import fused_function
from bench.inputs import untouched
from bench.metaschedule.records import Records
from bench.suites import load_suite
from tvm_tile.graph.extract import extract
from tvm_tile.tile.construct import construct_contraction

ROOT = Path(__file__).resolve().parent.parent
parser = argparse.ArgumentParser()
parser.add_argument("--results", type=Path, default=ROOT / "bench" / "results")
results = parser.parse_args().results

OPERATOR, DEVICE, TRIALS = "C0", "nvidia/h200", 64
HAS_GPU = torch.cuda.is_available()
LIVE = HAS_GPU and importlib.util.find_spec("xgboost") is not None

# 1. The operator: the first of the 119 that Roller was measured on, a 3x3 convolution of
#    ResNet-50 at batch 128. Both compilers get the same PyTorch module.

suite = load_suite("ops")
workload = next(w for w in suite.workloads() if (w.name, w.dtype) == (OPERATOR, "float32"))
case = suite.case(workload)
print(f"{workload}: {case.flops / 1e9:.1f} GFLOP, {case.bytes / 1e6:.0f} MB at least\n")

# 2. tvm_tile constructs. A tile is aligned to the GPU's transactions, warps and banks, and grown
#    tvm_tile constructs. A tile is aligned to the GPU's transactions, warps and banks, and enlarged
#    where that saves most traffic. A model of the GPU, not the GPU, ranks the results.

start = time.perf_counter()
uncached = tvm_tile.Options(cache=False)  # its time is to be that of a first compilation
model = tvm_tile.compile(case.module, DEVICE, example_inputs=untouched(case), options=uncached)
ours_s = time.perf_counter() - start
(kernel,) = model.report.kernels

device = tvm_tile.find_device(DEVICE)
graph = extract(fused_function(case, device))
assert graph is not None
start = time.perf_counter()
plans = construct_contraction(graph.reductions[0], device, topk=10**6)
ranking_s = time.perf_counter() - start
assert len(plans) > 1
assert plans[0].seconds <= plans[-1].seconds

print(f"tvm_tile: a kernel after {ours_s:.1f} s here, none run to choose it")
print(f"  {len(plans)} tiles ranked by the model in {ranking_s:.2f} s")
print(f"  first: {kernel.tile}, {kernel.grid} blocks of {kernel.block} threads")
print(f"  predicted {kernel.seconds * 1e6:.0f} us; the last would take", end=" ")
print(f"{plans[-1].seconds / plans[0].seconds:.0f} times as long\n")

# 3. MetaSchedule searches. It draws schedules from a space of programs, compiles and times some 64
#    at a time, and learns from the times what to try next.

folder = results / "metaschedule"
if LIVE:
    print(f"MetaSchedule: {TRIALS} trials, now, on {torch.cuda.get_device_name()}", flush=True)
    folder = Path(tempfile.mkdtemp())
    command = [sys.executable, "-m", "bench.metaschedule", "--operators", OPERATOR]
    limits = ["--trials", str(TRIALS), "--folder", str(folder), "--limit-s", "300"]
    subprocess.run([*command, *limits], cwd=ROOT, check=True)
records = Records(folder, OPERATOR, "float32")
if not records.exist():
    print("MetaSchedule: no GPU here to tune on, and no records to replay. To make them:")
    print(f"  python -m bench.metaschedule --operators {OPERATOR}   # on a machine with a GPU")
    sys.exit(0)
history = records.read_history()
if not LIVE:
    print("MetaSchedule: no GPU or no XGBoost here, so this is a replay of what was recorded on")
    print(f"  {'; '.join(history.conditions)}")
for item in history.rounds:
    best = "none ran" if item.best_s is None else f"best {item.best_s * 1e6:.0f} us"
    print(f"  {item.trials:4d} trials ({item.valid} ran), {item.seconds:5.0f} s: {best}")
spent = history.last
assert spent.valid <= spent.trials
print(f"  of {spent.seconds:.0f} s, {spent.search_s:.0f} went into searching,", end=" ")
print(f"{spent.build_s:.0f} into compiling, {spent.measure_s:.0f} into timing\n")

# 4. Look at its best program. A record is a trace: the steps of a schedule, and the numbers that
#    the search drew for them, at first at random. tvm_tile computes these numbers.

print("The best trace's decisions:")
with records.open() as database:
    fastest = database.tvm.get_all_tuning_records()[0]
    decisions = [
        (str(step.kind.name), [int(value) for value in decision])
        for step, decision in fastest.trace.decisions.items()
        if str(step.kind.name) == "SamplePerfectTile"
    ]
for (name, factors), loop in zip(decisions, ("n", "f", "y", "x", "c", "ky", "kx"), strict=True):
    print(f"  {name} of loop {loop}: {' x '.join(map(str, factors))}")
print("  (blocks, virtual threads, threads, two inner loops; for sums, three steps)\n")

# 5. Speed. The times are those of the benchmark: cold cache, launch hidden, median.

if LIVE:
    from bench.gpu import CudaStage
    from bench.inputs import draw

    inputs = draw(case, "cuda", seed=1)
    model(*inputs)
    samples = CudaStage().time(lambda: model(*inputs), 30, cold=True)
    times_ms = {"tvm_tile top1": statistics.median(samples) * 1e3}
    if spent.best_s is not None:
        times_ms[f"metaschedule {spent.trials}"] = spent.best_s * 1e3
else:
    measured = record.read(results / "ops.jsonl").values()
    mine = [r for r in measured if (r.workload, r.dtype) == (OPERATOR, "float32") and r.is_right]
    times_ms = {f"{r.system} {r.variant}": r.median_ms for r in mine if r.median_ms is not None}
for name, value in sorted(times_ms.items(), key=lambda item: item[1]):
    print(f"  {name:20s} {value:.3f} ms, {case.flops / value / 1e9:.1f} TFLOP/s")
if not times_ms:
    print("  no times recorded: python -m bench run --suite ops --systems tvm_tile,metaschedule")

# 6. Why. The search learns only from kernels that were compiled and timed, so it costs trials times
#    seconds; the model costs arithmetic. In return, it may find what the model does not know.

print(f"\nA kernel took {spent.seconds:.0f} s to find by search, and {ours_s:.1f} s to construct:")
print(f"  {spent.trials} kernels compiled and timed, against 1 compiled and none timed.")
