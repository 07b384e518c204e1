"""Two products as one: which are, and the tiles that a device computes them with."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from operators import access, axes, einsum, index, letters

from tvm_tile.device import find_device, with_tf32
from tvm_tile.device.device import MemoryLevel
from tvm_tile.graph.tile_graph import AffineIndex, Operator
from tvm_tile.tile.attention.band import EVERYWHERE, Band
from tvm_tile.tile.attention.chain import (
    Chain,
    connect,
    is_along_rows,
    with_axes_of,
)
from tvm_tile.tile.attention.warpgroups import ChainTile, construct_chain

H200 = find_device("nvidia/h200")
SIZES = {"b": 2, "h": 3, "q": 200, "k": 130, "d": 64}
REGISTERS = 65536  # of a multiprocessor
PRODUCER = {1: 232, 2: 40, 3: 32}  # registers of a producer's thread, by consumers
CONSUMER = {1: 232, 2: 232, 3: 160}


def scores(
    left: str = "bhqd",
    right: str = "bhkd",
    out: str = "bhqk",
    dtype: str = "float16",
    **sizes: int,
) -> Operator:
    """``S = Q @ K.T``, added up in float32."""
    own = {name: size for name, size in (SIZES | sizes).items() if name in left + right}
    operator = einsum(left, right, out, dtype, **own)
    wide = replace(operator.write.tensor, dtype="float32")
    return replace(operator, write=replace(operator.write, tensor=wide))


def behind(
    first: Operator,
    reads: str = "bhij",
    values: str = "bhjn",
    out: str = "bhin",
    *,
    dtype: str | None = None,
    **sizes: int,
) -> Operator:
    """``O = S @ V`` with axes of its own names; those of ``S`` are as long as its dimensions."""
    extents = {"n": 48} | dict(zip(reads, first.write.tensor.shape, strict=True)) | sizes
    extents = {name: extents[name] for name in dict.fromkeys(reads + values)}
    shape = tuple(extents[name] for name in values)
    dtype = dtype or first.reads[0].tensor.dtype
    other = access("V", shape, *letters(values), dtype=dtype)
    write = access("O", tuple(extents[n] for n in out), *letters(out), dtype=dtype)
    handed = access("C", first.write.tensor.shape, *letters(reads))
    summed = "".join(name for name in extents if name not in out)
    return Operator("values", axes(summed, **extents), (handed, other), write, 2)


def with_indices(second: Operator, *indices: AffineIndex) -> Operator:
    """``second``, reading the scores elsewhere."""
    handed, other = second.reads
    return replace(second, reads=(replace(handed, indices=indices), other))


def connected(first: Operator, second: Operator) -> Chain | None:
    named = with_axes_of(first, second)
    return None if named is None else connect(first, named)


def chain_of(first: Operator, second: Operator) -> Chain:
    found = connected(first, second)
    assert found is not None
    return found


def attention(dtype: str = "float16", columns: int = 48, **sizes: int) -> Chain:
    first = scores(dtype=dtype, **sizes)
    return chain_of(first, behind(first, n=columns))


class TestNames:
    def test_axes_are_those_that_wrote_what_is_read(self) -> None:
        named = with_axes_of(scores(), behind(scores()))
        assert named is not None
        assert [axis.name for axis in named.axes] == ["b", "h", "q", "k", "n"]
        assert named.reads[0].indices == scores().write.indices
        assert named.write.indices == tuple(letters("bhqn"))

    def test_others_do_not_take_a_name_of_the_first_ones(self) -> None:
        second = behind(scores(), reads="hbkq", values="hbqd", out="hbkd", d=48)
        named = with_axes_of(scores(), second)
        assert named is not None
        assert [axis.name for axis in named.axes] == ["b", "h", "q", "k", "d.second"]
        assert named.axes[-1].extent == 48

    def test_dimensions_of_one_element(self) -> None:
        first = scores(b=1, q=1)
        named = with_axes_of(first, with_indices(behind(first), *(index(), *letters("hij"))))
        assert named is not None
        assert {axis.name for axis in named.axes if axis.extent > 1} == {"h", "k", "n"}

    @pytest.mark.parametrize(
        "indices",
        [
            [*letters("bhi"), index(j=1, n=1)],  # a sliding window
            [*letters("bhi"), index(1, j=1)],
            [*letters("bhi"), index(j=2)],
            [*letters("bhi"), index()],  # one key for all
            [*letters("bhi"), index(j=-1)],
        ],
    )
    def test_no_other_reads(self, indices: list[AffineIndex]) -> None:
        assert with_axes_of(scores(), with_indices(behind(scores()), *indices)) is None

    def test_one_read_of_what_is_handed_on(self) -> None:
        second = behind(scores())
        squared = replace(second, reads=(second.reads[0], second.reads[0]))
        none = replace(second, reads=second.reads[1:])
        for other in (squared, none):
            assert with_axes_of(scores(), other) is None
            assert connect(scores(), other) is None


class TestLinks:
    def test_attention(self) -> None:
        chain = attention()
        assert chain.keys.name == "k"
        assert [axis.name for axis in chain.first.left.free] == ["q"]
        assert [axis.name for axis in chain.second.right.free] == ["n"]
        assert [axis.name for axis in chain.second.batch] == ["b", "h"]
        assert chain.flops == 2 * 6 * 200 * 130 * (64 + 48)
        assert chain.traffic == 2 * 6 * (200 * 64 + 130 * 64 + 130 * 48 + 200 * 48)

    def test_weights_are_of_the_values_dtype(self) -> None:
        assert attention("bfloat16").second.left.tensor.dtype == "bfloat16"

    def test_heads_side_by_side(self) -> None:
        first = scores("bqhd", "bkhd")
        second = behind(first, values="bjhn", out="bihn")
        chain = chain_of(first, second)
        assert construct_chain(chain, H200, 1)
        assert [axis.name for axis in chain.first.batch] == ["b", "h"]

    def test_no_batch(self) -> None:
        first = scores("qd", "kd", "qk")
        chain = chain_of(first, behind(first, "ij", "jn", "in"))
        assert chain.first.batches == 1
        (tile,) = construct_chain(chain, H200, 1)
        assert tile.rounds.items == -(-200 // tile.rows)

    def test_keys_that_all_heads_share(self) -> None:
        """One head of keys: heads are batches, each of which reads them."""
        first = scores(right="bkd")
        chain = chain_of(first, behind(first, values="bjn", out="bhin"))
        assert {axis.name for axis in chain.first.batch} == {"b", "h"}
        assert chain.traffic == 2 * (6 * 200 * 64 + 2 * 130 * 64 + 2 * 130 * 48 + 6 * 200 * 48)

    def test_rows_of_two_axes(self) -> None:
        first = scores("qhd", "kd", "qhk")
        chain = chain_of(first, behind(first, "ixj", "jn", "ixn"))
        for product in (chain.first, chain.second):
            assert [axis.name for axis in (*product.left.free, *product.batch)] == ["q", "h"]

    def test_a_sum_over_rows(self) -> None:
        first = scores()
        assert connected(first, behind(first, reads="bhji", values="bhjn")) is None

    def test_a_sum_over_heads_too(self) -> None:
        first = scores()
        assert connected(first, behind(first, values="bhjn", out="bin")) is None
        first = scores("bqhd", "bkhd", "bqk")
        assert connected(first, behind(first, "bij", "bjn", "bin")) is None

    def test_a_diagonal(self) -> None:
        first = scores(q=130)
        second = behind(first)
        assert connected(first, with_indices(second, *letters("bhjj"))) is None

    def test_no_product_at_all(self) -> None:
        first = scores()
        lone = replace(first, reads=first.reads[:1])
        assert connected(lone, behind(first)) is None

    @pytest.mark.parametrize(
        ("name", "size"),
        [("j", 128), ("b", 2), ("i", 64)],
        ids=["some keys", "some batches", "some rows"],
    )
    def test_a_part_of_what_was_made(self, name: str, size: int) -> None:
        """What is left out takes part in a softmax; blocks are counted by the first product."""
        first = scores(b=4)
        assert connected(first, behind(first, **{name: size})) is None


def along(*words: str, use: str = "bhi", **sizes: int) -> bool:
    """Whether results of these axes of the scores are of rows, and used where ``use`` says."""
    first = scores(**sizes)
    second = behind(first)
    extents = dict(zip("bhij", first.write.tensor.shape, strict=True))
    handed = second.reads[0]
    found, used = [], []
    for number, word in enumerate(words):
        shape = tuple(extents[name] for name in word)
        result = access(f"m{number}", shape, *letters(word)).tensor
        summed = "".join(name for name in extents if name not in word)
        write = replace(handed, tensor=result, indices=tuple(letters(word)))
        found.append(Operator(f"m{number}", axes(summed, **extents), (handed, *used), write, 1))
        used.append(replace(write, indices=tuple(letters(use))))
    second = replace(second, reads=(*second.reads, *used))
    named = [with_axes_of(first, operator) for operator in (*found, second)]
    return is_along_rows(attention(**sizes).keys, [op for op in named if op is not None])


class TestBetween:
    """What is of a row of scores, such as a softmax's maximum and its sum."""

    def test_a_result_for_each_row(self) -> None:
        assert along("bhi")
        assert along("bhi", "bhi")
        assert along("bhi", "bhi", b=1)
        assert along()

    def test_results_of_something_else(self) -> None:
        for word in ("bhj", "bij", "bh", "hi", "bhij"):
            assert not along(word, use=word)
            assert not along("bhi", word, use=word)

    def test_of_square_scores(self) -> None:
        assert along("bhi", q=130)
        assert not along("bhj", use="bhj", q=130)
        assert not along("bhi", use="bhj", q=130)  # a row's result where another row is


