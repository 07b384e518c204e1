"""One trained file: compiled as a new user would, run, and compared with ONNX Runtime."""

from __future__ import annotations

import os
import statistics
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bench.architectures.check import EMULATED, relative_error
from bench.corpus.files import TrainedFile, trained_files
from bench.suites.model_suite import TOLERANCES

_RUNS = 30  # of ONNX Runtime's that are timed, behind as many that warm up
Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of one file on one device, in float32.

    Attributes:
        file: package and path.
        device: as in ``tvm_tile.compile``.
        status: ``"right"``, ``"compiled"`` (and not run), ``"refused"``, ``"wrong"`` or ``"died"``.
            Right is also what differs by no more than ONNX Runtime's results themselves do where
            inputs are off by a few roundings.
        detail: why, where it is none of the first two; and how far off what is right so.
        bytes: size of the file.
        inputs: names, shapes and dtypes of the compiled model's inputs.
        asked: whether sizes had to be said.
        error: largest difference from ONNX Runtime's outputs over an output's largest value.
        seconds: the processors' seconds of the compilation, of all threads and child processes;
            None where they were not counted.
        kernels: different kernels.
        launches: kernels that one run launches; one iteration of loops that the data end.
        fallbacks: those kernels that are not of a rule of ours, with the reason.
        predicted_s: predicted seconds of a run; None on the emulated device.
        measured_s: median of measured seconds; None unless it ran on a GPU.
        peer_s: the same of ONNX Runtime, by its provider for this GPU; None where it has none.
        commit: of this repository.
    """

    file: str
    device: str
    status: str
    detail: str = ""
    bytes: int = 0
    inputs: tuple[str, ...] = ()
    asked: bool = False
    error: float | None = None
    seconds: float | None = None
    kernels: int = 0
    launches: int = 0
    fallbacks: tuple[str, ...] = ()
    predicted_s: float | None = None
    measured_s: float | None = None
    peer_s: float | None = None
    commit: str = ""

    @property
    def key(self) -> tuple[str, str]:
        return self.file, self.device


def make_worker(folder: Path, runs: bool, commit: str) -> Callable[[str], Verdict]:
    """In a worker process: a function from ``"file device"`` to a verdict.

    Args:
        folder: where the files lie.
        runs: whether models for a GPU run, too; emulated ones always do.
        commit: of this repository.
    """
    files = {file.key: file for file in trained_files()}

    def work(job: str) -> Verdict:
        key, device = job.split()
        path = files[key].kept_in(folder)
        common = {"bytes": path.stat().st_size, "commit": commit}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = _attempt(files[key], path, device, runs or device == EMULATED)
        return Verdict(key, device, **common, **found)

    return work


def _attempt(file: TrainedFile, path: Path, device: str, runs: bool) -> dict[str, Any]:
    """What a verdict says beside the file's own facts."""
    from tvm_tile.errors import TileError

    found: dict[str, Any] = {}
    begin = _processor_seconds()
    try:
        model, found["asked"] = _compiled(file, path, device)
        found |= {"seconds": _processor_seconds() - begin, **_told(model, device)}
        compared = _compared(model, file, path) if runs else {"status": "compiled"}
        return found | compared
    except TileError as error:
        name, status = f"{type(error).__name__}: {error.current}", "refused"
    except Exception as error:  # one that no user should see
        name, status = f"{type(error).__name__}: {error}", "died"
    seconds = _processor_seconds() - begin
    return {"seconds": seconds, **found, "status": status, "detail": name[:300]}


def _processor_seconds() -> float:
    """Seconds of the processors so far, which others' work on the machine does not lengthen."""
    spent = os.times()
    return sum(spent[:4])


def _compiled(file: TrainedFile, path: Path, device: str) -> tuple[Any, bool]:
    """The file with nothing said, or with the sizes that it turned out to need; and which."""
    import tvm_tile

    options = tvm_tile.Options(cache=False)
    try:
        return tvm_tile.compile(path, device, options=options), False
    except tvm_tile.DynamicShapeError:
        if not file.sizes:
            raise
    return tvm_tile.compile(path, device, inputs=file.sizes, options=options), True


