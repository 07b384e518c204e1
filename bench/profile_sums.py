"""Whether the kernels of a profile add up to the time of a run: ``python -m bench.profile_sums``.

The demo's detector, BERT-base, ResNet-50 and four layers of LSTM, with random weights where these
are not at hand, in float32 with batch 1, are compiled for the GPU that is present, timed, and then
watched by CUPTI. A line each goes to ``bench/results/profile_sums.jsonl``. The exit status is 1 if
kernels, copies and the gaps between them differ by more than a twentieth from a run that nothing
watches, or if a kernel of the model was not seen.

With ``--compile-only`` and a ``--cache``, compiling can be done before, where there is no GPU.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.__main__ import commit
from bench.lines import put, read_keyed
from bench.machine import probe
from bench.open_shapes.record import Provenance

RESULTS = Path(__file__).parent / "results" / "profile_sums.jsonl"
TOLERANCE = 0.05
_RUNS = 30
_IMAGE = 320


@dataclass(frozen=True, slots=True)
class ProfileSum:
    """What a profile of a model adds up to; times are milliseconds of a run.

    Attributes:
        model: its name.
        graphs: CUDA graphs of a run.
        run_ms: of a run that nothing watches, the median, and how much the middle half spans.
        run_spread_ms: of the same runs.
        launch_ms, kernels_ms, copies_ms, gaps_ms: of the typical run that was watched.
        overlap_ms: by which its kernels' own times exceed ``kernels_ms``.
        predicted_ms: of a run.
        launches: of kernels.
        unseen: kernels of the model that did not run.
        provenance: where and of what.
    """

    model: str
    graphs: int
    run_ms: float
    run_spread_ms: float
    launch_ms: float
    kernels_ms: float
    copies_ms: float
    gaps_ms: float
    overlap_ms: float
    predicted_ms: float
    launches: int
    unseen: tuple[str, ...]
    provenance: Provenance

    @property
    def key(self) -> tuple[str, int, str]:
        """What no two records share."""
        return (self.model, self.graphs, self.provenance.gpu)

    @property
    def ratio(self) -> float:
        """Kernels, copies and gaps over a run that nothing watches."""
        return (self.kernels_ms + self.copies_ms + self.gaps_ms) / self.run_ms

    @property
    def is_right(self) -> bool:
        """Whether they add up, and every kernel was seen."""
        return abs(self.ratio - 1) <= TOLERANCE and not self.unseen


def revived(fields: dict[str, Any]) -> ProfileSum:
    """A record from what JSON made of it."""
    provenance = Provenance(**fields.pop("provenance"))
    return ProfileSum(**fields | {"unseen": tuple(fields["unseen"])}, provenance=provenance)


def summed(name: str, profile: Any, provenance: Provenance) -> ProfileSum:
    """What a profile adds up to."""
    shares, launches = profile.shares, profile.report.launches
    return ProfileSum(
        name,
        launches.graphs if launches else 0,
        *(1e3 * seconds for seconds in (profile.seconds, profile.spread, shares.launch)),
        *(1e3 * seconds for seconds in (shares.kernels, shares.copies, shares.gaps)),
        overlap_ms=1e3 * shares.overlap,
        predicted_ms=1e3 * profile.report.predicted_seconds,
        launches=sum(one.kind.value == "kernel" for one in profile.typical),
        unseen=tuple(kernel.name for kernel in profile.unseen),
        provenance=provenance,
    )


def detector() -> tuple[Any, dict[str, Any]]:
    """The demo's model, a file, and how it is compiled."""
    from importlib.util import find_spec

    found = find_spec("nudenet")
    if found is None or found.origin is None:
        raise ModuleNotFoundError("nudenet, which has the detector, is not installed")
    return Path(found.origin).with_name("320n.onnx"), {"inputs": {"images": (1, 3, _IMAGE, _IMAGE)}}


