"""Random programs that read and write buffers: ``python -m bench.random_state --count 100``.

Each is a few lines of PyTorch on four buffers and on inputs, one of which it may write to: reads,
clones, updates in place, assignments at indices and to slices, through views of views, too. It is
compiled for the emulated device and called three times beside PyTorch; outputs, inputs and buffers
must be equal each time. What is not is printed with its lines; the status is then 1. At the end
stands how much of the state was written in place.
"""

from __future__ import annotations

import argparse
import logging
import random
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

import tvm_tile
from tvm_tile.errors import TileError
from tvm_tile.graph.signature import State

# {b} and {o} are buffers of one shape, {t} is a value of that shape, {new} a name for another one.
LINES = (
    "{new} = s.{b}.clone()",
    "{new} = s.{b} * 1.5 + {t}",
    "{new} = s.c[i].sum(0)",
    "{new} = s.c.mean(0)",
    "{new} = {t} * s.n",
    "{new} = torch.matmul({t}, {t}.t()).sum() + {t}",
    "s.{b}.add_({t})",
    "s.{b}.copy_({t})",
    "s.{b}.copy_(s.{o}.clone())",
    "s.{b}[i % 4] = {t}[:2]",
    "s.{b}[:, 1:2] = {t}[:, :1]",
    "s.{b}.view(3, 4).mul_(0.5)",
    "s.{b}.t().add_(1.0)",
    "s.c[i] = z",
    "s.c.index_copy_(0, i, z * 2)",
    "s.c[:, 1] = {t}[0]",
    "s.c[i, 2] = z[:, 0]",
    "s.c[5, i % 4] = {t}[2:]",
    "s.n += 1",
    "y.mul_(0.5)",
    # {part} is a view of a buffer or of ``y``, {like} a value of its shape, {old} another view.
    *2 * ("{part}.copy_({like})",),
    *2 * ("{part}.add_({like})",),
    "{part}.mul_(0.5)",
    "{part}.fill_({t}[0, 0])",
    "{part}.zero_()",
    "{part}[...] = {t}.sum()",
    "{new} = {old}.sum() + {t}",
    "{new} = {old}.clone().sum() * {t}",
)
_POSITION = "p = i[0].item(); torch._check(p >= 0); torch._check(p <= 4); "
AT_POSITIONS = (
    "s.c[p:p + 2] = z",
    "s.c.narrow(0, p + 1, 1).mul_(0.5)",
    "s.c.select(0, p).add_({t})",
    "s.c[:, 1:][p:p + 2, ::2] = z[:, :2]",
    "{new} = s.c[p:p + 2].sum(0) + {t}",
)
SHAPES = {"s.a": (4, 3), "s.b": (4, 3), "s.c": (6, 4, 3), "y": (4, 3)}
RESULTS = ("s.a", "s.b", "s.c[0]", "s.a.t()", "s.b.view(-1)", "s.c", "s.n", "y", "s.a + 0")


def view(rng: random.Random) -> tuple[str, tuple[int, ...]]:
    """A random view of a random tensor that programs write to, and its shape."""
    text = rng.choice(list(SHAPES))
    tensor = torch.empty(SHAPES[text])
    for _ in range(rng.randint(1, 3)):
        more = rng.choice([_index, _index, _moved])(rng, tensor)
        tensor = eval(f"tensor{more}", {"tensor": tensor})
        text += more
    return text, tuple(tensor.shape)


def _index(rng: random.Random, tensor: torch.Tensor) -> str:
    """An index of numbers, slices, ``None`` and an ellipsis; some bounds are beyond the ends."""
    parts = []
    for extent in tensor.shape[: rng.randint(0, tensor.ndim)]:
        first, last = (rng.choice(["", str(rng.randint(-extent - 2, extent + 2))]) for _ in "ab")
        part = f"{first}:{last}:{rng.choice(['', '1', '2', '3'])}"
        is_number = extent and rng.random() < 0.3
        parts.append(str(rng.randint(-extent, extent - 1)) if is_number else part)
        parts += ["None"] if rng.random() < 0.1 else []
    return f"[{', '.join([*parts, '...'] if rng.random() < 0.5 or not parts else parts)}]"


def _moved(rng: random.Random, tensor: torch.Tensor) -> str:
    """A view that moves dimensions, or takes some out."""
    if tensor.ndim < 2:
        return ".unsqueeze(-1)"
    one, other = rng.sample(range(tensor.ndim), 2)
    found = [f".transpose({one}, {other})", f".diagonal({rng.randint(-1, 1)}, {one}, {other})"]
    if tensor.shape[one]:
        found.append(f".narrow({one}, 0, {rng.randint(0, tensor.shape[one])})")
        found.append(f".select({one}, {rng.randrange(tensor.shape[one])})")
    if tensor.is_contiguous():
        found.append(".view(-1)")
    return rng.choice(found)


