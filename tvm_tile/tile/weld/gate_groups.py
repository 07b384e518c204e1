"""Which operators of a model are one recurrent cell, or another function of several products.

An LSTM's cell is two products, their sum, its parts, and the element-wise operators that make the
new state of these: one group, whose kernel needs no other block's values.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import Enum

Group = tuple[int, ...]
"""Numbers of operators that become one, in the order of the program."""


class Role(Enum):
    """Role of an operator in a group."""

    PRODUCT = "product"  # of few rows, with constant weights
    EACH = "each"  # each element from those in its row and column
    PART = "part"  # some columns of a tensor, as they are
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class GateNode:
    """An operator of a dataflow block, as far as gates are concerned.

    Attributes:
        role: role of the operator in a group.
        operands: numbers of the operators above it whose values it takes.
    """

    role: Role
    operands: tuple[int, ...]


def group_gates(nodes: Sequence[GateNode]) -> tuple[Group, ...]:
    """Groups of operators, each operator in at most one.

    From each product a group grows by the operators that take its values, and where one takes those
    of several groups, these become one. Nothing that a group takes may depend on what it makes,
    however many steps lie between: all of it is there when its kernel starts. Then groups grow by
    operators that feed nothing else. Those that are left have several products, or parts.

    Args:
        nodes: operators in the order of the program.
    """
    grouping = _Grouping(nodes)
    for number, node in enumerate(nodes):
        if node.role is Role.PRODUCT:
            grouping.make({number})
        elif node.role is not Role.OTHER:
            grouping.follow(number)
    for number in reversed(range(len(nodes))):
        if nodes[number].role in (Role.EACH, Role.PART):
            grouping.feed(number)
    return tuple(tuple(sorted(g)) for g in grouping.groups if _gains(nodes, g))


def _gains(nodes: Sequence[GateNode], group: Collection[int]) -> bool:
    """Whether a group is worth a kernel: several products, or a product in parts."""
    products = sum(nodes[number].role is Role.PRODUCT for number in group)
    return products > 1 or any(nodes[number].role is Role.PART for number in group)


def order_units(nodes: Sequence[GateNode], groups: Sequence[Group]) -> tuple[Group, ...]:
    """The order of all operators, those of a group together, each behind what it takes.

    Otherwise in the order of the program, by the first of each group.
    """
    unit_of = {number: group for group in groups for number in group}
    done: set[Group] = set()
    order: list[Group] = []
    for number in range(len(nodes)):
        waiting = [unit_of.get(number, (number,))]
        while waiting:
            unit = waiting[-1]
            taken = {unit_of.get(o, (o,)) for n in unit for o in nodes[n].operands} - {unit}
            missing = sorted(other for other in taken if other not in done)
            if missing and unit not in done:
                waiting += reversed(missing)
                continue
            waiting.pop()
            if unit not in done:
                done.add(unit)
                order.append(unit)
    return tuple(order)


class _Grouping:
    """Groups as they grow."""

    def __init__(self, nodes: Sequence[GateNode]) -> None:
        self._nodes = nodes
        self._group_of: dict[int, set[int]] = {}
        self._users: list[list[int]] = [[] for _ in nodes]
        for number, node in enumerate(nodes):
            for operand in node.operands:
                self._users[operand].append(number)

    @property
    def groups(self) -> list[set[int]]:
        """All groups, each once."""
        return list({id(group): group for group in self._group_of.values()}.values())

    def make(self, group: set[int]) -> None:
        """A group, in place of those that it is made of."""
        for number in group:
            self._group_of[number] = group

    def follow(self, number: int) -> None:
        """Let an operator join the last group whose values it takes, and others join that."""
        found = {id(g): g for g in map(self._group_of.get, self._nodes[number].operands) if g}
        joined: set[int] = {number}
        for group in sorted(found.values(), key=max, reverse=True):
            if self._is_convex(joined | group):
                joined = joined | group
        if len(joined) > 1:
            self.make(joined)

    def feed(self, number: int) -> None:
        """Let an operator without a group join the only one that takes its value."""
        groups = [self._group_of.get(user) for user in self._users[number]]
        group = groups[0] if groups else None
        if number in self._group_of or group is None or any(g is not group for g in groups):
            return
        if self._is_convex(group | {number}):
            self.make(group | {number})

    def _is_convex(self, group: set[int]) -> bool:
        """Whether all that it takes is there before it starts, and so are its products' rows."""
        first = min(group)
        waiting = []
        for number in group:
            node = self._nodes[number]
            if node.role is Role.PRODUCT and any(o in group for o in node.operands):
                return False
            waiting += [operand for operand in node.operands if operand not in group]
        seen: set[int] = set()
        while waiting:
            number = waiting.pop()
            if number in group:
                return False
            unit = self._group_of.get(number, {number})
            # What is above the group's first operator depends on none of it.
            if number in seen or max(unit) < first:
                continue
            seen |= unit - group
            waiting += [
                o for n in unit - group for o in self._nodes[n].operands if o not in unit - group
            ]
        return True
