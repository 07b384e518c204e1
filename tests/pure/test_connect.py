"""Which calls are joined: groups that save time, and nothing of which is used elsewhere."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tvm_tile.tile.weld.call_graph import Call, Group, Kind
from tvm_tile.tile.weld.connect import Gain, connect_calls

PRODUCT, WINDOW, DECODING, VIEW, SPATIAL, ROWS, OTHER = Kind
NONE: frozenset[str] = frozenset()


def calls(*lines: tuple[Kind, str]) -> list[Call]:
    """Calls from their kinds and their inputs' letters; the first one makes ``a``."""
    return [
        Call("abcdefghij"[number], tuple(inputs), kind)
        for number, (kind, inputs) in enumerate(lines)
    ]


def by_size(group: Group) -> float:
    """The more calls are joined, the better."""
    return float(len(group))


def only(*wanted: Group) -> Gain:
    """Some groups save a second; no kernel can do the others."""
    return lambda group: 1.0 if group in wanted else None


# Queries, keys, and values, each of its own view; scores, a softmax, their product, and a view.
ATTENTION = calls(
    (VIEW, ""), (VIEW, ""), (VIEW, ""), (PRODUCT, "ab"), (OTHER, "d"), (PRODUCT, "ec"), (VIEW, "f")
)


class TestChains:
    def test_from_product_to_product(self) -> None:
        assert connect_calls(ATTENTION, NONE, only((3, 4, 5))) == ((3, 4, 5),)

    def test_then_the_views_on_either_side(self) -> None:
        assert connect_calls(ATTENTION, NONE, by_size) == (tuple(range(7)),)

    def test_attention_may_save_time_only_with_its_views(self) -> None:
        def gain(group: Group) -> float:
            return len(group) - 4.0

        softened = [replace(own, kind=ROWS) if own.kind is OTHER else own for own in ATTENTION]
        assert connect_calls(softened, NONE, gain) == (tuple(range(7)),)

    def test_a_side_branch_is_in_it(self) -> None:
        """A softmax's maximum and its sum, both of the scores, as calls of their own."""
        branched = calls((PRODUCT, ""), (OTHER, "a"), (OTHER, "ab"), (PRODUCT, "abc"))
        assert connect_calls(branched, NONE, by_size) == ((0, 1, 2, 3),)

    def test_two_chains(self) -> None:
        assert connect_calls(
            calls((PRODUCT, ""), (PRODUCT, "a"), (PRODUCT, "b"), (PRODUCT, "c")), NONE, by_size
        ) == ((0, 1), (2, 3))

    def test_not_if_something_between_them_is_used_elsewhere(self) -> None:
        scores_too = [*ATTENTION[3:6], Call("z", ("e",), OTHER)]
        inside = [Call(c.output, tuple(set(c.inputs) & set("de")), c.kind) for c in scores_too]
        assert connect_calls(inside, NONE, by_size) == ()
        assert connect_calls(inside[:3], frozenset("e"), by_size) == ()
        assert connect_calls(inside[:3], frozenset("f"), by_size) == ((0, 1, 2),)

    def test_not_over_many_calls(self) -> None:
        far = calls((PRODUCT, ""), *((OTHER, letter) for letter in "abcd"), (PRODUCT, "e"))
        assert connect_calls(far, NONE, by_size) == ()
        assert connect_calls([*far[:4], Call("f", ("d",), PRODUCT)], NONE, by_size) == (
            tuple(range(5)),
        )

    def test_a_group_that_no_kernel_can_do_leaves_its_members_free(self) -> None:
        three = calls((PRODUCT, ""), (PRODUCT, "a"), (PRODUCT, "b"))
        assert connect_calls(three, NONE, only((1, 2))) == ((1, 2),)


# An inverted bottleneck: a product, windows over its values, and a product of their sums.
BOTTLENECK = calls((PRODUCT, ""), (WINDOW, "a"), (PRODUCT, "b"))


