"""Does the model rank tiles well, within a rule and among rules? Measure candidates on the GPU.

    python -m bench.candidates [--limit-s S] [--processes N] [--operators ops:C0:float32 ...]
    python -m bench.candidates --competing --ranks 0 1 2 4 --processes 8 --result rules.json

For every operator the best-ranked tiles of each rule and a sample of the rest are compiled and
timed, with a cold cache as in the benchmark. The report gives, for each operator, the rank
correlation of predicted and measured times and the regret: how much slower the first choice is
than the fastest tile that was measured, of whichever rule. At the end comes what
:mod:`bench.report.rules` says of the rules beside each other.

An operator is ``SUITE:NAME:DTYPE``, or ``gemm:[Bx]MxNxK:DTYPE`` of any extents. Several processes
build at once and take turns with the GPU.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.functions import build_functions, find_candidates, fused_function
from bench.gpu import CudaStage, GpuLock, HostStage, Stage
from bench.inputs import draw
from bench.machine import probe
from bench.protocol import relative_error
from bench.report.ranking import rank_correlation
from bench.report.rules import compared_rules
from bench.suites import choose, load_suite
from bench.suites.facts import sizes
from bench.systems.tvm_tile import destination_style
from bench.workload import Workload

RANKS = (*range(10), 14, 20, 30, 45, 70, 100, 150, 220, 330, 500)
SAMPLES = 9
_ALL = "0/1"
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
# What two rules or more can write: products and convolutions, from a few rows to squares, for
# matrix units of warpgroups and of warps, for matrix-vector products and CUDA cores. Interleaved,
# so that a run that is cut off has some of each.
COMPETING = tuple(
    f"{suite}:{name}:{dtype}"
    for suite, dtype, names in (
        ("gemm", "float16", "256x1024x1024 1x4096x4096 128x768x768 16x4096x4096 64x64x64"),
        ("conv", "float16", "conv3x3_64_64_56_s1 conv1x1_64_256_56_s1"),
        ("gemm", "float16", "512x512x512 1x1000x2048 8x1024x1024 64x4096x1024 1024x1024x1024"),
        ("gemm", "float32", "1x4096x4096 256x256x256 4x1024x1024"),
        ("gemm", "float16", "12x128x128x64 12x128x64x128 128x3072x768 4096x64x4096 2x8192x8192"),
        ("conv", "float16", "conv3x3_128_128_28_s1 conv1x1_1024_256_14_s1 conv3x3_512_512_7_s1"),
        ("ops", "float16", "M0 M2 M4"),
        ("gemm", "float16", "256x256x65536 32x1024x4096 128x128x4096 4x4096x4096 1024x4096x1024"),
        ("gemm", "float16", "49x768x3072 3136x384x96 65536x96x96 1x8192x8192 8x4096x4096"),
        ("gemm", "float16", "16x1024x1024 4096x4096x64 2048x2048x2048 197x192x768 100x100x100"),
        ("conv", "float16", "conv1x1_256_64_56_s1 conv3x3_256_256_28_s2 conv1x1_2048_512_7_s1"),
        ("gemm", "float16", "384x1024x1024 512x2048x512 256x4096x4096 1x512x512 32x32x1024"),
        ("gemm", "float16", "768x128x128x64 64x1024x1024x64 2048x256x1024 16x8192x1024 8x256x256"),
        ("gemm", "float32", "128x768x768 1x1000x2048 16x1024x1024"),
        ("ops", "float32", "C0 C7 M2"),
        ("gemm", "float16", "77x768x768 1500x384x384 2x1024x4096 4096x11008x4096 50x2048x512"),
    )
    for name in names.split()
)
_EXTENTS = re.compile(r"(?:(\d+)x)?(\d+)x(\d+)x(\d+)")


def main(argv: list[str] | None = None) -> int:
    """Build all candidates, then time them."""
    arguments = _parser().parse_args(argv)
    records = _in_processes(arguments) if arguments.processes > 1 else _measured(arguments)
    if arguments.share == _ALL:
        print(compared_rules(records))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.candidates", description=__doc__)
    parser.add_argument("--result", type=Path, default=Path("bench/results/candidates.json"))
    chosen = parser.add_mutually_exclusive_group()
    chosen.add_argument("--operators", nargs="*", default=OPERATORS, help="SUITE:NAME:DTYPE")
    chosen.add_argument(
        "--competing",
        dest="operators",
        action="store_const",
        const=COMPETING,
        help="operators that several rules can write",
    )
    parser.add_argument("--ranks", nargs="*", type=int, default=RANKS, help="within each rule")
    parser.add_argument("--device", default="nvidia/h200")
    parser.add_argument("--commit", default="", help="of this project, for the record")
    parser.add_argument("--share", default=_ALL, help="I/N: every N-th operator from the I-th")
    parser.add_argument("--processes", type=int, default=1, help="that build at once")
    parser.add_argument("--lock", type=Path, help="a file: who holds it uses the GPU")
    parser.add_argument("--limit-s", type=float, default=float("inf"))
    return parser


def _in_processes(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Each process its share, in a file beside the result; then all of them in one."""
    result: Path = arguments.result
    count = arguments.processes
    parts = [result.with_name(f"{result.stem}.{number}{result.suffix}") for number in range(count)]
    options = ["--device", arguments.device, "--limit-s", str(arguments.limit_s)]
    options += ["--commit", arguments.commit, "--lock", str(result.with_suffix(".lock"))]
    options += ["--ranks", *map(str, arguments.ranks), "--operators", *arguments.operators]
    command = [sys.executable, "-m", "bench.candidates"]
    running = [
        subprocess.Popen([*command, "--share", f"{n}/{count}", "--result", str(part), *options])
        for n, part in enumerate(parts)
    ]
    for process in running:
        process.wait()
    contents = [json.loads(part.read_text()) for part in parts if part.exists()]
    records = [record for content in contents for record in content["records"]]
    if contents:
        result.write_text(json.dumps(contents[0] | {"records": records}, indent=0))
    return records


