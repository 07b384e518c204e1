"""The first choice of products with codes is not much slower than the fastest measured tile.

``bench/results`` has tiles that were measured on a GPU, of rules that ``test_time_model.py`` has no
samples of. The rules' constructors rank tiles of the same operators, without a GPU and without TVM.
The regret is what the first choice was measured to take, over what the fastest tile did. A change
that chooses worse fails here.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from bench.coded_tiles.record import TILES, by_product, read, shape_of
from bench.report.compare import geometric_mean
from tvm_tile.device import find_device
from tvm_tile.tile.coded.few_vectors import CodedProduct, construct_coded
from tvm_tile.tile.coded.warpgroup import construct_coded_warpgroup
from tvm_tile.tile.products.store_work import StoreWork

RESULTS = Path(__file__).parents[2] / "bench" / "results"
H100 = find_device("nvidia/h100")


@dataclass(frozen=True, slots=True)
class Measured:
    """One operator's tiles of one rule.

    Attributes:
        ranked: all tiles that the rule has now, best first.
        times: of those that were measured, in whatever unit.
    """

    ranked: tuple[str, ...]
    times: Mapping[str, float]

    @property
    def is_first_known(self) -> bool:
        """Whether the first choice was measured."""
        return self.ranked[0] in self.times

    @property
    def regret(self) -> float:
        """Of the best ranked tile that was measured."""
        first = next(tile for tile in self.ranked if tile in self.times)
        return self.times[first] / min(self.times.values())


def few_coded() -> Iterator[Measured]:
    """Each product of few vectors with codes of ``python -m bench.coded_tiles``, on an H100."""
    for product, records in by_product(read(RESULTS / TILES, "nvidia/h100")).items():
        ranked = tuple(str(shape_of(tile)) for tile in construct_coded(product, H100))
        yield Measured(ranked, {str(one.shape): one.us for one in records})


def many_coded() -> Iterator[Measured]:
    """Each product of many vectors with codes of ``python -m bench.coded_tiles.many``."""
    seconds: dict[tuple[int, int, int], dict[str, float]] = defaultdict(dict)
    for line in (RESULTS / "coded_many.jsonl").read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        assert record["device"] == "nvidia/h100"
        seconds[record["vectors"], record["rows"], record["depth"]][record["tile"]] = record["us"]
    for (vectors, rows, depth), own in seconds.items():
        # Four bits, and scales of float16 for each 128; bias and ReLU behind the sums.
        beside = rows * depth // 128 * 2
        product = CodedProduct(vectors, rows, depth, 4, 128, beside, instructions=4)
        tiles = construct_coded_warpgroup(product, 1, H100, StoreWork(2, read_bytes=2 * rows))
        yield Measured(tuple(tile.describe() for tile in tiles), own)


# Of how many operators' first choice nothing is known; of the regrets, the mean and the worst.
@pytest.mark.parametrize(
    ("measured", "operators", "unknown", "mean", "worst"),
    [
        pytest.param(few_coded, 5, 0, 1.038, 1.100, id="coded"),
        pytest.param(many_coded, 13, 3, 1.020, 1.060, id="coded_warpgroup"),
    ],
)
def test_first_choices_lose_no_more_than_before(
    measured: Callable[[], Iterator[Measured]],
    operators: int,
    unknown: int,
    mean: float,
    worst: float,
) -> None:
    found = list(measured())
    assert len(found) == operators
    assert sum(not each.is_first_known for each in found) <= unknown
    regrets = [each.regret for each in found]
    assert geometric_mean(regrets) < mean
    assert max(regrets) < worst
