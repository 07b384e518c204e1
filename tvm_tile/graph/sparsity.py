"""Matrices of which some of each few neighbours along the sum are zeros, without these.

Hopper's tensor cores multiply a matrix so kept, two of four, at twice the rate: they are handed its
other numbers, and for each four a *nibble* that says which two of them these are (PTX ISA, "Sparse
matrix storage"). Nibbles lie as the lanes of a warpgroup take them for products of 64 rows by 64
elements of the sum: a lane has a word for two instructions, 32 elements each.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

_LANES = 128  # of a warpgroup
PLACES_ROWS = 64  # rows that a warpgroup's words tell of
PLACES_DEPTH = 128  # elements of the sum that they tell of, two words a lane
PLACES_WORDS = PLACES_DEPTH // 64 * _LANES
_TALLEST = 256  # rows of a tile, of which none is to be without words
_FEW = 1 << 14  # elements that are looked at before all are
_AT_ONCE = 1 << 22  # elements

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True)
class Sparsity:
    """Numbers of a matrix of which, of each ``of`` neighbours, at most ``kept`` are no zeros.

    Neighbours are along the sum.
    """

    kept: int
    of: int

    @property
    def share(self) -> float:
        """Share of the numbers that is kept."""
        return self.kept / self.of

    def __str__(self) -> str:
        return f"{self.kept}:{self.of}"


TWO_OF_FOUR = Sparsity(2, 4)


@dataclass(frozen=True, slots=True)
class Compressed:
    """What a matrix is of which a product reads the kept numbers.

    Attributes:
        sparsity: how many are kept.
        places: name of the tensor that tells which, of :func:`places_shape`.
    """

    sparsity: Sparsity
    places: str

    def places_bytes(self, depth: float) -> float:
        """Bytes that tell which numbers are kept of a row along ``depth`` elements of the sum."""
        nibble = 0.5
        return depth / self.sparsity.of * nibble


def places_shape(rows: int, depth: int) -> tuple[int, int]:
    """Shape of the words of nibbles of a matrix, uint32, whose rows are of whole tiles.

    The nibble of row ``r`` and of elements ``k`` to ``k + 3`` is in row ``r // 64``, word
    ``k // 128 * 256 + (r % 64 // 16 * 32 + r % 8 * 4 + k % 64 // 16) * 2 + k % 128 // 64``, from
    bit ``r % 16 // 8 * 16 + k % 16`` on.
    """
    tall = -(-rows // _TALLEST) * _TALLEST // PLACES_ROWS
    return tall, -(-depth // PLACES_DEPTH) * PLACES_WORDS


def _nibbles() -> tuple[Array, Array]:
    """By which of four are kept, as bits, their nibble; and whether these are two at most.

    A group with fewer takes other places, too: a nibble that has one twice means nothing.
    """
    nibbles, is_told = np.zeros(16, np.uint8), np.zeros(16, bool)
    for bits in range(16):
        own = [place for place in range(4) if bits >> place & 1]
        is_told[bits] = len(own) <= TWO_OF_FOUR.kept
        others = [place for place in range(4) if place not in own]
        first, second = sorted([*own, *others][: TWO_OF_FOUR.kept])
        nibbles[bits] = first | second << 2
    return nibbles, is_told


_NIBBLES, _IS_TOLD = _nibbles()


def _groups(part: Array) -> Array:
    """Rows as the bits of their numbers, in groups of four."""
    bits = np.ascontiguousarray(part).view(f"u{part.itemsize}")
    return bits.reshape(len(part), -1, TWO_OF_FOUR.of)


def _kept_bits(groups: Array) -> Array:
    """Which numbers of each group of four are no zeros of either sign, as bits."""
    is_kept = groups << 1 != 0
    found = np.zeros(groups.shape[:-1], np.uint8)
    for place in range(TWO_OF_FOUR.of):
        found |= is_kept[..., place].view(np.uint8) << place
    return found


def is_two_of_four(matrix: Array) -> bool:
    """Whether a matrix, rows by summed elements, has at most two numbers in each four.

    One of zeros alone has, too.
    """
    rows, depth = matrix.shape
    if depth % TWO_OF_FOUR.of:
        return False
    few = matrix[:: max(1, rows * depth // _FEW)]  # others seldom get beyond these
    return all(_IS_TOLD[_kept_bits(_groups(part))].all() for part in (few, *_parts(matrix)))


def _parts(matrix: Array) -> list[Array]:
    """A matrix by some rows at a time, so that what is made of these stays small."""
    each = max(1, _AT_ONCE // matrix.shape[1])
    return [matrix[first : first + each] for first in range(0, len(matrix), each)]


def compress(matrix: Array) -> tuple[Array, Array]:
    """The kept numbers of a matrix, two of four neighbours in a row, and the words that tell which.

    Args:
        matrix: rows by summed elements, for which :func:`is_two_of_four` holds.

    Returns:
        The numbers, rows by half of the elements, and the words, of :func:`places_shape`.
    """
    rows, depth = matrix.shape
    values = np.empty((rows, depth // 2), matrix.dtype)
    tall, wide = places_shape(rows, depth)
    # Behind the last row and element a nibble says something, too, of zeros.
    nibbles = np.full((tall * PLACES_ROWS, wide // PLACES_WORDS * PLACES_DEPTH // 4), _NIBBLES[0])
    first = 0
    for part in _parts(matrix):
        groups = _groups(part)
        own = _NIBBLES[_kept_bits(groups)]
        places = np.stack([own & 3, own >> 2], axis=2).astype(np.intp)
        last = first + len(part)
        kept = np.take_along_axis(groups, places, 2).reshape(len(part), -1)
        values[first:last] = kept.view(matrix.dtype)
        nibbles[first:last, : own.shape[1]] = own
        first = last
    return values, _words(nibbles)


def _words(nibbles: Array) -> Array:
    """Words as lanes take them, of nibbles by rows and groups of four."""
    rows, groups = nibbles.shape
    shape = (rows // 64, 4, 2, 8, groups // 32, 2, 4, 4)
    # Rows: tile, warp, half, of eight; groups: chunk, word, lane of four, of four.
    tile, warp, half, row, chunk, word, lane, group = range(8)
    lying = nibbles.reshape(shape).transpose(tile, chunk, warp, row, lane, word, half, group)
    pairs = np.ascontiguousarray(lying).reshape(-1, 2)
    packed = (pairs[:, 0] | pairs[:, 1] << 4).view("<u4")
    return packed.astype(np.uint32).reshape(rows // PLACES_ROWS, -1)


def with_places(words: Array) -> Array:
    """Words of nibbles that tell two different places each, in order: these as they are, and of any
    others some."""
    known = np.unique(_NIBBLES[_IS_TOLD])
    settled = known[np.arange(16) % len(known)].astype(np.uint32)
    settled[known] = known
    shifts = np.arange(0, 32, 4, dtype=np.uint32)
    nibbles = words[..., None] >> shifts & np.uint32(15)
    found: Array = np.bitwise_or.reduce(settled[nibbles] << shifts, axis=-1)
    return found
