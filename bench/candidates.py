"""Does the model rank tiles well? Measure many candidates of some operators on the GPU.

    python -m bench.candidates [--limit-s S] [--operators ops:C0:float32 ...]

For every operator the best-ranked tiles and a sample of the rest are compiled and timed, with a
cold cache as in the benchmark; the report gives the rank correlation of predicted and measured
times, and the regret: how much slower the model's first choice is than the fastest tile that was
measured.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from bench.functions import build_functions, find_candidates, fused_function
from bench.gpu import CudaStage, HostStage, Stage
from bench.inputs import draw
from bench.machine import probe
from bench.protocol import relative_error
from bench.report.ranking import rank_correlation
from bench.suites import choose, load_suite
from bench.systems.tvm_tile import destination_style
from bench.workload import Workload

RANKS = (*range(10), 14, 20, 30, 45, 70, 100, 150, 220, 330, 500)
SAMPLES = 9
# Of every family, large and small, with filters of all sizes, in both precisions.
OPERATORS = tuple(
    f"{suite}:{name}:{dtype}"
    for suite, dtype, names in (
        ("ops", "float32", "C0 C1 C4 C7 C9 C10 C14 C16 C23 C29 C36 C38 M1 M2 M4"),
        ("ops", "float16", "C0 C7 C16 M2"),
        ("conv", "float32", "conv7x7_3_64_224_s2 conv3x3_64_64_56_s1 conv3x3_128_128_28_s1"),
        ("conv", "float32", "conv3x3_256_256_14_s1 conv3x3_512_512_7_s1 conv1x1_64_256_56_s1"),
        ("conv", "float32", "conv1x1_1024_256_14_s1 conv1x1_2048_512_7_s1"),
        (
            "ops",
            "float32",
            "D0 D1 D3 D5 D8 D9 D10 D11 D14 D15 D20 D21 D22 P0 P1 P2 P3 P6 P10 P11 P12",
        ),
        ("ops", "float16", "D0 D1 D11 D20 P1 P6 P11 R2"),
        ("ops", "float32", "R0 R2 R3 M0 E0 E1 E2 E6 E13 E16 E19 E20 E25"),
        ("ops", "float16", "E2 E6 E13 E15 E16 E19"),
    )
    for name in names.split()
)


def main(argv: list[str] | None = None) -> int:
    """Build all candidates, then time them."""
    parser = argparse.ArgumentParser(prog="python -m bench.candidates", description=__doc__)
    parser.add_argument("--result", type=Path, default=Path("bench/results/candidates.json"))
    parser.add_argument("--operators", nargs="*", default=OPERATORS, help="SUITE:NAME:DTYPE")
    parser.add_argument("--device", default="nvidia/h200")
    parser.add_argument("--commit", default="", help="of this project, for the record")
    parser.add_argument("--share", default="0/1", help="I/N: every N-th operator from the I-th")
    parser.add_argument("--limit-s", type=float, default=float("inf"))
    arguments = parser.parse_args(argv)
    start = time.monotonic()
    machine = probe(())
    facts = {"gpu": machine.gpu, "driver": machine.driver, "versions": machine.versions}
    facts |= {"date": machine.date, "commit": arguments.commit}
    stage = HostStage() if arguments.device == "emulated" else CudaStage()
    records: list[dict[str, Any]] = []
    first, step = map(int, arguments.share.split("/"))
    for name in arguments.operators[first::step]:
        if time.monotonic() - start > arguments.limit_s:
            print(f"{name}: out of time")
            continue
        own = sweep(name, find_workload(name), arguments.device, stage)
        records += own
        arguments.result.write_text(json.dumps(facts | {"records": records}, indent=0))
        print(summary(name, own), flush=True)
    return 0


def find_workload(name: str) -> Workload:
    """The first of a suite with that name and dtype: of a batch of one, where there are several."""
    suite, own_name, dtype = name.split(":")
    return next(iter(choose([suite], name=[own_name], dtype=[dtype])))


def sweep(name: str, workload: Workload, device_name: str, stage: Stage) -> list[dict[str, Any]]:
    """Time the candidates of one operator; empty if it has none."""
    from tvm_tile import find_device

    device = find_device(device_name)
    case = load_suite(workload.suite).case(workload)
    func = fused_function(case, device)
    found = {} if func is None else find_candidates(func, device, RANKS)
    if not found:
        return []
    built = build_functions({f"rank_{rank}": i.func for rank, i in found.items()}, device)
    inputs = draw(case, "cpu" if device_name == "emulated" else "cuda", seed=1)
    records = []
    expected = None
    for rank, item in found.items():
        if f"rank_{rank}" not in built.names:
            continue
        run = destination_style(built[f"rank_{rank}"], case, inputs)
        output = run().double()
        expected = output if expected is None else expected
        stage.time(run, 2, cold=True)
        records.append(
            {
                "operator": name,
                "rank": rank,
                "tile": item.tile,
                "grid": item.grid,
                "block": item.block,
                "predicted_s": item.seconds,
                "measured_s": statistics.median(stage.time(run, SAMPLES, cold=True)),
                "difference": relative_error(output, expected),
            }
        )
    return records


def summary(name: str, records: list[dict[str, Any]]) -> str:
    """Rank correlation, regret and the three fastest, in a few lines."""
    if len(records) < 2:
        return f"{name}: {len(records)} candidates"
    predicted = [r["predicted_s"] for r in records]
    measured = [r["measured_s"] for r in records]
    correlation = rank_correlation(predicted, measured)
    shown = "none" if correlation is None else f"{correlation:.2f}"
    first = records[0]
    lines = [
        f"{name}: first {first['measured_s'] * 1e6:.1f} us (predicted "
        f"{first['predicted_s'] * 1e6:.1f}), regret {first['measured_s'] / min(measured):.2f}, "
        f"rank correlation {shown}, differ {max(r['difference'] for r in records):.0e}"
    ]
    for i in (*sorted(range(len(measured)), key=measured.__getitem__)[:3], 0):
        r = records[i]
        lines.append(
            f"    {r['measured_s'] * 1e6:.1f} us ({r['predicted_s'] * 1e6:.1f}) #{r['rank']} "
            f"{r['tile']} grid {r['grid']} x {r['block']}"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
