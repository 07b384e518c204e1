"""Roles of axes in products: rows, columns, depth, batches and steps; what has none."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from operators import (
    access,
    axes,
    conv2d,
    conv_nhwc,
    depthwise,
    einsum,
    elementwise,
    index,
    letters,
    matmul,
    row_sum,
)

from tvm_tile.graph.tile_graph import AffineIndex, Operator
from tvm_tile.tile.units.product import Operand, Product, find_product, fold_window, spread_steps


def product_of(operator: Operator) -> Product:
    found = find_product(operator)
    assert found is not None
    return found


def roles(operator: Operator) -> tuple[str, str, str, str, str]:
    """Rows, columns, batches, steps, depth: their axes' names."""
    found = product_of(operator)
    groups = (found.left.free, found.right.free, found.batch, found.steps, (found.depth,))
    rows, columns, batch, steps, depth = ("".join(a.name for a in group) for group in groups)
    return rows, columns, batch, steps, depth


def grouped(channels: int = 16) -> Operator:
    """4 groups of 12 filters over 16 channels each, which lie ``channels`` apart."""
    image = access("X", (30, 4 * channels), index(y=1, p=1), index(g=channels, c=1))
    weight = access("W", (48, 3, 16), index(g=12, f=1), index(p=1), index(c=1))
    write = access("Y", (28, 48), index(y=1), index(g=12, f=1))
    extents = {"y": 28, "g": 4, "f": 12, "p": 3, "c": 16}
    return Operator("grouped", axes("pc", **extents), (image, weight), write, 2)


class TestRoles:
    @pytest.mark.parametrize(
        ("left", "right", "depth_major"),
        [
            ("mk", "kn", (True, False)),
            ("mk", "nk", (True, True)),
            ("km", "kn", (False, False)),
            ("km", "nk", (False, True)),
        ],
    )
    def test_matrices_by_rows_or_columns(
        self, left: str, right: str, depth_major: tuple[bool, bool]
    ) -> None:
        operator = einsum(left, right, "mn", m=96, n=40, k=200)
        assert roles(operator) == ("m", "n", "", "", "k")
        found = product_of(operator)
        assert (found.left.is_depth_major, found.right.is_depth_major) == depth_major
        assert (found.left.extent, found.right.extent, found.batches) == (96, 40, 1)
        assert found.flops == 2 * 96 * 40 * 200 == operator.total_flops
        assert found.traffic == 2 * (96 * 200 + 40 * 200 + 96 * 40)

    def test_the_outputs_contiguous_axis_is_among_the_columns(self) -> None:
        assert roles(einsum("mk", "kn", "nm", m=96, n=40, k=200))[:2] == ("n", "m")
        assert roles(einsum("kn", "mk", "mn", m=96, n=40, k=200))[:2] == ("m", "n")

    def test_a_batch_is_in_both_operands(self) -> None:
        assert roles(einsum("bhmk", "bhnk", "bhmn", b=2, h=3, m=50, n=50, k=64)) == (
            *("m", "n", "bh", "", "k"),
        )

    def test_what_shares_its_weights_is_rows(self) -> None:
        operator = einsum("bmk", "kn", "bmn", b=3, m=5, n=48, k=64)
        assert roles(operator) == ("bm", "n", "", "", "k")
        assert product_of(operator).left.extent == 15

    def test_rows_are_in_the_order_of_their_dimensions(self) -> None:
        assert roles(einsum("mbk", "kn", "bmn", b=3, m=5, n=48, k=64))[0] == "mb"

    def test_further_summed_axes_are_steps(self) -> None:
        assert roles(einsum("mjk", "njk", "mn", m=96, n=40, j=4, k=200))[3:] == ("j", "k")
        # The depth is to be contiguous in both, or lie behind contiguous rows or columns.
        assert find_product(einsum("mkj", "njk", "mn", m=96, n=40, j=4, k=200)) is None

    def test_a_contiguous_axis_is_the_depth_though_another_is_longer(self) -> None:
        assert roles(einsum("mjk", "njk", "mn", m=96, n=40, j=400, k=64))[3:] == ("j", "k")

    def test_the_product_of_a_matrix_with_itself(self) -> None:
        operator = einsum("ik", "jk", "ij", i=64, j=64, k=128)
        left, right = operator.reads
        gram = replace(operator, reads=(left, replace(right, tensor=left.tensor)))
        assert roles(gram) == ("i", "j", "", "", "k")

    def test_float32_is_a_product_too(self) -> None:
        assert roles(matmul(8, 16, 32)) == ("i", "j", "", "", "k")


