"""Whole models on a GPU: tvm_tile against TVM's default pipeline, same models, same run.

    python -m bench.models build   --folder OUT [--models ...] [--dtypes ...] [--jobs N]
    python -m bench.models measure --folder OUT --result bench/results/models.json
    python -m bench.models report  --result bench/results/models.json

``build`` compiles each model twice in a process of its own (so that one failure costs one model);
``measure`` loads both, compares their outputs with the reference, and times them alternately.
The peer is ``tvm.compile`` with its default Relax pipeline (dlight) for ``sm_90``, with which it
uses tensor cores, with CUDA graphs on, from the very same imported module.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import subprocess
import sys
import time
import traceback
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

DEVICE = "nvidia/h200"
PEER_TARGET = {
    "kind": "cuda",
    "arch": "sm_90",
    "max_shared_memory_per_block": 49152,
    "max_threads_per_block": 1024,
    "thread_warp_size": 32,
    "host": "llvm",
}
DTYPES = ("float32", "float16")
RIGHT = {"float32": 1e-3, "float16": 3e-2}
ROUNDS = 5
REPEATS = 20


def main(argv: list[str] | None = None) -> int:
    """Parse the command line and run one of the two steps."""
    parser = argparse.ArgumentParser(prog="python -m bench.models", description=__doc__)
    parser.add_argument("step", choices=("build", "measure", "report"))
    parser.add_argument("--folder", type=Path, default=Path("bench/out"))
    parser.add_argument("--commit", default=None, help="where the checkout has no history")
    parser.add_argument("--models", nargs="*", default=None)
    parser.add_argument("--dtypes", nargs="*", default=list(DTYPES))
    parser.add_argument("--jobs", type=int, default=4)
    parser.add_argument("--ours-only", action="store_true", help="do not build the peer")
    parser.add_argument("--limit-s", type=float, default=240.0, help="for one model's build")
    parser.add_argument("--result", type=Path, default=Path("bench/results/models.json"))
    arguments = parser.parse_args(argv)
    steps = {"build": build, "measure": measure, "report": report}
    return steps[arguments.step](arguments)


def build(arguments: argparse.Namespace) -> int:
    """Compile every model with both systems, several processes at once."""
    from tests.models import BENCH_MODELS

    names = [entry.name for entry in BENCH_MODELS if not entry.missing()]
    if arguments.models is not None:
        names = [name for name in names if name in arguments.models]
    jobs = [(name, dtype) for dtype in arguments.dtypes for name in names]
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(arguments.jobs, context, max_tasks_per_child=1) as pool:
        tasks = {
            pool.submit(
                build_one, name, dtype, arguments.folder / f"{name}-{dtype}", arguments.ours_only
            ): (name, dtype)
            for name, dtype in jobs
        }
        for task, job in tasks.items():
            try:
                print(*job, task.result(timeout=arguments.limit_s), flush=True)
            except Exception as error:
                print(*job, "FAILED", type(error).__name__, str(error)[-400:], flush=True)
    return 0


def build_one(name: str, dtype: str, folder: Path, ours_only: bool) -> str:
    """Compile one model with both systems into ``folder``; a line about it."""
    from tests.models import BENCH_MODELS

    folder.mkdir(parents=True, exist_ok=True)
    case = next(entry for entry in BENCH_MODELS if entry.name == name).build()
    model, arrays, example = in_dtype(case, dtype)
    np.savez(
        folder / "case.npz",
        **{f"input{i}": a for i, a in enumerate(arrays)},
        **{f"reference{i}": np.asarray(a) for i, a in enumerate(case.reference)},
    )
    facts: dict[str, Any] = {"name": name, "dtype": dtype}
    systems = {"tvm_tile": _build_ours} if ours_only else SYSTEMS
    for system, make in systems.items():
        start = time.perf_counter()
        try:
            facts[system] = make(model, case.sizes, example, folder)
        except Exception as error:
            traceback.print_exc()
            facts[system] = {"error": f"{type(error).__name__}: {str(error)[-300:]}"}
        facts[system]["compile_s"] = time.perf_counter() - start
    (folder / "facts.json").write_text(json.dumps(facts))
    return " ".join(f"{s}: {facts[s].get('error', 'ok')}" for s in systems)


def in_dtype(case: Any, dtype: str) -> tuple[Any, list[np.ndarray], tuple[Any, ...] | None]:
    """The case's model, inputs and example inputs in ``dtype``; integers stay as they are."""
    arrays = [a.astype(dtype) if a.dtype.kind == "f" else a for a in case.arrays]
    if case.example_inputs is None:
        model = case.model
        if dtype == "float16":
            from onnxruntime.transformers.float16 import convert_float_to_float16

            model = convert_float_to_float16(case.model)
        return model, arrays, None
    import torch

    model = case.model.to(getattr(torch, dtype))
    return model, arrays, tuple(torch.from_numpy(a) for a in arrays)


