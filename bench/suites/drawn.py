"""Twenty operators like Roller's, of sizes drawn by a seed: is any shape of ``ops`` special?"""

from __future__ import annotations

import random

from bench.suites import ops
from bench.workload import Case, Workload

SOURCE = "operators of ops, every extent but windows and strides times 0.6 to 1.4, by a seed"
_SEED = 20261122
_COUNTS = {"conv": 7, "depthwise": 4, "elementwise": 3, "pooling": 3, "matmul": 2, "reduce": 1}
_SCALED = ("N", "C", "F", "M", "K", "spatial", "reduce")  # images are square and scaled as one


def workloads() -> tuple[Workload, ...]:
    """Each in float32, named after the family."""
    rng = random.Random(_SEED)
    known = [w for w in ops.workloads() if w.dtype == "float32"]
    found = []
    for family, count in _COUNTS.items():
        alike = [w for w in known if w.family == family]
        for place in range(count):
            sizes = _drawn(dict(rng.choice(alike).sizes), rng)
            name = f"{family}_{place}"
            found.append(
                Workload("drawn", name, family, "float32", None, tuple(sorted(sizes.items())))
            )
    return tuple(found)


def case(workload: Workload) -> Case:
    """As in ``ops``."""
    return ops.case(workload)


def _drawn(sizes: dict[str, int | str], rng: random.Random) -> dict[str, int | str]:
    for key in _SCALED:
        if key in sizes:
            sizes[key] = _scaled(sizes[key], rng)
    if "H" in sizes:
        sizes["H"] = sizes["W"] = max(int(sizes.get("KH", 1)), _scaled(sizes["H"], rng))
    if "HO" in sizes:
        step, pad = int(sizes["stride"]), int(sizes["pad"])
        for output, image, window in (("HO", "H", "KH"), ("WO", "W", "KW")):
            sizes[output] = (int(sizes[image]) + 2 * pad - int(sizes[window])) // step + 1
    return sizes


def _scaled(extent: int | str, rng: random.Random) -> int:
    return max(1, round(int(extent) * rng.uniform(0.6, 1.4)))
