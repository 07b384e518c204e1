"""Lesson 4: a transformer's block, and which of its functions become one kernel.

Run it with `python tutorials/04_welding.py`. It compiles for an H200 and needs no GPU; with an H100
or H200 it runs what it has compiled. All times are predictions. With a folder as its argument it
writes its drawing there.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
import torch
import tvm
from torch import nn

import tvm_tile
from tvm_tile.report.shown import Report

DEVICE = "nvidia/h200"
BATCH, TOKENS, WIDTH, HEADS = 8, 512, 768, 12

# 1. The block, written plainly: attention as two products with a softmax between them, then two
#    layers. No operator is named "attention".


class Block(nn.Module):
    """One layer of a transformer, in half precision."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.behind = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def attention(self, x: torch.Tensor) -> torch.Tensor:
        """Every token, weighed by every other."""
        depth = WIDTH // HEADS
        heads = self.qkv(x).view(BATCH, TOKENS, 3, HEADS, depth).permute(2, 0, 3, 1, 4)
        query, keys, values = heads
        scores = query @ keys.transpose(-2, -1) * depth**-0.5
        mixed = scores.softmax(-1) @ values
        return self.out(mixed.transpose(1, 2).reshape(BATCH, TOKENS, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(BATCH, TOKENS, WIDTH), and so is the result."""
        x = x + self.attention(self.before(x))
        return x + self.down(nn.functional.gelu(self.up(self.behind(x))))


torch.manual_seed(0)
block = Block().half().eval()
tokens = torch.randn(BATCH, TOKENS, WIDTH).half()

# 2. Without welding. TVM's own fusion joins element-wise operators with a product, and stops at the
#    next product or reduction. Each function that it leaves is scheduled well, but every value
#    between two kernels is written to global memory and read back.


def show(report: Report) -> None:
    """The kernels of a report, each of which is launched once or more."""
    for kernel in report.kernels:
        name = kernel.name if len(kernel.name) <= 52 else f"{kernel.name[:51]}…"
        traffic = f"{kernel.traffic / 1e6:6.1f} MB"
        print(f"  {kernel.rule:12s}{kernel.seconds * 1e6:5.1f} us {traffic}  {name}")
    seconds = sum(kernel.seconds for kernel in report.kernels)
    traffic = sum(kernel.traffic for kernel in report.kernels)
    total = f"{seconds * 1e6:.1f} us, {traffic / 1e6:.1f} MB"
    print(f"  {len(report.kernels)} kernels, each once: {total}\n")


with tvm.transform.PassContext(disabled_pass=["FuseTiles"]):
    apart = tvm_tile.compile(block, DEVICE, example_inputs=(tokens,)).report
print("Kernels, as stock fusion leaves them:")
show(apart)
assert not apart.decisions

# 3. With it. The pass FuseTiles asks of each group of functions that hand values to each other:
#    does a rule write it as one kernel, and is that predicted to be faster? Nothing runs.

model = tvm_tile.compile(block, DEVICE, example_inputs=(tokens,))
print("Kernels, welded:")
show(model.report)

# 4. Why. Each decision is data: the functions, what they hand to each other, where it is handed
#    over, and the times that were compared. `model.explain("joined")` prints the same, and
#    `model.report.draw()` draws it (`tvm-tile explain --svg FILE` on the command line).
#
#    A view, such as a slice or a permutation, costs nothing: the kernel that takes it reads its
#    elements where they lie. Other values stay in registers.

joined = [decision for decision in model.report.decisions if not decision.reason]
left = [decision for decision in model.report.decisions if decision.reason]
for decision in joined:
    times = f"{decision.apart * 1e6:.1f} us apart, {decision.together * 1e6:.1f} us as one"
    print(f"Joined by the rule {decision.rule}: {times}")
    for edge in decision.edges:
        maker, taker = (decision.functions[end] for end in (edge.maker, edge.taker))
        print(f"  {edge.size / 1e6:6.1f} MB  {decision.level(edge):9s} {maker} -> {taker}")
    for option in decision.options:
        print(f"  with {len(option.functions)} of them only: {option.seconds * 1e6:.1f} us")
for decision in left:
    print(f"Left apart: {' + '.join(decision.functions)}\n  {decision.reason}")
assert {decision.rule for decision in joined} == {"chain", "wgmma"}
drawing = model.report.draw()
assert drawing.startswith("<svg")
if len(sys.argv) > 1:
    Path(sys.argv[1], "groups.svg").write_text(drawing, encoding="utf-8")

# 5. The bytes. A value inside a group would have been written once, and read once by each function
#    that takes it. Summed over the groups, that is by how much the kernels' traffic has shrunk.


def traffic_of(report: Report) -> float:
    return sum(kernel.traffic for kernel in report.kernels)


saved = sum(decision.saved_bytes for decision in joined)
print(
    f"\n{saved / 1e6:.1f} MB no longer cross global memory, of {traffic_of(apart) / 1e6:.1f} MB.\n"
)
assert saved == traffic_of(apart) - traffic_of(model.report)

# 6. How can a softmax stay inside? It needs the maximum of a row and the sum of its weights, but
#    only a tile of a row's scores is there at a time. So both are running values: when the maximum
#    grows, what was added up so far is scaled down to it (Milakov and Gimelshein, 2018).

rng = np.random.default_rng(0)
scores, values = rng.standard_normal((4, 96)) * 5, rng.standard_normal((96, 8))

most, total, sums = np.full((4, 1), -np.inf), np.zeros((4, 1)), np.zeros((4, 8))
for first in range(0, 96, 32):
    tile = scores[:, first : first + 32]
    larger = np.maximum(most, tile.max(1, keepdims=True))
    scale, weights = np.exp(most - larger), np.exp(tile - larger)
    total = total * scale + weights.sum(1, keepdims=True)
    sums = sums * scale + weights @ values[first : first + 32]
    most = larger

expected = np.exp(scores) / np.exp(scores).sum(1, keepdims=True) @ values
assert np.allclose(sums / total, expected)

# 7. The kernel. One thread of a block, the producer, only asks for copies of keys and values, into
#    two rings of stages as in lesson 3. The consumers, warpgroups of 64 rows each, run the loop
#    above, shifted by one tile: while tensor cores add up the values of one tile, CUDA cores turn
#    the next tile's scores into weights.
#
#        producer                 rings of stages              consumers
#    copy(keys[t])    ──TMA────▶  keys    ──wgmma──▶  scores = query @ keys[t]           } both
#    copy(values[t])  ──TMA────▶  values  ──wgmma──▶  sums += weights @ values[t - 1]    } at once
#                                                     when scores are there: maximum, weights
#                                                     when sums are there: scale them
#
#    Here is that loop in the kernel's text, a line for each step. The product with the values takes
#    its left operand from registers (`rs`): scores and weights are never in memory.

STEPS = {
    "wgmma_f16_ss": "multiply the query by keys",
    "wgmma_f16_rs": "multiply weights by values",
    "wait_group_sync_aligned_1": "wait for the scores",
    "warp_reduce_max": "find the row's maximum",
    "_ex2_approx": "weigh by exp(score - maximum)",
    "wait_group_sync_aligned_0": "wait for the sums",
    "_cvt_f16x2": "round weights, two a register",
}

(name,) = (kernel.name for kernel in model.report.kernels if kernel.rule == "chain")
(chain,) = (kernel for kernel in model.program.kernels if kernel.name.startswith(name))
_, _, kernel_text = chain.source.rpartition("__global__")
# The first tile's weights are computed ahead of the loop: their rounding is the last line before
# it.
_, loop, _ = kernel_text.split("_cvt_f16x2", 2)
order = sorted((loop.find(found), found) for found in STEPS if found in loop)
for place, found in order:
    line = re.match(r"[^;\n]*", loop[loop.rfind("\n", 0, place) + 1 :])
    assert line is not None
    text = re.sub("tvm_builtin_(ptx|cuda)_", "", line.group().strip())
    print(f"  {STEPS[found] + ':':32s}{text[:64]}")
assert [found for _, found in order] == list(STEPS)[: len(order)]
assert len(order) == len(STEPS) - 1  # all but the rounding, at which the text was cut

# 8. Four groups were left apart. The projection behind the attention sums over all heads of a
#    token, and a block of the attention's kernel has one head. The second of the two layers behind
#    it has 768 channels, and the rule for chains keeps the sums of whole rows in registers, of at
#    most 256 channels. A product can compute the norms of its rows itself if it has few rows, as in
#    a step of a language model; the two products behind norms have thousands here, and each block
#    of columns would compute the norms again.

assert {decision.reason for decision in left} == {"no rule writes them as one kernel"}
norms = [decision for decision in left if "layer_norm" in decision.functions[0]]
projection, layers = (decision for decision in left if decision not in norms)
assert len(norms) == 2
assert set(projection.functions) & {name for decision in joined for name in decision.functions}
assert layers.saved_bytes == 2 * BATCH * TOKENS * 4 * WIDTH * 2

# 9. Run it, where there is a GPU of that kind.

if torch.cuda.is_available() and torch.cuda.get_device_capability() == (9, 0):
    with torch.no_grad():
        reference = block.cuda()(tokens.cuda())
    difference = (model(tokens.cuda()) - reference).abs().max() / reference.abs().max()
    assert difference < 1e-2
    print(f"\nOn this GPU: the same as PyTorch, but for {difference:.1e} of the largest value.")
else:
    print("\nNo H100 or H200 here: compiled, not run.")
