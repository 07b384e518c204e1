"""Lesson 18: what a model takes on GPUs that you do not have, before it has any weights.

Run it with `python tutorials/18_before_you_build.py`. It needs no GPU and no compiler for one: all
times are predicted.
"""

from __future__ import annotations

import random

import torch
from torch import Tensor, nn
from torch.nn import functional

import tvm_tile

# 1. A layer of Llama-3-8B, in shape. Built within PyTorch's device "meta" it has no values: its
#    436 MB are not there, and nothing is loaded.

HIDDEN, INNER, HEADS, SHARED, LAYERS = 4096, 14336, 32, 8, 32
HEAD = HIDDEN // HEADS


class Layer(nn.Module):
    """Attention and a gated feed-forward layer, each behind a norm."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.RMSNorm(HIDDEN), nn.RMSNorm(HIDDEN)])
        self.queries = nn.Linear(HIDDEN, HIDDEN, bias=False)
        self.keys = nn.Linear(HIDDEN, SHARED * HEAD, bias=False)
        self.values = nn.Linear(HIDDEN, SHARED * HEAD, bias=False)
        self.out = nn.Linear(HIDDEN, HIDDEN, bias=False)
        self.gate = nn.Linear(HIDDEN, INNER, bias=False)
        self.up = nn.Linear(HIDDEN, INNER, bias=False)
        self.down = nn.Linear(INNER, HIDDEN, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Rows (tokens, hidden) of one prompt."""
        rows = self.norms[0](x)
        drawn = (own(rows).view(1, len(x), -1, HEAD).transpose(1, 2) for own in self.projections())
        mixed = functional.scaled_dot_product_attention(*drawn, is_causal=True, enable_gqa=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(len(x), HIDDEN))
        rows = self.norms[1](x)
        return x + self.down(functional.silu(self.gate(rows)) * self.up(rows))

    def projections(self) -> tuple[nn.Linear, nn.Linear, nn.Linear]:
        """Of queries, keys and values."""
        return self.queries, self.keys, self.values


with torch.device("meta"):
    layer = Layer().half().eval()
    prompts = {tokens: (torch.zeros(tokens, HIDDEN).half(),) for tokens in (512, 2048)}

DEVICES = "nvidia/h200", "nvidia/a100", "amd/mi300x"
oracle = tvm_tile.Oracle(*DEVICES)
print(f"{LAYERS} such layers for a prompt of 512 tokens:")
for name, report in oracle.on_all(layer, example_inputs=prompts[512]).items():
    whole, memory = LAYERS * report.predicted_seconds * 1e3, LAYERS * report.weights / 1e9
    print(f"  {name:12} {whole:6.1f} ms, {memory:4.1f} GB of weights")

# 2. Which GPU for the money? Prices are yours to know; those here are made up. Stars are choices
#    that no other one beats in the time of a run, in tokens a second, and in cost.

offers = tvm_tile.choose(
    dict.fromkeys(prompts, layer),
    DEVICES,
    example_inputs=prompts,
    prices={"nvidia/h200": 4.0, "nvidia/a100": 2.0, "amd/mi300x": 3.0},
)
print(f"\nby the layer, samples are tokens:\n{offers}")
assert offers.best in offers.front

# 3. A search asks for each candidate. What candidates have in common is looked for once, so the
#    later ones are answered faster. Optuna's or Ray Tune's samplers would take the place of
#    the draw, as in lesson 19: an oracle is called as a measurement would be.

IMAGE = (torch.zeros(1, 3, 96, 96),)


def candidate(widths: list[int]) -> nn.Module:
    """A network of depthwise and pointwise convolutions."""
    layers: list[nn.Module] = [nn.Conv2d(3, 32, 3, 2, 1), nn.ReLU()]
    for before, after in zip([32, *widths], widths, strict=False):
        layers += [nn.Conv2d(before, before, 3, 1, 1, groups=before), nn.ReLU()]
        layers += [nn.Conv2d(before, after, 1), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten()).eval()


random.seed(0)
drawn_widths = [[random.choice((32, 64, 128)) for _ in range(3)] for _ in range(6)]
seconds = {}
for widths in drawn_widths:
    seconds[tuple(widths)] = oracle(candidate(widths), example_inputs=IMAGE).predicted_seconds
fastest = min(seconds, key=seconds.__getitem__)
print(f"\nof {len(seconds)} candidates {fastest} is the fastest: {seconds[fastest] * 1e6:.1f} us")

# 4. Several models can be one. What is equal among them, weights included, is computed once: of
#    candidates, of an ensemble, of heads over one stem.

torch.manual_seed(0)
stem = nn.Sequential(nn.Conv2d(3, 64, 3, 2, 1), nn.ReLU(), nn.Conv2d(64, 64, 3, 1, 1), nn.ReLU())
heads = {f"head{n}": nn.Sequential(stem, nn.Conv2d(64, 16 * n, 1)).eval() for n in (1, 2, 3)}
apart = sum(oracle(own, example_inputs=IMAGE).predicted_seconds for own in heads.values())
together = oracle(tvm_tile.together(heads), example_inputs=IMAGE)
print(f"\nthree heads of one stem: {apart * 1e6:.1f} us apart, ", end="")
print(f"{together.predicted_seconds * 1e6:.1f} us together, in {together.launch_count} launches")
assert together.predicted_seconds < apart
