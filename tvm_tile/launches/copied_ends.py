"""Which inputs and outputs of a model kernels reach through copies, so that graphs take them in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tvm_tile.device.device import Device, MemoryLevel

Touched = frozenset[int]
"""The inputs and outputs that a kernel reads or writes, by number."""


def copied_ends(
    kernels: Sequence[Touched], sizes: Mapping[int, int], device: Device
) -> frozenset[int]:
    """The inputs to copy before all kernels, and the outputs to copy behind them.

    The memory of inputs and outputs differs from call to call, so that a kernel that touches one is
    launched by itself, and the graph that it lies in is two. A copy is a launch as well, and moves
    bytes; but whatever else touches the copy is in a graph then::

        mask -> kernel | graph | mask -> kernel | graph      mask -> copy | graph

    Starting from all of them, an input or output is no longer copied where that is no loss.

    Args:
        kernels: kernels in the order of the program.
        sizes: bytes of each input and output.
        device: the device that the model is compiled for.
    """
    chosen = frozenset(sizes)
    seconds = run_seconds(kernels, chosen, sizes, device)
    for end in sorted(sizes, key=lambda end: (-sizes[end], end)):
        fewer = run_seconds(kernels, chosen - {end}, sizes, device)
        if fewer <= seconds:
            chosen, seconds = chosen - {end}, fewer
    none = run_seconds(kernels, frozenset(), sizes, device)
    return chosen if seconds < none else frozenset()


def run_seconds(
    kernels: Sequence[Touched], copied: frozenset[int], sizes: Mapping[int, int], device: Device
) -> float:
    """Seconds of launches and copies in one run, without those of the kernels themselves."""
    is_outside = [bool(touched - copied) for touched in kernels]
    inside = len(kernels) - sum(is_outside)
    before = [True, *is_outside]
    graphs = sum(last and not own for last, own in zip(before, is_outside, strict=False))
    launches = sum(is_outside) + len(copied) + graphs
    moved = 2 * sum(sizes[end] for end in copied) / device.memory(MemoryLevel.GLOBAL).bandwidth
    return launches * device.stream_launch_latency + inside * device.launch_latency + moved
