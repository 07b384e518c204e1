"""Which products are measured: Ladder's, the same with more vectors, and Marlin's."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from bench.suites.facts import read_facts

SOURCE = (
    "V0-V12 and M0-M12: Wang et al., Ladder (OSDI 2024), and BitBLAS, "
    "github.com/microsoft/BitBLAS; Marlin's four: see bench/suites/data/marlin_shapes.json"
)
VECTORS = (1, 16, 32, 64, 128)
PREFILL, MARLIN = "M", "Marlin"


@dataclass(frozen=True, slots=True)
class Product:
    """Vectors times the transpose of a matrix, ``x[vectors, depth] @ w[rows, depth].T``.

    Attributes:
        family: ``V`` for one vector, ``V16`` to ``V128`` for so many of the same matrices, ``M``
            for thousands, ``Marlin``.
        name: as its source names it, such as ``V3``.
        vectors: how many.
        rows: of the matrix.
        depth: elements of a vector.
        marlin_us: published time of Marlin's kernel on an H200, in microseconds.
    """

    family: str
    name: str
    vectors: int
    rows: int
    depth: int
    marlin_us: float | None = None

    def __str__(self) -> str:
        return f"{self.family} {self.name} {self.vectors} x {self.rows} x {self.depth}"


def family_of(vectors: int) -> str:
    """The family of Ladder's matrices with so many vectors."""
    return "V" if vectors == 1 else f"V{vectors}"


FAMILIES = (*map(family_of, VECTORS), PREFILL, MARLIN)


@cache
def products() -> tuple[Product, ...]:
    """All of them, in the order of :data:`FAMILIES`."""
    ladder = read_facts("ladder_shapes")["products"]
    few = [one for one in ladder if one["M"] == 1]
    many = [one for one in ladder if one["M"] > 1]
    found = [_product(family_of(count), one, count) for count in VECTORS for one in few]
    found += [_product(PREFILL, one, one["M"]) for one in many]
    marlin = read_facts("marlin_shapes")["products"]
    return (*found, *(_product(MARLIN, one, one["M"]) for one in marlin))


def _product(family: str, facts: dict[str, Any], vectors: int) -> Product:
    return Product(family, facts["id"], vectors, facts["N"], facts["K"], facts.get("us"))
