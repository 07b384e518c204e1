"""Products with few vectors: which are one side by side, and what a prologue takes."""

from __future__ import annotations

from dataclasses import replace

from operators import access, axes, index

from tvm_tile.device import find_device
from tvm_tile.graph.tile_graph import Operator
from tvm_tile.tile.few_rows.few_vectors import Matvec, Prologue, find_matvec, side_by_side
from tvm_tile.tile.few_rows.matvec import construct_matvec
from tvm_tile.tile.time import ALONE

H200 = find_device("nvidia/h200")
LLAMA = 2048, 8192


def product(
    name: str, n: int = LLAMA[1], k: int = LLAMA[0], *, letters: str = "mnk", turned: bool = False
) -> Operator:
    """``y[m, n] += x[m, k] * w[k, n]`` in float16, its axes named by ``letters``."""
    row, column, depth = (index(**{letter: 1}) for letter in letters)
    x = access("x", (1, k), row, depth, dtype="float16")
    places = (column, depth) if turned else (depth, column)
    w = access(name, (n, k) if turned else (k, n), *places, dtype="float16")
    write = access(f"sums_{name}", (1, n), row, column)
    extents = dict(zip(letters, (1, n, k), strict=True))
    return Operator(name, axes(letters[2], **extents), (x, w), write, 2)


def norm(m: int, k: int) -> tuple[Operator, Operator]:
    """The sum of a row's squares, and the row divided by it."""
    x = access("a", (m, k), index(m=1), index(k=1))
    sums = access("s", (m,), index(m=1))
    total = Operator("total", axes("k", m=m, k=k), (x,), sums, 2)
    write = access("x", (m, k), index(m=1), index(k=1), dtype="float16")
    return total, Operator("divide", axes("", m=m, k=k), (x, sums), write, 3)


def together(*operators: Operator) -> tuple[Operator, Matvec] | None:
    found = [find_matvec(operator, H200) for operator in operators]
    return side_by_side(operators, [part for part in found if part is not None])


class TestSideBySide:
    def test_a_first_axis_tells_sums_apart(self) -> None:
        found = together(product("gate"), product("up"))
        assert found is not None
        operator, parts = found
        assert [axis.extent for axis in operator.axes] == [2, 1, 8192, 2048]
        assert operator.write.tensor.shape == (2, 1, 8192)
        assert parts.parts == (0,)
        assert parts.rows == (2,)
        assert parts.summed == 3
        assert parts.streamed.tensor.name == "gate"
        assert [read.tensor.name for read in parts.beside] == ["up"]

    def test_whatever_axes_are_called(self) -> None:
        named, other = (together(product("gate"), product("up", letters=s)) for s in ("mnk", "abc"))
        assert named == other
        assert named is not None

    def test_not_of_other_forms(self) -> None:
        assert together(product("gate"), product("up", n=4096)) is None
        assert together(product("gate"), product("up", turned=True)) is None
        gate, up = product("gate"), product("up")
        other = replace(up.reads[0], tensor=replace(up.reads[0].tensor, name="y"))
        assert together(gate, replace(up, reads=(other, up.reads[1]))) is None

    def test_a_thread_has_no_more_loads_in_flight_than_for_one(self) -> None:
        found = together(product("gate"), product("up"))
        assert found is not None
        single = find_matvec(product("gate"), H200)
        assert single is not None
        for operator, parts in (found, (product("gate"), single)):
            tiles = construct_matvec(operator, parts, H200)
            assert tiles
            assert max(tile.loads for tile in tiles) == 8

    def test_it_takes_about_as_long_as_reading_both(self) -> None:
        found = together(product("gate"), product("up"))
        assert found is not None
        best = construct_matvec(*found, H200)[0]
        assert best.parts == 2
        assert "2 products" in best.describe()
        size = 2 * LLAMA[0] * LLAMA[1]
        streamed = construct_matvec(*found, H200, scene=ALONE)[0]
        assert 2 * size / H200.read_bandwidth < streamed.seconds < 5 * size / H200.read_bandwidth


class TestPrologue:
    def test_of_a_norm(self) -> None:
        made = Prologue.of(norm(2, 2048))
        assert made is not None
        assert (made.stages, made.sums, made.shared_bytes) == (2, 2, 2 * 2048 * 2)

    def test_not_of_sums_of_many_rows(self) -> None:
        assert Prologue.of(norm(9, 2048)) is None

    def test_more_threads_wait_for_fewer_loads_of_long_rows(self) -> None:
        made = Prologue.of(norm(1, 16384))
        assert made is not None
        few, many = made.part(64, H200), made.part(512, H200)
        assert many.loads < few.loads
        assert many.fills == few.fills

    def test_every_block_has_room_for_the_operand_and_pays_for_it(self) -> None:
        operator = product("w")
        bare = find_matvec(operator, H200)
        made = Prologue.of(norm(1, LLAMA[0]))
        assert bare is not None
        assert made is not None
        without = construct_matvec(operator, bare, H200)[0]
        tiles = construct_matvec(operator, replace(bare, prologue=made), H200)
        same = next(
            t
            for t in tiles
            if replace(t, seconds=0, shared_bytes=0, registers=0, work=None)
            == replace(without, seconds=0, shared_bytes=0, registers=0, work=None)
        )
        assert same.shared_bytes == without.shared_bytes + made.shared_bytes
        assert without.seconds < same.seconds < without.seconds + 2e-6

    def test_nothing_where_it_has_no_room(self) -> None:
        bare = find_matvec(product("w"), H200)
        large = Prologue(1, 0, 1, 1 << 20, 1 << 19, 1 << 19, 1 << 20)
        assert bare is not None
        assert construct_matvec(product("w"), replace(bare, prologue=large), H200) == ()
