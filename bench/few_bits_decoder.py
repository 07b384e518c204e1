"""One token of a Llama-3-8B-shaped decoder of few bits: ``python -m bench.few_bits_decoder``.

Random weights of float16, once as they are and once rounded by ``tvm_tile.quantize`` to ``--codes``
in groups of 128; a cache of 512 tokens, filled. Both are compiled with one layer and with
``--layers``: the difference is what a layer takes, and all published layers and what is beside
them, the embedding and the head, are a token. Predicted for ``--device``, without which the GPU
that is present is taken, and both are measured on it, too.

The tables have the kernels of the larger model as they are predicted amid a model, and the times
of a token; measured ones are medians of queued calls. The exit status is 1 if logits differ from
PyTorch's, of the same codes, by more than ``--tolerance`` of their largest.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

import tvm_tile
from bench.gpu import queued_seconds
from bench.suites.decode import published
from bench.suites.networks.decode_step import decode_step

_CACHE, _POSITION = 512, 447
_MODEL = "llama-3-8b"
_ROUNDS, _CALLS = 15, 20


@dataclass(frozen=True, slots=True)
class Step:
    """A step of so many layers, compiled.

    Attributes:
        module: in PyTorch.
        compiled: by us.
        predicted: seconds, amid other kernels.
        measured: seconds; ``None`` where there is no GPU.
        difference: of logits from PyTorch's, over their largest; likewise.
    """

    module: Any
    compiled: Any
    predicted: float
    measured: float | None = None
    difference: float | None = None


def step(codes: str, layers: int, vocabulary: int | None, device: str | None) -> Step:
    """The decoder with so many layers; ``codes`` are empty for weights as they are."""
    model = published(_MODEL)
    sizes = model["sizes"] | {"num_hidden_layers": layers}
    sizes |= {} if vocabulary is None else {"vocab_size": vocabulary}
    module: Any = decode_step(model["kind"], sizes, 1, _CACHE, torch.float16, "cpu")
    if codes:
        module = tvm_tile.quantize(module, codes)
    inputs = torch.tensor([[3]]), torch.tensor([_POSITION])
    with torch.no_grad():
        program = torch.export.export(module, inputs)
    options = tvm_tile.Options(cache=False, low_bit=bool(codes))
    compiled = tvm_tile.compile(program, device or "auto", options=options)
    found = Step(module, compiled, compiled.report.predicted_seconds)
    return found if device else _measured(found)


def _measured(own: Step) -> Step:
    place = [torch.tensor([[3]], device="cuda"), torch.tensor([_POSITION], device="cuda")]
    with torch.no_grad():
        wanted = own.module.to("cuda")(*place)[0].float()
        own.module.to("cpu")
    off = own.compiled(*place)[0].float() - wanted
    seconds = [queued_seconds(lambda: own.compiled(*place), _CALLS) for _ in range(_ROUNDS)]
    difference = float(off.abs().max() / wanted.abs().max())
    return Step(own.module, own.compiled, own.predicted, statistics.median(seconds), difference)


def _kernels(compiled: Any) -> Iterator[str]:
    """Rows of a table of the kernels that a step calls, the longest first."""
    yield "| us a step, predicted | calls | rule | kernel |"
    yield "| ---: | ---: | --- | --- |"

    def seconds(kernel: Any) -> float:
        own = kernel.seconds
        return float(kernel.calls * own)

    for kernel in sorted(compiled.report.kernels, key=seconds, reverse=True):
        yield f"| {seconds(kernel) * 1e6:.1f} | {kernel.calls} | {kernel.rule} | {kernel.name} |"


def _token(one: float | None, more: float | None, layers: int, published: int) -> str:
    """Milliseconds of a token, a layer's microseconds, and of all beside the layers."""
    if one is None or more is None:
        return "- | - | -"
    layer = (more - one) / (layers - 1)
    whole = one + (published - 1) * layer
    return f"{whole * 1e3:.3f} | {layer * 1e6:.1f} | {(one - layer) * 1e6:.1f}"


def main() -> int:
    """Parse the command line, compile, measure, print; the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", help="predict only, for this one")
    parser.add_argument("--codes", nargs="+", default=["int4"])
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--published-layers", type=int, default=32)
    parser.add_argument("--vocabulary", type=int, help="another one, to spare memory")
    parser.add_argument("--tolerance", type=float, default=0.03)
    arguments = parser.parse_args()
    status, rows = 0, []
    for codes in ("", *arguments.codes):
        one, more = (
            step(codes, layers, arguments.vocabulary, arguments.device)
            for layers in (1, arguments.layers)
        )
        name = codes or "float16"
        print(f"\n{name}, {arguments.layers} layers:\n", *_kernels(more.compiled), sep="\n")
        for how in ("predicted", "measured"):
            times = getattr(one, how), getattr(more, how)
            token = _token(*times, arguments.layers, arguments.published_layers)
            rows.append(f"| {name} | {how} | {token} | {more.difference or 0:.1e} |")
        status |= int((more.difference or 0.0) > arguments.tolerance)
    print("\n| weights | time | ms a token | us a layer | us beside layers | difference |")
    print("| --- | --- | ---: | ---: | ---: | ---: |", *rows, sep="\n")
    return status


if __name__ == "__main__":
    raise SystemExit(main())
