"""Sums whose followers slice, flip, pad, join or reshape them: each rule's tiles, emulated."""

from __future__ import annotations

import random
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import pytest
from kernel_bodies import case, mm
from kernels import Case, Input, prim_functions, written_errors
from tvm import relax
from tvm.relax import op

from tvm_tile.device import find_device
from tvm_tile.graph.extract import extract
from tvm_tile.schedule import RULES, Task
from tvm_tile.schedule.statements import find_obstacle

EMULATED = find_device("emulated")
LIMIT = 1e-4
CHOICES = 2  # of each rule
pytestmark = [
    pytest.mark.bank(4),
    pytest.mark.skipif(not find_spec("pyopencl"), reason="needs pyopencl"),
]

SLICED = (
    case(
        "columns_but_three",
        "contraction",
        lambda x, w: op.strided_slice(mm("NN")(x, w), [1], [0], [97]),
        *((48, 64), (64, 100)),
    ),
    case(
        "places_but_one",
        "contraction",
        lambda x, w: op.strided_slice(op.nn.conv1d(x, w, padding=2), [2], [0], [20]),
        *((1, 32, 20), (32, 32, 4)),
    ),
)


def _cut(draw: random.Random, value: Any, shape: list[int]) -> Any:
    axis = draw.randrange(len(shape))
    first, last = draw.randrange(min(4, shape[axis])), shape[axis]
    step = draw.choice((1, 1, 2, -1))
    begin, end = (first, last) if step > 0 else (last - 1, first - 1 if first else -last - 1)
    last -= draw.randrange(min(4, last - first)) if step > 0 else 0
    return op.strided_slice(value, [axis], [begin], [end if step < 0 else last], [step])


def _padded(draw: random.Random, value: Any, shape: list[int]) -> Any:
    return op.nn.pad(value, [draw.randrange(3) for _ in range(2 * len(shape))])


def _doubled(draw: random.Random, value: Any, shape: list[int]) -> Any:
    return op.concat([value, op.negative(value)], draw.randrange(len(shape)))


def _flat(_: random.Random, value: Any, __: list[int]) -> Any:
    return op.reshape(value, [-1])


def _turned(_: random.Random, value: Any, shape: list[int]) -> Any:
    return op.permute_dims(value, list(reversed(range(len(shape)))))


def _activated(_: random.Random, value: Any, __: list[int]) -> Any:
    return op.tanh(value)


VIEWS = (_cut, _cut, _cut, _padded, _doubled, _flat, _turned, _activated)
SUMS: tuple[tuple[Callable[..., Any], tuple[tuple[int, ...], ...]], ...] = (
    (mm("NN"), ((23, 40), (40, 37))),
    (mm("NT"), ((2, 17, 33), (2, 29, 33))),
    (mm("NN"), ((1, 130), (130, 61))),
    (mm("NT"), ((2, 260), (75, 260))),
    (lambda x, w: op.nn.conv1d(x, w, padding=3), ((1, 9, 30), (14, 9, 4))),
    (lambda x, w: op.nn.conv2d(x, w, strides=2, padding=1), ((1, 6, 9, 11), (13, 6, 3, 3))),
    (lambda x: op.nn.softmax(x), ((19, 45),)),
    (lambda x: op.sum(x, [1], keepdims=True), ((13, 70, 3),)),
    (lambda x: op.nn.max_pool2d(x, (3, 3), (2, 2)), ((1, 5, 12, 13),)),
)


def drawn(seed: int) -> Case:
    """A sum and up to three views of it."""
    draw = random.Random(seed)
    body, shapes = SUMS[seed % len(SUMS)]
    views = draw.choices(VIEWS, k=draw.randint(1, 3))

    def viewed(*inputs: Any) -> Any:
        builder = relax.BlockBuilder.current()
        value = builder.emit(body(*inputs))
        for view in views:
            shape = [int(extent) for extent in value.ty.shape]
            value = builder.emit(view(draw, value, shape))
        return value

    return Case(f"seed_{seed}", "", viewed, tuple(map(Input, shapes)))


@pytest.mark.parametrize(
    "entry", [*SLICED, *map(drawn, range(len(SUMS)))], ids=lambda entry: entry.name
)
def test_what_follows_a_sum_is_written_where_it_belongs(entry: Case) -> None:
    for func in prim_functions(entry, EMULATED).values():
        bare = func.without_attr("global_symbol")
        graph = None if find_obstacle(bare) else extract(bare)
        assert graph is not None
        written = []
        for finder in RULES:
            choices = finder.find(Task(bare, graph, EMULATED), CHOICES)
            written += [done for choice in choices if (done := choice())]
        errors = written_errors(bare, written, EMULATED)
        wrong = [
            (str(w.rule), w.tile, e) for w, e in zip(written, errors, strict=True) if e > LIMIT
        ]
        assert written
        assert not wrong
