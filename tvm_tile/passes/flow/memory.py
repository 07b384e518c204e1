"""The memories of control flow inside a kernel: of all of it, and of each call of a function."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tvm import relax

from tvm_tile.passes.coschedule.merge_calls import ALIGNMENT
from tvm_tile.passes.flow.read import UnfitFlowError
from tvm_tile.passes.ir.rewriter import size_of
from tvm_tile.passes.weld.parallel_products import is_static
from tvm_tile.plan.calls import Frames


@dataclass(frozen=True, slots=True)
class FlowMemories:
    """Memories by their numbers.

    Attributes:
        kinds: the type of each.
        own: memories that each call of a function has of its own: the frame of the call that runs.
        deeper: number, in the callee, of each memory of the next call's frame, by the number that
            the caller has for it.
    """

    kinds: Mapping[int, Any]
    own: frozenset[int]
    deeper: Mapping[int, int]

    def home(self, memory: int) -> int:
        """The memory that one counts as, where order matters: as if all frames were one."""
        return self.deeper.get(memory, memory)

    def placed(
        self, known: Mapping[int, tuple[int, int]], workspace: int, depth: int
    ) -> PlacedMemories:
        """Places of all memories.

        Args:
            known: places of memories that are tensors of the kernel, as (tensor, bytes from its
                start).
            workspace: the tensor that all others lie in; the two numbers behind it are those of
                the frame of the call that runs and of the next one within.
            depth: number of frames.
        """
        places = dict(known)
        end, size = 0, 0
        for memory, kind in self.kinds.items():
            room = -(-size_of(kind) // ALIGNMENT) * ALIGNMENT
            if memory in self.own:
                places[memory] = workspace + 1, size
                size += room
            elif memory not in places and memory not in self.deeper:
                places[memory] = workspace, end
                end += room
        for memory, home in self.deeper.items():
            places[memory] = workspace + 2, places[home][1]
        frames = Frames(end, size, depth) if self.own else None
        return PlacedMemories(places, max(ALIGNMENT, end + size * depth), frames)


@dataclass(frozen=True, slots=True)
class PlacedMemories:
    """Places of memories in tensors and in the workspace.

    Attributes:
        places: place of each memory, as (tensor, bytes from its start).
        size: size of the workspace, in bytes.
        frames: frames in the workspace; None where there are none.
    """

    places: Mapping[int, tuple[int, int]]
    size: int
    frames: Frames | None


class NewMemories:
    """Memories that are made one after the other.

    Attributes:
        unwritten: memories of any content.
        in_call: whether they are made for the function that is being written.
    """

    def __init__(self) -> None:
        self.unwritten: set[int] = set()
        self.in_call = False
        self._kinds: dict[int, Any] = {}
        self._own: set[int] = set()
        self._deeper: dict[int, int] = {}

    def new(self, kind: Any) -> int:
        """A memory for a type.

        Raises:
            UnfitFlowError: the type is none of a tensor of known shape.
        """
        if not isinstance(kind, relax.TensorType) or not is_static(kind):
            raise UnfitFlowError("it has what is no tensor of known shape")
        number = len(self._kinds)
        self._kinds[number] = kind
        if self.in_call:
            self._own.add(number)
        return number

    def kind(self, memory: int) -> Any:
        """The type that a memory is for."""
        return self._kinds[memory]

    def is_own(self, memory: int) -> bool:
        """Whether each call has it of its own, or the next one within."""
        return memory in self._own or memory in self._deeper

    def deeper(self, memory: int) -> int:
        """Memory that a callee knows as ``memory``, by its caller's number."""
        for number, home in self._deeper.items():
            if home == memory:
                return number
        number = len(self._kinds)
        self._kinds[number] = self._kinds[memory]
        self._deeper[number] = memory
        return number

    def made(self) -> FlowMemories:
        """The memories that are there now, frozen."""
        return FlowMemories(self._kinds, frozenset(self._own), self._deeper)
