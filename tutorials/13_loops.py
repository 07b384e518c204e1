"""Lesson 13: from a Python loop to one kernel, and what that kernel follows.

Run it with `python tutorials/13_loops.py`. It needs no GPU: it compiles for an H200, and runs on
the emulated device, which keeps loops on the host. All times but those of compiling are
predictions. With a folder as its argument it writes its drawings there.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from tvm.script import ir as I
from tvm.script import relax as R

import tvm_tile
from tvm_tile import Bounds
from tvm_tile.plan.path import path
from tvm_tile.plan.rprogram import Control, RProgram
from tvm_tile.report.persistent_report import PersistentReport
from tvm_tile.report.screen.flow_drawing import draw_veu
from tvm_tile.report.screen.flow_text import listing, names_of, outline
from tvm_tile.stages.forced import Forced

HIDDEN = 64

# 1. A loop of Python's. It goes around a cell that architecture search found (Zoph and Le, 2017).
#    Tracing sees the iterations, not the loop: each step has its own kernels, and is compiled.


class NASRNN(nn.Module):
    """(steps, 1, HIDDEN) to the sum of the last two states, (1, HIDDEN)."""

    def __init__(self) -> None:
        super().__init__()
        self.input, self.state = (nn.Linear(HIDDEN, 8 * HIDDEN, bias=False) for _ in range(2))

    def step(self, value: Any, cell: Any, memory: Any) -> tuple[Any, Any]:
        """The next two states."""
        gates = (self.input(value) + self.state(memory)).chunk(8, dim=-1)
        a, b, c, d = (torch.sigmoid(gate) for gate in (gates[0], gates[2], gates[5], gates[7]))
        first = torch.tanh(a * torch.relu(gates[1]))
        second = torch.tanh(b + torch.relu(gates[3]))
        third = torch.tanh(torch.tanh(gates[4]) * c)
        fourth = torch.sigmoid(torch.tanh(gates[6]) + d)
        cell = torch.tanh(first + cell) * second
        return cell, torch.tanh(cell * torch.tanh(third + fourth))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """A loop of Python's."""
        cell = memory = x.new_zeros(1, HIDDEN)
        for value in x.unbind(0):
            cell, memory = self.step(value, cell, memory)
        return cell + memory


def compiled(
    module: nn.Module, inputs: tuple[torch.Tensor, ...], device: str = "nvidia/h200", **options: Any
) -> tvm_tile.CompiledModel:
    """What PyTorch exports of a module, compiled, and the seconds that took without a cache."""
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch's scan calls what PyTorch deprecates
        program = torch.export.export(module.eval(), inputs)
    begin = time.perf_counter()
    model = tvm_tile.compile(program, device, options=Forced(cache=False, **options))
    seconds = time.perf_counter() - begin
    launches = sum(kernel.calls for kernel in model.report.kernels)
    print(f"  {len(model.report.kernels)} kernels, called {launches} times a run; {seconds:.1f} s")
    return model


torch.manual_seed(0)
network = NASRNN()
print("A loop of Python's, 4 and 12 steps:")
unrolled = [compiled(network, (torch.randn(steps, 1, HIDDEN),)) for steps in (4, 12)]
few, many = (sum(kernel.calls for kernel in model.report.kernels) for model in unrolled)
assert many > 2 * few

# 2. The same with PyTorch's `scan`: its function returns the next state first. The loop stays one;
#    its body is compiled once, however often it runs.

STEPS = 200


class Scanned(nn.Module):
    """The function of a NASRNN, as a loop that is seen."""

    def __init__(self, network: NASRNN) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """A loop of PyTorch's."""

        def step(state: Any, value: torch.Tensor) -> Any:
            return self.network.step(value, *state), ()

        zeros = x.new_zeros(1, HIDDEN)
        (cell, memory), _ = scan(step, (zeros, zeros + 0), x)
        return cell + memory


x = torch.randn(STEPS, 1, HIDDEN)
print(f"\nA scan of {STEPS} steps on the emulated device:")
found = compiled(Scanned(network), (x,), "emulated")(x)
torch.testing.assert_close(torch.as_tensor(found), network(x), rtol=1e-4, atol=1e-4)

