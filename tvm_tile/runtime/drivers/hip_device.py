"""The AMD GPU that models run on: found, checked, and made known to TVM."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Any

from tvm_tile.build.program import Kernel
from tvm_tile.errors import DeviceAbsentError, DeviceError
from tvm_tile.report.activities import Activity
from tvm_tile.runtime.drivers.device_api import install_device_api
from tvm_tile.runtime.drivers.hip import Hip, HipProperties, load_hip
from tvm_tile.runtime.drivers.hip_kernel import HipKernel
from tvm_tile.runtime.drivers.hip_memory import Failures, HipMemory, current_stream
from tvm_tile.runtime.drivers.launchers import Launcher, attach, launching_by
from tvm_tile.runtime.drivers.timing import WARM_UP_CALLS, Timing, summarize

_INDEX = 0


def find_hip_device(arch: str, device_name: str) -> HipDevice:
    """The first AMD GPU, which runs machine code for an architecture.

    Args:
        arch: the architecture, such as ``"gfx942"``, perhaps with features.
        device_name: name of the device, for the message.

    Raises:
        DeviceAbsentError: there is no HIP runtime or no GPU.
        DeviceError: the GPU is of another architecture.
        DriverError: HIP reports an error.
    """
    hip = load_hip()
    if hip is None or hip.device_count() == 0:
        raise DeviceAbsentError(
            f"{device_name} and its driver must be present to run this model",
            "no HIP runtime (libamdhip64) is installed"
            if hip is None
            else "HIP finds no GPU in this machine",
            "install ROCm, or import PyTorch for ROCm first; or run it elsewhere (model.save), or "
            'compile for device="emulated"',
        )
    _check_architecture(arch, hip.properties(_INDEX))
    return _hip_device(hip)


def _check_architecture(arch: str, gpu: HipProperties) -> None:
    """Machine code runs on its own architecture; features that it names must be as it says."""
    wanted, *features = arch.split(":")
    present, *has = gpu.arch.split(":")
    if wanted != present or not set(features) <= set(has):
        raise DeviceError(
            f"the model was compiled for {arch}",
            f"the GPU is {gpu.name}, {gpu.arch}",
            "compile it for this GPU",
        )


@functools.cache
def _hip_device(hip: Hip) -> HipDevice:
    """The AMD GPU of this process."""
    # One for the process: TVM never lets go of the memory it was given.
    return HipDevice(hip)


class HipDevice:
    """An AMD GPU, whose memory TVM now uses as device ``rocm``.

    Args:
        hip: the runtime.
    """

    source = "HIP's events"
    """What tells the times of :meth:`watch`."""

    def __init__(self, hip: Hip) -> None:
        self._hip = hip
        self._failures = Failures()
        install_device_api("rocm", HipMemory(hip, self._failures))

    @property
    def tvm_device(self) -> Any:
        """TVM's object for this device."""
        import tvm

        return tvm.rocm(_INDEX)

    def attach(self, kernel: Kernel) -> HipKernel:
        """Make a kernel callable from the VM for as long as the answer is kept alive.

        Raises:
            BuildError: HIP does not take its arguments or launch parameters, or another live
                model has a different kernel of that name.
            DriverError: HIP cannot load its code object.
        """
        return attach(kernel, lambda k: HipKernel(k, self._hip, _INDEX, self._failures))

    def guard(self) -> AbstractContextManager[None]:
        """Raises at its end what failed inside while no exception could pass through TVM."""
        return self._failures.raised()

    def time(self, function: Callable[..., Any], arguments: Sequence[Any], repeats: int) -> Timing:
        """Time a function on tensors of this GPU: each sample lies between two events.

        Args:
            function: function that enqueues kernels on the thread's stream.
            arguments: TVM's tensors (torch's would bring their own stream).
            repeats: timed calls, after a few that warm up.
        """
        hip, stream = self._hip, current_stream(_INDEX)
        hip.set_device(_INDEX)
        hip.synchronize()  # the arguments may still be written on another stream
        for _ in range(WARM_UP_CALLS):
            function(*arguments)
        samples = []
        with hip.event() as start, hip.event() as end:
            for _ in range(repeats):
                hip.record_event(start, stream)
                function(*arguments)
                hip.record_event(end, stream)
                samples.append(hip.seconds_between(start, end))
        return summarize(samples)

    def watch(
        self, run: Callable[[], object], wait: Callable[[], None], count: int
    ) -> tuple[tuple[Activity, ...], ...]:
        """Activities of the GPU in each run of :class:`~tvm_tile.runtime.drivers.tracing.Watcher`.

        Two events are around each kernel, which keep it from beginning while the one before ends.
        """
        self._hip.set_device(_INDEX)
        for _ in range(WARM_UP_CALLS):
            run()
            wait()
        return tuple(self._watched(run, wait) for _ in range(count))

    def _watched(self, run: Callable[[], object], wait: Callable[[], None]) -> tuple[Activity, ...]:
        """Activities of one run, by events around each kernel."""
        hip, stream = self._hip, current_stream(_INDEX)
        marks: list[tuple[str, int, int]] = []
        with ExitStack() as events:
            first = events.enter_context(hip.event())
            hip.record_event(first, stream)

            def launch(launcher: Launcher, arguments: tuple[Any, ...]) -> None:
                begin, end = (events.enter_context(hip.event()) for _ in range(2))
                hip.record_event(begin, stream)
                launcher.launch(*arguments)
                hip.record_event(end, stream)
                marks.append((launcher.kernel.name, begin, end))

            with launching_by(launch):
                run()
            wait()
            between = hip.seconds_between
            return tuple(
                Activity(name, between(first, begin), between(first, end))
                for name, begin, end in marks
            )