class TestWindows:
    def test_a_chain_goes_on_to_the_next_product(self) -> None:
        assert connect_calls(BOTTLENECK, NONE, by_size) == ((0, 1, 2),)

    def test_or_ends_at_a_window(self) -> None:
        assert connect_calls(BOTTLENECK, NONE, only((0, 1))) == ((0, 1),)
        assert connect_calls(BOTTLENECK[:2], NONE, by_size) == ((0, 1),)

    def test_whichever_saves_more(self) -> None:
        for most in ((0, 1), (0, 1, 2)):
            saved = {(0, 1): 1.0, (0, 1, 2): 1.0} | {most: 2.0}
            assert connect_calls(BOTTLENECK, NONE, saved.get) == (most,)

    def test_no_chain_begins_at_one(self) -> None:
        for followers in ((PRODUCT,), (WINDOW,), (WINDOW, PRODUCT), (SPATIAL,)):
            row = [(WINDOW, ""), *((kind, "ab"[n]) for n, kind in enumerate(followers))]
            assert connect_calls(calls(*row), NONE, by_size) == ()

    def test_what_lies_between_is_in_it(self) -> None:
        """Padding before a window, a gate behind it."""
        apart = calls((PRODUCT, ""), (SPATIAL, "a"), (WINDOW, "b"), (SPATIAL, "c"), (PRODUCT, "d"))
        assert connect_calls(apart, NONE, by_size) == ((0, 1, 2, 3, 4),)
        assert connect_calls(apart, NONE, only((0, 1, 2))) == ((0, 1, 2),)

    def test_not_if_something_between_is_used_elsewhere(self) -> None:
        assert connect_calls(BOTTLENECK, frozenset("a"), by_size) == ()
        # A window's sums may be the last value of a group.
        assert connect_calls(BOTTLENECK, frozenset("b"), by_size) == ((0, 1),)
        assert connect_calls(BOTTLENECK, frozenset("c"), by_size) == ((0, 1, 2),)

    def test_nor_if_a_second_window_takes_the_products_values(self) -> None:
        forked = calls((PRODUCT, ""), (WINDOW, "a"), (WINDOW, "a"))
        assert connect_calls(forked, NONE, only((0, 1), (0, 2))) == ()

    def test_the_views_on_either_side_of_one(self) -> None:
        row = calls((VIEW, ""), (PRODUCT, "a"), (WINDOW, "b"), (VIEW, "c"), (SPATIAL, "d"))
        assert connect_calls(row, NONE, by_size) == ((0, 1, 2, 3, 4),)


class TestSavings:
    THREE = calls((PRODUCT, ""), (PRODUCT, "a"), (PRODUCT, "b"))

    def test_the_group_that_saves_most_is_taken_first(self) -> None:
        assert connect_calls(self.THREE, NONE, {(0, 1): 1.0, (1, 2): 2.0}.get) == ((1, 2),)
        assert connect_calls(self.THREE, NONE, {(0, 1): 2.0, (1, 2): 1.0}.get) == ((0, 1),)

    def test_the_first_of_those_that_save_as_much(self) -> None:
        assert connect_calls(self.THREE, NONE, {(0, 1): 1.0, (1, 2): 1.0}.get) == ((0, 1),)

    def test_others_that_share_no_call_with_it_are_taken_too(self) -> None:
        """Bottlenecks: their last product with the next one's first saves less than the rest."""
        kinds = (PRODUCT, WINDOW, PRODUCT, PRODUCT, WINDOW, PRODUCT)
        row = calls(*zip(kinds, ("", *"abcde"), strict=True))
        saved = {(0, 1, 2): 3.0, (2, 3): 4.0, (3, 4): 3.5, (3, 4, 5): 5.0}
        assert connect_calls(row, NONE, saved.get) == ((0, 1, 2), (3, 4, 5))


