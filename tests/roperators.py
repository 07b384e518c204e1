"""Operators for tests of execution plans: an LSTM's cells, NASNet's shape, random graphs."""

from __future__ import annotations

import random

from tvm_tile.plan.execution_plan import RKernel, ROperator

_SHARE_OF_L2 = 13e12 / 132  # bytes a second of a multiprocessor
_SHARED_RATE = 33e12 / 132


def lstm(layers: int = 10, length: int = 100, hidden: int = 256) -> tuple[ROperator, ...]:
    """A cell for each layer and position; value ``layer * length + position + 1`` is its state."""
    weights = 4 * hidden * 2 * hidden * 4
    choices = []
    for blocks in (128, 256, 64, 32, 26, 16, 13, 8):
        size = weights // blocks
        reading, busy = size / _SHARE_OF_L2, size / _SHARED_RATE
        choices.append(RKernel(blocks, 256, 4096, 64, 1.2e-6 + reading, reading))
        choices.append(RKernel(blocks, 256, 4096, 64, 0.9e-6 + busy, busy, resident_bytes=size))
    cells = []
    for layer in range(layers):
        for position in range(length):
            value = layer * length + position + 1
            below = [value - length] if layer else [-position - 1]
            before = [value - 1] if position else [0]
            name = f"cell{layer}.{position}"
            reads = tuple(below + before)
            cells.append(ROperator(name, tuple(choices), reads, (value,), 3e-6, weights=layer))
    return tuple(cells)


def plain(blocks: int, seconds: float, threads: int = 128, registers: int = 40) -> RKernel:
    return RKernel(blocks, threads, 2048, registers, seconds, seconds / 3)


def nasnet(cells: int = 18, kinds: int = 30, seed: int = 0) -> tuple[ROperator, ...]:
    """Cells of five pairs of branches, three kernels a branch, then a kernel that joins them."""
    rng = random.Random(seed)
    bodies = []
    for body in range(kinds):
        blocks, seconds = rng.choice((14, 28, 49, 98)), rng.uniform(1.5e-6, 4e-6)
        choices = [plain(blocks, seconds)]
        choices += [plain(-(-blocks // 2), 1.7 * seconds), plain(2 * blocks, 0.8 * seconds)]
        bodies.append((body, tuple(choices), 1e-6 + seconds))

    operators: list[ROperator] = []

    def add(reads: tuple[int, ...]) -> int:
        body, choices, alone = bodies[rng.randrange(kinds)]
        value = len(operators) + 2
        operators.append(ROperator(f"k{value}", choices, reads, (value,), alone, body=body))
        return value

    earlier, before = 0, 1
    for _ in range(cells):
        ends = []
        for branch in range(10):
            value = before if branch % 2 else earlier
            for _ in range(3):
                value = add((value,))
            ends.append(value)
        earlier, before = before, add(tuple(ends))
    return tuple(operators)


def random_graph(rng: random.Random, count: int) -> tuple[ROperator, ...]:
    """Operators of a few kinds, each reading one or two earlier values; weights may recur."""
    kinds = []
    for body in range(rng.randint(1, 5)):
        choices = []
        for _ in range(rng.randint(1, 3)):
            threads = rng.choice((32, 64, 128, 256))
            seconds = rng.uniform(0.5e-6, 8e-6)
            choices.append(
                RKernel(
                    blocks=rng.randint(1, 300),
                    threads=threads,
                    shared_bytes=rng.choice((0, 1000, 40_000)),
                    registers=rng.choice((24, 40, 96)),
                    block_seconds=seconds,
                    busy_seconds=seconds * rng.uniform(0.05, 1),
                    resident_bytes=rng.choice((0, 0, 5000)) if body % 2 else 0,
                    barriers=rng.random() < 0.5,
                )
            )
        if all(choice.resident_bytes for choice in choices):
            choices.append(RKernel(20, 64, 0, 32, 3e-6, 1e-6))
        kinds.append((body, tuple(choices)))
    operators = []
    for number in range(count):
        body, choices = rng.choice(kinds)
        reads = tuple({rng.randint(max(-3, number - 12), number) for _ in range(rng.randint(1, 3))})
        writes = (number + 1,)
        weights = rng.randint(0, 3) + 10 * body if body % 2 else None
        name = f"{body}.{number}"
        operators.append(ROperator(name, choices, reads, writes, 5e-6, weights, body))
    return tuple(operators)
