"""What one input or output of a model looks like."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Signature:
    """One input or output.

    Attributes:
        name: as the model names it.
        shape: extents, all known; ``()`` for a scalar.
        dtype: TVM's name, such as ``"float32"``.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str

    def __str__(self) -> str:
        extents = ", ".join(str(extent) for extent in self.shape)
        return f"{self.name}: {self.dtype}[{extents}]"
