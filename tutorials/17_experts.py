"""Lesson 17: a mixture of experts, from a program that sorts and copies to kernels that do neither.

Run it with `python tutorials/17_experts.py`. It needs no GPU: what runs is emulated, and what is
said of an H200 is predicted.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

import tvm_tile
from tvm_tile import Options

HIDDEN, INNER, EXPERTS, CHOSEN = 256, 128, 16, 4

# 1. A layer as transformers writes it. A router gives each token a few of the experts, each of
#    which is a feed-forward layer of its own. So that PyTorch multiplies rows of one expert
#    together, tokens are sorted by expert, gathered, multiplied group by group, and put back.


class Experts(nn.Module):
    """The layer, with weights in bfloat16."""

    def __init__(self) -> None:
        super().__init__()
        shapes = (EXPERTS, HIDDEN), (EXPERTS, 2 * INNER, HIDDEN), (EXPERTS, HIDDEN, INNER)
        drawn = (nn.Parameter(0.05 * torch.randn(shape).bfloat16()) for shape in shapes)
        self.router, self.first, self.second = drawn

    def forward(self, x: Tensor) -> Tensor:
        """What the chosen experts make of each token, weighted."""
        scores = torch.softmax(functional.linear(x, self.router).float(), -1)
        weights, ids = torch.topk(scores, CHOSEN)
        ids, order = torch.sort(ids.reshape(-1))
        counts = torch.histc(ids.float(), bins=EXPERTS, min=0, max=EXPERTS - 1)
        ends = torch.cumsum(counts, 0, dtype=torch.int32)
        rows = x[order // CHOSEN]
        gate, up = torch._grouped_mm(rows, self.first.transpose(-2, -1), offs=ends).chunk(2, -1)
        inner = functional.silu(gate) * up
        out = torch._grouped_mm(inner, self.second.transpose(-2, -1), offs=ends)
        out = out * weights.reshape(-1)[order, None].to(out.dtype)
        inverse = torch.empty_like(order)
        inverse[order] = torch.arange(len(order))
        return out[inverse].view(len(x), CHOSEN, -1).sum(1)


torch.manual_seed(0)
layer = Experts().eval()


def program(tokens: int) -> Any:
    """The layer as a program for so many tokens."""
    return torch.export.export(layer, (torch.zeros(tokens, HIDDEN).bfloat16(),))


# 2. No order among rows matters to a product. What is sorted, gathered and put back here is rows,
#    and all between them computes row by row, so all of that goes, and each row reads its own
#    expert's matrices where they lie.

x = torch.randn(6, HIDDEN).bfloat16()
compiled = tvm_tile.compile(program(6), "emulated", options=Options(cache=False))
found, wanted = torch.as_tensor(compiled(x)).float(), layer(x).float()
assert (found - wanted).abs().max() < 0.01 * wanted.abs().max()
sorts = sum("sort" in kernel.name for kernel in compiled.report.kernels)
print(f"emulated: as PyTorch, in {len(compiled.report.kernels)} kernels; sorts of rows: {sorts}")

# 3. On an H200 a token's step is bound by reading its experts' matrices. With more tokens there
#    is a kernel that lists rows by expert; tiles are then made of rows of one list, wherever they
#    are. The reckoned bytes are those of the experts that some token meets on the average.

EACH = (layer.first[0].nbytes + layer.second[0].nbytes) / 1e6
print(f"\nan expert has {EACH:.2f} MB, all {EXPERTS} have {EXPERTS * EACH:.2f} MB")
print("predicted for an H200:")
for tokens in (1, 8, 64, 1024):
    report = tvm_tile.predict(program(tokens), "nvidia/h200")
    rules_here = [kernel.rule for kernel in report.kernels]
    products = [rule for rule in ("matvec", "mma", "wgmma") if rule in rules_here]
    copied = tokens * CHOSEN * EACH
    told = f"{report.predicted_seconds * 1e6:5.1f} us, {report.launch_count} launches"
    moved = f"{report.traffic / 1e6:6.2f} MB by {' and '.join(products)}"
    print(f"  {tokens:5} tokens: {told}, {moved}; copies would be {copied:6.2f} MB")

# 4. `batched_mm` copies each row's matrices, and multiplies the copies. It is transformers' other
#    form, and becomes the same kernels: what matters is not how it is written.


class Copied(Experts):
    """The same, by copies."""

    def forward(self, x: Tensor) -> Tensor:
        """What the chosen experts make of each token, weighted."""
        scores = torch.softmax(functional.linear(x, self.router).float(), -1)
        weights, ids = torch.topk(scores, CHOSEN)
        ids = ids.reshape(-1)
        rows = x.repeat_interleave(CHOSEN, 0).unsqueeze(-1)
        gate, up = torch.bmm(self.first[ids], rows).squeeze(-1).chunk(2, -1)
        inner = (functional.silu(gate) * up).unsqueeze(-1)
        out = torch.bmm(self.second[ids], inner).squeeze(-1)
        out = out * weights.reshape(-1, 1).to(out.dtype)
        return out.view(len(x), CHOSEN, -1).sum(1)


copied_layer = Copied().eval()
copied_layer.load_state_dict(layer.state_dict())
example = (torch.zeros(64, HIDDEN).bfloat16(),)
rules = [
    sorted(kernel.rule for kernel in tvm_tile.predict(own, "nvidia/h200").kernels)
    for own in (program(64), torch.export.export(copied_layer, example))
]
print(f"\nby copies: {'the same rules' if rules[0] == rules[1] else rules}")