def _build_ours(model: Any, sizes: Any, example: Any, folder: Path) -> dict[str, Any]:
    import tvm_tile

    compiled = tvm_tile.compile(model, DEVICE, inputs=sizes, example_inputs=example)
    compiled.save(folder / "ours.tvmtile")
    kernels = compiled.report.kernels
    fallbacks = [kernel.operators for kernel in kernels if kernel.fallback]
    return {
        "kernels": len(kernels),
        "fallbacks": fallbacks,
        "predicted_s": sum(kernel.seconds for kernel in kernels),
    }


def _build_peer(model: Any, sizes: Any, example: Any, folder: Path) -> dict[str, Any]:
    import tvm

    from tvm_tile.frontend import import_model

    imported = import_model(model, inputs=sizes, example_inputs=example)
    target = tvm.target.Target(PEER_TARGET)
    with target, tvm.transform.PassContext(config={"relax.backend.use_cuda_graph": True}):
        executable = tvm.compile(imported.mod, target)
    executable.export_library(str(folder / "peer.so"))
    return {}


SYSTEMS = {"tvm_tile": _build_ours, "tvm_default": _build_peer}


def measure(arguments: argparse.Namespace) -> int:
    """Load, check and time what ``build`` made; write the result file after each model."""
    records = []
    for facts_file in sorted(arguments.folder.glob("*/facts.json")):
        facts = json.loads(facts_file.read_text())
        records.append(facts | _in_own_process(facts, facts_file.parent))
        result = environment() | {"device": DEVICE, "records": records}
        if arguments.commit is not None:
            result["commit"] = arguments.commit
        arguments.result.parent.mkdir(parents=True, exist_ok=True)
        arguments.result.write_text(json.dumps(result, indent=1))
        print(line(records[-1]), flush=True)
    return 0


def _in_own_process(facts: dict[str, Any], folder: Path) -> dict[str, Any]:
    """``measure_one`` where an illegal access ends only this model; ours alone if the peer's."""
    for systems in (tuple(SYSTEMS), ("tvm_tile",)):
        own = {s: facts[s] if s in systems else {"error": "ends its process"} for s in SYSTEMS}
        try:
            with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
                return own | pool.submit(measure_one, facts | own, folder).result()
        except Exception as error:  # one model's failure is a result
            failure = f"{type(error).__name__}: {str(error)[-300:]}"
    return {"error": failure}