class TestRefusals:
    def test_queries_that_lie_transposed(self) -> None:
        first = scores("bhdq", "bhkd", q=128, k=128)
        assert construct_chain(chain_of(first, behind(first)), H200, 9) == ()

    @pytest.mark.parametrize(
        ("right", "values"), [("bhdk", "bhjn"), ("bhkd", "bhnj")], ids=["keys", "values"]
    )
    def test_keys_that_lie_side_by_side_come_by_lines(self, right: str, values: str) -> None:
        first = scores("bhqd", right, q=128, k=128)
        tiles = construct_chain(chain_of(first, behind(first, values=values)), H200, 9)
        assert {tile.keys % 64 for tile in tiles} == {0}

    def test_other_dtypes(self) -> None:
        assert construct_chain(attention(), H200, 1)
        assert construct_chain(attention("bfloat16"), H200, 1)
        for dtype in ("float32", "int8", "uint8", "float8_e4m3fn"):
            assert construct_chain(attention(dtype), H200, 9) == ()
        assert construct_chain(attention("float32"), with_tf32(H200), 9) == ()

    @pytest.mark.parametrize("dtype", ["bfloat16", "float32", "int8"])
    def test_values_of_another_dtype(self, dtype: str) -> None:
        first = scores()
        assert construct_chain(chain_of(first, behind(first, dtype=dtype)), H200, 9) == ()

    @pytest.mark.parametrize("name", ["nvidia/a100", "nvidia/rtx4090", "emulated"])
    def test_other_devices(self, name: str) -> None:
        assert construct_chain(attention(), find_device(name), 9) == ()

    @pytest.mark.parametrize(
        "sizes",
        [{"d": 264}, {"columns": 264}, {"d": 60}, {"columns": 36}],
        ids=["depth", "columns", "strides of 120 bytes", "strides of 72 bytes"],
    )
    def test_other_sizes(self, sizes: dict[str, int]) -> None:
        assert construct_chain(attention(**sizes), H200, 9) == ()

    def test_values_of_two_axes(self) -> None:
        first = scores()
        chain = connected(first, behind(first, values="bhjnm", out="bhinm", m=8))
        assert chain is None or construct_chain(chain, H200, 9) == ()


