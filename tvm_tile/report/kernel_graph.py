"""Graph of a model's kernels after fusion: which hands which tensor to which, as data.

The graph is read where kernels are called by name, behind all that joins them and ahead of what
plans their memory. A function of the model, such as the body of a loop, is a graph of its own.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CallValue:
    """A value that calls hand to each other.

    Attributes:
        shape: its extents; those that are known when the model is called as variables.
        dtype: its element type.
        size: bytes; ``None`` where they are known only when the model is called.
        home: number of the tensor in whose memory it lies, because its kernel writes over that
            one; ``None`` where it has memory of its own.
    """

    shape: tuple[str, ...]
    dtype: str
    size: int | None
    home: int | None = None


@dataclass(frozen=True, slots=True)
class KernelCall:
    """A call in the order of the program.

    Attributes:
        kernel: name of the kernel, of another function of the model, or of what runs on the host.
        names: names of its value in the user's model.
        reads: numbers of the tensors that it is given, constants apart.
        writes: numbers of those that it makes.
        constant_bytes: bytes of the constants that it is given, such as weights.
    """

    kernel: str
    names: tuple[str, ...]
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    constant_bytes: int = 0


@dataclass(frozen=True, slots=True)
class KernelGraph:
    """The calls of a function of the model, and what lies between them.

    Attributes:
        function: its name; ``"main"`` is the model.
        calls: calls in the order of the program, those of both sides of a branch among them.
        tensors: tensors by number.
        inputs: numbers of the tensors that it is given, with their names.
        outputs: for each tensor that it returns, numbers of those that it may be: more than one
            behind a branch.
    """

    function: str
    calls: tuple[KernelCall, ...]
    tensors: tuple[CallValue, ...]
    inputs: tuple[tuple[str, int], ...]
    outputs: tuple[tuple[int, ...], ...]

    @property
    def live_bytes(self) -> tuple[int, ...]:
        """Bytes between calls that are needed while each call runs: of what it makes, and of what
        was made before it and is read by it or later, or returned. Inputs and constants are apart,
        as are tensors of sizes that are not known.
        """
        last = {tensor: n for n, call in enumerate(self.calls) for tensor in call.reads}
        returned = itertools.chain.from_iterable(self.outputs)
        last |= dict.fromkeys(returned, len(self.calls) - 1)
        changes = [0] * (len(self.calls) + 1)
        for number, call in enumerate(self.calls):
            for tensor in call.writes:
                own = self.tensors[tensor]
                if own.home is None and own.size is not None:
                    end = max(last.get(one, number) for one in self._within(tensor))
                    changes[number] += own.size
                    changes[max(number, end) + 1] -= own.size
        return tuple(itertools.accumulate(changes[:-1]))

    def _within(self, tensor: int) -> Iterator[int]:
        """A tensor, and all that are written over it."""
        homes = {tensor}
        for number, other in enumerate(self.tensors):
            if other.home in homes:
                homes.add(number)
        yield from homes
