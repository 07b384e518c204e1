"""PyTorch's in-place operators on a part of a buffer: ``python -m bench.inplace_operators``.

For samples of each operator of PyTorch's database that has an in-place variant, a model applies it
to one row of a buffer, whose other rows it returns summed up, too. Compiled for the emulated device
and called twice from the same state, its output and the whole buffer must be PyTorch's. What is not
is printed; the status is then 1.
"""

from __future__ import annotations

import argparse
import logging
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

import tvm_tile
from bench.operator_cases import operators
from tvm_tile.errors import TileError

PLACE = 1


class OnPart(nn.Module):
    """A buffer, and an operator that changes one row of it."""

    def __init__(self, operator: Callable[..., Any], sample: Any) -> None:
        super().__init__()
        self.register_buffer("kept", torch.stack(3 * [sample.input.detach()]))
        self.operator, self.sample = operator, sample

    def forward(self, x: Any) -> Any:
        self.operator(self.kept[PLACE], *self.sample.args, **self.sample.kwargs)
        return self.kept.sum(0) + x


def cases(only: str, most: int) -> Iterator[tuple[str, Callable[[], OnPart]]]:
    """Operators by name, with what makes a model of each of their samples."""
    torch.manual_seed(0)
    for name, info in sorted(operators().items()):
        operator = info.inplace_variant
        if (
            operator is None
            or only not in name
            or torch.float32 not in info.supported_dtypes("cpu")
        ):
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            listed = list(info.sample_inputs("cpu", torch.float32, requires_grad=False))
        usable = [
            s for s in listed
            if isinstance(s.input, torch.Tensor) and s.input.numel() and not s.broadcasts_input
        ]  # fmt: skip
        for sample in usable[:: max(1, len(usable) // most)][:most]:
            yield name, lambda sample=sample, operator=operator: OnPart(operator, sample)


def verdict(make: Callable[[], OnPart]) -> tuple[str, str]:
    """``right``, ``refused`` or ``wrong``, and why; ``none`` where PyTorch does not run it."""
    x = torch.ones(())
    theirs = make().eval()
    try:
        with torch.no_grad():
            expected = theirs(x).clone(), theirs.kept.clone()
    except Exception as error:  # an operator whose result does not fit its input
        return "none", str(error)
    try:
        options = tvm_tile.Options(cache=False)
        ours = tvm_tile.compile(make().eval(), "emulated", example_inputs=(x,), options=options)
    except TileError as error:
        return "refused", error.current
    how = [state.is_in_place for state in ours.effects.state]
    for _ in range(2):
        ours.reset()
        pairs = [(ours(x), expected[0])]
        if "kept" in ours.state:  # an operator may change nothing
            pairs.append((torch.from_dlpack(ours.state["kept"]), expected[1]))
        for one, other in pairs:
            if not torch.allclose(one, other, rtol=1e-4, atol=1e-4, equal_nan=True):
                return "wrong", f"{one} instead of {other}"
    return "right", "in place" if all(how) else "copied"


def main() -> int:
    """Run the samples."""
    parser = argparse.ArgumentParser(prog="python -m bench.inplace_operators", description=__doc__)
    parser.add_argument("--only", default="", help="what names of operators hold")
    parser.add_argument("--samples", type=int, default=2, help="of an operator, at most")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    counts: dict[str, int] = {}
    for name, make in cases(arguments.only, arguments.samples):
        status, why = verdict(make)
        key = f"{status}, {why}" if status == "right" else status
        counts[key] = counts.get(key, 0) + 1
        if status in ("refused", "wrong"):
            print(f"{name}: {status}: {why[:200]}", flush=True)
    print(", ".join(f"{count} {key}" for key, count in sorted(counts.items())))
    return int("wrong" in counts)


if __name__ == "__main__":
    sys.exit(main())