def _like(value: str, shape: tuple[int, ...]) -> str:
    """A value of a shape, without the first dimensions that are broadcast."""
    count = torch.Size(shape).numel()
    return f"({value}.mean() + torch.arange({count}.).view({list(shape)}))"


def program(seed: int) -> list[str]:
    """The lines of a function of ``s`` (the module), ``x``, ``y``, ``i`` and ``z``."""
    rng = random.Random(seed)
    values, lines = ["x", "y"], []
    for number in range(rng.randint(3, 9)):
        line = rng.choice(LINES)
        if rng.random() < 0.1:
            line = _POSITION + rng.choice(AT_POSITIONS)
        new = f"t{number}"
        names = {"b": rng.choice("ab"), "o": rng.choice("ab"), "t": rng.choice(values), "new": new}
        part, shape = view(rng)
        names |= {"part": part, "like": _like(names["t"], shape), "old": view(rng)[0]}
        lines.append(line.format(**names))
        values += [new] if "{new}" in line else []
    results = (rng.choice([*values, *RESULTS]) for _ in range(rng.randint(1, 3)))
    return [*lines, f"return ({', '.join(results)},)"]


class Random(nn.Module):
    """Four buffers, and what a program makes of them."""

    def __init__(self, lines: list[str]) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        for name, shape in (("a", (4, 3)), ("b", (4, 3)), ("c", (6, 4, 3))):
            self.register_buffer(name, torch.randn(shape, generator=generator))
        self.register_buffer("n", torch.tensor(1.0))
        names: dict[str, Any] = {"torch": torch}
        exec("def function(s, x, y, i, z):\n" + "\n".join(f"    {line}" for line in lines), names)
        self.function = names["function"]

    def forward(self, x: Any, y: Any, i: Any, z: Any) -> Any:
        return self.function(self, x, y, i, z)


def inputs(generator: torch.Generator) -> list[Any]:
    """Of a call: no two indices are one place, of which PyTorch's order is not defined."""
    shapes = ((4, 3), (4, 3), (2, 4, 3))
    x, y, z = (torch.randn(shape, generator=generator) for shape in shapes)
    first = int(torch.randint(0, 5, (1,), generator=generator))
    return [x, y, torch.tensor([first, first + 1]), z]


def differences(seed: int, calls: int = 3, kept: list[State] | None = None) -> Iterator[str]:
    """What a seed's program computes otherwise than in PyTorch.

    Args:
        seed: of the program and its inputs.
        calls: how often it is called.
        kept: is given what the program keeps.

    Raises:
        TileError: it is refused.
    """
    theirs, ours = Random(program(seed)), Random(program(seed))
    generator = torch.Generator().manual_seed(seed)
    options = tvm_tile.Options(cache=False)
    example = tuple(inputs(generator))
    model = tvm_tile.compile(ours, "emulated", example_inputs=example, options=options)
    if kept is not None:
        kept += model.effects.state
    for call in range(calls):
        given = inputs(generator)
        own = [tensor.clone() for tensor in given]
        with torch.no_grad():
            expected = [tensor.clone() for tensor in theirs(*given)]
        found = model(*own)
        found = found if isinstance(found, tuple) else (found,)
        buffers = dict(theirs.named_buffers())
        pairs = {f"output {n}": pair for n, pair in enumerate(zip(found, expected, strict=True))}
        pairs |= {f"input {n}": pair for n, pair in enumerate(zip(own, given, strict=True))}
        pairs |= {name: (torch.from_dlpack(t), buffers[name]) for name, t in model.state.items()}
        for name, (one, other) in pairs.items():
            if not torch.allclose(one, other, rtol=1e-4, atol=1e-4):
                yield f"seed {seed}, call {call}: {name} differs"


def main() -> int:
    """Compare the programs of so many seeds."""
    parser = argparse.ArgumentParser(prog="python -m bench.random_state", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="the first")
    parser.add_argument("--count", type=int, default=100)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    right = refused = wrong = 0
    kept: list[State] = []
    for seed in range(arguments.seed, arguments.seed + arguments.count):
        try:
            found = list(differences(seed, kept=kept))
        except TileError as error:
            refused += 1
            print(f"seed {seed}: refused: {error.current}", flush=True)
            continue
        right, wrong = right + (not found), wrong + bool(found)
        if found:
            print("\n".join([*found, *program(seed)]), flush=True)
    print(f"{right} right, {refused} refused, {wrong} wrong")
    print(f"{sum(one.is_in_place for one in kept)} of {len(kept)} buffers written in place")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