class TestConvolutions:
    @pytest.mark.parametrize(("stride", "dilation"), [(1, 1), (2, 1), (1, 2)])
    def test_places_are_rows_and_the_window_is_steps(self, stride: int, dilation: int) -> None:
        operator = conv_nhwc(stride=stride, dilation=dilation, padding=1)
        assert roles(operator) == ("nyx", "f", "", "pq", "c")
        found = product_of(operator)
        assert found.left.indices[1] == index(-1, y=stride, p=dilation)
        assert found.left.is_depth_major
        assert found.right.is_depth_major
        assert found.flops == operator.total_flops

    def test_a_pointwise_one_has_no_steps(self) -> None:
        operator = conv_nhwc(kernel=1)
        assert roles(operator) == ("nyx", "f", "", "", "c")
        # The window's dimensions of one element are left out.
        assert product_of(operator).right.tensor.shape == (72, 64)

    def test_channels_first_have_no_contiguous_depth(self) -> None:
        assert find_product(conv2d(64, 72, 14, 3)) is None


class TestUnits:
    """Axes and dimensions of one element."""

    def test_they_have_no_role(self) -> None:
        operator = einsum("bmk", "bkn", "bmn", b=1, m=96, n=40, k=200)
        assert roles(operator) == ("m", "n", "", "", "k")
        found = product_of(operator)
        assert found.left.tensor.shape == (96, 200)
        assert found.left.strides == (400, 2)

    def test_one_row(self) -> None:
        found = product_of(einsum("mk", "nk", "mn", m=1, n=40, k=200))
        assert (found.left.free, found.left.tensor.shape, found.left.extent) == ((), (200,), 1)

    def test_a_broadcast_dimension(self) -> None:
        left = access("A", (4, 1, 24, 64), *letters("b"), index(), *letters("mk"), dtype="float16")
        right = access("B", (1, 3, 64, 40), index(), *letters("hkn"), dtype="float16")
        write = access("C", (4, 3, 24, 40), *letters("bhmn"), dtype="float16")
        extents = {"b": 4, "h": 3, "m": 24, "n": 40, "k": 64}
        operator = Operator("mm", axes("k", **extents), (left, right), write, 2)
        assert roles(operator) == ("bm", "hn", "", "", "k")

    def test_a_left_out_dimension_must_be_read_at_its_only_element(self) -> None:
        # A window of three over an image of one line, padded behind: two of its lines are zero.
        operator = einsum("ypc", "fpc", "yf", y=96, p=3, f=40, c=64)
        image = access("A", (96, 1, 64), *letters("ypc"), dtype="float16")
        padded = replace(operator, reads=(image, operator.reads[1]))
        assert find_product(padded) is None
        ahead = replace(image, indices=(index(y=1), index(-1), index(c=1)))
        assert find_product(replace(operator, reads=(ahead, operator.reads[1]))) is None


def test_groups_of_channels_are_a_batch() -> None:
    assert roles(grouped()) == ("y", "f", "g", "p", "c")
    found = product_of(grouped())
    assert found.left.tensor.shape == (30, 4, 16)
    assert found.right.tensor.shape == (4, 12, 3, 16)
    assert found.left.strides == (256, 64, 4)


