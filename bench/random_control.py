"""Random programs of loops and branches: ``python -m bench.random_control --count 200``.

Each is a few lines of TorchScript on two tensors and a counter, with loops of a known count, of one
that an input gives, loops that the data end, and branches, within each other up to three deep. It
is exported to ONNX as it is, compiled for the emulated device and called four times, each time
going other ways, beside TorchScript and, where it differs from that, beside ONNX Runtime. What
differs from both is printed with its lines; the status is then 1.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import linecache
import logging
import random
import sys
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import onnx
import torch
from torch import nn

import tvm_tile
from bench.onnx_random import onnxruntime_outputs
from tvm_tile.errors import TileError

_DEPTH = 3
# {t} and {o} are the tensors a and b in some order, or twice one of them.
_LINES = (
    "{t} = torch.tanh(torch.mm({o}, self.w)) + {t}",
    "{t} = {t} * 0.5 - {o}",
    "{t} = torch.relu({o} - 0.25)",
    "{t} = torch.softmax({t} + {o}, 1)",
    "{t} = torch.where({t} > {o}, {t}, {o} * 0.5)",
    "{t} = {t} + k * 0.125",
    "{t} = torch.cat([{t}[1:], {o}[:1]], 0)",
    "{t} = {t} - {o}.mean(1, keepdim=True)",
    "{t} = torch.mm({t}, self.w) / (1.0 + {o}.abs().sum())",
    "{t} = {o}.clone()",
    "k = k + 1",
    "k = (k * 3) % 7",
)
_CONDITIONS = (
    "bool({t}.sum() > 0.125)",
    "bool({t}.mean() < {o}.mean())",
    "k % 2 == 1",
    "bool({t}[0, 0] > 0.0) and k < 4",
    "int(n) > 2",
)
_LOOPS = (
    "for {i} in range({known}):",
    "for {i} in range(int(n)):",
    "for {i} in range(k % 4):",
)
_ENDED = (
    ("{i} = 0", "while {i} < 5 and bool({t}.abs().sum() < 9.0):", "{i} = {i} + 1"),
    ("{i} = k % 3", "while {i} < int(n) + 2:", "{i} = {i} + 1"),
)
_RETURNS = ("a, b", "b, a + b", "a, b * k", "a.sum(), b")


def program(seed: int) -> list[str]:
    """The lines of a method of ``x``, ``y`` and ``n``."""
    writer = _Writer(random.Random(seed))
    lines = ["a = x + 0.0", "b = y * 1.0", "k = int(n) + 1", *writer.block(0)]
    return [*lines, f"return {writer.random.choice(_RETURNS)}"]


class _Writer:
    """Draws lines, with loops' variables of names of their own."""

    def __init__(self, source: random.Random) -> None:
        self.random = source
        self._variables = 0

    def block(self, depth: int) -> list[str]:
        """A few statements, one of which at least is a loop or a branch, but deep inside."""
        lines = self._plain()
        if depth < _DEPTH:
            for _ in range(self.random.randint(1, 2 if depth < 2 else 1)):
                lines += [*self._nested(depth), *self._plain()]
        return lines or ["k = k + 1"]

    def _plain(self) -> list[str]:
        return [self._filled(self.random.choice(_LINES)) for _ in range(self.random.randint(0, 2))]

    def _nested(self, depth: int) -> list[str]:
        self._variables += 1
        variable = f"i{self._variables}"
        inner = _indented(self.block(depth + 1))
        kind = self.random.random()
        if kind < 0.4:
            condition = self._filled(self.random.choice(_CONDITIONS))
            other = _indented(self.block(depth + 1)) if self.random.random() < 0.7 else []
            return [f"if {condition}:", *inner, *(["else:", *other] if other else [])]
        if kind < 0.7:
            loop = self.random.choice(_LOOPS)
            return [loop.format(i=variable, known=self.random.randint(0, 4)), *inner]
        start, head, step = self.random.choice(_ENDED)
        head = self._filled(head, variable)
        return [start.format(i=variable), head, *inner, *_indented([step.format(i=variable)])]

    def _filled(self, line: str, variable: str = "") -> str:
        names = self.random.choice(("a", "b")), self.random.choice(("a", "b"))
        return line.format(t=names[0], o=names[1], i=variable)


