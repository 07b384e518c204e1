"""Which inputs and outputs are copied, so that CUDA graphs take in the kernels that touch them."""

from __future__ import annotations

import itertools
import random

import tvm_tile
from tvm_tile.launches.copied_ends import copied_ends, run_seconds

DEVICE = tvm_tile.find_device("nvidia/h200")
NOTHING: frozenset[int] = frozenset()


def touching(*ends: int) -> frozenset[int]:
    return frozenset(ends)


def test_what_one_kernel_touches_is_not_copied() -> None:
    kernels = [touching(0), *[NOTHING] * 9, touching(1)]
    assert not copied_ends(kernels, {0: 4096, 1: 4096}, DEVICE)


def test_a_mask_that_each_layer_reads_is_copied_while_it_is_small() -> None:
    kernels = [touching(0), *[touching(1), NOTHING, NOTHING] * 12, touching(2)]
    small, large = {0: 4096, 1: 4096, 2: 4096}, {0: 4096, 1: 1 << 30, 2: 4096}
    assert copied_ends(kernels, small, DEVICE) == {1}
    assert not copied_ends(kernels, large, DEVICE)


def test_outputs_that_one_kernel_reads_together_are_copied_together() -> None:
    layers = [[touching(2 * n), touching(2 * n + 1), touching(2 * n, 2 * n + 1)] for n in range(4)]
    kernels = [touch for layer in layers for touch in (*layer, NOTHING, NOTHING)]
    assert copied_ends(kernels, dict.fromkeys(range(8), 4096), DEVICE) == set(range(8))


def test_it_is_never_slower_than_no_copies_and_mostly_the_best() -> None:
    rng = random.Random(0)
    missed = 0
    for _ in range(200):
        sizes = {end: rng.choice([1024, 1 << 20, 1 << 24]) for end in range(rng.randint(1, 4))}
        kernels = [
            frozenset(end for end in sizes if rng.random() < 0.25)
            for _ in range(rng.randint(1, 15))
        ]
        chosen = copied_ends(kernels, sizes, DEVICE)
        sets = [
            frozenset(some)
            for count in range(len(sizes) + 1)
            for some in itertools.combinations(sizes, count)
        ]
        best = min(run_seconds(kernels, some, sizes, DEVICE) for some in sets)
        found = run_seconds(kernels, chosen, sizes, DEVICE)
        assert found <= run_seconds(kernels, NOTHING, sizes, DEVICE)
        missed += found > best * 1.0001
    assert missed < 20
