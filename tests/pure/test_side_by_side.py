"""Products of one operand: whose steps go together, what joining changes, which ones are joined."""

from __future__ import annotations

import itertools
import random

import pytest

from tvm_tile.tile.weld.side_by_side import (
    Cost,
    Gain,
    Members,
    Pointwise,
    ProgramNode,
    affected,
    align,
    choose,
    compare,
)

CAST, RELU, GELU = (Pointwise(name) for name in ("cast", "relu", "gelu"))
BIAS, SCALE = Pointwise("add", -0.0), Pointwise("multiply", 1.0)


class TestAlign:
    def test_equal_steps_are_one(self) -> None:
        assert align([(CAST, BIAS, RELU)] * 3) == ((0, 0, 0), (1, 1, 1), (2, 2, 2))

    def test_a_product_without_a_constant_gets_the_neutral_one(self) -> None:
        branches = [(CAST, BIAS, SCALE), (CAST,), (CAST, BIAS)]
        assert align(branches) == ((0, 0, 0), (1, None, 1), (2, None, None))

    def test_it_ends_where_products_differ(self) -> None:
        assert align([(CAST, RELU, BIAS), (CAST, GELU, BIAS)]) == ((0, 0),)

    def test_it_ends_where_one_has_no_more(self) -> None:
        assert align([(CAST, RELU), (CAST,)]) == ((0, 0),)

    def test_nothing_behind_one(self) -> None:
        assert align([(CAST, BIAS), ()]) == ()

    def test_constants_wait_for_the_others_cast(self) -> None:
        # Behind the cast, all add: nobody needs a neutral constant.
        assert align([(BIAS, CAST), (CAST,)]) == ((0, None), (1, 0))

    def test_steps_of_each_product_stay_in_order(self) -> None:
        random.seed(0)
        for _ in range(200):
            steps = [CAST, RELU, BIAS, SCALE]
            branches = [random.choices(steps, k=random.randrange(5)) for _ in range(3)]
            joints = align(branches)
            for own, branch in zip(zip(*joints, strict=True), branches, strict=False):
                taken = [place for place in own if place is not None]
                assert taken == list(range(len(taken)))
                assert len(taken) <= len(branch)
            for joint in joints:
                pairs = list(zip(joint, branches, strict=True))
                own = {branch[place] for place, branch in pairs if place is not None}
                assert len(own) == 1  # one operator
                assert None not in joint or own <= {BIAS, SCALE}


ATTENTION = (
    ProgramNode((), False),  # 0: x
    *(ProgramNode((0,), True) for _ in range(3)),  # 1, 2, 3: q, k, v
    ProgramNode((1,), False),  # 4: heads of q
    ProgramNode((4, 2), True),  # 5: scores
    ProgramNode((5,), False),  # 6: softmax
    ProgramNode((6, 3), True),  # 7: weights times values
    ProgramNode((7,), False),  # 8: heads side by side
    ProgramNode((8,), True),  # 9: what an attention ends with
    ProgramNode((9, 0), False),  # 10: the residual sum
)


class TestAffected:
    def test_an_attention_up_to_its_output(self) -> None:
        assert affected(ATTENTION, (1, 2, 3)) == (1, 2, 3, 4, 5, 6, 7, 8)

    def test_two_of_three_have_met_at_the_scores(self) -> None:
        assert affected(ATTENTION, (1, 2)) == (1, 2, 4, 5, 6)

    def test_gates_meet_in_an_element_wise_operator(self) -> None:
        nodes = [
            ProgramNode((), False),
            ProgramNode((0,), True),
            ProgramNode((0,), True),
            ProgramNode((1, 2), False),
        ]
        nodes += [ProgramNode((3,), False), ProgramNode((4,), True)]
        assert affected(nodes, (1, 2)) == (1, 2, 3, 4)

    def test_products_that_never_meet(self) -> None:
        nodes = [ProgramNode((), False), ProgramNode((0,), True), ProgramNode((0,), True)]
        nodes += [
            ProgramNode((1,), True),
            ProgramNode((3,), True),
            ProgramNode((4,), True),
            ProgramNode((5,), False),
        ]
        assert affected(nodes, (1, 2)) == (1, 2, 3, 4)

    def test_no_value_leaves_and_comes_back(self) -> None:
        random.seed(1)
        for _ in range(200):
            nodes = [ProgramNode((), False), ProgramNode((0,), True), ProgramNode((0,), True)]
            for number in range(3, 15):
                operands = tuple(random.sample(range(number), 2))
                nodes.append(ProgramNode(operands, random.random() < 0.4))
            inside = affected(nodes, (1, 2))
            outside: set[int] = set()  # depends on what is inside, and is not
            for number, node in enumerate(nodes):
                reads = set(node.operands)
                if number in inside:
                    assert not reads & outside
                elif reads & outside or reads & set(inside):
                    outside.add(number)