class TestRows:
    """Behind rows without products, such as a softmax: what gives elements another shape."""

    def test_what_works_on_each_element_is_joined(self) -> None:
        row = calls((ROWS, ""), (SPATIAL, "a"), (SPATIAL, "b"), (ROWS, "c"))
        assert connect_calls(row, NONE, by_size) == ((0, 1, 2),)

    def test_nor_does_a_product_take_one_that_costs_nothing(self) -> None:
        viewed = [*calls((PRODUCT, "")), Call("b", ("a",), VIEW, is_reshape=True)]
        assert connect_calls(viewed, NONE, by_size) == ()
        assert connect_calls(viewed, frozenset("b"), by_size) == ((0, 1),)

    def test_a_reshape_costs_nothing_but_at_the_end(self) -> None:
        viewed = [*calls((ROWS, "")), Call("b", ("a",), VIEW, is_reshape=True)]
        assert connect_calls(viewed, NONE, by_size) == ()
        assert connect_calls(viewed, frozenset("b"), by_size) == ((0, 1),)

    def test_no_views_before_them(self) -> None:
        assert connect_calls(calls((VIEW, ""), (ROWS, "a")), NONE, by_size) == ()

    def test_products_come_first(self) -> None:
        between = calls((PRODUCT, ""), (ROWS, "a"), (PRODUCT, "b"), (SPATIAL, "c"))
        assert connect_calls(between, NONE, by_size) == ((0, 1, 2, 3),)
        view = calls((ROWS, ""), (VIEW, "a"), (PRODUCT, "b"))
        assert connect_calls(view, NONE, only((0, 1), (1, 2))) == ((1, 2),)

    def test_not_if_used_elsewhere(self) -> None:
        shared = calls((ROWS, ""), (SPATIAL, "a"), (SPATIAL, "a"))
        assert connect_calls(shared, NONE, by_size) == ()
        assert connect_calls(shared[:2], frozenset("a"), by_size) == ()


class TestRowsThatFeedProducts:
    """A norm, of what queries, keys and values are made."""

    THREE = calls((ROWS, ""), (PRODUCT, "a"), (PRODUCT, "a"), (PRODUCT, "a"))

    def test_all_that_takes_them_computes_them(self) -> None:
        assert connect_calls(self.THREE, NONE, by_size) == ((0, 1), (0, 2), (0, 3))

    def test_unless_one_cannot(self) -> None:
        assert connect_calls(self.THREE, NONE, only((0, 1), (0, 2))) == ()
        other = [*self.THREE[:3], Call("d", ("a",), SPATIAL)]
        assert connect_calls(other, NONE, by_size) == ()

    def test_nor_where_they_are_used_elsewhere(self) -> None:
        assert connect_calls(self.THREE, frozenset("a"), by_size) == ()

    def test_their_kernel_is_saved_once(self) -> None:
        """Each group saves 2 seconds by itself, the rows' kernel among these."""
        for alone, joined in ((2.9, ((0, 1), (0, 2), (0, 3))), (3.0, ())):
            assert connect_calls(self.THREE, NONE, by_size, lambda _, t=alone: t) == joined

    def test_a_group_takes_them_as_one(self) -> None:
        """A norm, two products, of which the second takes the first one's value, too."""
        gated = calls((ROWS, ""), (PRODUCT, "a"), (PRODUCT, "ab"))
        assert connect_calls(gated, NONE, by_size, lambda _: 10.0) == ((0, 1, 2),)

    def test_with_what_makes_them_where_these_are_queries(self) -> None:
        queries = calls((SPATIAL, ""), (ROWS, "a"), (PRODUCT, "b"), (ROWS, "c"), (PRODUCT, "d"))
        assert connect_calls(queries, NONE, by_size) == (tuple(range(5)),)

    def test_else_they_grow_by_what_is_behind_them(self) -> None:
        row = calls((ROWS, ""), (SPATIAL, "a"), (PRODUCT, "b"))
        assert connect_calls(row, NONE, by_size) == ((0, 1),)


