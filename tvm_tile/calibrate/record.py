"""From readings to a device record, and how it differs from the one that is built in."""

from __future__ import annotations

from dataclasses import replace

from tvm_tile.calibrate.driver import GpuFacts
from tvm_tile.device import Device, Measurement, MemoryLevel, Reading
from tvm_tile.device.describe import GpuProperties, describe_gpu
from tvm_tile.device.times import DependentLaunchTimes

# A multiply-add, two operations, reads three registers of four bytes.
_REGISTER_BYTES_PER_OP = 6.0
# More would be digits of noise.
_DIGITS = 4


def nearest_record(facts: GpuFacts) -> Device:
    """The built-in record that would be used for this GPU.

    Raises:
        DeviceTooSmallError: the GPU is older than any that there is a record of.
    """
    return describe_gpu(
        GpuProperties(
            name=facts.name,
            compute_version=facts.compute_version,
            multi_processor_count=facts.multi_processor_count,
            max_shared_memory_per_block=facts.shared_memory_per_block,
            total_global_memory=facts.global_capacity,
            l2_capacity=facts.l2_capacity,
            max_threads_per_multi_processor=facts.max_threads_per_multi_processor,
            registers_per_multi_processor=facts.registers_per_multi_processor,
            shared_memory_per_block_optin=facts.shared_memory_per_block_optin,
            shared_memory_per_multi_processor=facts.shared_memory_per_multi_processor,
            clock=facts.clock,
        )
    )


def assemble(
    facts: GpuFacts,
    readings: tuple[Reading, ...],
    *,
    date: str,
    versions: tuple[tuple[str, str], ...],
) -> Device:
    """The record of a GPU.

    Args:
        facts: properties of the GPU, from its driver.
        readings: one of each rate and latency of a :class:`Device`, as :func:`calibrate` takes
            them; of several for one dtype the fastest counts. A dtype without any keeps the
            rate of the nearest record.
        date: when they were taken.
        versions: (package, version) pairs of what took them.

    Returns:
        The record, rounded to four digits; its ``measured`` has the readings as they are.
    """
    base = nearest_record(facts)
    one = {reading.quantity: _rounded(reading.value) for reading in readings}
    peak_flops = _rates(base.peak_flops, readings, "peak_flops")
    register_bandwidth = dict(peak_flops)["float32"] * _REGISTER_BYTES_PER_OP
    clock = next(r.value for r in readings if (r.quantity, r.variant) == ("clock", "float32"))
    register, shared, device_memory = base.memories
    memories = (
        replace(register, bandwidth=_rounded(register_bandwidth)),
        replace(
            shared,
            capacity=facts.shared_memory_per_block_optin,
            bandwidth=one["shared_bandwidth"],
        ),
        replace(device_memory, capacity=facts.global_capacity, bandwidth=one["copy_bandwidth"]),
    )
    return replace(
        base,
        target=_target(base, facts),
        multi_processor_count=facts.multi_processor_count,
        warp_size=facts.warp_size,
        max_threads_per_block=facts.max_threads_per_block,
        max_threads_per_multi_processor=facts.max_threads_per_multi_processor,
        registers_per_multi_processor=facts.registers_per_multi_processor,
        shared_memory_per_multi_processor=facts.shared_memory_per_multi_processor,
        memories=memories,
        peak_flops=peak_flops,
        matrix_flops=_rates(base.matrix_flops, readings, "matrix_flops"),
        clock=_rounded(clock),
        read_bandwidth=one["read_bandwidth"],
        l2_capacity=facts.l2_capacity,
        l2_bandwidth=one["l2_bandwidth"],
        launch_latency=one["launch_latency"],
        stream_launch_latency=one["stream_launch_latency"],
        grid_barrier_latency=one["grid_barrier_latency"],
        supports_grid_barrier=True,
        dependent_launches=_dependent_launches(base, readings, f"{facts.name}, {date}"),
        times=base.times,
        measured=Measurement(date, facts.name, facts.driver, versions, readings),
    )


def _dependent_launches(
    base: Device, readings: tuple[Reading, ...], origin: str
) -> DependentLaunchTimes | None:
    """Gains of kernels that start early, from the readings; those of ``base`` without any."""
    found = {r.variant: r.value for r in readings if r.quantity == "dependent_launches"}
    if not found:
        return base.dependent_launches
    before = base.dependent_launches
    slowed, ahead = (before.slowed_share, before.ahead_seconds) if before else (0.0, 0.0)
    overlap, wait = _rounded(found["overlap"]), _rounded(found["wait"])
    return DependentLaunchTimes(origin, overlap, wait, slowed, ahead)


