"""Constants, state and locks that models share on their device."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from tvm_tile.build.program import Constant
from tvm_tile.graph.signature import State
from tvm_tile.runtime.arrays import numpy_dtype


class HeldMemory:
    """The memory of models that were compiled together, or of one.

    Constants and state are copied to the device when the first model needs them, and once.

    Attributes:
        lock: lock that whoever runs one of the models holds.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._constants: dict[Constant, Any] = {}
        self._state: dict[str, Any] = {}

    @property
    def is_on_device(self) -> bool:
        """Whether a device has any of it."""
        return bool(self._constants or self._state)

    def constants(self, wanted: Sequence[Constant], device: Any) -> list[Any]:
        """TVM's tensors of these constants.

        Raises:
            ModelError: the memory that one was compiled with has been written to since.
        """
        for constant in wanted:
            if constant not in self._constants:
                data = np.frombuffer(constant.checked(), _dtype(constant.dtype))
                self._constants[constant] = _copied(data.reshape(constant.shape), device)
        return [self._constants[constant] for constant in wanted]

    def state(self, wanted: Sequence[State], device: Any) -> tuple[Any, ...]:
        """TVM's tensors of this state, known by its names."""
        for one in wanted:
            name = one.signature.name
            if name not in self._state:
                self._state[name] = _copied(initial_array(one), device)
        return tuple(self._state[one.signature.name] for one in wanted)


def initial_array(state: State) -> np.ndarray:
    """The values that a tensor of the state begins with."""
    signature = state.signature
    if not state.initial:
        return np.zeros(signature.shape, _dtype(signature.dtype))
    return np.frombuffer(state.initial, _dtype(signature.dtype)).reshape(signature.shape)


def _dtype(name: str) -> np.dtype[Any]:
    """NumPy's type of this name, which it must have."""
    dtype = numpy_dtype(name)
    assert dtype is not None, f"front doors take no {name}"
    return dtype


def _copied(array: np.ndarray, device: Any) -> Any:
    """A copy of an array on a device."""
    import tvm

    return tvm.runtime.empty(array.shape, str(array.dtype), device).copyfrom(array)
