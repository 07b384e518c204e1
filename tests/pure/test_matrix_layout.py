"""Which lane holds what of a matrix instruction: everything is held, and where the ISA says."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace

import pytest

from tvm_tile.device import find_device
from tvm_tile.device.device import MatrixInstruction
from tvm_tile.device.rocm import ROCM_DEVICES
from tvm_tile.tile.units.matrix_layout import layout_of

ALL = sorted(
    {(i, device.warp_size) for device in ROCM_DEVICES for i in device.matrix_instructions},
    key=str,
)
IDS = [f"{i.intrinsic}-{i.shape}-{i.in_dtype}" for i, _ in ALL]


def shape(intrinsic: str, m: int, k: int, dtype: str = "float16") -> MatrixInstruction:
    return MatrixInstruction((m, m, k), dtype, "float32", intrinsic)


@pytest.mark.parametrize(("instruction", "wave"), ALL, ids=IDS)
class TestEveryInstruction:
    def test_each_sum_is_held_once(self, instruction: MatrixInstruction, wave: int) -> None:
        layout = layout_of(instruction, wave)
        assert layout is not None
        held = {
            layout.place(lane, register) for lane in range(wave) for register in range(layout.sums)
        }
        rows, columns, _ = instruction.shape
        assert held == set(itertools.product(range(rows), range(columns)))
        assert layout.sums * wave == rows * columns

    def test_runs_are_neighbours(self, instruction: MatrixInstruction, wave: int) -> None:
        layout = layout_of(instruction, wave)
        assert layout is not None
        for lane, first in itertools.product(range(wave), range(0, layout.sums, layout.run)):
            row, column = layout.place(lane, first)
            found = [layout.place(lane, first + i) for i in range(layout.run)]
            assert found == [(row, column + i) for i in range(layout.run)]

    def test_lanes_hold_all_of_a_step(self, instruction: MatrixInstruction, wave: int) -> None:
        layout = layout_of(instruction, wave)
        assert layout is not None
        units: Counter[tuple[int, int]] = Counter()
        for lane in range(wave):
            row, first = layout.operand(lane)
            units.update((row, first + i) for i in range(layout.units))
        rows, _, depth = instruction.shape
        assert set(units) == set(itertools.product(range(rows), range(layout.step)))
        assert set(units.values()) == {layout.copies}
        # As much as the instructions of a step take.
        assert layout.step * 16 == layout.instructions * depth * layout.element
        assert layout.held * wave == rows * depth * layout.copies


HALVES = [pair for pair in ALL if pair[0].in_dtype in ("float16", "bfloat16")]


@pytest.mark.parametrize(("instruction", "wave"), HALVES, ids=str)
class TestSumsThatAreTheNextOperand:
    def test_each_column_stands_for_one(self, instruction: MatrixInstruction, wave: int) -> None:
        layout = layout_of(instruction, wave)
        assert layout is not None
        for columns in (32, 64, 128):
            assert sorted(map(layout.column, range(columns))) == list(range(columns))

    def test_a_lane_holds_what_it_loads_of_the_other(
        self, instruction: MatrixInstruction, wave: int
    ) -> None:
        """Lanes that hold the same of an operand have a part each."""
        layout = layout_of(instruction, wave)
        assert layout is not None
        lanes = wave // layout.size
        for lane, register in itertools.product(range(wave), range(128 // lanes)):
            block, held = divmod(register, layout.sums)
            row, column = layout.place(lane, held)
            found = layout.neighbour(lane, register)
            assert layout.column(found) == block * layout.size + column
            # The step's unit, of a row, that it is in, and the lane that gives it.
            step, within = divmod(found // 8, layout.step)
            giver = layout.operand(lane)[1] if layout.copies == 1 else lane // layout.size
            assert layout.operand(lane)[0] == row
            assert within - giver in range(layout.units)
            assert step == register // 8 // (layout.units // layout.copies)


# The references' chapters on matrix instructions: of the transposed product, for row and column
# the lane and its register.
@pytest.mark.parametrize(
    ("instruction", "wave", "places"),
    [
        (shape("mfma", 16, 16), 64, {(0, 0): (0, 0), (5, 6): (21, 2), (15, 15): (63, 3)}),
        (
            shape("mfma", 32, 8),
            64,
            {(0, 3): (0, 3), (0, 4): (32, 0), (1, 8): (1, 4), (31, 31): (63, 15)},
        ),
        (shape("wmma.gfx11", 16, 16), 32, {(0, 1): (16, 0), (3, 2): (3, 1), (15, 15): (31, 7)}),
        (shape("wmma.gfx12", 16, 16), 32, {(0, 7): (0, 7), (3, 8): (19, 0), (15, 15): (31, 7)}),
    ],
)
def test_sums_are_where_the_isa_says(
    instruction: MatrixInstruction,
    wave: int,
    places: dict[tuple[int, int], tuple[int, int]],
) -> None:
    layout = layout_of(instruction, wave)
    assert layout is not None
    assert {at: at for at in places} == {at: layout.place(*held) for at, held in places.items()}


@pytest.mark.parametrize(
    ("instruction", "wave", "held", "units", "step", "instructions"),
    [
        (shape("mfma", 16, 16), 64, 4, 1, 4, 2),
        (shape("mfma", 32, 8), 64, 4, 1, 2, 2),
        (shape("mfma", 16, 32), 64, 8, 1, 4, 1),
        (shape("mfma", 16, 4, "float32"), 64, 1, 1, 4, 4),
        (shape("mfma", 16, 16, "int8"), 64, 4, 1, 4, 4),
        (shape("wmma.gfx11", 16, 16), 32, 16, 2, 2, 1),
        (shape("wmma.gfx11", 16, 16, "int8"), 32, 16, 1, 1, 1),
        (shape("wmma.gfx12", 16, 16), 32, 8, 1, 2, 1),
        (shape("wmma.gfx12", 16, 16, "int8"), 32, 8, 1, 2, 2),
    ],
)
def test_what_a_lane_loads(
    instruction: MatrixInstruction,
    wave: int,
    held: int,
    units: int,
    step: int,
    instructions: int,
) -> None:
    layout = layout_of(instruction, wave)
    assert layout is not None
    found = (layout.held, layout.units, layout.step, layout.instructions)
    assert found == (held, units, step, instructions)


def test_other_instructions_have_none() -> None:
    for instruction in find_device("nvidia/h200").matrix_instructions:
        assert layout_of(instruction, 32) is None
    assert layout_of(replace(shape("mfma", 16, 16), intrinsic="wmma.gfx13"), 32) is None
