"""Sorting networks that keep only so many elements, as arrays of all positions."""

from __future__ import annotations

import itertools

import numpy as np
import numpy.typing as npt
import pytest

from tvm_tile.device import find_device
from tvm_tile.graph.rowwise import Rows, Sort
from tvm_tile.tile.rows.network import Network
from tvm_tile.tile.rows.sort import SortTile, construct_sort

Ints = npt.NDArray[np.int64]
NETWORKS = [
    Network(low, lanes, high, warps, run)
    for low, lanes, high, warps in itertools.product((0, 2), (0, 1, 3), (0, 1), (0, 2))
    for run in range(low + lanes + high + warps + 1)
    if low + lanes + high + warps
]


def stepped(x: Ints, first: int, side: int | None) -> Ints:
    """Elements behind the steps of a turn."""
    places = np.arange(len(x))
    falls = places >> side & 1 if side is not None else 0
    for bit in reversed(range(first + 1)):
        other = x[places ^ 1 << bit]
        keeps_first = (places >> bit & 1) == falls
        x = np.where(keeps_first, np.minimum(x, other), np.maximum(x, other))
    return x


@pytest.mark.parametrize("network", NETWORKS, ids=str)
def test_the_least_elements_are_left_in_order(network: Network) -> None:
    x = np.random.default_rng(0).permutation(1 << network.bits)
    for turn in network.sorting:
        x = stepped(x, turn.first, turn.side)
    for bit, turn in network.halving:
        x = np.minimum(x, x[np.arange(len(x)) ^ 1 << bit])
        x = stepped(x, turn.first, turn.side)
    np.testing.assert_array_equal(x[: 1 << network.run], np.arange(1 << network.run))


@pytest.mark.parametrize("network", NETWORKS, ids=str)
def test_each_bit_has_a_place_and_what_is_left_is_in_registers(network: Network) -> None:
    places = [network.place(bit) for bit in range(network.bits)]
    registers = sorted(place for is_register, place in places if is_register)
    threads = sorted(place for is_register, place in places if not is_register)
    assert registers == list(range(network.registers))
    assert threads == list(range(network.lanes + network.warps))
    kept = sum(is_register for is_register, _ in places[: network.run])
    assert len(network.left) == 1 << kept
    for first in range(-1, network.bits):
        assert sum(network.steps(first)) == first + 1


def tile(kept: int, length: int = 4096, dtype: str = "float32") -> SortTile:
    sort = Sort(Rows((1024, length), 1), kept, dtype, True, True, None)
    return construct_sort(sort, find_device("nvidia/h200"))


def test_few_of_many_elements_cost_less_than_all() -> None:
    assert tile(16).seconds < tile(256).seconds < tile(4096).seconds
    assert tile(16, dtype="float16").seconds < tile(16).seconds < tile(16, dtype="int64").seconds


def test_only_warps_share_memory() -> None:
    assert tile(16, 32).exchanged == 0
    assert tile(4096).exchanged == 4096
    assert 0 < tile(16).exchanged < 4096
