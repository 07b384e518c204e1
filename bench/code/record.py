"""What a model was compiled to for one device: a JSON line with every kernel."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.lines import put, read_keyed

FILE = "code.jsonl"
Key = tuple[str, str, str, int, str]
# Operators that matrix units can compute, by what TVM calls them.
_PRODUCTS = ("matmul", "conv", "dense")
_CLOSE = 0.2  # how far a prediction may be off


@dataclass(frozen=True, slots=True)
class KernelCode:
    """A function of a model.

    Attributes:
        name: its symbol.
        operators: the operators in it.
        rule: the schedule rule that wrote it.
        calls: how often the model calls it.
        block: threads of a block; 0 where it fell back.
        resident: blocks of it on a compute unit; 0 where that is not known.
        fallback: why TVM's default schedule was used; empty when it was not.
        on_matrix_units: whether its machine code has their instructions.
        predicted_registers: of a thread; None where the model does not say.
        predicted_shared: bytes of a block.
        registers: of a thread, the most of its kernels; so are the others.
        register_unit: a thread is given multiples of so many.
        accumulation: of these, for matrix instructions alone.
        scalar: of a wave.
        shared: bytes of a block.
        spilled: registers in memory.
        stack: bytes of a thread.
        warp: threads of a wave.
    """

    name: str
    operators: str
    rule: str
    calls: int
    block: int
    resident: int
    fallback: str
    on_matrix_units: bool
    predicted_registers: int | None
    predicted_shared: int
    registers: int
    register_unit: int
    accumulation: int
    scalar: int
    shared: int
    spilled: int
    stack: int
    warp: int

    @property
    def waves(self) -> int:
        """Of its blocks on a compute unit; 0 where that is not known."""
        return self.resident * -(-self.block // self.warp) if self.warp else 0

    @property
    def is_product(self) -> bool:
        """Whether a product or a convolution of several channels is in it."""
        words = self.operators.split()
        return any(word.startswith(_PRODUCTS) for word in words)

    @property
    def given_registers(self) -> int:
        """What a thread is given."""
        return self._given(self.registers)

    @property
    def registers_are_within(self) -> bool:
        """Whether they are predicted to within a fifth."""
        predicted = self.predicted_registers
        return predicted is not None and abs(predicted - self.registers) <= _CLOSE * self.registers

    @property
    def has_given_as_predicted(self) -> bool:
        """Whether a thread is given as many registers as if it needed those predicted."""
        predicted = self.predicted_registers
        return predicted is not None and self._given(predicted) == self.given_registers

    @property
    def registers_are_close(self) -> bool:
        """Whether either holds.

        Of very few registers one is more than a fifth, and makes no difference.
        """
        return self.registers_are_within or self.has_given_as_predicted

    def _given(self, registers: int) -> int:
        return -(-registers // self.register_unit) * self.register_unit

    @property
    def shared_is_close(self) -> bool:
        """Whether shared memory is predicted to within a fifth."""
        return abs(self.predicted_shared - self.shared) <= _CLOSE * self.shared


@dataclass(frozen=True, slots=True)
class Code:
    """A model compiled for a device.

    Attributes:
        suite, workload, dtype, batch: as in a benchmark's record.
        device: the record's name.
        status: ``"ok"``, or the reason why it is not.
        seconds: of compiling, wall-clock.
        predicted_ms: of one run, by our model; fallbacks count as nothing.
        kernels: by name.
        versions, commit, command, date: as in a benchmark's record.
    """

    suite: str
    workload: str
    dtype: str
    batch: int | None
    device: str
    status: str
    seconds: float = 0.0
    predicted_ms: float = 0.0
    kernels: tuple[KernelCode, ...] = ()
    versions: str = ""
    commit: str = ""
    command: str = ""
    date: str = ""

    @property
    def key(self) -> Key:
        """What no two lines of the file share."""
        batch = -1 if self.batch is None else self.batch
        return (self.suite, self.workload, self.dtype, batch, self.device)


def read(path: Path) -> dict[Key, Code]:
    """The records of a file, the last of each key; empty where there is none."""
    return read_keyed(path, _from_json)


def store(path: Path, record: Code) -> None:
    """Add a record, or put it in the place of the one with its key."""
    put(path, read(path), record)


def _from_json(data: dict[str, Any]) -> Code:
    return Code(**{**data, "kernels": tuple(KernelCode(**kernel) for kernel in data["kernels"])})
