"""Does the model rank tiles well? Measure many candidates of a few operators on the GPU.

    python -m bench.candidates --result bench/results/candidates.json [--limit-s S]

For every operator the best-ranked tiles and a sample of the rest are compiled and timed; the
report gives the rank correlation of predicted and measured times, and the regret: how much slower
the model's first choice is than the fastest tile that was measured.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from bench.functions import build_functions, find_candidates
from bench.machine import probe

DEVICE = "nvidia/h200"
RANKS = (*range(10), 14, 20, 30, 45, 70, 100, 150, 220, 330, 500)

# name, kind, shape, dtype: convolutions are (N, C, H, W, F, kernel, stride, padding).
OPERATORS: tuple[tuple[str, str, tuple[int, ...], str], ...] = (
    ("stem7x7", "conv", (1, 3, 224, 224, 64, 7, 2, 3), "float32"),
    ("conv3x3_64_56", "conv", (1, 64, 56, 56, 64, 3, 1, 1), "float32"),
    ("conv3x3_128_28", "conv", (1, 128, 28, 28, 128, 3, 1, 1), "float32"),
    ("conv3x3_256_14", "conv", (1, 256, 14, 14, 256, 3, 1, 1), "float32"),
    ("conv3x3_512_7", "conv", (1, 512, 7, 7, 512, 3, 1, 1), "float32"),
    ("conv1x1_64_256_56", "conv", (1, 64, 56, 56, 256, 1, 1, 0), "float32"),
    ("conv1x1_1024_256_14", "conv", (1, 1024, 14, 14, 256, 1, 1, 0), "float32"),
    ("conv1x1_2048_512_7", "conv", (1, 2048, 7, 7, 512, 1, 1, 0), "float32"),
    ("conv1x1_512_2048_7", "conv", (1, 512, 7, 7, 2048, 1, 1, 0), "float32"),
    ("conv1x1_96_24_56", "conv", (1, 96, 56, 56, 24, 1, 1, 0), "float32"),
    ("conv1x1_160_960_7", "conv", (1, 160, 7, 7, 960, 1, 1, 0), "float32"),
    ("conv3x3_128_56_stride2", "conv", (1, 128, 56, 56, 128, 3, 2, 1), "float32"),
    ("matmul_3136_288_96", "matmul", (3136, 288, 96), "float32"),
    ("matmul_49_3072_768", "matmul", (49, 3072, 768), "float32"),
    ("conv3x3_256_14_half", "conv", (1, 256, 14, 14, 256, 3, 1, 1), "float16"),
    ("matmul_128_768_768", "matmul", (128, 768, 768), "float32"),
    ("matmul_128_3072_768", "matmul", (128, 3072, 768), "float32"),
    ("matmul_128_768_3072", "matmul", (128, 768, 3072), "float32"),
    ("matmul_128_768_768_half", "matmul", (128, 768, 768), "float16"),
    ("matmul_128_3072_768_half", "matmul", (128, 3072, 768), "float16"),
    ("matmul_1_1000_2048", "matmul", (1, 1000, 2048), "float32"),
    ("matmul_1024", "matmul", (1024, 1024, 1024), "float32"),
    ("matmul_2048", "matmul", (2048, 2048, 2048), "float32"),
)


def main(argv: list[str] | None = None) -> int:
    """Build all candidates, then time them."""
    parser = argparse.ArgumentParser(prog="python -m bench.candidates", description=__doc__)
    parser.add_argument("--result", type=Path, required=True)
    parser.add_argument("--limit-s", type=float, default=200.0)
    arguments = parser.parse_args(argv)
    start = time.perf_counter()
    machine = probe(())
    facts = {"gpu": machine.gpu, "driver": machine.driver, "versions": machine.versions}
    records: list[dict[str, Any]] = []
    for name, kind, shape, dtype in OPERATORS:
        if time.perf_counter() - start > arguments.limit_s:
            print(f"{name}: out of time")
            continue
        own = sweep(name, prim_func(kind, shape, dtype))
        records += own
        arguments.result.write_text(json.dumps(facts | {"records": records}, indent=0))
        print(summary(name, own), flush=True)
    return 0


def prim_func(kind: str, shape: tuple[int, ...], dtype: str) -> Any:
    """The operator as legalization would make it, accumulating in float32."""
    from tvm import te, topi

    if kind == "matmul":
        m, n, k = shape
        a, b = te.placeholder((m, k), dtype, "A"), te.placeholder((k, n), dtype, "B")
        r = te.reduce_axis((0, k), "k")

        def product(i: Any, j: Any) -> Any:
            return te.sum(a[i, r].astype("float32") * b[r, j].astype("float32"), axis=r)

        out = te.compute((m, n), product, name="matmul")
    else:
        n, c, h, w, f, kernel, stride, padding = shape
        a = te.placeholder((n, c, h, w), dtype, "A")
        b = te.placeholder((f, c, kernel, kernel), dtype, "B")
        out = topi.nn.conv2d(a, b, stride, padding, 1, "NCHW", "OIHW", "float32")
    result = te.compute(out.shape, lambda *i: out[i].astype(dtype), name="cast")
    tensors = [a, b, out if dtype == "float32" else result]
    return te.create_prim_func(tensors).with_attr("global_symbol", "main")


def sweep(name: str, func: Any) -> list[dict[str, Any]]:
    """Time the candidates of one operator."""
    import tvm

    from tvm_tile import find_device

    device = find_device(DEVICE)
    found = find_candidates(func, device, RANKS)
    symbols = {f"{name}_{rank}": item for rank, item in found.items()}
    module, built = build_functions({symbol: i.func for symbol, i in symbols.items()}, device)
    gpu = tvm.cuda(0)
    rng = np.random.default_rng(0)
    arguments = [
        tvm.runtime.tensor(
            rng.standard_normal([int(e) for e in p.ty.shape]).astype(str(p.ty.dtype)), gpu
        )
        for p in func.params
    ]
    records = []
    expected = None
    for symbol, item in symbols.items():
        if symbol not in built:
            continue
        module[symbol](*arguments)
        output = arguments[-1].numpy().astype("float64")
        expected = output if expected is None else expected
        error = float(np.linalg.norm(output - expected) / np.linalg.norm(expected))
        timer = module.time_evaluator(symbol, gpu, number=20, repeat=5)
        seconds = float(np.median(timer(*arguments).results))
        records.append(
            {
                "operator": name,
                "rank": int(symbol.rpartition("_")[2]),
                "tile": item.tile,
                "grid": item.grid,
                "block": item.block,
                "predicted_s": item.seconds,
                "measured_s": seconds,
                "difference": error,
            }
        )
    return records


def summary(name: str, records: list[dict[str, Any]]) -> str:
    """Rank correlation, regret and the three fastest, in a few lines."""
    predicted = np.array([r["predicted_s"] for r in records])
    measured = np.array([r["measured_s"] for r in records])
    ranks = [np.argsort(np.argsort(values)) for values in (predicted, measured)]
    correlation = float(np.corrcoef(*ranks)[0, 1])
    first = records[0]
    lines = [
        f"{name}: first {first['measured_s'] * 1e6:.1f} us (predicted "
        f"{first['predicted_s'] * 1e6:.1f}), regret {first['measured_s'] / measured.min():.2f}, "
        f"rank correlation {correlation:.2f}, differ {max(r['difference'] for r in records):.0e}"
    ]
    for i in (*np.argsort(measured)[:3], 0):
        r = records[i]
        lines.append(
            f"    {r['measured_s'] * 1e6:.1f} us ({r['predicted_s'] * 1e6:.1f}) #{r['rank']} "
            f"{r['tile']} grid {r['grid']} x {r['block']}"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