def _target(base: Device, facts: GpuFacts) -> tuple[tuple[str, str | int], ...]:
    """Attributes of the TVM target, with what the driver tells."""
    target = dict(base.target) | {
        "max_num_threads": facts.max_threads_per_block,
        "max_shared_memory_per_block": facts.shared_memory_per_block_optin,
        "max_threads_per_block": facts.max_threads_per_block,
        "registers_per_block": facts.registers_per_block,
        "thread_warp_size": facts.warp_size,
    }
    return tuple(sorted(target.items()))


def compare(device: Device, built_in: Device) -> list[tuple[str, str, str]]:
    """Rows of (quantity, as ``device`` has it, as ``built_in`` has it), for people."""
    rows = [
        (label, text, other)
        for (label, text), (_, other) in zip(_lines(device), _lines(built_in), strict=True)
    ]
    for what, name in (("CUDA cores", "peak_flops"), ("matrix units", "matrix_flops")):
        rates, others = dict(getattr(device, name)), dict(getattr(built_in, name))
        rows += [
            (f"{what}, {dtype}", _flops(rates.get(dtype)), _flops(others.get(dtype)))
            for dtype in sorted({*rates, *others})
        ]
    return rows


def describe(reading: Reading) -> str:
    """One line about a reading."""
    name = f"{reading.quantity.replace('_', ' ')} {reading.variant}".strip()
    scale, unit = {
        "B/s": (1e12, "TB/s"),
        "op/s": (1e12, "Top/s"),
        "s": (1e-6, "µs"),
        "Hz": (1e9, "GHz"),
    }[reading.unit]
    spread = "" if reading.spread is None else f", spread {reading.spread:.1%}"
    return f"{name}: {reading.value / scale:.4g} {unit}{spread}"


def _lines(device: Device) -> list[tuple[str, str]]:
    """Lines of a record for people: names and values."""
    memory = device.memory
    barrier, early = device.grid_barrier_latency, device.dependent_launches
    return [
        ("multiprocessors", str(device.multi_processor_count)),
        ("sustained clock", f"{device.clock / 1e9:.3f} GHz"),
        ("global memory", f"{memory(MemoryLevel.GLOBAL).capacity / 1e9:.1f} GB"),
        ("copy, read + write", f"{memory(MemoryLevel.GLOBAL).bandwidth / 1e12:.3f} TB/s"),
        ("read", f"{device.read_bandwidth / 1e12:.3f} TB/s"),
        ("L2 cache", f"{device.l2_capacity / (1 << 20):.0f} MiB"),
        ("L2 read", f"{device.l2_bandwidth / 1e12:.2f} TB/s"),
        ("shared memory of a block", f"{memory(MemoryLevel.SHARED).capacity >> 10} KiB"),
        ("shared memory read", f"{memory(MemoryLevel.SHARED).bandwidth / 1e12:.1f} TB/s"),
        ("launch, one by one", f"{device.stream_launch_latency * 1e6:.2f} µs"),
        ("launch, in a graph", f"{device.launch_latency * 1e6:.2f} µs"),
        ("grid barrier", "-" if barrier is None else f"{barrier * 1e6:.2f} µs"),
        (
            "dependent launch, saved",
            "-" if early is None else f"{early.overlap_seconds * 1e6:.2f} µs",
        ),
    ]


def _flops(rate: float | None) -> str:
    """A rate of operations for people, such as ``"1.9 Top/s"``; ``rate`` is operations a second."""
    return "-" if rate is None else f"{rate / 1e12:.1f} Top/s"


def _rates(
    base: tuple[tuple[str, float], ...], readings: tuple[Reading, ...], quantity: str
) -> tuple[tuple[str, float], ...]:
    """The best measured rate of each element type, over those of ``base``."""
    best: dict[str, float] = {}
    for reading in readings:
        if reading.quantity == quantity:
            dtype = reading.variant.partition(" ")[0]
            best[dtype] = max(best.get(dtype, 0.0), _rounded(reading.value))
    return tuple(sorted((dict(base) | best).items()))


def _rounded(value: float) -> float:
    """A number with as many digits as records keep."""
    return float(f"{value:.{_DIGITS}g}")
