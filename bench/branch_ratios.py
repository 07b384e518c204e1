"""Networks that skip blocks, by how many run: ``python -m bench.branch_ratios``, on a GPU.

BlockDrop and SkipNet are compiled once for each place of their branches; an input says which blocks
run, spread evenly. Times are medians of a protocol's runs (:mod:`bench.protocol`), results are
compared with PyTorch's in float64. The table is ``bench/results/branch_ratios.md``.
"""

from __future__ import annotations

import argparse
import copy
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, get_args

import torch

import tvm_tile
from bench.__main__ import commit
from bench.gpu import CudaStage
from bench.protocol import measure
from bench.suites import control_flow
from bench.suites.networks.looped import looped
from tvm_tile.plan.rprogram import Control
from tvm_tile.stages.forced import Forced

RESULTS = Path(__file__).parent / "results" / "branch_ratios.md"
NAMES = ("blockdrop", "skipnet")
RATIOS = (0, 25, 50, 75, 100)
_CERTAIN = 100.0  # outweighs whatever the network decides by itself
_TOLERANCE = 1e-4


def _shift(blocks: int, percent: int) -> torch.Tensor:
    """What makes so many of the blocks run."""
    turns = torch.arange(1, blocks + 1) * percent // 100
    runs = turns > torch.arange(blocks) * percent // 100
    return torch.where(runs, _CERTAIN, -_CERTAIN)


def rows(name: str, device: str, stage: CudaStage) -> Iterator[tuple[Any, ...]]:
    """For each ratio: the name, percent, and medians in milliseconds."""
    workload = next(w for w in control_flow.workloads() if w.name == name and w.batch == 1)
    module = looped(control_flow.case(workload).module)
    assert module is not None
    own: Any = module.module
    blocks = len(own.network.blocks) if name == "blockdrop" else len(own.blocks) - 1
    size = workload.size("image")
    image = torch.randn(1, 3, size, size, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        program = torch.export.export(module, (image, _shift(blocks, 50)))
    systems: dict[str, Callable[..., Any]] = {
        control: tvm_tile.compile(program, device, options=Forced(control=control, cache=False))
        for control in get_args(Control)
    }
    systems["torch"] = copy.deepcopy(module).cuda()
    exact = copy.deepcopy(module).double()
    for percent in RATIOS:
        shift = _shift(blocks, percent)
        given = image.cuda(), shift.cuda()
        with torch.no_grad():
            wanted = exact(image.double(), shift.double())
            for key, system in systems.items():
                error = (system(*given).cpu().double() - wanted).norm() / wanted.norm()
                assert error < _TOLERANCE, (key, float(error))
            runs = {key: partial(system, *given) for key, system in systems.items()}
            times = measure(runs, stage, cold=False)
        yield name, percent, *(times[key].median_ms for key in systems)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and write the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.branch_ratios", description=__doc__)
    parser.add_argument("names", nargs="*", default=NAMES)
    parser.add_argument("--device", default="nvidia/h200")
    parser.add_argument("--commit", default="")
    given = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    torch.backends.cudnn.allow_tf32 = False
    found = torch.cuda.get_device_name()
    lines = [
        f"# Branches by how many are taken: `python -m bench.branch_ratios`, {found}, "
        f"{given.commit or commit()}",
        "",
        "float32, batch 1, milliseconds: branches on the host, in persistent kernels, where that"
        " is predicted to be faster, and PyTorch's.",
        "",
        f"| network | blocks that run, % | {' | '.join(get_args(Control))} | torch | host / auto |",
        f"| --- | --- | {'--- | ' * (len(get_args(Control)) + 2)}",
    ]
    for name in given.names:
        for row in rows(name, given.device, CudaStage()):
            name, percent, host, *_, auto, _ = row
            times = " | ".join(f"{milliseconds:.3f}" for milliseconds in row[2:])
            lines.append(f"| {name} | {percent} | {times} | {host / auto:.2f} |")
            print(lines[-1], flush=True)
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