def measure_one(facts: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Errors and times of both systems on one model."""
    import tvm

    from tvm_tile.runtime import load
    from tvm_tile.runtime.timing import time_function

    case = np.load(folder / "case.npz")
    inputs = [case[key] for key in case.files if key.startswith("input")]
    reference = [case[key] for key in case.files if key.startswith("reference")]
    device = tvm.cuda(0)
    systems: dict[str, Any] = {}
    outputs: dict[str, Any] = {}
    if "error" not in facts["tvm_tile"]:
        ours = load(folder / "ours.tvmtile")
        outputs["tvm_tile"] = ours(*inputs)
        systems["tvm_tile"] = lambda: ours.time(*inputs, repeats=REPEATS).samples
    if "error" not in facts["tvm_default"]:
        machine = tvm.relax.VirtualMachine(tvm.runtime.load_module(str(folder / "peer.so")), device)
        tensors = [tvm.runtime.tensor(a, device) for a in inputs]
        outputs["tvm_default"] = machine["main"](*tensors)
        systems["tvm_default"] = lambda: time_function(machine, device, tensors, REPEATS).samples
    samples: dict[str, list[float]] = {name: [] for name in systems}
    for _ in range(ROUNDS):
        for name, timed in systems.items():
            samples[name] += timed()
    return {
        name: facts[name]
        | {
            "relative_error": relative_error(outputs[name], reference),
            "median_s": statistics.median(samples[name]),
            "iqr_s": float(np.subtract(*np.percentile(samples[name], [75, 25]))),
        }
        for name in systems
    }


def relative_error(outputs: Any, reference: list[np.ndarray]) -> float:
    """The largest relative error of the outputs, in norm; NaN where an output has one."""
    single = hasattr(outputs, "shape")
    values = [outputs] if single else list(outputs)
    errors = []
    for value, expected in zip(values, reference, strict=True):
        array = np.asarray(value if isinstance(value, np.ndarray) else value.numpy(), np.float64)
        wanted = np.asarray(expected, np.float64)
        scale = np.linalg.norm(wanted) or 1.0
        errors.append(float(np.linalg.norm(array.reshape(wanted.shape) - wanted) / scale))
    return max(errors)


def environment() -> dict[str, str]:
    """GPU, driver, versions, commit and command: what a reader needs to repeat the run."""
    import tvm

    def shell(*command: str) -> str:
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        except OSError:
            return "unknown"
        return done.stdout.strip() or "unknown"

    query = "--query-gpu=name,driver_version"
    return {
        "gpu": shell("nvidia-smi", query, "--format=csv,noheader"),
        "nvcc": shell("nvcc", "--version").rpartition("\n")[2],
        "tvm": tvm.__version__,
        "commit": shell("git", "rev-parse", "HEAD"),
        "command": " ".join(["python -m", *(Path(word).name for word in sys.argv)]),
    }


def report(arguments: argparse.Namespace) -> int:
    """Write the table of a result file beside it, as Markdown."""
    result = json.loads(arguments.result.read_text())
    lines = [
        "# Models on a GPU: tvm_tile against TVM's default pipeline",
        "",
        f"Measured with `{result['command']}` (after `build`) on {result['gpu']},",
        f"{result['nvcc']}, TVM {result['tvm']}, commit {result['commit']}.",
        "Both systems compile the same imported module, CUDA graphs on; TVM's default is dlight",
        f"for sm_90. Median of {ROUNDS * REPEATS} calls, alternating; in brackets the",
        "interquartile range. Errors are relative to PyTorch or ONNX Runtime in float32; a",
        f"speed-up counts where both are right: error at most {RIGHT['float32']} in float32,",
        f"{RIGHT['float16']} in float16.",
        "",
        "| model | dtype | tvm_tile, ms | error | TVM default, ms | error | speed-up "
        "| kernels (fell back) |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    ratios = []
    for record in result["records"]:
        if "error" in record:
            continue
        ours, peer = record["tvm_tile"], record["tvm_default"]
        ratio = _ratio(record)
        ratios += [ratio] if ratio is not None else []
        speed_up = "not counted" if ratio is None else f"{ratio:.2f}"
        kernels = f"{ours.get('kernels', '')} ({len(ours.get('fallbacks', ()))})"
        cells = (record["name"], record["dtype"], *_cells(ours), *_cells(peer), speed_up, kernels)
        lines.append("| " + " | ".join(cells) + " |")
    mean = float(np.exp(np.mean(np.log(ratios))))
    lines += [
        "",
        f"Geometric mean of {len(ratios)} speed-ups: {mean:.2f}; least {min(ratios):.2f}.",
    ]
    failed = [r for r in result["records"] if "error" in r]
    lines += [f"Not timed: {r['name']} {r['dtype']}: {r['error']}" for r in failed]
    arguments.result.with_suffix(".md").write_text("\n".join(lines) + "\n")
    return 0


def _cells(system: dict[str, Any]) -> tuple[str, str]:
    if "median_s" not in system:
        return str(system.get("error", "not run"))[:80].replace("|", "/").replace("\n", " "), ""
    time_ms = f"{system['median_s'] * 1e3:.3f} ({system['iqr_s'] * 1e3:.3f})"
    return time_ms, f"{system['relative_error']:.0e}"


def _ratio(record: dict[str, Any]) -> float | None:
    """How many times faster ours is; ``None`` unless both ran and both are right."""
    systems = record["tvm_tile"], record["tvm_default"]
    if any("median_s" not in system for system in systems):
        return None
    # "not (a <= b)", so that NaN is not right.
    if any(not system["relative_error"] <= RIGHT[record["dtype"]] for system in systems):
        return None
    return float(systems[1]["median_s"] / systems[0]["median_s"])


def line(record: dict[str, Any]) -> str:
    """One model's result for people."""
    if "error" in record:
        return f"{record['name']} {record['dtype']} {record['error']}"
    ours, peer = record["tvm_tile"], record["tvm_default"]

    def show(system: dict[str, Any]) -> str:
        if "error" in system:
            return str(system["error"])[:160]
        return f"{system['median_s'] * 1e3:.3f} ms (err {system['relative_error']:.1e})"

    ratio = ""
    if "median_s" in ours and "median_s" in peer:
        ratio = f"{peer['median_s'] / ours['median_s']:.2f}x"
    fell = len(ours.get("fallbacks", ()))
    return (
        f"{record['name']:18s} {record['dtype']} ours {show(ours)}, default {show(peer)} {ratio} "
        f"{fell} of {ours.get('kernels')} fell back, {ours['compile_s']:.0f} s"
    )


if __name__ == "__main__":
    sys.exit(main())
