"""Tensors that a call changes: state that a model keeps on its device, and inputs of the caller."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, MutableMapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from tvm_tile.errors import InputError
from tvm_tile.errors.closest import did_you_mean
from tvm_tile.graph.signature import RANDOM, Signature, State, dense_bytes
from tvm_tile.runtime.arrays import ArrayKind, as_tvm, check_input
from tvm_tile.runtime.held import HeldMemory, initial_array
from tvm_tile.runtime.launch import LoadedProgram


class Kept:
    """The tensors of a model's state, on its device.

    Args:
        loaded: the model in memory, or one of several that keep it.
        state: signatures of the state, with the values that it begins with.
        held: place of models' tensors on the device.
    """

    def __init__(self, loaded: LoadedProgram, state: Sequence[State], held: HeldMemory) -> None:
        self.loaded = loaded
        self.state = tuple(state)
        self.tensors = held.state(self.state, loaded.device)
        self._places = frozenset(filter(None, (tensor.data_ptr() for tensor in self.tensors)))

    def check_apart(self, inputs: Iterable[tuple[ArrayKind, Any]]) -> None:
        """Make sure that no input of a call is a tensor of the state, which the call writes to.

        Raises:
            InputError: one is.
        """
        for kind, value in inputs if self._places else ():
            if kind.memory(value)[0] in self._places:
                raise InputError(
                    "inputs must have memory of their own",
                    "one is the model's state, which the call changes",
                    "pass a copy of it",
                )

    def snapshot(self) -> tuple[State, ...]:
        """Copies of all values as they are now, in the host's memory."""
        self.loaded.device.sync()
        pairs = zip(self.state, self.tensors, strict=True)
        return tuple(replace(state, initial=dense_bytes(tensor.numpy())) for state, tensor in pairs)

    def restore(self, values: Sequence[State]) -> None:
        """Give all tensors the values of a snapshot, or of the start."""
        self.loaded.device.sync()
        for tensor, state in zip(self.tensors, values, strict=True):
            tensor.copyfrom(initial_array(state))


class ModelState(MutableMapping[str, Any]):
    """The state of a model: names -> tensors on its device, which speak DLPack.

    ``state["cache"]`` is the very tensor that calls read and write: what is written to it, the next
    call finds. ``state["cache"] = array`` copies an array of any library into it. Nothing can be
    added or removed.

    Args:
        kept: the tensors.
        running: function that makes the context for all use of the device.
    """

    def __init__(self, kept: Kept, running: Callable[[], AbstractContextManager[None]]) -> None:
        self._kept = kept
        self._running = running
        self._places = {state.signature.name: i for i, state in enumerate(kept.state)}

    @contextmanager
    def afresh(self) -> Iterator[dict[str, Any]]:
        """Have tensors hold the values that they began with, within the context, which gives these
        by name as NumPy arrays; what tensors held before, they hold again behind it."""
        before = self._kept.snapshot()
        self._kept.restore(self._kept.state)
        try:
            yield {state.signature.name: initial_array(state) for state in self._kept.state}
        finally:
            self._kept.restore(before)

    def seed(self, seed: int) -> None:
        """Begin the sequence of random numbers that belongs to a seed, an integer of 64 bits.

        Raises:
            InputError: the model draws none, or the seed is no such integer.
        """
        if not -(2**63) <= seed < 2**63:
            raise InputError("a seed is an integer of 64 bits", str(seed), "give a smaller one")
        self[RANDOM] = np.array([seed, 0], np.int64)

    def __getitem__(self, name: str) -> Any:
        return self._kept.tensors[self._place(name)]

    def __setitem__(self, name: str, value: Any) -> None:
        place, loaded = self._place(name), self._kept.loaded
        kind = check_input(value, self._kept.state[place].signature)
        with self._running(), loaded.guard():
            given = as_tvm(kind.to_device(value, loaded.device))
            loaded.device.sync()
            self._kept.tensors[place].copyfrom(given)
            loaded.device.sync()

    def __delitem__(self, name: str) -> None:
        raise InputError(
            "a model keeps its state", f"del state[{name!r}]", "model.reset() makes it anew"
        )

    def __contains__(self, name: object) -> bool:
        return name in self._places

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def __repr__(self) -> str:
        return f"ModelState({', '.join(str(state.signature) for state in self._kept.state)})"

    def _place(self, name: str) -> int:
        """Position of a tensor of the state, by its name."""
        if name not in self._places:
            raise InputError(
                f"the model's state: {', '.join(self._places) or 'none'}",
                repr(name),
                did_you_mean(name, self._places, "name one of these"),
            )
        return self._places[name]


def check_written(
    inputs: Sequence[tuple[ArrayKind, Any, Signature]], positions: Sequence[int]
) -> None:
    """Make sure that a call may write to some of its inputs.

    Raises:
        InputError: nobody may write to one of them, or it shares memory with another input, which
            PyTorch would see change and a compiled model may not.
    """
    for position in positions:
        kind, value, signature = inputs[position]
        if obstacle := kind.write_obstacle(value):
            raise InputError(
                f"the model writes to its input {signature}",
                obstacle,
                "pass a torch tensor or a NumPy array that may be written to, such as a copy",
            )
        first, last = kind.memory(value)
        for other, (its, theirs, its_signature) in enumerate(inputs):
            begin, end = its.memory(theirs)
            if other != position and first < end and begin < last:
                raise InputError(
                    f"the model writes to its input {signature}, which must have its own memory",
                    f"input {its_signature.name!r} shares some of it",
                    "pass a copy of one of them",
                )