def check(chain: Chain, tile: ChainTile) -> None:
    """What a multiprocessor needs of a tile, and what must be covered."""
    rows, keys = chain.first.left.extent, chain.keys.extent
    assert tile.rounds.items == chain.first.batches * -(-rows // tile.rows)
    assert 1 <= tile.grid <= min(tile.rounds.items, H200.multi_processor_count)
    assert tile.rows == 64 * tile.consumers
    assert tile.rows < rows + 64  # no warpgroup without a row
    assert tile.depth >= chain.first.depth.extent
    assert tile.depth % 64 == 0
    assert chain.second.right.extent <= tile.columns <= 256
    assert tile.columns % 8 == 0
    # An instruction's depth; what a box holds, and an instruction's columns.
    assert tile.keys % 16 == 0
    assert 16 <= tile.keys <= min(256, keys + 15)
    assert tile.stages >= 2
    lines = -(-tile.columns // 64) * 64
    ring = tile.stages * 2 * tile.keys * (tile.depth + lines)
    assert 2 * tile.rows * tile.depth + ring < tile.shared_bytes
    assert tile.shared_bytes <= H200.memory(MemoryLevel.SHARED).capacity
    # Scores, their halves, and sums.
    assert tile.keys // 2 + tile.keys // 4 + tile.columns // 2 < tile.registers
    assert tile.registers <= CONSUMER[tile.consumers]
    held = 128 * (PRODUCER[tile.consumers] + tile.consumers * CONSUMER[tile.consumers])
    assert held <= REGISTERS
    assert tile.block_size == 128 * (tile.consumers + 1) <= 1024
    assert tile.seconds >= max(chain.traffic / H200.read_bandwidth, 0)
    assert str(tile.keys) in tile.describe()


@given(
    heads=st.integers(1, 40),
    rows=st.integers(2, 700),
    keys=st.integers(2, 2000),
    depth=st.integers(1, 32),
    columns=st.integers(1, 32),
    dtype=st.sampled_from(["float16", "bfloat16"]),
)
def test_tiles_fit(heads: int, rows: int, keys: int, depth: int, columns: int, dtype: str) -> None:
    chain = attention(dtype, 8 * columns, b=1, h=heads, q=rows, k=keys, d=8 * depth)
    tiles = construct_chain(chain, H200, 1000)
    assert tiles
    for tile in tiles:
        check(chain, tile)
    assert [tile.seconds for tile in tiles] == sorted(tile.seconds for tile in tiles)
    assert len(set(tiles)) == len(tiles)
    assert construct_chain(chain, H200, 3) == tiles[:3]


def test_more_work_takes_longer() -> None:
    def seconds(**sizes: int) -> float:
        (tile,) = construct_chain(attention(columns=64, **sizes), H200, 1)
        return tile.seconds

    base = {"b": 8, "h": 16, "q": 1024, "k": 1024, "d": 64}
    for name in ("b", "q", "k", "d"):
        assert seconds(**base | {name: 2 * base[name]}) > seconds(**base)


class TestBands:
    """Causal attention and the like: some keys of a row only."""

    LONG = attention(columns=128, b=4, h=16, q=4096, k=4096, d=128)

    def test_half_the_work_takes_about_half_the_time(self) -> None:
        (whole,) = construct_chain(self.LONG, H200, 1)
        causal = construct_chain(replace(self.LONG, band=Band(None, 0)), H200, 1000)
        assert 0.5 < causal[0].seconds / whole.seconds < 0.6
        for tile in causal:
            tiles = -(-4096 // tile.keys)
            assert max(tile.rounds.lengths) == tiles
            assert sum(tile.rounds.lengths) < 0.6 * tiles * len(tile.rounds.lengths)

    def test_a_window_takes_as_many_steps_as_it_is_wide(self) -> None:
        for tile in construct_chain(replace(self.LONG, band=Band(-255, 0)), H200, 1000):
            assert max(tile.rounds.lengths) <= (256 + tile.rows - 2) // tile.keys + 2

    def test_heads_that_share_the_cache(self) -> None:
        """Keys and values of a head are 2 MiB."""
        for tile in construct_chain(replace(self.LONG, band=Band(None, 0)), H200, 1000):
            assert tile.rounds.together <= 12
            steps = sum(tile.rounds.lengths) * 64 / tile.grid
            assert steps <= tile.rounds.longest < 1.2 * steps

    def test_a_band_that_hides_nothing_changes_nothing(self) -> None:
        assert self.LONG.band == EVERYWHERE
        everything = replace(self.LONG, band=Band(-4095, 4095))
        assert construct_chain(everything, H200, 9) == construct_chain(self.LONG, H200, 9)


def test_few_keys_take_one_step() -> None:
    tiles = construct_chain(attention(k=50), H200, 1000)
    assert {tile.keys for tile in tiles} >= {64}
    assert max(tile.keys for tile in tiles) == 64


def of_longer_values(keys: int, length: int) -> Chain:
    """Attention to the first keys of a longer cache."""
    first = scores(k=keys)
    second = behind(first, n=64)
    values = replace(
        second.reads[1], tensor=replace(second.reads[1].tensor, shape=(2, 3, length, 64))
    )
    return chain_of(first, replace(second, reads=(second.reads[0], values)))


class TestValuesBehindTheLastKey:
    """What lies there is no zero, and zero times it may be no number."""

    @pytest.mark.parametrize(("keys", "steps"), [(100, set()), (320, {16, 32, 64, 80, 160})])
    def test_are_never_copied(self, keys: int, steps: set[int]) -> None:
        found = construct_chain(of_longer_values(keys, 4096), H200, 1000)
        assert {tile.keys for tile in found} == steps

    def test_are_zero_where_the_tensor_ends(self) -> None:
        found = construct_chain(of_longer_values(100, 100), H200, 1000)
        assert any(100 % tile.keys for tile in found)
