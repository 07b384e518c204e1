"""AMD's schedules: built for the GPUs, and run on the CPU without what only these have."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from itertools import starmap

import pytest
import tvm
from amd_on_cpu import on_the_cpu
from kernel_cases import CASES
from kernels import Case, largest_errors, prim_functions

from tvm_tile.build import Builder
from tvm_tile.device import Device
from tvm_tile.device.rocm import ROCM_DEVICES
from tvm_tile.passes import schedule_module

pytestmark = pytest.mark.bank(12)

LIMIT = 1e-4


def pair(case: Case, device: Device) -> object:
    return pytest.param(case, device, id=f"{case.name}-{device.name.rpartition('/')[2]}")


def chosen() -> Iterator[tuple[Case, Device]]:
    """A case for every rule and chip, of those that run in no time."""
    quick = [case for case in CASES if "layer_norm" not in case.name]
    rules = dict.fromkeys(rule for case in CASES for rule in case.rules.split())
    for rule in rules:
        own = [case for case in quick if rule in case.rules.split()]
        yield from ((own[n % len(own)], device) for n, device in enumerate(ROCM_DEVICES))


# Every case, one on one chip, the next on the next.
ALL = [pair(case, ROCM_DEVICES[n % len(ROCM_DEVICES)]) for n, case in enumerate(CASES)]
CHOSEN = list(starmap(pair, chosen()))


@pytest.mark.skipif(not find_spec("pyopencl"), reason="needs pyopencl")
@pytest.mark.parametrize(("case", "device"), CHOSEN)
def test_schedules_compute_what_the_cpu_does(
    case: Case, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors = largest_errors(case, on_the_cpu(device, monkeypatch))
    assert [(kernel, error) for kernel, error in errors if not error <= LIMIT] == []


@pytest.mark.skipif(not find_spec("ziglang"), reason="needs ziglang")
@pytest.mark.parametrize(("case", "device"), ALL)
def test_kernels_become_machine_code_without_spills(case: Case, device: Device) -> None:
    functions = prim_functions(case, device)
    scheduled, reports = schedule_module(tvm.IRModule(functions), device)
    builder = Builder(device)
    assert builder.find_failures(scheduled) == {}
    taken = builder.resources(scheduled)
    blocks = {report.name: report.block for report in reports}
    assert taken.keys() == blocks.keys()
    for name, kernels in taken.items():
        for kernel in kernels:
            assert kernel.warp == device.warp_size
            assert not kernel.spilled
            assert kernel.stack == 0, name
            assert kernel.shared <= dict(device.target)["max_shared_memory_per_block"]
        # The exact size: a smaller one would not start, for a larger one registers were saved.
        if len(kernels) == 1 and blocks[name]:
            assert kernels[0].most_threads == blocks[name]