def _measured(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    start = time.monotonic()
    machine = probe(())
    facts = {"gpu": machine.gpu, "driver": machine.driver, "versions": machine.versions}
    facts |= {"date": machine.date, "commit": arguments.commit}
    stage = HostStage() if arguments.device == "emulated" else CudaStage()
    lock = GpuLock(arguments.lock or arguments.result.with_suffix(".lock"))
    records: list[dict[str, Any]] = []
    first, step = map(int, arguments.share.split("/"))
    for name in arguments.operators[first::step]:
        if time.monotonic() - start > arguments.limit_s:
            print(f"{name}: out of time")
            continue
        begin = time.monotonic()
        own = sweep(name, arguments.device, arguments.ranks, stage, lock)
        records += own
        arguments.result.write_text(json.dumps(facts | {"records": records}, indent=0))
        print(f"{summary(name, own)}\n    in {time.monotonic() - begin:.1f} s", flush=True)
    return records


def find_workload(name: str) -> Workload:
    """The workload of a name.

    The first of a suite with that name and dtype: of a batch of one, where there are several. What
    the suite of products has not is a product of the extents that the name says.
    """
    suite, own_name, dtype = name.split(":")
    found = choose([suite], name=[own_name], dtype=[dtype])
    extents = _EXTENTS.fullmatch(own_name)
    if found or suite != "gemm" or extents is None:
        return found[0]
    b, m, n, k = (int(extent or 1) for extent in extents.groups())
    return Workload("gemm", own_name, "any", dtype, None, sizes({"B": b, "M": m, "N": n, "K": k}))


def sweep(
    name: str, device_name: str, ranks: Sequence[int], stage: Stage, lock: GpuLock
) -> list[dict[str, Any]]:
    """Time the candidates of one operator; empty if it has none."""
    from tvm_tile import find_device

    device = find_device(device_name)
    workload = find_workload(name)
    case = load_suite(workload.suite).case(workload)
    func = fused_function(case, device)
    if func is None:
        return []
    found, chosen = find_candidates(func, device, ranks)
    named = {f"{item.rule}_{rank}": item for rank, item in found}
    built = build_functions({symbol: item.func for symbol, item in named.items()}, device)
    records: list[dict[str, Any]] = []
    expected = None
    with lock:
        inputs = draw(case, "cpu" if device_name == "emulated" else "cuda", seed=1)
        for rank, item in found:
            symbol = f"{item.rule}_{rank}"
            if symbol not in built.names:
                print(f"{name}: {symbol} does not build")
                continue
            run = destination_style(built[symbol], case, inputs)
            output = run().double()
            expected = output if expected is None else expected
            stage.time(run, 2, cold=True)
            records.append(
                {
                    "operator": name,
                    "rule": item.rule.name,
                    "rank": rank,
                    "chosen": (item.rule, item.tile) == chosen,
                    "tile": item.tile,
                    "grid": item.grid,
                    "block": item.block,
                    "predicted_s": item.seconds,
                    "measured_s": statistics.median(stage.time(run, SAMPLES, cold=True)),
                    "difference": relative_error(output, expected),
                }
            )
        stage.synchronize()
    return records


def summary(name: str, records: list[dict[str, Any]]) -> str:
    """Rank correlation, regret and the three fastest, in a few lines."""
    if len(records) < 2:
        return f"{name}: {len(records)} candidates"
    predicted = [r["predicted_s"] for r in records]
    measured = [r["measured_s"] for r in records]
    correlation = rank_correlation(predicted, measured)
    shown = "none" if correlation is None else f"{correlation:.2f}"
    first = next((r for r in records if r["chosen"]), records[0])
    lines = [
        f"{name}: first {first['measured_s'] * 1e6:.1f} us (predicted "
        f"{first['predicted_s'] * 1e6:.1f}), regret {first['measured_s'] / min(measured):.2f}, "
        f"rank correlation {shown}, differ {max(r['difference'] for r in records):.0e}"
    ]
    fastest = sorted(records, key=lambda record: float(record["measured_s"]))[:3]
    best = [next(r for r in records if r["rule"] == rule) for rule in _rules(records)]
    for r in dict.fromkeys(map(json.dumps, (*fastest, *best))):
        r = json.loads(r)
        lines.append(
            f"    {r['measured_s'] * 1e6:.1f} us ({r['predicted_s'] * 1e6:.1f}) {r['rule']} "
            f"#{r['rank']} {r['tile']} grid {r['grid']} x {r['block']}"
        )
    return "\n".join(lines)


def _rules(records: list[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(record["rule"] for record in records))


if __name__ == "__main__":
    sys.exit(main())
