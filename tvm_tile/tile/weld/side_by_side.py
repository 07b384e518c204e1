"""Which products of one left operand become one, their weights side by side, and what with them.

Queries, keys and values of an attention are three products of the same activations. As one product
they are one kernel, whose blocks fill the device where those of three would each leave some of it
idle (Rammer, OSDI'20, section 2: operators of little parallelism of their own); its columns are
theirs, side by side. Operators that treat columns one by one, such as a bias, then are one, too.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

from tvm_tile.tile.weld.connect import Decision

Members = tuple[int, ...]
"""Positions of products among those of one left operand, ascending."""

Gain = Callable[[Members], float | None]
"""Seconds that products save as one; ``None`` where that is not known."""

_RULE = "side by side"  # for people; its kernels are those of other rules
_MOST_ASKED = 8
_MOST_BEHIND = 2
_LITTLE = 256  # such a share of the bytes that are read anyway is lost in what times are right to


@dataclass(frozen=True, slots=True)
class Pointwise:
    """An operator behind a product that makes each element of the one in its place.

    Attributes:
        operator: equal for operators that do the same, but for a constant of each column.
        neutral: the constant with which elements stay as they are, to the bit; ``None`` where the
            operator has no constant, or none leaves elements as they are.
    """

    operator: Hashable
    neutral: float | None = None


Joint = tuple[int | None, ...]
"""One operator for all products: of each one, which of its steps; ``None`` where it has none, and
gets the neutral constant."""


def align(branches: Sequence[Sequence[Pointwise]]) -> tuple[Joint, ...]:
    """Steps behind several products as steps behind the one that they become.

    Every product's steps stay in their order. It ends where a product has a step, or has none, that
    the others cannot go along with.

    Args:
        branches: the steps behind each product, in order.
    """
    done = [0] * len(branches)
    joints: list[Joint] = []
    while True:
        heads = [
            branch[place] if place < len(branch) else None
            for branch, place in zip(branches, done, strict=True)
        ]
        # The step of most products first, so that few get a neutral constant.
        found = dict.fromkeys(head for head in heads if head is not None)
        fitting = [h for h in found if h.neutral is not None or heads.count(h) == len(heads)]
        if not fitting:
            return tuple(joints)
        taken = [head == max(fitting, key=heads.count) for head in heads]
        joints.append(tuple(d if t else None for d, t in zip(done, taken, strict=True)))
        done = [place + own for place, own in zip(done, taken, strict=True)]


@dataclass(frozen=True, slots=True)
class ProgramNode:
    """An operator of a program, as far as it matters to products side by side.

    Attributes:
        operands: numbers of the operators above it whose values it takes.
        is_product: whether it multiplies matrices; stock fusion ends before it.
    """

    operands: tuple[int, ...]
    is_product: bool


def affected(nodes: Sequence[ProgramNode], products: Sequence[int]) -> tuple[int, ...]:
    """Operators that change as products become one: these, and those that read their values.

    It goes on until the values of all have met, and for two more products behind one at most:
    queries, keys and values have met behind the second product of an attention. What depends on it
    otherwise is left out, so that no value leaves and comes back.

    Args:
        nodes: operators in the order of the program.
        products: numbers of those that become one.

    Returns:
        Numbers of operators, in the order of the program.
    """
    met = frozenset(products)
    feeding: dict[int, frozenset[int]] = {number: frozenset((number,)) for number in products}
    behind = dict.fromkeys(products, 0)
    outside: set[int] = set()
    for number, node in enumerate(nodes):
        if number in met:
            continue
        inside = [operand for operand in node.operands if operand in feeding]
        fed: frozenset[int] = frozenset().union(*(feeding[operand] for operand in inside))
        depth = max((behind[operand] for operand in inside), default=0) + node.is_product
        is_beyond = depth > _MOST_BEHIND or (node.is_product and _has_met(inside, feeding, met))
        if outside.intersection(node.operands) or (inside and is_beyond):
            outside.add(number)
        elif inside:
            feeding[number], behind[number] = fed, depth
    return tuple(sorted(feeding))


def _has_met(
    operands: Sequence[int], feeding: dict[int, frozenset[int]], met: frozenset[int]
) -> bool:
    """Whether an operand depends on exactly those products that have met."""
    return any(feeding[operand] == met for operand in operands)


@dataclass(frozen=True, slots=True)
class Cost:
    """The predicted cost of kernels that run one behind the other.

    Attributes:
        seconds: predicted.
        written: bytes of what they make.
    """

    seconds: float
    written: int


def compare(
    names: tuple[str, ...], apart: Cost | None, together: Cost | None, weights: int = 0
) -> Decision:
    """Judge products that could be one by their predicted times, with those that read their values.

    Kernels must not write more than before. They would where a value were no longer made where
    a product's sums are, such as the product of a gate with what it lets through, or where slices
    were copied; and the time that this takes is predicted less well than that of a launch saved.
    It is nothing beside the weights of a product with few rows: there the time alone decides.

    Args:
        names: names of the products.
        apart: cost of the kernels apart; ``None`` where no rule takes one of them.
        together: cost of the products as one kernel, and of their readers; ``None`` likewise.
        weights: bytes of the products' weights.
    """
    if apart is None or together is None:
        return Decision(names, (), reason="no rule takes a kernel that reads their values")
    is_more = (together.written - apart.written) * _LITTLE > weights
    reason = "as one product, more would be written behind it" * is_more
    return Decision(names, (), apart.seconds, together.seconds, _RULE, reason)


def choose(count: int, gain: Gain) -> tuple[Members, ...]:
    """Groups of ``count`` products of one left operand, each of which is to become one product.

    Groups grow in the order of the program, from the first product that is left, by each that saves
    more; or all are one, where that saves most. Of more than eight, only that is asked.
    """
    everything = tuple(range(count))
    groups: dict[Members, float] = {}
    left = list(everything) if count <= _MOST_ASKED else []
    while len(left) > 1:
        group, saved = _grown(left, gain)
        left = [number for number in left if number not in group]
        if len(group) > 1:
            groups[group] = saved
    whole = 0.0 if everything in groups or count < 2 else gain(everything) or 0.0
    return (everything,) if whole > sum(groups.values()) else tuple(groups)


def _grown(left: Sequence[int], gain: Gain) -> tuple[Members, float]:
    """The first product and those that add to the gain of being one, with that gain."""
    group: Members = (left[0],)
    saved = 0.0
    for number in left[1:]:
        now = gain((*group, number))
        if now is not None and now > saved:
            group, saved = (*group, number), now
    return group, saved