# 3. Where does it run? With "host" the host counts, and launches the kernels of each iteration.
#    With "kernel" one persistent kernel (lesson 5) holds the loop. "auto", as always without
#    `Forced`, is that kernel where it is predicted to take less time. `Forced` is for measurements,
#    and is no option of users'. A loop that cannot be a kernel stays on the host, and `explain()`
#    says why: the emulated device has no persistent kernels at all.

models = {}
controls: tuple[Control, ...] = ("host", "kernel", "auto")
for control in controls:
    print(f"\n{control}:")
    models[control] = compiled(Scanned(network), (x,), control=control)
    told = models[control].explain("all")
    print(told[told.index("co-scheduled:") : told.index("each launched once")])
assert not models["host"].report.plans
(kernel,) = models["kernel"].report.plans
assert kernel.plan.seconds < kernel.apart_seconds
assert [plan.name for plan in models["auto"].report.plans] == [kernel.name]
notes = compiled(Scanned(network), (x,), "emulated", control="kernel").report.notes
(why,) = (note for note in notes if note.startswith("loops"))
print(why)
assert why == "loops stay on the host: emulated runs no persistent kernels"

# 4. The program that all vEUs follow. Each state has two buffers. An iteration reads one and writes
#    the other, and the next iteration does the opposite, so that nothing is copied: a turn is two
#    iterations. Where an rOperator is there twice, #1 and #2 tell which one.


def program_of(report: PersistentReport) -> RProgram:
    """Of a kernel that has loops, branches or calls."""
    assert report.program is not None
    return report.program


program = program_of(kernel)
print(f"\n{outline(kernel.operators, program)}")
assert f"{STEPS // 2} turns:" in outline(kernel.operators, program)

# 5. What one vEU does of it: its rTasks, with jumps. Each rOperator has a counter that is never
#    reset, and to which each of its rTasks adds one. An rTask that depends on an rOperator waits
#    until this counter shows that all rTasks of the execution that it needs have ended; "last time"
#    is an execution before this turn. So no barrier ends an iteration, and a vEU that is done goes
#    on. What lies before the loop is waited for once, ahead of it. `->` is where a vEU goes on;
#    behind `|`, where it does when no turn is left, a decision does not hold, or a call has ended.
#    `draw_veu` draws it: boxes, and arrows back and ahead. Saved models keep all of this.


def show(name: str, report: PersistentReport) -> str:
    """Instructions of the vEU that has most; their drawing is written if there is a folder."""
    parts = report.operators, program_of(report), report.plan
    veu = max(range(report.plan.num_veus), key=lambda veu: len(listing(*parts, veu)))
    arguments = *parts, veu
    drawing = draw_veu(*arguments)
    assert drawing.startswith("<svg")
    if len(sys.argv) > 1:
        Path(sys.argv[1], f"{name}.svg").write_text(drawing, encoding="utf-8")
    return listing(*arguments)


lines = show("scan", kernel)
print(f"\n{lines}")
assert "the next iteration" in lines
assert "last time" in lines

# 6. A loop that data end: a decoder that takes the likeliest word until one is the last. The host
#    would have to read back whether to go on, each time. In the kernel every vEU reads the
#    condition itself, and all go the same way.

WORDS, END, LONGEST = 32, 0, 20


class Decoder(nn.Module):
    """A first state (1, HIDDEN) to words, (LONGEST,), END where none was said."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.output = nn.Embedding(WORDS, HIDDEN), nn.Linear(HIDDEN, WORDS)
        self.state = nn.Linear(HIDDEN, HIDDEN)

    def next(self, word: torch.Tensor, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The next word, (1,), and state."""
        state = torch.tanh(self.state(state) + self.words(word))
        return self.output(state).argmax(1), state

    def forward(self, state: torch.Tensor) -> torch.Tensor:
        """A loop of PyTorch's: a condition, a body, and what they are given first."""

        def goes_on(step: Any, word: Any, said: Any, state: Any) -> Any:
            return (word.max() != END) & (step < LONGEST)

        def body(step: Any, word: Any, said: Any, state: Any) -> Any:
            word, state = self.next(word, state)
            return step + 1, word, said.index_copy(0, step.reshape(1), word), state

        first = torch.zeros((), dtype=torch.int64), torch.ones(1, dtype=torch.int64)
        said = torch.full((LONGEST,), END)
        return while_loop(goes_on, body, (*first, said, state + 0))[2]

    def by_hand(self, state: torch.Tensor) -> list[int]:
        """The words, by a loop of Python's."""
        word, said = torch.ones(1, dtype=torch.int64), []
        while int(word) != END and len(said) < LONGEST:
            word, state = self.next(word, state)
            said.append(int(word))
        return said + [END] * (LONGEST - len(said))


