"""The operators of ``bench/results/candidates.json``, as the rules' constructors take them.

``tests/ir/test_measured_operators.py`` writes the file, and says whether it is still true.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tvm_tile.device import Device
from tvm_tile.files.json_data import revived
from tvm_tile.graph.tile_graph import Operator
from tvm_tile.tile.construct import construct_contraction
from tvm_tile.tile.few_rows.few_vectors import find_matvec
from tvm_tile.tile.few_rows.matvec import construct_matvec
from tvm_tile.tile.products.mma import construct_mma
from tvm_tile.tile.products.warp_tile import LEAST_LINE
from tvm_tile.tile.products.warpgroup import LONGEST_STEP, construct_warpgroup
from tvm_tile.tile.products.warpgroup_tile import LINE
from tvm_tile.tile.units.product import Product, find_product, fold_window, spread_steps

FILE = Path(__file__).parent / "data" / "measured_operators.jsonl"
MOST = 64  # tiles of a rule

Ranked = Sequence[tuple[str, float]]
"""Tiles in words with their predicted seconds, best first."""


@dataclass(frozen=True, slots=True)
class MeasuredOperator:
    """A product or convolution, of which tiles were measured.

    Attributes:
        name: ``SUITE:NAME:DTYPE``.
        operator: as kernels for CUDA cores see it; ``None`` where these do not take it.
        product: as matrix units see it, where the operator does not tell.
    """

    name: str
    operator: Operator | None
    product: Product | None

    def ranked(self, rule: str, device: Device) -> Ranked:
        """What a rule's constructor finds."""
        if rule == "contraction":
            assert self.operator is not None
            plans = construct_contraction(self.operator, device, MOST)
            return [(plan.describe(), plan.seconds) for plan in plans]
        if rule == "matvec":
            assert self.operator is not None
            few = find_matvec(self.operator, device)
            assert few is not None
            found = construct_matvec(self.operator, few, device)
            return [(tile.describe(), tile.seconds) for tile in found]
        product = self.product or (self.operator and find_product(self.operator))
        assert product is not None
        size = product.left.tensor.element_size
        if rule == "mma":
            warps = construct_mma(fold_window(product, LEAST_LINE // size), device, MOST)
            return [(tile.describe(), tile.seconds) for tile in warps]
        assert rule == "wgmma"
        folded = spread_steps(fold_window(product, LINE // size), LONGEST_STEP)
        groups = construct_warpgroup(folded, device, MOST)
        return [(tile.describe(), tile.seconds) for tile in groups]


def measured_operators() -> Mapping[str, MeasuredOperator]:
    """All of the file, by their names."""
    lines = FILE.read_text(encoding="utf-8").splitlines()
    found = [revived(MeasuredOperator, json.loads(line)) for line in lines]
    return {operator.name: operator for operator in found}