def _told(model: Any, device: str) -> dict[str, Any]:
    """What a compiled model tells of itself."""
    report = model.report
    return {
        "inputs": tuple(f"{s.name} {list(s.shape)} {s.dtype}" for s in model.inputs),
        "kernels": len(report.kernels),
        "launches": report.launch_count,
        "fallbacks": tuple(f"{k.operators[:80]}: {k.fallback}"[:200] for k in report.fallbacks),
        "predicted_s": None if device == EMULATED else report.predicted_seconds,
    }


def _compared(model: Any, file: TrainedFile, path: Path) -> dict[str, Any]:
    """A run beside ONNX Runtime's."""
    from tvm_tile.runtime.random_inputs import random_inputs

    drawn = random_inputs(model.inputs)
    given = {signature.name: array for signature, array in zip(model.inputs, drawn, strict=True)}
    rng = np.random.default_rng(0)
    for name, most in file.below.items():
        given[name] = rng.integers(0, most, given[name].shape).astype(given[name].dtype)
    given |= {
        name: np.asarray(value, given[name].dtype).reshape(given[name].shape)
        for name, value in file.values.items()
    }
    wanted = _in_onnxruntime(path, given)
    got = model(**given)
    error = _largest_error(got if isinstance(got, tuple) else (got,), wanted)
    status, detail = "right", ""
    if error > TOLERANCES["float32"]:
        own = _largest_error(_in_onnxruntime(path, _moved(given)), wanted)
        status = "right" if error <= own else "wrong"
        detail = (
            f"an output is off by {error:.1g} of its largest value; ONNX Runtime's own is by "
            f"{own:.1g} where inputs are off by a few roundings"
        )
    found = {"status": status, "detail": detail, "error": error}
    if not model.is_emulated:
        found["measured_s"] = model.time(**given).median_s
        found["peer_s"] = _seconds_of_onnxruntime(path, given)
    return found


def _moved(given: Arrays) -> dict[str, np.ndarray]:
    from tvm_tile.verify.arguments import moved

    rng = np.random.default_rng(1)
    return {name: moved(array, rng) for name, array in given.items()}


def _largest_error(got: Sequence[Any], wanted: Sequence[Any]) -> float:
    """The largest error of any output; infinite where whole numbers differ."""
    pairs = zip(map(np.asarray, got), wanted, strict=True)
    return max(relative_error(own.astype(np.float64), its.astype(np.float64)) for own, its in pairs)


def _session(path: Path, provider: str) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(path, options, providers=[provider])


def _in_onnxruntime(path: Path, given: Arrays) -> Sequence[Any]:
    """ONNX Runtime's outputs, on the CPU."""
    session = _session(path, "CPUExecutionProvider")
    taken = {argument.name for argument in session.get_inputs()}
    outputs: Sequence[Any] = session.run(None, {n: a for n, a in given.items() if n in taken})
    return outputs


def _seconds_of_onnxruntime(path: Path, given: Arrays) -> float | None:
    """Median seconds of a run in ONNX Runtime's CUDA provider, with inputs and outputs on the GPU;
    None where it has none."""
    import onnxruntime

    provider = "CUDAExecutionProvider"
    if provider not in onnxruntime.get_available_providers():
        return None
    session = _session(path, provider)
    binding = session.io_binding()
    for argument in session.get_inputs():
        value = onnxruntime.OrtValue.ortvalue_from_numpy(given[argument.name], "cuda", 0)
        binding.bind_ortvalue_input(argument.name, value)
    for output in session.get_outputs():
        binding.bind_output(output.name, "cuda")
    samples = []
    for _ in range(2 * _RUNS):
        begin = time.perf_counter()
        session.run_with_iobinding(binding)
        binding.synchronize_outputs()
        samples.append(time.perf_counter() - begin)
    return statistics.median(samples[_RUNS:])
