"""Spaces of networks that searches go through: what there is to choose, and how one is drawn.

A candidate says what was chosen for each place, as sorted pairs like a workload's sizes, and a
function of Python builds it (``networks/mobile.py``, ``networks/autoformer.py``). Another candidate
is one that differs in a place, as in Retiarii (Zhang et al., 2020): nothing here knows of networks.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from bench.suites.facts import Sizes, sizes

LEFT_OUT = ""


@dataclass(frozen=True, slots=True)
class Choice:
    """One of some options for a place; what stands there twice is drawn twice as often."""

    place: str
    options: tuple[int | str, ...]


@dataclass(frozen=True, slots=True)
class Space:
    """Networks of a kind.

    Attributes:
        family: the search that it is from; several spaces may be of one.
        choices: all that a candidate chooses.
    """

    family: str
    choices: tuple[Choice, ...]

    def drawn(self, rng: random.Random) -> Sizes:
        """Any candidate."""
        return sizes({each.place: rng.choice(each.options) for each in self.choices})

    def mutated(self, candidate: Sizes, rng: random.Random) -> Sizes:
        """The candidate with another option for one place."""
        chosen = dict(candidate)
        free = [each for each in self.choices if len(set(each.options)) > 1]
        choice = rng.choice(free)
        others = [option for option in choice.options if option != chosen[choice.place]]
        return sizes({**chosen, choice.place: rng.choice(others)})

    def walk(self, rng: random.Random, alike: int) -> Iterator[Sizes]:
        """Candidates without an end: of so many in a row the last is the one before, mutated."""
        while True:
            found = [self.drawn(rng) for _ in range(alike - 1)]
            yield from found
            yield self.mutated(found[-1], rng)


def blocks(place: str, needed: int, most: int, kinds: Sequence[str]) -> tuple[Choice, ...]:
    """The choices of blocks in a row, each of one of some kinds; those from ``needed`` on may be
    left out, which is drawn every other time."""
    free = (LEFT_OUT,) * len(kinds)
    return tuple(
        Choice(f"{place}{number:02}", (*kinds, *(free if number >= needed else ())))
        for number in range(most)
    )


def pairs(first: Sequence[int], second: Sequence[float]) -> tuple[str, ...]:
    """Such as ``"3x6"``: all pairs."""
    return tuple(f"{one}x{other}" for one, other in product(first, second))


def _stages(count: int, needed: int, most: int, options: Sequence[str]) -> Iterator[Choice]:
    for stage in range(count):
        yield from blocks(f"stage{stage}.", needed, most, options)


# Cai et al., "Once-for-All: Train One Network and Specialize it for Efficient Deployment", 2020.
# Blocks are window x expansion, widths per cent.
MOBILENET_V3 = Space(
    "mobilenet_v3",
    (
        Choice("image", (160, 176, 192, 208, 224)),
        Choice("width", (100, 120)),
        *_stages(5, 2, 4, pairs((3, 5, 7), (3, 4, 6))),
    ),
)
# Cai et al., "ProxylessNAS: Direct Neural Architecture Search on Target Task and Hardware", 2019:
# a stage's blocks behind its first may be its operator "zero".
PROXYLESS = Space(
    "proxyless",
    (
        Choice("image", (224,)),
        Choice("width", (100,)),
        *_stages(5, 1, 4, pairs((3, 5, 7), (3, 6))),
        *blocks("stage5.", 1, 1, pairs((3, 5, 7), (3, 6))),
    ),
)


def _autoformer(
    widths: tuple[int, ...], heads: Sequence[int], ratios: Sequence[float], needed: int
) -> Space:
    """Layers are heads x width of the feed-forward part over the width."""
    layers = blocks("layer", needed, needed + 2, pairs(heads, ratios))
    return Space("autoformer", (Choice("image", (224,)), Choice("width", widths), *layers))


# Chen et al., "AutoFormer: Searching Transformers for Visual Recognition", 2021, table 1: the three
# supernets.
AUTOFORMERS = (
    _autoformer((192, 216, 240), (3, 4), (3.5, 4), 12),
    _autoformer((320, 384, 448), (5, 6, 7), (3, 3.5, 4), 12),
    _autoformer((528, 576, 624), (8, 9, 10), (3, 3.5, 4), 14),
)
