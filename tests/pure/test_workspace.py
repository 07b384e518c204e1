"""One workspace: values needed at once are apart, others share."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tvm_tile.plan.workspace import Extent, allocate

VALUES = st.lists(
    st.tuples(st.integers(1, 5000), st.integers(0, 10), st.integers(0, 5)), max_size=30
)


@given(VALUES)
def test_values_needed_in_the_same_step_never_overlap(
    values: list[tuple[int, int, int]],
) -> None:
    sizes = [size for size, _, _ in values]
    born = [begin for _, begin, _ in values]
    dies = [begin + length for _, begin, length in values]
    offsets, total = allocate(sizes, born, dies)
    extents = [Extent(n, offset, sizes[n]) for n, offset in enumerate(offsets)]
    for one in extents:
        assert one.offset % 256 == 0
        assert one.offset + one.size <= total
        for other in extents[: one.value]:
            together = born[one.value] <= dies[other.value] and born[other.value] <= dies[one.value]
            assert not (together and one.overlaps(other))


def test_a_chain_needs_two_values() -> None:
    offsets, total = allocate([1000] * 50, range(50), range(1, 51))
    assert total == 2048
    assert set(offsets) == {0, 1024}


def test_what_is_never_needed_at_once_takes_the_most_of_one() -> None:
    assert allocate([700, 300, 900], [0, 1, 2], [0, 1, 2], alignment=128) == ((0, 0, 0), 1024)


def test_nothing_takes_nothing() -> None:
    assert allocate([], [], []) == ((), 0)
