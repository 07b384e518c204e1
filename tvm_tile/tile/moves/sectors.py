"""Sectors and wavefronts of a copy: counted for some warps or boxes, element by element."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from tvm_tile.graph.tile_graph import Access, Axis
from tvm_tile.tile.asked import BANKS, WORD
from tvm_tile.tile.cost import SECTOR

Ints = npt.NDArray[np.int64]


def positions(flat: Ints, axes: Sequence[Axis]) -> dict[str, Ints]:
    """Position along each axis for flat positions, the last axis the fastest."""
    found = {}
    for axis in reversed(axes):
        found[axis.name] = flat % axis.extent
        flat = flat // axis.extent
    return found


def asked_sectors(reads: Sequence[Access], samples: Sequence[dict[str, Ints]], units: int) -> float:
    """Sectors that a copy's units, warps or boxes, read, each for itself; they are as the samples.

    Args:
        reads: what the copy reads.
        samples: the outputs of some units: values of the axes, one of each output or, of a box,
            those of each axis along a dimension of its own.
        units: number of all units.
    """
    touched = sum(len(np.unique(_sectors(read, at))) for read in reads for at in samples)
    return units * touched / len(samples)


def _sectors(access: Access, places: dict[str, Ints]) -> Ints:
    """The sector of each element that an access touches."""
    return np.asarray(_elements(access, places) * access.tensor.element_size // SECTOR)


def _elements(access: Access, places: dict[str, Ints]) -> Ints:
    """The elements that an access touches, by their places in memory."""
    index = access.indices[0]
    return index.offset + sum(
        (factor * places[name] for name, factor in index.terms), np.zeros(1, np.int64)
    )


def count_sectors(access: Access, places: dict[str, Ints]) -> tuple[int, int, int]:
    """Sectors, lines of four, and elements that an access touches at these values of its axes."""
    sectors = np.unique(_sectors(access, places))
    elements = np.unique(_elements(access, places))
    return len(sectors), len(np.unique(sectors // 4)), len(elements)


def pitches(axes: Sequence[Axis], across: str, size: int) -> tuple[dict[str, int], int]:
    """Strides of a box in shared memory, and its size, both in elements.

    Args:
        axes: its axes, as its output lies.
        across: name of the axis along which it is loaded: its pitch is an odd number of words.
        size: bytes of an element.
    """
    words = max(1, WORD // size)
    strides, stride = {}, 1
    for axis in reversed(axes):
        if axis.name == across:
            stride = -(-stride // words) * words
            stride += words * (stride // words % 2 == 0)
        strides[axis.name] = stride
        stride *= axis.extent
    return strides, stride


def wavefronts(
    order: Sequence[Axis], vector: int, strides: Mapping[str, int], size: int, warp: int
) -> int:
    """Wavefronts in which a warp moves an element of each thread, as most words of one bank.

    Args:
        order: axes of a box in shared memory, as threads go through it, ``vector`` elements each.
        vector: elements between neighbouring threads.
        strides: strides of the axes there, in elements.
        size: bytes of an element.
        warp: threads of a warp.
    """
    count = min(warp, math.prod(axis.extent for axis in order) // vector)
    places = positions(np.arange(count, dtype=np.int64) * vector, order)
    found = sum((places[name] * stride for name, stride in strides.items()), np.int64(0))
    words = np.unique(found * size // WORD)
    return int(np.bincount(words % BANKS).max()) * max(1, size // WORD)
