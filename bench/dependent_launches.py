"""Models with and without dependent launches: ``python -m bench.dependent_launches [NAME ...]``.

Each model, in float16 and with batch 1, is compiled two ways for the GPU that is present: launched
ordinarily, and with kernels that start early and wait for the one before them, as in
``Forced(dependent_launches=True)``. The ways take turns: in each of ``--rounds``
rounds each is called ``--calls`` times behind a kernel that spins, so that the GPU's time counts
and not the host's. The table has medians, what they are of the ordinary time, and of 200 calls on
random inputs how many differ from the ordinary way's in any bit, which must be none. The exit
status is 1 if any does.

A model that would begin after ``--limit-s`` seconds is left out, and named: with 110 all is over
within two minutes, where there are cores enough to compile a model in some ten seconds.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

import tvm_tile
from bench.gpu import CudaStage, queued_seconds
from bench.inputs import draw, untouched
from bench.suites import models
from bench.workload import Case, Input
from tvm_tile.device import Device
from tvm_tile.device.detect import detect_device
from tvm_tile.stages.forced import Forced

_CHECKED_CALLS, _SEEDS = 200, 4
_SUITE = ("bert_base", "mobilenet_v2", "vit_small", "resnet50")
_DECODER = "llama_layers"
ORDINARY, WAITING = "ordinary", "waiting"
WAYS = {ORDINARY: False, WAITING: True}


@dataclass(frozen=True, slots=True)
class Row:
    """One model.

    Attributes:
        name: its.
        kernels: in graphs, and how many of these depend programmatically.
        seconds: way -> median of a call.
        differing: way -> calls of which an output differs in any bit.
    """

    name: str
    kernels: tuple[int, int]
    seconds: dict[str, float]
    differing: dict[str, int]

    def render(self) -> str:
        """A row of the table."""
        ordinary = self.seconds[ORDINARY]
        times = (
            f"{seconds * 1e6:.1f} ({seconds / ordinary:.3f})" for seconds in self.seconds.values()
        )
        captured, dependent = self.kernels
        cells = (
            self.name,
            f"{dependent} of {captured}",
            *times,
            *map(str, self.differing.values()),
        )
        return f"| {' | '.join(cells)} |"


def heading(ways: Sequence[str]) -> str:
    """The first two lines of the table of these ways."""
    others = [way for way in ways if way != ORDINARY]
    cells = (
        "model",
        "dependent",
        *(f"{way}, us" for way in ways),
        *(f"differ, {way}" for way in others),
    )
    return f"| {' | '.join(cells)} |\n|{' --- |' * len(cells)}"


def case_of(name: str) -> Case:
    """A model in float16, for batch 1."""
    if name != _DECODER:
        (workload,) = (
            one
            for one in models.workloads()
            if (one.name, one.dtype, one.batch) == (name, "float16", 1)
        )
        return models.case(workload)
    from bench.suites.networks.llama_layers import LlamaLayers
    from bench.suites.networks.seeded import seeded

    # Llama-3.2-1B's, four of its sixteen layers.
    module = seeded(lambda: LlamaLayers(4, 2048, 8192, 32, 8, 255), gain=1.0).half()
    inputs = (Input((1, 1, 2048), "float16"),)
    return Case(module, inputs, 0.0, 0.0, "float32", 1e-2)


def differing(
    calls: int, call: Callable[[int], Sequence[Any]], expected: Sequence[Sequence[Any]]
) -> int:
    """How many calls have an output of which any bit is another.

    Args:
        calls: how many to make.
        call: with the number of an input, gives the outputs.
        expected: the outputs, by the number of the input.
    """
    found = None
    for number in range(calls):
        which = number % len(expected)
        pairs = zip(call(which), expected[which], strict=True)
        wrong = torch.stack([(_bits(own) != _bits(other)).any() for own, other in pairs]).any()
        found = wrong.long() if found is None else found + wrong
    return 0 if found is None else int(found)


def _bits(tensor: Any) -> Any:
    return tensor.contiguous().view(torch.uint8)


def _outputs(result: Any) -> list[Any]:
    return [result] if isinstance(result, torch.Tensor) else list(result)


def _measured(name: str, device: Device, arguments: argparse.Namespace) -> Row:
    case = case_of(name)
    compiled = {}
    with tempfile.TemporaryDirectory() as cache:
        for way, dependent in WAYS.items():
            options = Forced(dependent_launches=dependent, cache=cache)
            compiled[way] = tvm_tile.compile(
                case.module, device, example_inputs=untouched(case), options=options
            )
    inputs = [draw(case, "cuda", seed) for seed in range(_SEEDS)]
    expected = [_outputs(compiled[ORDINARY](*own)) for own in inputs]
    wrong = {
        way: differing(_CHECKED_CALLS, lambda n, m=model: _outputs(m(*inputs[n])), expected)
        for way, model in compiled.items()
        if way != ORDINARY
    }
    samples: dict[str, list[float]] = {way: [] for way in compiled}
    for _ in range(arguments.rounds):
        for way, model in compiled.items():
            samples[way].append(queued_seconds(lambda m=model: m(*inputs[0]), arguments.calls))
    seconds = {way: statistics.median(own) for way, own in samples.items()}
    launches = compiled[WAITING].report.launches
    return Row(name, (launches.captured, launches.dependent), seconds, wrong)


def main(argv: list[str] | None = None) -> int:
    """Parse the command line, measure, print the table; the exit status."""
    names = (_DECODER, *_SUITE)
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(names)}")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--calls", type=int, default=20, help="of a round")
    parser.add_argument("--limit-s", type=float, default=float("inf"))
    arguments = parser.parse_args(argv)
    begin, status = time.perf_counter(), 0
    device = detect_device()
    if device.is_emulated:
        print("no GPU is present", file=sys.stderr)
        return 2
    CudaStage()  # the clock is up
    print(f"{torch.cuda.get_device_name()}, {device.name}\n")
    print(heading(tuple(WAYS)), flush=True)
    for name in arguments.names or names:
        if time.perf_counter() - begin > arguments.limit_s:
            print(f"left out, as {arguments.limit_s:.0f} s are over: {name}", file=sys.stderr)
            continue
        row = _measured(name, device, arguments)
        print(row.render(), flush=True)
        status |= int(any(row.differing.values()))
    return status


if __name__ == "__main__":
    raise SystemExit(main())
