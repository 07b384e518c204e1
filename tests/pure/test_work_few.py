"""What kernels of few rows, and of codes, do: all of the product, and no byte left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from test_few_vectors import LLAMA, norm, together
from test_few_vectors import product as llama
from test_gates import LSTM
from test_matvec_tiles import product, tiles_of

from tvm_tile.device import find_device
from tvm_tile.graph.positions import Grouped
from tvm_tile.graph.tile_graph import Axis
from tvm_tile.tile.coded.few_vectors import CodedProduct, construct_coded
from tvm_tile.tile.coded.warpgroup import STEP, construct_coded_warpgroup
from tvm_tile.tile.few_rows.few_vectors import Prologue, find_matvec
from tvm_tile.tile.few_rows.gates import GateProduct, Gates, construct_gates
from tvm_tile.tile.few_rows.matvec import construct_matvec
from tvm_tile.tile.products.store_work import StoreWork
from tvm_tile.tile.tile import Tile
from tvm_tile.tile.time import AMID, Work, seconds_of

H200 = find_device("nvidia/h200")
COUNT = 24


def work(tile: Tile) -> Work:
    assert tile.work is not None
    assert (tile.work.blocks, tile.work.resident > 0) == (tile.grid, True)
    assert tile.work.warps * 32 == tile.block_size
    return tile.work


def total(work: Work, name: str) -> float:
    return work.blocks * sum(part.repeats * getattr(part, name) for part in work.parts)


def check_times(tiles: Sequence[Tile]) -> None:
    """Predictions are those of what tiles do, amid others, where they take less than alone."""
    works = [work(tile) for tile in tiles]
    amid = seconds_of(works, H200, AMID)
    assert amid == pytest.approx([tile.seconds for tile in tiles])
    assert np.all(amid < seconds_of(works, H200))


@pytest.mark.parametrize("layout", ["nk", "kn"])
@pytest.mark.parametrize("sizes", [(1, 512, 512), (2, 1000, 1001), (8, 4096, 4096)], ids=str)
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_matvec(sizes: tuple[int, int, int], dtype: str, layout: str) -> None:
    vectors, rows, depth = sizes
    operator = product(*sizes, dtype, layout=layout)
    tiles = tiles_of(operator)[:COUNT]
    for tile in tiles:
        own, size = work(tile), operator.reads[1].tensor.element_size
        assert (own.written, own.read) == (vectors * rows * 4, (vectors + rows) * depth * size)
        assert total(own, "fills") >= rows * depth * size + tile.grid * vectors * depth * size
        assert total(own, "stores") >= own.written
        # A warp's instruction is 32 multiply-adds; steps go on behind the end of the sum.
        assert 32 * total(own, "operations") >= vectors * rows * depth
        *staged, step, closing = own.parts
        assert len(staged) == (tile.stages > 0)  # vectors, where weights come through a ring
        assert step.repeats == tile.steps * tile.turns
        assert 0 < step.loads * step.repeats <= step.repeats * tile.loads
        assert bool(closing.barriers) == (tile.form == "column" or tile.lanes > 32)
    check_times(tiles)


def test_products_side_by_side_write_one_output() -> None:
    found = together(llama("gate"), llama("up"))
    assert found is not None
    for tile in construct_matvec(*found, H200, COUNT):
        own, weights = work(tile), 2 * LLAMA[0] * LLAMA[1] * 2
        assert own.read >= weights
        assert total(own, "fills") >= weights
        assert own.written * 2 == found[0].write.tensor.size


def test_each_block_makes_the_short_operand() -> None:
    operator, made = llama("w"), Prologue.of(norm(1, LLAMA[0]))
    without = find_matvec(operator, H200)
    assert without is not None
    assert made is not None
    parts = replace(without, prologue=made)
    (bare,) = construct_matvec(operator, without, H200, 1)
    (tile,) = construct_matvec(operator, parts, H200, 1)
    first = work(tile).parts[0]
    assert (len(work(tile).parts), len(work(bare).parts)) == (3, 2)
    assert first.fills == made.read_bytes == 2 * 2 * LLAMA[0]  # a row and its weights
    assert first.barriers == 3
    assert first.moves * 32 >= made.loads + made.elements
    assert work(tile).read == work(bare).read + LLAMA[0] * 2


def test_no_more_tiles_are_described_than_are_wanted() -> None:
    operator = product(1, 512, 1536)
    found = find_matvec(operator, H200)
    assert found is not None
    tiles = construct_matvec(operator, found, H200, 3, may_overhang=False)
    assert len(tiles) == 3
    assert not any(tile.overhangs for tile in tiles)


LARGE = Gates((GateProduct(4, 1024, 2), GateProduct(4, 512, 2)), 1024, 8, 96, 163840, 32768)


@pytest.mark.parametrize("gates", [replace(LSTM, written=2048), LARGE], ids=str)
def test_gates(gates: Gates) -> None:
    points = gates.vectors * gates.units * sum(p.gates * p.depth for p in gates.products)
    for tile in construct_gates(gates, H200, COUNT):
        own = work(tile)
        assert (own.read, own.written) == (
            gates.weights + gates.others - gates.written,
            gates.written,
        )
        assert total(own, "fills") >= own.read
        assert total(own, "stores") == pytest.approx(own.written)
        assert 32 * total(own, "operations") >= points
        steps, trees, closing = own.parts
        assert steps.repeats in [part.steps * part.turns for part in tile.products]
        assert trees.exchanges in [part.lanes.bit_length() - 1 for part in tile.products]
        assert closing.barriers == 1


@pytest.mark.parametrize("vectors", [1, 16, 32])
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_codes_of_few_vectors(vectors: int, bits: int) -> None:
    product = CodedProduct(vectors, 4096, 8192, bits, 128, 4096 * 64 * 2)
    tiles = construct_coded(product, H200, COUNT)
    for tile in tiles:
        own, (step, closing) = work(tile), work(tile).parts
        padded = -(-vectors // 8) * 8
        assert total(own, "flops") == 2 * padded * 4096 * tile.step * tile.parts * step.repeats
        assert step.repeats * tile.parts * tile.step >= 8192
        assert own.read == product.code_bytes + product.beside + vectors * 8192 * 2
        assert total(own, "fills") >= own.read + (tile.grid - 1) * vectors * 8192 * 2
        assert total(own, "stores") == pytest.approx(own.written) == vectors * 4096 * 2
        assert closing.barriers == 1
    check_times(tiles)


@pytest.mark.parametrize(("slot", "filled"), [(1, 128), (8, 82), (16, 81.1), (32, 81.1)])
def test_codes_of_vectors_in_groups(slot: int, filled: float) -> None:
    """16 tokens with 8 of 128 experts each: of the matrices 81 are met, on the average."""
    groups = Grouped(Axis("group", 128), (Axis("t", 16), Axis("k", 8)))
    product = CodedProduct(slot, 1536, 2048, 4, 128, 1536 * 16 * 2, groups=groups)
    assert product.count == 128
    assert product.filled == pytest.approx(filled, rel=0.02)
    matrices = 128 if slot == 1 else groups.met
    tiles = construct_coded(product, H200, COUNT)
    assert tiles
    for tile in tiles:
        own = tile.work
        assert own is not None
        assert tile.grid == product.slots * 1536 // tile.block_rows
        assert own.blocks == pytest.approx(tile.grid * product.filled / product.slots)
        assert own.read == matrices * (product.code_bytes + product.beside) + 128 * 2048 * 2
        assert total(own, "stores") == pytest.approx(own.written) == 128 * 1536 * 2
        assert own.asked == 0
        assert len(own.then) == (slot > 1)


def test_weights_are_scaled_where_sums_would_take_short_loads() -> None:
    product = CodedProduct(1, 4096, 8192, 4, 32, 4096 * 256, may_scale_weights=True)
    tiles = construct_coded(product, H200)
    assert {(tile.run, tile.scales_weights) for tile in tiles} == {(4, False), (16, True)}
    assert tiles[0].scales_weights
    whole = construct_coded(replace(product, group=128), H200)
    assert {(tile.run, tile.scales_weights) for tile in whole} == {(16, False)}
    exact = construct_coded(replace(product, may_scale_weights=False), H200)
    assert {(tile.run, tile.scales_weights) for tile in exact} == {(4, False)}


def test_codes_of_vectors_that_blocks_make() -> None:
    bare = CodedProduct(1, 4096, LLAMA[0], 4, 128, 4096 * 64 * 2)
    made = Prologue.of(norm(1, LLAMA[0]))
    assert made is not None
    before = {tile: tile.work for tile in construct_coded(bare, H200)}
    for tile in construct_coded(replace(bare, prologue=made), H200):
        warps = tile.block_size // 32
        assert tile.work.parts[0] == made.part(tile.block_size, H200)
        assert tile.work.read == bare.code_bytes + bare.beside + made.read_bytes
        assert tile.work.asked == tile.grid * warps * tile.stacked * 16 * 4 * tile.run
        (other,) = (own for own in before if own.describe() == tile.describe())
        assert tile.shared_bytes == other.shared_bytes + made.shared_bytes + warps * 4
    large = replace(made, shared_bytes=1 << 16)
    assert construct_coded(replace(bare, prologue=large), H200, COUNT) == ()


@pytest.mark.parametrize("vectors", [17, 64, 200, 4096])
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_codes_of_many_vectors(vectors: int, bits: int) -> None:
    product = CodedProduct(vectors, 4096, 4096, bits, 128, 4096 * 32 * 2, 4)
    bias = StoreWork(2, read_bytes=2 * 4096)
    tiles = construct_coded_warpgroup(product, 1, H200, bias, COUNT)
    for tile in tiles:
        own, (_, chunk, stored) = work(tile), work(tile).parts
        assert total(own, "flops") >= 2 * vectors * 4096 * 4096
        assert chunk.repeats * tile.depth * tile.grid >= tile.tiles * 4096
        assert chunk.steps * STEP == tile.depth
        assert own.read == product.code_bytes + product.beside + (vectors + 1) * 4096 * 2
        # All codes come once for each tile along the vectors, and the vectors likewise.
        fills = tile.counts[1] * (product.code_bytes + product.beside)
        fills += tile.counts[0] * vectors * 4096 * 2
        assert total(own, "fills") >= fills * (1 - 1e-9)
        assert total(own, "stores") >= own.written * (1 - 1e-9)
        assert own.written == vectors * 4096 * 2
        assert (stored.meetings > 0) == (tile.splits > 1)
    check_times(tiles)
