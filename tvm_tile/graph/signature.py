"""Inputs, outputs and side effects of a model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from tvm_tile.errors import ModelError
from tvm_tile.graph.open_extents import Symbol

RANDOM = "random numbers"
"""Name of the state of models that draw: the seed of their random numbers, and how many calls have
drawn. No buffer of a module has it."""

_NAMED = 4  # tensors that a line names


@dataclass(frozen=True, slots=True)
class OpenAxis:
    """A dimension of an input or output whose extent a call decides.

    Attributes:
        axis: its position.
        text: its extent, for people: an expression of symbols.
        symbol: symbol whose value the extent is, in an input.
    """

    axis: int
    text: str
    symbol: Symbol | None = None


@dataclass(frozen=True, slots=True)
class Signature:
    """One input or output.

    Attributes:
        name: name of the input or output in the model.
        shape: extents; ``()`` for a scalar. Of open ones the greatest.
        dtype: TVM's name, such as ``"float32"``.
        open_axes: dimensions whose extents a call decides, in order.
        path: path of an input within an argument of a PyTorch model: the argument's name, then the
            keys, one within the other; keys of a sequence are places. Empty for an input that is an
            argument itself.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    open_axes: tuple[OpenAxis, ...] = ()
    path: tuple[str, ...] = ()

    def __str__(self) -> str:
        texts = {one.axis: one.text for one in self.open_axes}
        extents = (texts.get(axis, str(extent)) for axis, extent in enumerate(self.shape))
        return f"{self.name}: {self.dtype}[{', '.join(extents)}]"


@dataclass(frozen=True, slots=True)
class State:
    """A tensor that a model keeps from one call to the next, such as a cache or a counter.

    Attributes:
        signature: its name in the model, shape and element type.
        initial: its elements before the first call, dense in row-major order; empty where all
            bytes are zero.
        is_in_place: whether a call writes to it only what changes; else it makes the whole new
            value and copies that.
    """

    signature: Signature
    initial: bytes = b""
    is_in_place: bool = False


def dense_bytes(array: np.ndarray) -> bytes:
    """An array's elements as :attr:`State.initial` has them."""
    raw = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return raw.tobytes() if raw.any() else b""


@dataclass(frozen=True, slots=True)
class Effects:
    """Changes that a call makes, besides its results.

    A function of a model with effects takes its state behind its inputs. Behind its outputs it
    returns the new values, first of the written inputs, then of the state: each in memory of its
    own, or in that of the tensor which it is the new value of.

    Attributes:
        written_inputs: positions of inputs whose tensors get new values, as PyTorch writes to them.
        state: changes of state that the model itself keeps.
    """

    written_inputs: tuple[int, ...] = ()
    state: tuple[State, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.written_inputs or self.state)

    def describe(self) -> Iterator[str]:
        """Lines for people about the state, none where there is none."""
        for is_in_place, how in ((True, "written in place"), (False, "copied whole in each call")):
            names = [s.signature.name for s in self.state if s.is_in_place == is_in_place]
            if names:
                more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
                yield f"state, {how}: {', '.join(names[:_NAMED])}{more}"
        if any(state.signature.name == RANDOM for state in self.state):
            yield "random numbers: a sequence of its own, not PyTorch's; state.seed() begins it"


NO_EFFECTS = Effects()


def require_common_state(entries: Mapping[str, Effects]) -> None:
    """Make sure that what entries of a model keep by the same name begins as the same tensor.

    Args:
        entries: names of entries -> what their calls change.

    Raises:
        ModelError: they differ in shape, element type or first values.
    """
    known: dict[str, tuple[str, State]] = {}
    for entry, effects in entries.items():
        for state in effects.state:
            first, other = known.setdefault(state.signature.name, (entry, state))
            if (other.signature, other.initial) != (state.signature, state.initial):
                differs = "other values" if other.signature == state.signature else other.signature
                raise ModelError(
                    f"entries must agree on the state {state.signature}, which they have in common",
                    f"{entry!r} keeps it so, {first!r} keeps {differs}",
                    "export all entries from one module, in one state",
                )
