"""Lesson 12: text from a decoder in plain PyTorch: a prompt, steps, and what a step is on a GPU.

Run it with `python tutorials/12_generate.py`. It needs no GPU and no download: the decoder learns
three sentences by heart first, which takes a second. With a folder as its argument it writes its
drawing there.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

import tvm_tile
from tvm_tile.device.times import StreamTimes
from tvm_tile.plan.ahead import LINE, entries
from tvm_tile.plan.timeline import timeline
from tvm_tile.plan.waits import waits
from tvm_tile.report.screen.gantt import gantt

# 1. A decoder as PyTorch's users write one. Its cache is two buffers a layer, with a slot for every
#    token of a text. A call writes the slots of its tokens, and each token sees the slots up to its
#    own. So nothing has to be cleared before the next text.

SLOTS = 32


class Layer(nn.Module):
    """Attention and a gated feed-forward network, each behind a norm and beside a residual."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.behind = nn.RMSNorm(width), nn.RMSNorm(width)
        self.joined = nn.Linear(width, 3 * width, bias=False)
        self.output = nn.Linear(width, width, bias=False)
        self.gate, self.up = (nn.Linear(width, 2 * width, bias=False) for _ in range(2))
        self.down = nn.Linear(2 * width, width, bias=False)
        for name in ("keys", "values"):
            self.register_buffer(name, torch.zeros(1, heads, SLOTS, width // heads))

    def forward(self, hidden: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """(1, tokens, width) to the same; `positions` are the tokens' slots."""
        own = self.joined(self.before(hidden)).unflatten(-1, (3, self.heads, -1))
        query, key, value = own.permute(2, 0, 3, 1, 4)
        self.keys[:, :, positions] = key
        self.values[:, :, positions] = value
        seen = torch.arange(SLOTS) <= positions[:, None]
        mixed = functional.scaled_dot_product_attention(query, self.keys, self.values, seen)
        hidden = hidden + self.output(mixed.transpose(1, 2).flatten(2))
        own = self.behind(hidden)
        return hidden + self.down(functional.silu(self.gate(own)) * self.up(own))


class Decoder(nn.Module):
    """One layer; tokens are characters' codes, and places are learned, too."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(128, width), nn.Embedding(SLOTS, width)
        self.layer, self.norm = Layer(width, heads), nn.RMSNorm(width)

    def forward(self, tokens: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """(1, tokens) at (tokens,) to the likeliest token behind the last one, (1, 1)."""
        return self.logits(tokens, positions)[:, -1].argmax(-1, keepdim=True)

    def logits(self, tokens: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Of the token behind each, (1, tokens, 128)."""
        hidden = self.layer(self.tokens(tokens) + self.places(positions), positions)
        return functional.linear(self.norm(hidden), self.tokens.weight)


# 2. Something to say. It learns three sentences, each with a token at its end that means stop.

STOP, PROMPT = 0, 6  # a character that ends a text; characters of a prompt
TEXTS = ("Roller ranks the tiles.", "Welder joins kernels.", "Rammer fills the whole GPU.")

torch.manual_seed(0)
torch.set_num_threads(1)  # tensors are so small that more threads would wait for one another
model = Decoder(32, 2)
optimizer = torch.optim.Adam(model.parameters(), 1e-2)
for _ in range(60):
    for text in TEXTS:
        codes = torch.tensor([*text.encode(), STOP])
        logits = model.logits(codes[None, :-1], torch.arange(len(text)))
        functional.cross_entropy(logits[0, PROMPT - 1 :], codes[PROMPT:]).backward()
        for cached in model.buffers():
            cached.detach_()  # of what it has written, the next text sees nothing
    optimizer.step()
    optimizer.zero_grad()
model.eval().requires_grad_(False)

# 3. Compiled for a prompt of six tokens and for one token at a time: two entries that share weights
#    and cache.


def exported(decoder: nn.Module, length: int) -> torch.export.ExportedProgram:
    """The program of a call with so many tokens."""
    return torch.export.export(decoder, (torch.zeros(1, length).long(), torch.arange(length)))


decoder = tvm_tile.compile(
    {"prompt": exported(model, PROMPT), "step": exported(model, 1)}, "emulated"
)
told = decoder["step"].explain("all")
print(told, end="\n\n")
assert told.endswith("state, written in place: layer.keys, layer.values")
assert not decoder["step"].report.fallbacks

# 4. The loop is yours. A model returns its next token, which goes into the next step as it is: on a
#    GPU it stays there, and the host reads it only to know whether to stop. For PyTorch the same
#    function is called with the module itself, which has a cache of its own.

Call = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def generated(prompt: Call, step: Call, text: str) -> str:
    """The text and what follows, up to the token that ends it or to the last slot."""
    codes = list(text.encode())
    token = prompt(torch.tensor([codes]), torch.arange(len(codes)))
    while int(token) != STOP and len(codes) < SLOTS:
        codes.append(int(token))
        token = step(token, torch.tensor([len(codes) - 1]))
    return bytes(codes).decode()


for text in TEXTS:
    said = generated(decoder["prompt"], decoder["step"], text[:PROMPT])
    print(f"{text[:PROMPT]} -> {said}")
    assert said == generated(model, model, text[:PROMPT])
    assert said == text

# 5. A wider layer, in half precision, for a GPU that need not be here. Three of its kernels do
#    little but read weights, one after the other. As one persistent kernel they are launched once,
#    and its vEUs (lesson 5 explains the words) prefetch a step's weights into the second-level
#    cache before they wait for the results of the step before. Whether that pays was not measured
#    on the H200, so its record keeps such kernels apart. Records are data: this one says that it
#    pays, how many bytes a step prefetches, that a launch takes 1.5 us and that no kernel starts
#    early: by the H200's own launches, the kernels are predicted to be as fast apart. These numbers
#    are assumed; `python -m bench.decode_chain` measures them on a GPU.

H200 = tvm_tile.find_device("nvidia/h200")
STREAM = StreamTimes("assumed", share=0.9, step_cycles=1000.0, ahead_bytes=6 << 20)
LAUNCH = 1.5e-6
inside = replace(
    H200.times.persistent, half_precision_pays=True, stream=STREAM, launch_seconds=LAUNCH + 3.5e-7
)
TIMES = replace(H200.times, persistent=inside)
DEVICE = replace(H200, launch_latency=LAUNCH, dependent_launches=None, times=TIMES)

layer = Layer(1024, 8).to(torch.bfloat16).eval()
step = tvm_tile.compile(
    layer,
    DEVICE,
    example_inputs=(torch.zeros(1, 1, 1024, dtype=torch.bfloat16), torch.tensor([0])),
)
told = step.explain("all")
print()
print(told[told.index("co-scheduled:") :])

# 6. A step is a CUDA graph and a few launches. The latter touch memory that differs from call to
#    call: here the first kernel reads the token's values, the second one its position, and the
#    persistent one stores the result. Attention itself appends the new keys and values to the
#    cache, in place.

launches = step.report.launches
assert launches is not None
assert launches.graphs == 1
assert "state, written in place: keys, values" in told

# 7. The plan, step by step, and the bytes prefetched ahead of each. `gantt` draws it, vEUs down and
#    time across, as if each vEU had its share of the memory's rate. The plan's own time is that of
#    `plan/stream.py`, which counts all weights as one stream.

(kernel,) = step.report.plans
plan, operators = kernel.plan, kernel.operators
assert plan.seconds < kernel.apart_seconds
spans = timeline(operators, plan, DEVICE)
print()
for number, planned in enumerate(plan.steps):
    members = {placement.tasks.operator for placement in planned.placements}
    size = sum(operators[n].constant_bytes for n in members) / 1e6
    ahead = sum(plan.ahead[n] for n in members) / 1e6
    own = [span for span in spans if span.step == number]
    begin, end = min(span.begin for span in own) * 1e6, max(span.end for span in own) * 1e6
    print(f"step {number}, {begin:.1f} to {end:.1f} us: {ahead:.1f} of {size:.1f} MB asked ahead")
assert plan.ahead == (0, 6 << 20, 4 << 20)
drawing = gantt(operators, plan, DEVICE)
assert drawing.startswith("<svg")
if len(sys.argv) > 1:
    Path(sys.argv[1], "step.svg").write_text(drawing, encoding="utf-8")

# 8. The queue of a vEU is data, too: what it prefetches, then waits for, then runs. Here are the
#    queues of the first vEU and of the last one that has something to run.

queues = entries(operators, plan, waits(operators, plan))
last = max(veu for veu, queue in enumerate(plan.queues()) if queue)
for veu in (0, last):
    print(f"vEU {veu}:")
    for entry in queues[veu]:
        asked = sum(ask.lines for ask in entry.asks) * LINE / 1e3
        does = [f"asks for {asked:.1f} kB"] if asked else []
        does += [f"waits for {w.target} rTasks of operator {w.counter}" for w in entry.waits]
        if entry.task is not None:
            does.append(f"runs rTask {entry.task.task} of operator {entry.task.operator}")
        print(f"  {', '.join(does)}")
assert queues[0][0].task is not None
assert not queues[0][0].asks
assert any(entry.asks for entry in queues[last])
