"""Addresses of a program's weights, which CUDA graphs hold."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from tvm_tile.graph.signature import Signature
from tvm_tile.runtime.arrays import check_input, ready_torch
from tvm_tile.runtime.copies import borrowed_torch, copy_into

LOG = logging.getLogger(__name__)

# Graphs stay in memory. Where weights lie elsewhere at every call, capturing is no gain either.
_MOST_PLACES = 128


class PlacedWeights:
    """A program's weights at each of its calls.

    ``main`` takes them as one tuple, together with the number of the place where they lie, and the
    virtual machine captures graphs once for each number
    (:mod:`tvm_tile.passes.state.pass_weights`). Weights of PyTorch's are read where they are: as
    long as all of them lie where they lay at some call before, that call's graphs are right,
    whatever has been written into them meanwhile. No memory is kept: a tensor that is gone may have
    left its address to another, which is then compared like any.

    Behind them the tuple holds the model's state and the program's constants, which lie at one
    place for good.

    What lies in too many places, or not as kernels read it (dense, aligned, on the device), or is
    no tensor of PyTorch's, is copied at each call into memory that is the program's own.

    Args:
        signatures: signature of each weight; there may be none.
        device: the TVM device that the program runs on.
        fixed: TVM's tensors of the state and of constants, on it.
    """

    def __init__(self, signatures: Sequence[Signature], device: Any, fixed: Sequence[Any]) -> None:
        self._signatures = signatures
        self._device = device
        self._fixed = fixed
        self._last: tuple[int, ...] = ()
        self._taken = self._arguments((), 0)
        self._known: dict[tuple[int, ...], tuple[Any, Any]] = {}
        self._own: tuple[Any, Any] | None = None

    def taken(self, tensors: Sequence[Any], *, in_torch: bool) -> tuple[Any, Any]:
        """Weights that ``main`` takes in a call; one thread at a time may ask and then call.

        Args:
            tensors: torch's, or TVM's on the device. Shapes and types of those that lie where
                others lay before are the caller's to see to.
            in_torch: whether the call runs on the stream that is torch's current one.

        Raises:
            InputError: a tensor has another shape or type than the program takes.
        """
        addresses = tuple([tensor.data_ptr() for tensor in tensors])
        if addresses == self._last and (in_torch or not addresses):
            return self._taken
        known = self._known.get(addresses) if in_torch else None
        if known is None:
            for tensor, signature in zip(tensors, self._signatures, strict=True):
                check_input(tensor, signature)
            if not in_torch or not self._can_be_read(tensors, addresses):
                return self._copied(tensors, in_torch)
            known = self._known[addresses] = self._borrowed(tensors)
        self._last, self._taken = addresses, known
        return known

    def _can_be_read(self, tensors: Sequence[Any], addresses: Sequence[int]) -> bool:
        """Whether graphs may read these tensors where they are."""
        if len(self._known) == _MOST_PLACES:
            return False
        ready = (ready_torch(tensor, self._device) for tensor in tensors)
        return all(one.data_ptr() == at for one, at in zip(ready, addresses, strict=True))

    def _borrowed(self, tensors: Sequence[Any]) -> tuple[Any, Any]:
        """Arguments whose weights stay where PyTorch keeps them, as another place of them."""
        number = len(self._known) + 1
        if number == _MOST_PLACES:
            LOG.warning("weights lay in %d places: further ones are copied at each call", number)
        return self._arguments([borrowed_torch(tensor) for tensor in tensors], number)

    def _copied(self, tensors: Sequence[Any], in_torch: bool) -> tuple[Any, Any]:
        """Arguments whose weights are copied into memory of ours."""
        import tvm

        if self._own is None:
            made = [tvm.runtime.empty(s.shape, s.dtype, self._device) for s in self._signatures]
            self._own = self._arguments(made, 0)
        for place, tensor in zip(self._own[0], tensors, strict=False):
            copy_into(place, tensor, wait=not in_torch)
        return self._own

    def _arguments(self, weights: Sequence[Any], number: int) -> tuple[Any, Any]:
        """Arguments of ``main``: weights with the fixed constants, and the place's number."""
        import tvm_ffi

        return tvm_ffi.Array([*weights, *self._fixed]), tvm_ffi.Shape([number])
