"""Three hundred products of sizes drawn by a seed: is any shape of ``gemm`` special?

Each extent is between 1 and 16,384, its logarithm evenly drawn, so that most are no multiple of
anything and many are thin. Weights are stored either way.
"""

from __future__ import annotations

import random
from math import exp, log

from bench.suites.facts import sizes
from bench.suites.gemm import DTYPES
from bench.workload import Case, Workload

SOURCE = "products of three extents drawn evenly in their logarithms, 1 to 16,384, by a seed"
_SEED, _COUNT, _LARGEST = 20261130, 100, 16384
_BY_ROWS, _BY_COLUMNS = "stored_n_k", "stored_k_n"


def workloads() -> tuple[Workload, ...]:
    """A hundred in each dtype; the family says how the weight is stored."""
    rng = random.Random(_SEED)
    found = []
    for dtype in DTYPES:
        for place in range(_COUNT):
            extents = {key: round(exp(rng.uniform(0, log(_LARGEST)))) for key in "MNK"}
            family = rng.choice((_BY_ROWS, _BY_COLUMNS))
            name = f"{place}_" + "x".join(str(extent) for extent in extents.values())
            own = sizes(extents | {"B": 1})
            found.append(Workload("drawn_products", name, family, dtype, None, own))
    return tuple(found)


def case(workload: Workload) -> Case:
    """The product of a matrix and a weight."""
    from bench.suites import operators

    is_transposed = workload.family == _BY_ROWS
    make = operators.product_with_transposed if is_transposed else operators.product
    return make(workload)
