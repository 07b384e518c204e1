"""Lesson 14: a transformer block for all lengths, compiled once, and what that costs at each.

Run it with `python tutorials/14_open_lengths.py`. It needs no GPU: it runs on the emulated device
at small lengths, and compiles for an H100 at large ones, of which all times are predictions. Where
a GPU is, it measures, too. With a folder as its argument it writes its drawing there.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

import tvm_tile
from tvm_tile import Open, Options

# 1. A block as PyTorch's users write one: causal attention, a feed-forward network, and norms. Its
#    input is (1, tokens, width), with as many tokens as a call has.


class Block(nn.Module):
    """(1, tokens, width) to the same."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.behind = nn.LayerNorm(width), nn.LayerNorm(width)
        self.joined, self.output = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        own = self.joined(self.before(hidden)).unflatten(-1, (3, self.heads, -1))
        query, key, value = own.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        hidden = hidden + self.output(mixed.transpose(1, 2).flatten(2))
        return hidden + self.down(functional.gelu(self.up(self.behind(hidden))))


# 2. Compiled once for all lengths. They begin at 2, since a model of one token often has other
#    operators. Each call has the length of its input, and compiles nothing. A length out of range
#    is refused.


def compiled(
    module: Block, device: str, tokens: int | Open, **options: float
) -> tvm_tile.CompiledModel:
    """A block for one length, or for a range of them; with how long that took."""
    first = next(module.parameters())
    most = tokens.high if isinstance(tokens, Open) else tokens
    shape = (1, tokens, first.shape[0])
    begin = time.perf_counter()
    model: tvm_tile.CompiledModel = tvm_tile.compile(
        module.eval(),
        device,
        inputs={"hidden": shape},
        example_inputs=(torch.zeros(1, most, first.shape[0], dtype=first.dtype),),
        options=Options(cache=False, **options),
    )
    seconds, kernels = time.perf_counter() - begin, len(model.program.kernels)
    length = tokens if isinstance(tokens, Open) else f"tokens={tokens}"
    print(f"  {length} for {model.device_name}: {kernels} kernels in {seconds:.1f} s")
    return model


torch.manual_seed(0)
LENGTHS = Open(2, 64, name="tokens")
print("Compiled:")
small = Block(64, 2)
model = compiled(small, "emulated", LENGTHS)
with torch.no_grad():
    for length in (2, 3, 17, 40, 64):
        hidden = torch.randn(1, length, 64)
        torch.testing.assert_close(model(hidden), small(hidden), rtol=1e-4, atol=1e-4)
try:
    model(torch.randn(1, 65, 64))
except tvm_tile.InputError as error:
    print(f"\n{error}\n")

# 3. No tile is the best at all lengths: a product of few rows is best divided along its depth, one
#    of many into large blocks. So each kernel is asked for its best tile at a few lengths, and
#    keeps the fewest tiles that are nearly the best at all of these; the host chooses by the length
#    of the call. `explain("kernels")` says which tile serves up to which length, and what is lost
#    beside the best.


def table(model: tvm_tile.CompiledModel) -> str:
    """What `explain("kernels")` says of tiles by lengths."""
    told = model.explain("kernels")
    return told[told.index("tiles by open extents") : told.index("all other kernels")].rstrip()


print(table(model))
covers = [kernel.cover for kernel in model.report.kernels if kernel.cover is not None]
assert any(len(cover.ends) > 1 for cover in covers)
assert all(cover.worst.loss <= 0.02 for cover in covers)

# 4. How much may be lost is yours to say, by `max_loss`: a fiftieth by default. Here is a block of
#    a usual width in half precision, lengths up to 4,096, for an H100 that need not be here: where
#    more may be lost, there are fewer kernels. With 0 each length of the grid has its best tile.

WIDTH, HEADS, MOST = 1024, 16, 4096
large = Block(WIDTH, HEADS).half()
print("\nFor an H100:")
models = {
    loss: compiled(large, "nvidia/h100", Open(2, MOST, name="tokens"), max_loss=loss)
    for loss in (0.02, 0.5)
}
worst = {loss: max(own.report.cover.times, key=lambda t: t.loss) for loss, own in models.items()}
for loss, time_there in worst.items():
    (tokens,) = time_there.extents
    print(
        f"  {loss:4.0%} allowed: the block loses {time_there.loss:.1%} at most, at {tokens} tokens"
    )
    assert time_there.loss <= loss
counts = [len(own.program.kernels) for own in models.values()]
assert counts == sorted(counts, reverse=True)
print(f"\n{table(models[0.02])}")

# 5. The same as a drawing: solid lines are what runs, dashed ones the best tile at each length.

report = models[0.02].report
drawing = report.draw_extents()
assert drawing.startswith("<svg")
if len(sys.argv) > 1:
    Path(sys.argv[1], "lengths.svg").write_text(drawing, encoding="utf-8")

# 6. What else can be done with calls of many lengths? Compile for each that comes: the best tiles,
#    but seconds before the first answer of each length. Or compile for powers of two, and pad each
#    input to the next one: few compilations, but up to twice the tokens. `time_at` predicts all
#    three from one report: the times of the best tiles are known at some lengths, and any other
#    length counts as the next of these.


def padded(length: int) -> int:
    """The next power of two."""
    return 1 << (length - 1).bit_length()


def predicted(lengths: Sequence[int]) -> tuple[float, float, float]:
    """Seconds of calls of these lengths: compiled once, padded, and compiled for each."""
    once = sum(report.cover.time_at((length,)).seconds for length in lengths)
    powers = sum(report.cover.time_at((padded(length),)).best_seconds for length in lengths)
    each = sum(report.cover.time_at((length,)).best_seconds for length in lengths)
    return once, powers, each


drawn = torch.randint(2, MOST + 1, (1000,), generator=torch.Generator().manual_seed(0)).tolist()
once, powers, each = predicted(drawn)
print(f"\n{len(drawn)} calls of random lengths, predicted, behind launches:")
for name, seconds, count in (
    ("compiled once", once, 1),
    ("padded to powers of two", powers, len({padded(length) for length in drawn})),
    ("compiled for each length", each, len(set(drawn))),
):
    print(f"  {name:24} {count:4} compilations  {seconds * 1e3:6.1f} ms  {seconds / each:.3f} x")
assert each <= once <= each * 1.05
assert once < powers

# 7. Where a GPU is, all of this can be measured: a call at any length, beside one compiled for it.

if torch.cuda.is_available():
    print("\nMeasured:")
    measured = compiled(large, "auto", Open(2, MOST, name="tokens"))
    for length in (2, 48, 100, 700, 1100, 2100, MOST):
        alone = compiled(large, "auto", length).time(extents={}).median_s
        power = compiled(large, "auto", padded(length)).time(extents={}).median_s
        own = measured.time(extents={"tokens": length}).median_s
        print(
            f"  {length:5}: {own * 1e6:.1f} us, alone {alone * 1e6:.1f}, padded {power * 1e6:.1f}"
        )
