"""What a model keeps between its calls, on its device, and how new values get there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from tvm_tile.errors import InputError
from tvm_tile.graph.signature import State
from tvm_tile.runtime.arrays import as_tvm, check_input, is_torch, numpy_dtype
from tvm_tile.runtime.launch import Loaded


class ModelState(MutableMapping[str, Any]):
    """The state of a model that is loaded: names -> tensors on its device, which speak DLPack.

    ``state["cache"]`` is the very tensor that calls read and write: what is written to it, the next
    call finds. ``state["cache"] = array`` copies an array of any library into it. Nothing can be
    added or removed.

    Args:
        loaded: the model in memory.
        kept: what it keeps.
        running: makes what is around all use of the device.
    """

    def __init__(
        self,
        loaded: Loaded,
        kept: Sequence[State],
        running: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._loaded = loaded
        self._kept = {state.signature.name: state for state in kept}
        self._running = running
        self._tensors = {name: _on_device(state, loaded) for name, state in self._kept.items()}

    @property
    def tensors(self) -> tuple[Any, ...]:
        """The tensors, in the order in which the model takes them."""
        return tuple(self._tensors.values())

    def snapshot(self) -> tuple[State, ...]:
        """Copies of all values as they are now, in the host's memory."""
        self._loaded.device.sync()
        return tuple(
            replace(self._kept[name], initial=_bytes(tensor.numpy()))
            for name, tensor in self._tensors.items()
        )

    def restore(self, values: Sequence[State]) -> None:
        """Give all tensors the values of a snapshot."""
        self._loaded.device.sync()
        for tensor, state in zip(self._tensors.values(), values, strict=True):
            tensor.copyfrom(_array(state))

    @contextmanager
    def afresh(self) -> Iterator[dict[str, np.ndarray]]:
        """While it lasts, tensors have the values that they began with, which it gives by name."""
        before = self.snapshot()
        self.restore(tuple(self._kept.values()))
        try:
            yield {name: _array(state) for name, state in self._kept.items()}
        finally:
            self.restore(before)

    def __getitem__(self, name: str) -> Any:
        return self._tensors[self._known(name)]

    def __setitem__(self, name: str, value: Any) -> None:
        state = self._kept[self._known(name)]
        kind = check_input(value, state.signature)
        with self._running(), self._loaded.guard():
            given = as_tvm(kind.to_device(value, self._loaded.device))
            self._loaded.device.sync()
            self._tensors[name].copyfrom(given)
            self._loaded.device.sync()

    def __delitem__(self, name: str) -> None:
        raise InputError(
            "a model keeps its state", f"del state[{name!r}]", "model.reset() makes it anew"
        )

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)

    def __repr__(self) -> str:
        return f"ModelState({', '.join(str(state.signature) for state in self._kept.values())})"

    def _known(self, name: str) -> str:
        if name not in self._kept:
            raise InputError(
                f"the model's state: {', '.join(self._kept) or 'none'}",
                repr(name),
                "name one of these",
            )
        return name


def assign(tensor: Any, value: Any) -> None:
    """Copy a result of a call to a tensor of the same device, behind what the call enqueued."""
    if is_torch(value):  # and the call ran on torch's own stream
        import torch

        torch.from_dlpack(tensor).copy_(value)
    else:
        tensor.copyfrom(value)


def _on_device(state: State, loaded: Loaded) -> Any:
    import tvm

    signature = state.signature
    made = tvm.runtime.empty(signature.shape, signature.dtype, loaded.device)
    return made.copyfrom(_array(state))


def _array(state: State) -> np.ndarray:
    dtype = numpy_dtype(state.signature.dtype)
    if not state.initial:
        return np.zeros(state.signature.shape, dtype)
    return np.frombuffer(state.initial, dtype).reshape(state.signature.shape)


def _bytes(array: np.ndarray) -> bytes:
    raw = array.tobytes()
    return raw if any(raw) else b""
