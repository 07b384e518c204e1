"""A chain of matrix-vector products in four ways: ``python -m bench.decode_chain``.

``--layers`` layers as wide as Llama-3.2-1B's, for one token in bfloat16: norm and the products for
queries, keys and values, an element-wise kernel in attention's place, output product and residual,
norm, gate and up, down product and residual. Compiled for the GPU that is present as

* ``apart``: a CUDA graph of kernels, ordinary launches;
* ``dependent``: the same, each of which starts while the one before it ends;
* ``cores``: as ``apart``, the kernels being those that the persistent kernel is made of;
* ``persistent``: one persistent kernel, whatever the model of time says of it;
* ``ahead``: the same, whose blocks ask for ``--ahead-mib`` of a step's weights before they wait.

The ways take turns; the table has medians of a call, what weights that is in bytes a second, and
the largest difference from the same chain in float32, over its largest value. The exit status is 1
if a way differs by more than ``--tolerance``, or if 200 calls of a way are not all the same.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

import torch
from torch import nn
from torch.nn import functional

import tvm_tile
from bench.gpu import queued_seconds
from tvm_tile.device import Device, find_device
from tvm_tile.device.detect import detect_device
from tvm_tile.device.times import StreamTimes
from tvm_tile.passes.coschedule import coschedule_tasks
from tvm_tile.plan.coschedule import coschedule
from tvm_tile.plan.execution_plan import Group, ROperator
from tvm_tile.stages.forced import Forced

_HIDDEN, _FFN, _KEYS = 2048, 8192, 512
_CHECKED_CALLS = 200
_SHARE, _STEP_CYCLES = 0.9, 4000.0  # of the stream clock: estimates


class Layer(nn.Module):
    """A decoder's layer without its attention."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.behind = nn.RMSNorm(_HIDDEN), nn.RMSNorm(_HIDDEN)
        self.query = nn.Linear(_HIDDEN, _HIDDEN + 2 * _KEYS, bias=False)
        self.output = nn.Linear(_HIDDEN, _HIDDEN, bias=False)
        self.gate, self.up = (nn.Linear(_HIDDEN, _FFN, bias=False) for _ in range(2))
        self.down = nn.Linear(_FFN, _HIDDEN, bias=False)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        query, key, value = self.query(self.before(hidden)).split((_HIDDEN, _KEYS, _KEYS), -1)
        mixed = query * torch.sigmoid(torch.cat([key, value, key, value], -1))
        hidden = hidden + self.output(mixed)
        own = self.behind(hidden)
        return hidden + self.down(functional.silu(self.gate(own)) * self.up(own))


def chain(layers: int) -> nn.Module:
    """So many layers of random weights, in bfloat16."""
    torch.manual_seed(0)
    return nn.Sequential(*(Layer() for _ in range(layers))).to(torch.bfloat16).eval()


def _as_one(
    operators: tuple[ROperator, ...], device: Device, allowed: Sequence[bool]
) -> tuple[Group, ...]:
    """All operators that may be part of a persistent kernel as one, whether that pays or not."""
    inside = tuple(number for number, may in enumerate(allowed) if may)
    plan = coschedule(tuple(operators[number] for number in inside), device)
    if plan is None:
        raise SystemExit("no persistent kernel holds all of the chain")
    apart = sum(operators[number].alone_seconds for number in inside)
    others = (Group((n,), None, 0.0) for n in range(len(operators)) if n not in inside)
    return (Group(inside, plan, apart), *others)


@contextmanager
def _forced() -> Iterator[None]:
    with mock.patch.object(coschedule_tasks, "partition", _as_one):
        yield


def _cores(device: Device, ahead_bytes: int) -> Device:
    """The device without matrix units, whose persistent kernels ask for so many bytes ahead."""
    stream = StreamTimes("as asked for", _SHARE, _STEP_CYCLES, ahead_bytes)
    persistent = replace(device.times.persistent, half_precision_pays=True, stream=stream)
    times = replace(device.times, persistent=persistent)
    return replace(device, matrix_instructions=(), times=times)


def compiled(module: nn.Module, device: Device, ahead_mib: int) -> dict[str, Any]:
    """Way -> the chain compiled so."""
    x = torch.zeros((1, 1, _HIDDEN), dtype=torch.bfloat16)

    def made(record: Device, *, inside: bool = False, early: bool = False) -> Any:
        options = Forced(coschedule=inside, dependent_launches=early, cache=False)
        return tvm_tile.compile(module, record, example_inputs=(x,), options=options)

    cores, asks = _cores(device, 0), _cores(device, ahead_mib << 20)
    ways = {
        "apart": made(device),
        "dependent": made(device, early=True),
        "cores": made(cores),
    }
    with _forced():
        ways["persistent"] = made(cores, inside=True)
        ways["ahead"] = made(asks, inside=True)
    return ways


def _only(result: Any) -> torch.Tensor:
    found: torch.Tensor = result if isinstance(result, torch.Tensor) else result[0]
    return found


def _measured(ways: dict[str, Any], module: nn.Module, arguments: argparse.Namespace) -> int:
    x = torch.randn((1, 1, _HIDDEN), device="cuda", dtype=torch.bfloat16)
    with torch.no_grad():
        wanted = copy.deepcopy(module).float().cuda()(x.float())
    size = sum(p.numel() * p.element_size() for p in module.parameters())
    samples: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(arguments.rounds):
        for way, model in ways.items():
            samples[way].append(queued_seconds(lambda m=model: m(x), arguments.calls))
    print("| way | kernels | us a call | us a layer | TB/s | difference | unequal calls |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    status = 0
    for way, model in ways.items():
        first = _only(model(x)).clone()
        unequal = sum(not torch.equal(_only(model(x)), first) for _ in range(_CHECKED_CALLS))
        off = float((first.float() - wanted).abs().max() / wanted.abs().max())
        seconds = statistics.median(samples[way])
        launches = sum(kernel.calls for kernel in model.report.kernels)
        cells = (
            *(way, launches, f"{seconds * 1e6:.1f}", f"{seconds * 1e6 / arguments.layers:.1f}"),
            *(f"{size / seconds * 1e-12:.2f}", f"{off:.1e}", unequal),
        )
        print(f"| {' | '.join(map(str, cells))} |", flush=True)
        status |= int(off > arguments.tolerance or unequal > 0)
    return status


def main(argv: list[str] | None = None) -> int:
    """Parse the command line, measure, print the table; the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--calls", type=int, default=20, help="of a round")
    parser.add_argument("--ahead-mib", type=int, default=8, help="that steps ask for")
    parser.add_argument("--tolerance", type=float, default=0.05)
    parser.add_argument("--only-compile", metavar="DEVICE", help="and tell what was made")
    arguments = parser.parse_args(argv)
    module = chain(arguments.layers)
    if arguments.only_compile:
        ways = compiled(module, find_device(arguments.only_compile), arguments.ahead_mib)
        for way, model in ways.items():
            print(f"# {way}", model.explain("all"), "", sep="\n")
        return 0
    device = detect_device()
    if device.is_emulated:
        print("no GPU is present", file=sys.stderr)
        return 2
    print(f"{torch.cuda.get_device_name()}, {device.name}\n")
    return _measured(compiled(module, device, arguments.ahead_mib), module, arguments)


if __name__ == "__main__":
    raise SystemExit(main())
