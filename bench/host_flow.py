"""What loops on the host take beside their kernels: ``python -m bench.host_flow``, on a GPU.

Two loops of kernels that do next to nothing, compiled with ``Forced(control="host")``: one that
data end and one that is counted, each with few and with many kernels an iteration. From the times
of an iteration follow the seconds of a launch, of a turn and of a decision, the numbers of
:class:`tvm_tile.device.times.HostFlowTimes` in a device record. No kernels are co-scheduled.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop

import tvm_tile
from bench.gpu import CudaStage
from bench.protocol import measure
from tvm_tile.stages.forced import Forced

_FEW, _MANY = 2, 12
_TRIPS = 200
_SIZE = 64


class Chain(nn.Module):
    """So many products of a small vector, which no two of are one kernel."""

    def __init__(self, count: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        weights = (torch.randn(_SIZE, _SIZE, generator=generator) / 8 for _ in range(count))
        self.weights = nn.ParameterList(map(nn.Parameter, weights))

    def step(self, x: torch.Tensor) -> torch.Tensor:
        """One iteration."""
        for weight in self.weights:
            x = torch.tanh(x @ weight)
        return x


class Decided(Chain):
    """Iterations until data say that it is enough."""

    def forward(self, count: torch.Tensor, x: torch.Tensor) -> Any:
        def body(i: torch.Tensor, x: torch.Tensor) -> Any:
            return i + 1, self.step(x)

        return while_loop(lambda i, x: i < count, body, (torch.zeros_like(count), x + 0))[1]


class Counted(Chain):
    """As many iterations as there are rows."""

    def forward(self, x: torch.Tensor, rows: torch.Tensor) -> Any:
        return scan(lambda x, row: (self.step(x + row), ()), x, rows)[0]


def _seconds(
    make: Callable[[int], nn.Module], count: int, inputs: tuple[Any, ...], device: str
) -> float:
    """Of an iteration with so many kernels."""
    module = make(count).eval()
    with torch.no_grad():
        program = torch.export.export(module, inputs)
    options = Forced(control="host", coschedule=False, cache=False)
    model = tvm_tile.compile(program, device, options=options)
    run = partial(model, *(value.cuda() for value in inputs))
    (times,) = measure({"host": run}, CudaStage(), cold=False).values()
    return times.median_ms / 1e3 / _TRIPS


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.host_flow", description=__doc__)
    parser.add_argument("--device", default="nvidia/h200")
    device = parser.parse_args().device
    x, rows = torch.randn(1, _SIZE), torch.randn(_TRIPS, 1, _SIZE)
    decided = [_seconds(Decided, n, (torch.tensor(_TRIPS), x), device) for n in (_FEW, _MANY)]
    counted = [_seconds(Counted, n, (x, rows), device) for n in (_FEW, _MANY)]
    launch = (decided[1] - decided[0]) / (_MANY - _FEW)
    # Beside the products: the row that is taken; the addition to the count, and the comparison.
    turn = counted[0] - (_FEW + 1) * launch
    decision = decided[0] - turn - (_FEW + 2) * launch
    print(f"iterations: decided {decided}, counted {counted}")
    for name, seconds in (("launch", launch), ("turn", turn), ("decision", decision)):
        print(f"{name}_seconds {seconds:.2e}")


if __name__ == "__main__":
    main()