class TestNeighbours:
    def test_one_by_one_while_each_saves_more(self) -> None:
        row = calls((VIEW, ""), (VIEW, "a"), (PRODUCT, "b"), (SPATIAL, "c"), (VIEW, "d"))
        assert connect_calls(row, NONE, by_size) == ((0, 1, 2, 3, 4),)
        saved = {(2, 3): 1.0, (2, 3, 4): 1.0, (1, 2, 3): 2.0}
        assert connect_calls(row, NONE, saved.get) == ((1, 2, 3),)

    def test_views_that_feed_two_takers_stay(self) -> None:
        for taker in (PRODUCT, OTHER, VIEW):
            shared = calls((VIEW, ""), (PRODUCT, "a"), (taker, "a"))
            assert connect_calls(shared, NONE, by_size) == ()
        outside = calls((VIEW, ""), (PRODUCT, "a"))
        assert connect_calls(outside, frozenset("a"), by_size) == ()

    def test_a_view_that_feeds_two_products_of_one_group_is_in_it(self) -> None:
        """Keys that are the values, too."""
        shared = calls((VIEW, ""), (PRODUCT, "a"), (OTHER, "b"), (PRODUCT, "ac"))
        assert connect_calls(shared, NONE, by_size) == ((0, 1, 2, 3),)

    def test_only_views_before_a_product(self) -> None:
        for kind in (SPATIAL, OTHER, PRODUCT):
            fed = calls((kind, ""), (PRODUCT, "a"))
            assert connect_calls(fed, NONE, only((0, 1))) == (((0, 1),) if kind is PRODUCT else ())

    def test_only_what_works_element_by_element_behind_it(self) -> None:
        for kind in Kind:
            taken = calls((PRODUCT, ""), (kind, "a"))
            joins = kind not in (ROWS, OTHER, DECODING)
            assert connect_calls(taken, NONE, by_size) == (((0, 1),) if joins else ())
            assert connect_calls(taken, frozenset("a"), by_size) == ()

    def test_an_output_with_two_takers_ends_the_group(self) -> None:
        parts = calls((PRODUCT, ""), (VIEW, "a"), (VIEW, "a"))
        assert connect_calls(parts, NONE, by_size) == ()

    def test_who_is_first_takes_a_neighbour(self) -> None:
        between = calls((PRODUCT, ""), (VIEW, "a"), (PRODUCT, "b"))
        refusing = only((0, 1), (1, 2))
        assert connect_calls(between, NONE, refusing) == ((0, 1),)

    def test_nobody_is_asked_twice(self) -> None:
        asked: list[Group] = []

        def gain(group: Group) -> None:
            asked.append(group)

        assert connect_calls(ATTENTION, NONE, gain) == ()
        assert len(set(asked)) == len(asked)


@st.composite
def programs(draw: st.DrawFn) -> tuple[list[Call], frozenset[str]]:
    """Calls in order, each of some earlier ones' values, and the values used elsewhere."""
    found: list[Call] = []
    for number in range(draw(st.integers(1, 12))):
        kind = draw(st.sampled_from([PRODUCT, PRODUCT, WINDOW, VIEW, VIEW, SPATIAL, ROWS, OTHER]))
        near = [call.output for call in found[-4:]]
        inputs = draw(st.lists(st.sampled_from(near), unique=True, max_size=2)) if near else []
        found.append(Call(f"v{number}", tuple(inputs), kind))
    used = draw(st.sets(st.sampled_from([call.output for call in found]), max_size=2))
    return found, frozenset(used)


def random_gain(seed: int) -> Gain:
    def gain(group: Group) -> float | None:
        rng = random.Random(f"{seed} {group}")
        return None if rng.random() < 0.2 else rng.uniform(-1, 2)

    return gain


def takers(program: Sequence[Call], number: int) -> set[int]:
    value = program[number].output
    return {n for n, call in enumerate(program) if value in call.inputs}


def behind(program: Sequence[Call], start: set[int]) -> set[int]:
    """Calls that need what those at ``start`` make."""
    found: set[int] = set()
    todo = set(start)
    while todo:
        todo = {n for number in todo for n in takers(program, number)} - found
        found |= todo
    return found