def bert() -> tuple[Any, dict[str, Any]]:
    """BERT-base on 128 tokens."""
    return _of_the_suite("bert_base")


def resnet() -> tuple[Any, dict[str, Any]]:
    """ResNet-50 on an image of 224 by 224."""
    return _of_the_suite("resnet50")


def lstm() -> tuple[Any, dict[str, Any]]:
    """Four layers of LSTM over 48 steps, unrolled."""
    import torch

    from bench.suites.networks.lstm import LastState, StackedLSTM
    from bench.suites.networks.seeded import seeded

    module = seeded(lambda: LastState(StackedLSTM(4, 256, 256)))
    return module, {"example_inputs": (torch.zeros(48, 1, 256),)}


def _of_the_suite(name: str) -> tuple[Any, dict[str, Any]]:
    from bench.inputs import untouched
    from bench.suites import models

    wanted = (name, "float32", 1)
    every = models.workloads()
    workload = next(one for one in every if (one.name, one.dtype, one.batch) == wanted)
    case = models.case(workload)
    return case.module, {"example_inputs": untouched(case)}


MODELS: dict[str, Callable[[], tuple[Any, dict[str, Any]]]] = {
    "detector": detector,
    "bert_base": bert,
    "resnet50": resnet,
    "lstm": lstm,
}


def measured(model: Any) -> Any:
    """A profile on random inputs that lie on the device; for people, too."""
    import tvm

    from tvm_tile.runtime.random_inputs import random_inputs

    inputs = random_inputs(model.inputs)
    if not model.is_emulated:
        inputs = [tvm.runtime.tensor(value, tvm.cuda(0)) for value in inputs]
    profile = model.profile(*inputs, runs=_RUNS)
    print(profile, flush=True)
    return profile


def provenance(words: Sequence[str], at: str, script: str = "bench.profile_sums") -> Provenance:
    """Where and of what a script measures now, given its words; at a commit, or "" for git's."""
    machine = probe(["tvm_tile", "torch"], with_peaks=False)
    command = " ".join([f"python -m {script}", *words])
    place = machine.gpu, machine.driver, machine.versions
    return Provenance(*place, at or commit(), command, machine.date)


def main(words: Sequence[str]) -> int:
    """Compile and measure the models that are named, or all; 1 if a sum is wrong."""
    import tvm_tile

    parser = argparse.ArgumentParser(prog="python -m bench.profile_sums", description=__doc__)
    parser.add_argument("models", nargs="*", choices=[*MODELS, []], help="by default all")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--no-graphs", action="store_true", help="launch each kernel by itself")
    parser.add_argument("--cache", help="a folder for schedules and machine code")
    parser.add_argument("--compile-only", action="store_true")
    parser.add_argument("--traces", type=Path, help="a folder for a trace of each model")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--commit", default="", help="that this is, where there is no git")
    given = parser.parse_args(words)
    options = tvm_tile.Options(cuda_graph=not given.no_graphs, cache=given.cache or False)
    where = None if given.compile_only else provenance(words, given.commit)
    are_right = True
    for name in given.models or MODELS:
        start = time.perf_counter()
        try:
            source, how = MODELS[name]()
        except ModuleNotFoundError as missing:
            print(f"{name}: not measured: {missing}", flush=True)
            continue
        model = tvm_tile.compile(source, given.device, options=options, **how)
        print(f"{name}: compiled in {time.perf_counter() - start:.1f} s", flush=True)
        if where is None:
            continue
        profile = measured(model)
        if given.traces:
            profile.save_trace(given.traces / f"{name}.json")
        made = summed(name, profile, where)
        put(given.results, read_keyed(given.results, revived), made)
        are_right = are_right and made.is_right
        unseen = f", not seen: {', '.join(made.unseen)}" * bool(made.unseen)
        print(f"{name}: {100 * made.ratio:.1f} % of {made.run_ms:.4f} ms{unseen}\n", flush=True)
    return 0 if are_right else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
