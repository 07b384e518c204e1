"""Values of control flow by the memories that they lie in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tvm_tile.passes.coschedule.task_graph import Location, TaskNode
from tvm_tile.passes.flow.read import Flow, Source, UnfitFlowError
from tvm_tile.passes.flow.read_loops import LoopForm
from tvm_tile.plan.rprogram import Footprint, Item, Series


def given_place(form: LoopForm, body: Flow, parameter: int) -> Location | None:
    """Place in which the body is given a parameter of the loop; ``None`` where it is not."""
    if parameter not in form.given:
        return None
    return Location(body.parameters[form.given.index(parameter)], 0)


def as_tensor(argument: Source | int) -> Source:
    """An argument that is none of the host's."""
    if isinstance(argument, int):
        raise UnfitFlowError("it hands on an integer of the host")
    return argument


def resolved(source: Source, env: Mapping[int, Source]) -> Source:
    """A value's memory."""
    if not isinstance(source, Location):
        return source
    if source.value not in env:
        raise UnfitFlowError("it reads what nobody makes")
    place = env[source.value]
    if isinstance(place, Location):
        return Location(place.value, place.offset + source.offset)
    if source.offset:
        raise UnfitFlowError("it reads a part of a constant")
    return place


def renumbered(node: TaskNode, env: Mapping[int, Source]) -> TaskNode:
    """A node with memories in the place of values."""
    arguments = tuple(resolved(argument, env) for argument in node.arguments)

    def memories(values: Sequence[int]) -> tuple[int, ...]:
        places = (resolved(Location(value, 0), env) for value in values)
        return tuple(dict.fromkeys(p.value for p in places if isinstance(p, Location)))

    outputs, changes = memories(node.outputs), memories(node.changes)
    if len(changes) != len(node.changes):
        raise UnfitFlowError("it changes a constant, or two values in one memory")
    own = memories(node.reads), outputs, changes
    return replace(node, arguments=arguments, reads=own[0], outputs=own[1], changes=own[2])


def are_alike(one: Any, other: Any) -> bool:
    """Whether tensors' types are the same."""
    return bool(one.dtype == other.dtype and list(one.shape) == list(other.shape))


def access_of(node: TaskNode, home: Callable[[int], int]) -> Footprint:
    """Memory that a node touches, by the memories that stand for its own."""
    written = (*node.outputs, *node.changes)
    return Footprint(frozenset(map(home, node.reads)), frozenset(map(home, written)))


def joined(items: Sequence[Item]) -> list[Item]:
    """Items, straight lines behind one another as one."""
    found: list[Item] = []
    for item in items:
        if isinstance(item, Series) and found and isinstance(found[-1], Series):
            found[-1] = Series((*found[-1].operators, *item.operators))
        else:
            found.append(item)
    return found