@given(programs(), st.integers(0, 99))
def test_any_program(drawn: tuple[list[Call], frozenset[str]], seed: int) -> None:
    program, outputs = drawn
    gain = random_gain(seed)
    groups = connect_calls(program, outputs, gain)
    members = [number for group in groups for number in group]
    assert len(set(members)) == len(members)
    for group in groups:
        own = set(group)
        assert list(group) == sorted(own)
        assert len(own) > 1
        saved = gain(group)
        assert saved is not None
        assert saved > 0
        for number in group[:-1]:
            assert program[number].output not in outputs
            assert takers(program, number) <= own
        # No way leads out of it and back: it can be one call.
        left = behind(program, own) - own
        assert not behind(program, left) & own
        kinds = [program[number].kind for number in group]
        is_rows = kinds[0] is ROWS and {*kinds[1:]} <= {VIEW, SPATIAL}
        assert is_rows or 1 <= kinds.count(PRODUCT) <= 2


@given(programs())
def test_nothing_is_joined_where_nothing_is_saved(
    drawn: tuple[list[Call], frozenset[str]],
) -> None:
    program, outputs = drawn
    assert connect_calls(program, outputs, lambda _: None) == ()
    assert connect_calls(program, outputs, lambda _: 0.0) == ()
    assert connect_calls(program, outputs, lambda group: -float(len(group))) == ()


@given(programs())
def test_no_neighbour_is_forgotten(drawn: tuple[list[Call], frozenset[str]]) -> None:
    """Where every call that is joined saves time."""
    program, outputs = drawn
    groups = connect_calls(program, outputs, by_size)
    taken = {number for group in groups for number in group}
    alone = {(n,) for n, call in enumerate(program) if call.kind is PRODUCT and n not in taken}
    handed_on = {n for n, call in enumerate(program) if call.output not in outputs}
    for group in (*groups, *alone):
        fed = {n for n in handed_on - taken if program[n].kind is VIEW and takers(program, n)}
        takes_views = any(program[n].kind is PRODUCT for n in group)
        assert not takes_views or not any(takers(program, n) <= set(group) for n in fed)
        following = takers(program, group[-1])
        if group[-1] in handed_on and len(following) == 1:
            kinds = {program[n].kind for n in following - taken}
            assert not kinds & {VIEW, SPATIAL}


def test_decoded_weights_are_joined_with_the_product_that_they_only_feed() -> None:
    program = calls((DECODING, ""), (PRODUCT, "a"), (SPATIAL, "b"))
    assert connect_calls(program, NONE, by_size) == ((0, 1, 2),)
    assert connect_calls(program, frozenset("a"), by_size) == ((1, 2),)
    shared = calls((DECODING, ""), (PRODUCT, "a"), (PRODUCT, "a"))
    assert connect_calls(shared, NONE, only((0, 1), (0, 2))) == ()


def test_what_is_behind_a_product_may_be_one_only_with_its_decoded_weights() -> None:
    program = calls((DECODING, ""), (PRODUCT, "a"), (SPATIAL, "b"))
    saves = {(0, 1): 1.0, (0, 1, 2): 2.0}
    assert connect_calls(program, NONE, saves.get) == ((0, 1, 2),)


def test_products_are_joined_with_what_decodes_their_weights_or_each_other_as_saves_more() -> None:
    gate = Call("g", ("c",), PRODUCT)
    program = (
        *(Call("c", (), DECODING), Call("d", (), DECODING)),
        *(gate, Call("u", ("d", "g"), PRODUCT)),
    )

    def saves(seconds: float) -> Gain:
        return {(2, 3): seconds, (0, 2): 2.0, (1, 3): 2.0}.get

    assert connect_calls(program, NONE, saves(1.0)) == ((0, 2), (1, 3))
    assert connect_calls(program, NONE, saves(3.0)) == ((0, 2), (1, 3))
    assert connect_calls(program, NONE, saves(5.0)) == ((2, 3),)