def gains(amounts: dict[Members, float | None]) -> Gain:
    return lambda members: amounts.get(members, 0.0)


class TestCompare:
    NAMES = ("matmul_8", "matmul_16")

    def test_what_saves_time_and_writes_no_more(self) -> None:
        decision = compare(self.NAMES, Cost(3e-6, 100), Cost(2e-6, 100))
        assert decision.gain == pytest.approx(1e-6)

    def test_what_writes_more_is_not_joined_however_fast(self) -> None:
        decision = compare(self.NAMES, Cost(3e-6, 100), Cost(1e-6, 101))
        assert decision.gain is None
        assert "more would be written" in decision.reason

    def test_but_for_what_is_little_beside_the_weights(self) -> None:
        """Queries, keys and values of one token: what is sliced behind them is a few kilobytes."""
        apart, together = Cost(3e-6, 100), Cost(1e-6, 4100)
        assert compare(self.NAMES, apart, together, 4000 * 256).gain == pytest.approx(2e-6)
        assert compare(self.NAMES, apart, together, 4000 * 256 - 1).gain is None

    @pytest.mark.parametrize("costs", [(None, Cost(1.0, 1)), (Cost(1.0, 1), None)])
    def test_what_no_rule_takes(self, costs: tuple[Cost | None, Cost | None]) -> None:
        assert "no rule" in compare(self.NAMES, *costs).reason


class TestChoose:
    def test_what_saves_nothing_stays(self) -> None:
        assert choose(2, gains({(0, 1): 0.0})) == ()
        assert choose(2, gains({(0, 1): None})) == ()

    def test_a_group_grows_by_what_saves_more(self) -> None:
        # Queries, keys, values and the two of a gated unit, which stay apart.
        amounts = {(0, 1): 1.0, (0, 1, 2): 2.0, (0, 1, 2, 3): 1.5, (0, 1, 2, 4): 1.0}
        assert choose(5, gains(amounts)) == ((0, 1, 2),)

    def test_what_is_left_is_a_group_too(self) -> None:
        assert choose(4, gains({(0, 2): 1.0, (1, 3): 1.0})) == ((0, 2), (1, 3))

    def test_all_where_no_pair_saves(self) -> None:
        assert choose(3, gains({(0, 1, 2): 1.0})) == ((0, 1, 2),)

    def test_all_only_where_that_saves_most(self) -> None:
        amounts = {(0, 1): 2.0, (0, 1, 2): 1.0, (0, 1, 2, 3): 1.0}
        assert choose(4, gains(amounts)) == ((0, 1),)

    def test_of_many_only_all_is_asked(self) -> None:
        asked: list[Members] = []

        def gain(members: Members) -> float:
            asked.append(members)
            return 1.0

        assert choose(24, gain) == (tuple(range(24)),)
        assert asked == [tuple(range(24))]

    @pytest.mark.parametrize("count", range(6))
    def test_each_product_is_in_one_group(self, count: int) -> None:
        random.seed(count)
        for _ in range(50):
            amounts: dict[Members, float | None] = {
                members: random.choice((None, random.uniform(-1, 1)))
                for size in range(2, count + 1)
                for members in itertools.combinations(range(count), size)
            }
            groups = choose(count, gains(amounts))
            joined = [number for group in groups for number in group]
            assert len(joined) == len(set(joined))
            assert all((amounts[group] or 0.0) > 0 for group in groups)