class TestRefusals:
    @pytest.mark.parametrize(
        "operator",
        [row_sum(64, 64), elementwise(64, 64), depthwise(64, 14, 3)],
        ids=lambda operator: operator.name,
    )
    def test_what_is_no_product(self, operator: Operator) -> None:
        assert find_product(operator) is None

    def test_one_operand_alone(self) -> None:
        operator = einsum("mk", "nk", "mn", m=96, n=40, k=200)
        assert find_product(replace(operator, reads=operator.reads[:1])) is None
        assert find_product(replace(operator, reads=(*operator.reads, operator.write))) is None

    def with_left(self, **changes: object) -> Operator:
        operator = einsum("mk", "nk", "mn", m=96, n=40, k=200)
        return replace(operator, reads=(replace(operator.reads[0], **changes), operator.reads[1]))

    def test_computed_reads(self) -> None:
        assert find_product(self.with_left()) is not None
        assert find_product(self.with_left(is_computed=True)) is None

    def test_gathers(self) -> None:
        gathered = AffineIndex((("m", 1),), is_exact=False)
        assert find_product(self.with_left(indices=(gathered, index(k=1)))) is None

    def test_different_dtypes(self) -> None:
        tensor = access("A", (96, 200), dtype="float32").tensor
        assert find_product(self.with_left(tensor=tensor)) is None

    def test_an_axis_of_no_operand(self) -> None:
        assert find_product(einsum("mk", "k", "mn", m=96, n=40, k=200)) is None

    @pytest.mark.parametrize(
        ("shape", "indices"),
        [
            ((400,), [index(m=1, k=1)]),  # the sum slides along with the rows
            ((96, 200, 8), [*letters("mk"), index()]),  # neither rows nor sum contiguous
            ((96, 200), [index(95, m=-1), index(k=1)]),  # turned round
            ((96, 399), [index(m=1), index(k=2)]),  # every other element
            ((96, 296), [index(m=1), index(m=1, k=1)]),  # rows twice
            ((96, 96, 200), [*letters("mmk")]),  # a diagonal
        ],
    )
    def test_places_that_no_box_reaches(
        self, shape: tuple[int, ...], indices: list[AffineIndex]
    ) -> None:
        left = access("A", shape, *indices, dtype="float16")
        operator = self.with_left(tensor=left.tensor, indices=left.indices)
        assert find_product(operator) is None

    def test_parts_of_another_size(self) -> None:
        """Groups of 16 channels of 20: what lies between two groups is in none."""
        assert find_product(grouped(channels=20)) is None

    def test_tiled_axes_that_overlap_in_one_dimension(self) -> None:
        operator = einsum("mk", "nk", "mn", m=96, n=40, k=200)
        rows = access("A", (96, 200), index(y=7, x=1), index(k=1), dtype="float16")
        write = access("C", (12, 8, 40), *letters("yxn"), dtype="float16")
        extents = {"y": 12, "x": 8, "n": 40, "k": 200}
        split = replace(
            operator, axes=axes("k", **extents), reads=(rows, operator.reads[1]), write=write
        )
        assert find_product(split) is None

    def test_a_batch_side_by_side(self) -> None:
        assert find_product(einsum("mkb", "nkb", "mnb", b=8, m=96, n=40, k=200)) is None


class TestHeads:
    """Dimensions of several axes, each with its own elements."""

    def test_are_dimensions_of_their_own(self) -> None:
        # x[b, s, 64 * h + d], of which the third quarter is read.
        third = replace(index(h=64, k=1), offset=384)
        read = access("x", (2, 50, 768), index(b=1), index(m=1), third, dtype="float16")
        other = access("w", (2, 3, 50, 64), *letters("bhnk"), dtype="float16")
        write = access("y", (2, 3, 50, 50), *letters("bhmn"), dtype="float32")
        operator = einsum("mk", "nk", "mn", m=50, n=50, k=64)
        extents = {"b": 2, "h": 3, "m": 50, "n": 50, "k": 64}
        heads = replace(operator, axes=axes("k", **extents), reads=(read, other), write=write)
        product = find_product(heads)
        assert product is not None
        assert product.left.tensor.shape == (2, 50, 12, 64)
        assert product.left.strides == (2 * 50 * 768, 2 * 768, 128, 2)
        assert product.left.indices[2] == replace(index(h=1), offset=6)
        assert product.left.is_depth_major
        assert product.left.size == 4 * product.left.read_size
        others = product.right.size + product.write.tensor.size
        assert product.traffic == product.left.read_size + others

    def test_stay_where_they_do_not_divide(self) -> None:
        read = access("x", (2, 50, 770), index(b=1), index(m=1), index(h=64, k=1), dtype="float16")
        other = access("w", (2, 3, 50, 64), *letters("bhnk"), dtype="float16")
        write = access("y", (2, 3, 50, 50), *letters("bhmn"), dtype="float32")
        operator = einsum("mk", "nk", "mn", m=50, n=50, k=64)
        extents = {"b": 2, "h": 3, "m": 50, "n": 50, "k": 64}
        heads = replace(operator, axes=axes("k", **extents), reads=(read, other), write=write)
        assert find_product(heads) is None