decoder = Decoder()
states = [torch.randn(1, HIDDEN) for _ in range(20)]
print("\nA decoder, on the emulated device and for an H200:")
emulated = compiled(decoder, (states[0],), "emulated")
lengths = []
for state in states:
    said = torch.as_tensor(emulated(state)).tolist()
    assert said == decoder.by_hand(state)
    lengths.append(LONGEST - said.count(END))
print(f"  words before the last: {', '.join(map(str, lengths))}")
assert len(set(lengths)) > 1
(kernel,) = compiled(decoder, (states[0],), control="kernel").report.plans
print(outline(kernel.operators, program_of(kernel)))
show("while", kernel)
assert f"{LONGEST} times at most" in outline(kernel.operators, program_of(kernel))

# 7. That loop ends by its count in any case. A condition that never ends would keep the GPU for
#    good: halves of an infinite row are infinite. So each vEU counts the iterations of such a loop,
#    and leaves it after `Bounds(iterations=...)`, 4,000,000 by default. The call raises a
#    `BoundError`, and the next call runs as usual. Programs are data: here one is followed whose
#    decisions always hold.


class Halved(nn.Module):
    """A row, halved until it is small."""

    def forward(self, row: torch.Tensor) -> torch.Tensor:
        """A loop of PyTorch's, which no count ends."""
        return while_loop(lambda row: row.max() > 1, lambda row: (row / 2,), (row,))[0]


print("\nA loop that only data end:")
halved = compiled(Halved(), (states[0],), control="kernel", bounds=Bounds(iterations=30))
(kernel,) = halved.report.plans
assert "1 loop that data end, 30 iterations at most" in halved.explain("all")
program = program_of(kernel)
assert program.bounds.iterations == 30
names = names_of(kernel.operators, program)
ran = Counter(names[executed.counter] for executed in path(program, lambda decision, turn: True))
print(f"\ndecisions that always hold, asked: {ran['decision 0'] + ran['decision 1']} times")
assert ran["decision 0"] + ran["decision 1"] == 31

# 8. Recursion, which PyTorch has no word for: a Relax function that calls itself, not at its end.
#    The values of a call lie in a frame of its own, and each vEU keeps a stack of the places where
#    it goes on when calls end. There are `Bounds(depth=...)` frames, 256 by default; deeper
#    recursion is a `BoundError`.


NUMBER, VECTOR = R.Tensor((), "int64"), R.Tensor((1, HIDDEN), "float32")


@I.ir_module
class Nested:
    """tanh(... tanh(tanh(x + x) + x) ... + x), as deep as the first input says."""

    @R.function(private=True)  # itself, one less deep, and a step more
    def nested(n: NUMBER, x: VECTOR) -> VECTOR:
        ends = R.less(n, R.const(1, "int64"))
        if ends:
            made = R.multiply(x, R.const(1.0, "float32"))
        else:
            inner = Nested.nested(R.subtract(n, R.const(1, "int64")), x)
            made = R.tanh(R.add(inner, x))
        return made

    @R.function
    def main(n: NUMBER, x: VECTOR) -> VECTOR:
        made = Nested.nested(n, x)
        return made


x = torch.randn(1, HIDDEN)
expected = x
for _ in range(7):
    expected = torch.tanh(expected + x)
emulated = tvm_tile.compile(Nested, "emulated")
torch.testing.assert_close(torch.as_tensor(emulated(torch.tensor(7), x)), expected)

model = tvm_tile.compile(
    Nested, "nvidia/h200", options=Forced(control="kernel", bounds=Bounds(depth=12))
)
(kernel,) = model.report.plans
program = program_of(kernel)
print(f"\n{outline(kernel.operators, program)}\n\n{show('recursion', kernel)}")
names = names_of(kernel.operators, program)
ran = Counter(names[executed.counter] for executed in path(program, lambda decision, turn: False))
print(f"\na depth that never ends, asked: {ran['decision 0']} times")
assert ran["decision 0"] == program.bounds.depth == 12
