"""The ways to run an operator on vEUs of a shape: which choice, and how many blocks side by side.

An rTask takes ``max(block_seconds, copies * veus_per_processor * busy_seconds)``: either its blocks
wait for memory and for one another, and then as long as one alone, or they share the throughput of
their multiprocessor with one another and with the other vEUs there, which are assumed to do the
same. What the kernel's loop adds to each rTask comes on top.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from tvm_tile.device.device import Device
from tvm_tile.plan.execution_plan import MOST_COPIES, RKernel, ROperator, aligned
from tvm_tile.tile.residency import launched_registers, shared_capacity

# Of a vEU, that its loop needs: two records, where tensors are.
_LOOP_SHARED = 2048
_BLOCK_SIZES = (128, 256, 512, 1024)
_MOST_VEUS_PER_PROCESSOR = 4


@dataclass(frozen=True, slots=True)
class Shape:
    """Shape of a vEU: its threads, and how many share a multiprocessor.

    Attributes:
        block_size: threads of each.
        per_processor: vEUs on one multiprocessor.
    """

    block_size: int
    per_processor: int

    def num_veus(self, device: Device) -> int:
        """vEUs of the whole device."""
        return device.multi_processor_count * self.per_processor

    def shared_bytes(self, device: Device) -> int:
        """Bytes of shared memory that a vEU may have at most."""
        return shared_capacity(device, self.per_processor) - _LOOP_SHARED

    def registers(self, device: Device) -> int:
        """Registers that a thread may have at most."""
        return launched_registers(device, self.per_processor, self.block_size)


@dataclass(frozen=True, slots=True)
class Way:
    """A way to run one operator: which of its choices, in rTasks of how many blocks.

    Attributes:
        choice: number of the choice.
        copies: blocks side by side in an rTask.
        tasks: number of rTasks.
        seconds: seconds that an rTask takes of its vEU.
        scratch_bytes: shared memory of one.
        resident_bytes: weights of one that stay in shared memory.
    """

    choice: int
    copies: int
    tasks: int
    seconds: float
    scratch_bytes: int
    resident_bytes: int


@dataclass(frozen=True, slots=True)
class Kinds:
    """Operators, equal ones counted once.

    Attributes:
        of: the kind of each operator.
        samples: one operator of each kind.
        weights: for each kind, the weights that several of its operators read and that may thus
            stay in shared memory; the most read first. Where operators of several kinds read the
            same, they are those of the kind that reads them most.
    """

    of: tuple[int, ...]
    samples: tuple[ROperator, ...]
    weights: tuple[tuple[int, ...], ...]

    @classmethod
    def count(cls, operators: tuple[ROperator, ...]) -> Kinds:
        """The kinds of ``operators``, numbered as they come."""
        numbers: dict[tuple[int, tuple[RKernel, ...]], int] = {}
        samples: list[ROperator] = []
        of: list[int] = []
        readers: Counter[tuple[int, int]] = Counter()
        for operator in operators:
            number = numbers.setdefault((operator.body, operator.choices), len(samples))
            if number == len(samples):
                samples.append(operator)
            of.append(number)
            if operator.weights is not None:
                readers[number, operator.weights] += 1
        weights: list[list[int]] = [[] for _ in samples]
        seen: set[int] = set()
        for (number, name), count in readers.most_common():
            if count > 1 and name not in seen:
                weights[number].append(name)
            seen.add(name)
        return cls(tuple(of), tuple(samples), tuple(map(tuple, weights)))


def shapes(kinds: Kinds, device: Device) -> Iterator[Shape]:
    """The shapes worth a try: usual block sizes and those of the kernels, few vEUs a processor."""
    threads = {choice.threads for sample in kinds.samples for choice in sample.choices}
    sizes = {_warps(size, device) for size in (*_BLOCK_SIZES, *threads)}
    for size in sorted(size for size in sizes if size <= device.max_threads_per_block):
        fitting = device.max_threads_per_multi_processor // size
        for count in range(1, min(fitting, _MOST_VEUS_PER_PROCESSOR) + 1):
            yield Shape(size, count)


def ways(
    operator: ROperator, shape: Shape, device: Device, *, resident: bool = False
) -> tuple[Way, ...]:
    """How an operator can run on vEUs of ``shape``; empty where it cannot.

    Args:
        operator: the operator that is run.
        shape: shape of the vEUs.
        device: the device that has the vEUs.
        resident: whether its weights stay in shared memory.
    """
    return tuple(
        way
        for number, choice in enumerate(operator.choices)
        if bool(choice.resident_bytes) == resident
        for way in _copied(choice, number, shape, device)
    )


def rtask_seconds(choice: RKernel, copies: int, veus_per_processor: int, device: Device) -> float:
    """Seconds that an rTask of so many blocks takes of its vEU."""
    busy = copies * veus_per_processor * choice.busy_seconds
    return max(choice.block_seconds, busy) + device.times.persistent.rtask_cycles / device.clock


def _copied(choice: RKernel, number: int, shape: Shape, device: Device) -> Iterator[Way]:
    """The ways to run one choice with one, two, four... blocks side by side."""
    if choice.threads > shape.block_size or choice.registers > shape.registers(device):
        return
    side_by_side = shape.block_size // _warps(choice.threads, device)
    most = min(side_by_side, choice.blocks, MOST_COPIES if choice.barriers else side_by_side)
    counts = {1 << power for power in range(most.bit_length())} | {most}
    for copies in sorted(counts):
        scratch = aligned(copies * choice.shared_bytes)
        resident = aligned(copies * choice.resident_bytes)
        if scratch + resident > shape.shared_bytes(device):
            return
        seconds = rtask_seconds(choice, copies, shape.per_processor, device)
        yield Way(number, copies, -(-choice.blocks // copies), seconds, scratch, resident)


def _warps(threads: int, device: Device) -> int:
    """``threads`` rounded up to whole warps."""
    return -(-threads // device.warp_size) * device.warp_size
