"""Calls of models behind ``torch.compile``, one after the other: ``python -m bench.backend_calls``.

On the GPU that is present, in float16 with batch 1: a model compiled by ``tvm_tile.compile``,
behind our backend with its weights read at each call and with them frozen, and behind Inductor with
``mode="reduce-overhead"``. A call begins when the GPU is idle and ends when it is again, by the
host's clock, so that guards, wrappers and launches count; nothing else runs meanwhile.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

import tvm_tile
from bench.dependent_launches import case_of
from bench.inputs import draw
from tvm_tile.torch import tvm_tile as backend

_CALLS, _WARM_UP = 200, 20


def ways(module: Any, given: tuple[Any, ...]) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Each way's name and its function; all but the first compile when they are first called."""
    options = tvm_tile.Options(cache=False)
    yield "tvm_tile.compile", tvm_tile.compile(torch.export.export(module, given), options=options)
    for name, more in (("backend", {}), ("backend, frozen", {"freeze": True})):
        chosen = {"cache": False, **more}
        yield name, torch.compile(module, backend=backend, options=chosen, dynamic=False)
    yield "Inductor", torch.compile(module, mode="reduce-overhead", dynamic=False)


def rows(name: str) -> Iterator[str]:
    """A model's rows: medians and interquartile ranges, first calls, errors of their norm."""
    case = case_of(name)
    module = case.module.eval().cuda()
    given = tuple(draw(case, "cuda", 0))
    with torch.inference_mode():
        expected = module(*given).float()
    for way, function in ways(module, given):
        torch._dynamo.reset()
        with torch.inference_mode():
            begin = time.perf_counter()
            found = function(*given).float()
            torch.cuda.synchronize()
            first = time.perf_counter() - begin
            samples = [_seconds(lambda f=function: f(*given)) for _ in range(_WARM_UP + _CALLS)]
        low, median, high = statistics.quantiles(samples[_WARM_UP:], n=4)
        error = float((found - expected).norm() / expected.norm())
        times = f"{median * 1e3:.4f} ({(high - low) * 1e3:.4f}) | {first:.1f}"
        yield f"| {name} | {way} | {times} | {error:.0e} |"


def _seconds(call: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    call()
    torch.cuda.synchronize()
    return time.perf_counter() - begin


def main() -> None:
    """Time the models that are named, and print a table."""
    parser = argparse.ArgumentParser(prog="python -m bench.backend_calls", description=__doc__)
    parser.add_argument("names", nargs="*", default=["bert_base", "resnet50", "vit_small"])
    torch.set_float32_matmul_precision("high")
    print("| model | way | ms a call (interquartile range) | first call, s | error |")
    print("| --- | --- | ---: | ---: | ---: |")
    for name in parser.parse_args().names:
        for line in rows(name):
            print(line, flush=True)


if __name__ == "__main__":
    main()
