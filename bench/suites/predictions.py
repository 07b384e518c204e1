"""A hundred networks of three searches, drawn by a seed: are those that nobody fitted predicted?

``bench/report/predictions.py`` has what is asked of the results.
"""

from __future__ import annotations

import random
from collections import Counter
from itertools import islice
from typing import TYPE_CHECKING

from bench.suites.model_suite import network_case
from bench.suites.spaces import AUTOFORMERS, MOBILENET_V3, PROXYLESS
from bench.workload import Case, Input, Workload

if TYPE_CHECKING:
    import torch

SOURCE = (
    "networks of the search spaces of Once-for-All (MobileNetV3), ProxylessNAS and AutoFormer, "
    "drawn by a seed; of four in a row the last is the one before with one change"
)
IS_SEARCH = True
_SEED = 20261130
_DRAWN = ((MOBILENET_V3, 34), (PROXYLESS, 33), *zip(AUTOFORMERS, (11, 11, 11), strict=True))
_ALIKE = 4  # those of one batch size, and the last of them has a neighbour
_BATCHES = (1, 8)


def workloads() -> tuple[Workload, ...]:
    """Each in float16, half of them for one image and half for eight."""
    rng = random.Random(_SEED)
    numbers: Counter[str] = Counter()
    found = []
    for space, count in _DRAWN:
        for place, candidate in enumerate(islice(space.walk(rng, _ALIKE), count)):
            name = f"{space.family}_{numbers[space.family]}"
            numbers[space.family] += 1
            batch = _BATCHES[place // _ALIKE % len(_BATCHES)]
            found.append(Workload("predictions", name, space.family, "float16", batch, candidate))
    return tuple(found)


def case(workload: Workload) -> Case:
    """The network with random weights, and its images."""
    from bench.suites.networks.seeded import seeded

    # With less the deepest answer with their biases alone, with more rounding grows block by block.
    module = seeded(lambda: _network(workload), gain=1.7)
    image = workload.size("image")
    return network_case(
        workload, module, (Input((workload.batch or 1, 3, image, image), workload.dtype),)
    )


def _network(workload: Workload) -> torch.nn.Module:
    from bench.suites.networks.autoformer import AutoFormer
    from bench.suites.networks.mobile import once_for_all, proxyless

    build = {"mobilenet_v3": once_for_all, "proxyless": proxyless, "autoformer": AutoFormer}
    return build[workload.family](dict(workload.sizes))