def _indented(lines: list[str]) -> list[str]:
    return [f"    {line}" for line in lines]


class _Random(nn.Module):
    """A module whose method a program is."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.w = nn.Parameter(torch.randn(3, 3, generator=generator) * 0.5)


def scripted(lines: list[str]) -> torch.jit.ScriptModule:
    """The program as TorchScript, which reads its text where Python finds it."""
    text = ["def forward(self, x: Tensor, y: Tensor, n: Tensor):", *_indented(lines)]
    name = "<random_control>"
    linecache.cache[name] = (0, None, [f"{line}\n" for line in text], name)
    names: dict[str, Any] = {"torch": torch, "Tensor": torch.Tensor}
    exec(compile("\n".join(text), name, "exec"), names)
    module = type("Program", (_Random,), {"forward": names["forward"]})()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # TorchScript is deprecated, and exports loops as they are
        return torch.jit.script(module.eval())


class NotExported(Exception):
    """PyTorch's exporter fails."""


def exported(lines: list[str]) -> onnx.ModelProto:
    """The program as PyTorch exports it; raises :class:`NotExported`."""
    stream = io.BytesIO()
    example = (torch.randn(4, 3), torch.randn(4, 3), torch.tensor(2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        script, names = scripted(lines), ["x", "y", "n"]
        try:
            with contextlib.redirect_stdout(io.StringIO()):  # which it prints its failures to
                torch.onnx.export(
                    script, example, stream, opset_version=17, dynamo=False, input_names=names
                )
        except Exception as error:  # what its exporter of TorchScript asserts
            raise NotExported from error
    return onnx.load_from_string(stream.getvalue())


def differences(lines: list[str], seed: int, calls: int = 4) -> Iterator[str]:
    """What a program computes otherwise than both TorchScript and ONNX Runtime.

    Raises:
        TileError: it is refused.
        NotExported: PyTorch does not export it.
    """
    script, model = scripted(lines), exported(lines)
    compiled = tvm_tile.compile(model, "emulated", options=tvm_tile.Options(cache=False))
    names = [value.name for value in model.graph.input]  # an exporter drops what is not read
    for call in range(calls):
        source = np.random.default_rng([seed, call])
        x, y = (source.standard_normal((4, 3)).astype("float32") for _ in range(2))
        given = {"x": x, "y": y, "n": np.array(call)}
        taken = [given[name] for name in names]
        found = compiled(*taken)
        found = found if isinstance(found, tuple) else (found,)
        with torch.no_grad():
            expected = [value.numpy() for value in script(*map(torch.tensor, given.values()))]
        if _are_close(found, expected):
            continue
        others = _in_onnxruntime(model, taken)
        if others is None or not _are_close(found, others):
            yield f"seed {seed}, call {call} differs"


def _are_close(found: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> bool:
    return all(
        one.shape == other.shape and np.allclose(one, other, 1e-4, 1e-4, equal_nan=True)
        for one, other in zip(found, expected, strict=True)
    )


def _in_onnxruntime(
    model: onnx.ModelProto, taken: Sequence[np.ndarray]
) -> Sequence[np.ndarray] | None:
    """What ONNX Runtime makes of a model; ``None`` where it fails."""
    try:
        return onnxruntime_outputs(model, taken)
    except Exception:  # ONNX Runtime's own kinds have no base of theirs
        return None


def main() -> int:
    """Compare the programs of so many seeds."""
    parser = argparse.ArgumentParser(prog="python -m bench.random_control", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="the first")
    parser.add_argument("--count", type=int, default=200)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    counts = Counter(dict.fromkeys(("right", "refused", "wrong", "not exported"), 0))
    for seed in range(arguments.seed, arguments.seed + arguments.count):
        lines = program(seed)
        try:
            found = list(differences(lines, seed))
        except NotExported:
            counts["not exported"] += 1
            continue
        except TileError as error:
            counts["refused"] += 1
            print(f"seed {seed}: refused: {error.current}", flush=True)
            continue
        counts["wrong" if found else "right"] += 1
        if found:
            print("\n".join([*found, *lines]), flush=True)
    print(", ".join(f"{count} {what}" for what, count in counts.items()))
    return int(counts["wrong"] > 0)


if __name__ == "__main__":
    sys.exit(main())