class TestDepthInParts:
    """A depth that is the inner part of a dimension, or not quite."""

    def depth_with(self, outer: int, offset: int = 0) -> Product | None:
        """Of ``x[m, outer * h + k + offset] * w[n, h, k]`` with 64 values of ``k``, summed."""
        place = replace(index(h=outer, k=1), offset=offset)
        read = access("x", (50, 4 * outer), index(m=1), place, dtype="float16")
        other = access("w", (40, 3, 64), *letters("nhk"), dtype="float16")
        write = access("y", (50, 40), *letters("mn"), dtype="float32")
        summed = axes("hk", m=50, n=40, h=3, k=64)
        return find_product(Operator("parts", summed, (read, other), write, 2))

    @pytest.mark.parametrize("outer", [64, 128])
    def test_whole_parts(self, outer: int) -> None:
        product = self.depth_with(outer, offset=64)
        assert product is not None
        assert (product.depth.name, [axis.name for axis in product.steps]) == ("k", ["h"])
        assert product.left.tensor.shape == (50, 4 * outer // 64, 64)
        assert product.left.indices[1] == index(1, h=outer // 64)

    def test_parts_that_overlap_or_leave_gaps(self) -> None:
        for outer in (32, 63, 96, 1):
            assert self.depth_with(outer) is None

    def test_behind_contiguous_rows(self) -> None:
        def taken(outer: int) -> bool:
            read = access("x", (4 * outer, 48), index(h=outer, k=1), index(m=1), dtype="float16")
            other = access("w", (40, 3, 64), *letters("nhk"), dtype="float16")
            write = access("y", (48, 40), *letters("mn"), dtype="float32")
            summed = axes("hk", m=48, n=40, h=3, k=64)
            return find_product(Operator("parts", summed, (read, other), write, 2)) is not None

        assert taken(64)
        assert taken(128)
        assert not any(map(taken, (32, 63, 96)))


class TestFoldWindow:
    """Rows of a window as one depth with few channels."""

    LINE = 64

    def folded(self, *extents: Any, **options: int) -> tuple[Product, Product]:
        before = find_product(conv_nhwc(*extents, **options))
        assert before is not None
        return before, fold_window(before, self.LINE)

    def test_few_channels_and_a_wide_window(self) -> None:
        before, after = self.folded(2, (21, 30), 8, 16, kernel=7, stride=2)
        assert (before.depth.extent, len(before.steps)) == (8, 2)
        assert (after.depth.extent, len(after.steps)) == (56, 1)
        assert after.flops == before.flops
        assert after.traffic == before.traffic
        # A pixel is 16 bytes; the window moves by two, and its rows overlap.
        assert after.left.strides[-2:] == (32, 2)
        assert after.left.tensor.shape[-1] == 56
        assert after.right.tensor.shape == (16, 7, 56)

    def test_every_element_is_where_it_was(self) -> None:
        before, after = self.folded(2, (9, 10), 8, 16, kernel=3, stride=2)
        step = next(axis for axis in before.steps if axis not in after.steps)
        for operand, wide in ((before.left, after.left), (before.right, after.right)):
            for place in places(operand, before):
                longer = place[step.name] * before.depth.extent + place[before.depth.name]
                assert address(operand, place) == address(wide, {**place, after.depth.name: longer})

    def test_not_what_has_chunks_of_its_own(self) -> None:
        before, after = self.folded(2, (9, 10), 64, 16, kernel=3)
        assert after == before

    def test_not_what_the_border_would_interrupt(self) -> None:
        before, after = self.folded(2, (9, 10), 8, 16, kernel=3, padding=1)
        assert after == before

    def test_not_what_begins_in_padding(self) -> None:
        """One place of a window two wide: ``x[c, r - 1]``, of rows of two elements."""
        image = access("X", (33, 2), index(c=1), AffineIndex((("r", 1),), -1))
        weight = access("W", (48, 33, 2), index(f=1), index(c=1), index(r=1))
        write = access("Y", (48,), index(f=1))
        summed = axes("cr", f=48, c=33, r=2)
        before = product_of(Operator("one_place", summed, (image, weight), write, 2))
        assert before.depth.name == "r"
        assert fold_window(before, self.LINE) == before


class TestSpreadSteps:
    """Windows far apart as dimensions of their own."""

    def test_patches_of_an_image(self) -> None:
        before = find_product(conv_nhwc(2, (3, 4), 8, 16, kernel=16, stride=16))
        assert before is not None
        after = spread_steps(fold_window(before, 64), 8)
        assert max(c for index in after.left.indices for _, c in index.terms) == 1
        assert len(after.left.indices) == 5
        (step,) = after.steps
        inner = next(axis for axis in before.steps if axis.name != step.name)
        for place in places(before.left, before):
            depth = place[inner.name] * before.depth.extent + place[before.depth.name]
            moved = {**place, after.depth.name: depth}
            assert address(after.left, moved) == address(before.left, place)

    def test_short_steps_stay(self) -> None:
        product = find_product(conv_nhwc(2, (9, 10), 64, 16, kernel=3, stride=2))
        assert product is not None
        assert spread_steps(product, 8) == product


def places(operand: Operand, product: Product) -> Iterator[dict[str, int]]:
    axes = (*product.batch, *product.left.free, *product.right.free, *product.steps, product.depth)
    own = [a for a in axes if any(index.coefficient(a.name) for index in operand.indices)]
    for values in itertools.product(*(range(axis.extent) for axis in own)):
        yield {axis.name: value for axis, value in zip(own, values, strict=True)}


def address(operand: Operand, place: dict[str, int]) -> int:
    """Bytes from the tensor's first element."""
    indices = zip(operand.indices, operand.strides, strict=True)
    return sum(
        (index.offset + sum(c * place[name] for name, c in index.terms)) * stride
        for index, stride in indices
    )
