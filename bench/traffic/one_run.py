"""The program that is profiled: a saved model, run once to warm up and once to be measured.

python -m bench.traffic.one_run MODEL.tvmtile INPUTS.pt
"""

from __future__ import annotations

import sys
from contextlib import nullcontext


def main(model_path: str, inputs_path: str) -> None:
    """Run it; only the second run is between the profiler's start and stop."""
    import torch

    import tvm_tile

    on_gpu = torch.cuda.is_available()
    model = tvm_tile.load(model_path)
    inputs = [value.to("cuda" if on_gpu else "cpu") for value in torch.load(inputs_path)]
    model(*inputs)
    with torch.cuda.profiler.profile() if on_gpu else nullcontext():
        model(*inputs)
        if on_gpu:
            torch.cuda.synchronize()


if __name__ == "__main__":
    main(*sys.argv[1:])
