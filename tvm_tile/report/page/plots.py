"""Plots of pages, as data that their templates draw: the roofline, memory over time, and throughput
over latency."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tvm_tile.report.compiled import ModelReport
from tvm_tile.report.limits import Roofs
from tvm_tile.report.page.content import OfferView
from tvm_tile.report.page.kernels import BoxKind, KernelView
from tvm_tile.report.page.numbers import bytes_text, plain_text, rate_text, time_text
from tvm_tile.report.screen import svg
from tvm_tile.report.screen.short_names import short

# All in pixels of the drawing, which is scaled.
WIDTH, HEIGHT = 720.0, 400.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 98.0, 20.0, 16.0, 40.0
_SMALLEST, _LARGEST = 4.0, 13.0  # radius of a point
_NEAR = 0.9  # a kernel whose operations are bounded by so much of a peak is of that unit
_TICKS = 5
_FEW_POWERS = 2.5  # an axis over fewer powers of ten has other ticks, too
_ROOM = 60  # characters of a name
_LIGHTNESS = 45  # of a device's colour, percent: seen on white paper and on dark


@dataclass(frozen=True, slots=True)
class Tick:
    """A mark of an axis."""

    at: float
    text: str


@dataclass(frozen=True, slots=True)
class Roof:
    """A line that no kernel gets above.

    Attributes:
        path: path of the line.
        text: text beside the line.
        place: place of the text.
        angle: angle of the text, in degrees; ``None`` for a text that ends there, and does not
            begin.
    """

    path: str
    text: str
    place: tuple[float, float]
    angle: float | None


@dataclass(frozen=True, slots=True)
class Point:
    """A kernel in the roofline."""

    kernel: KernelView
    x: float
    y: float
    radius: float
    text: str


@dataclass(frozen=True, slots=True)
class Roofline:
    """Kernels by operations per byte and operations per second.

    Attributes:
        ticks_across, ticks_up: of the axes.
        roofs: lines of the device.
        points: points, those of most time first.
        left_out: kernels that compute nothing, or of no known time.
    """

    ticks_across: tuple[Tick, ...]
    ticks_up: tuple[Tick, ...]
    roofs: tuple[Roof, ...]
    points: tuple[Point, ...]
    left_out: int


@dataclass(frozen=True, slots=True)
class _Log:
    """A logarithmic axis."""

    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        """Place of a value, in pixels."""
        share = (math.log10(value) - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)

    def ticks(self, text: Callable[[float], str]) -> tuple[Tick, ...]:
        """Ticks at the powers of ten, and where these are few at twice and five times them."""
        powers = range(math.floor(self.low), math.floor(self.high) + 1)
        steps = (1, 2, 5) if self.high - self.low < _FEW_POWERS else (1,)
        values = (step * 10.0**power for power in powers for step in steps)
        return tuple(
            Tick(self.at(value), text(value))
            for value in values
            if self.low <= math.log10(value) <= self.high
        )

    @classmethod
    def over(cls, values: Sequence[float], start: float, end: float) -> _Log:
        """An axis over values, with some room at both ends."""
        low, high = math.log10(min(values)), math.log10(max(values))
        return cls(low - 0.25, max(high, low + 1) + 0.25, start, end)


def roofline(report: ModelReport, kernels: Sequence[KernelView]) -> Roofline | None:
    """The roofline of a model; ``None`` where the device's roofs are not known, or no kernel has
    operations."""
    roofs = report.limits.roofs if report.limits is not None else None
    shown = [
        k for k in kernels if k.kind is not BoxKind.FELL_BACK and k.report.flops
        and k.report.traffic and k.call_seconds
    ]  # fmt: skip
    if roofs is None or not shown:
        return None
    rates = [kernel.report.flops / kernel.call_seconds for kernel in shown]
    intensities = [kernel.report.flops / kernel.report.traffic for kernel in shown]
    peaks = _peaks(roofs, shown)
    across = _Log.over([*intensities, peaks[-1][1] / roofs.memory], _LEFT, WIDTH - _RIGHT)
    up = _Log.over([*rates, peaks[-1][1]], HEIGHT - _BOTTOM, _TOP)
    points = [
        Point(
            kernel,
            across.at(intensity),
            up.at(rate),
            _SMALLEST + (_LARGEST - _SMALLEST) * math.sqrt(kernel.share),
            f"{kernel.title}: {intensity:.3g} FLOP/byte, {rate_text(rate, 'FLOP')}, "
            f"{kernel.kind.value}",
        )
        for kernel, rate, intensity in zip(shown, rates, intensities, strict=True)
    ]
    lines = (*_slopes(roofs, peaks[-1][1], across, up), *_ceilings(peaks, roofs, across, up))
    ticks = across.ticks("{:g}".format), up.ticks(lambda rate: rate_text(rate, "FLOP"))
    return Roofline(*ticks, lines, tuple(points), len(kernels) - len(shown))


def _peaks(roofs: Roofs, kernels: Sequence[KernelView]) -> list[tuple[str, float]]:
    """The peaks of the units that some kernel is bounded by, the least first."""
    usable = [k.report.flops / k.report.arithmetic_seconds for k in kernels
              if k.report.arithmetic_seconds]  # fmt: skip
    own = {
        peak for peak in roofs.peaks for rate in usable if _NEAR <= rate / peak[1] <= 2 - _NEAR
    }  # fmt: skip
    by_rate: dict[float, list[str]] = {}
    for name, rate in roofs.peaks:
        if (name, rate) in (own or set(roofs.peaks[-1:])):
            by_rate.setdefault(rate, []).append(name)
    return [(_one_of(names), rate) for rate, names in by_rate.items()]


def _one_of(names: Sequence[str]) -> str:
    """Name of several kernels at one point."""
    return f"{names[0]} and {len(names) - 1} more" if len(names) > 1 else names[0]


def _slopes(roofs: Roofs, most: float, across: _Log, up: _Log) -> Iterator[Roof]:
    """Sloping lines of a roofline: the rates of the cache and of the memory."""
    for name, rate in (("L2 cache", roofs.cache), ("memory", roofs.memory)):
        low, high = 10**across.low, 10**across.high
        start = max(low, 10**up.low / rate)
        end = min(high, most / rate)
        if start < end:
            ends = [(across.at(x), up.at(x * rate)) for x in (start, end)]
            path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in ends)
            (left, bottom), (right, top) = ends
            angle = math.degrees(math.atan2(top - bottom, right - left))
            middle = (2 * left + right) / 3, (2 * bottom + top) / 3
            yield Roof(path, f"{name}, {rate_text(rate, 'B')}", middle, angle)


def _ceilings(
    peaks: Sequence[tuple[str, float]], roofs: Roofs, across: _Log, up: _Log
) -> Iterator[Roof]:
    """Level lines of a roofline: the peaks of the units."""
    for name, rate in peaks:
        start = across.at(max(10**across.low, rate / roofs.cache))
        y, end = up.at(rate), across.end
        text = f"{name}, {rate_text(rate, 'FLOP')}"
        yield Roof(f"M{start:.1f} {y:.1f}H{end:.1f}", text, (end, y), None)


@dataclass(frozen=True, slots=True)
class Moment:
    """A call on the time axis of the memory's plot."""

    x: float
    width: float
    text: str


@dataclass(frozen=True, slots=True)
class MemoryPlot:
    """Bytes between kernels, call by call.

    Attributes:
        path: the border of the area.
        ticks_across, ticks_up: of the axes.
        moments: each call.
        most: the most bytes that are needed at once, and while which call.
        planned: height of the line of the memory that was planned.
        unknown: tensors whose sizes are known only in a call, which are left out.
    """

    path: str
    ticks_across: tuple[Tick, ...]
    ticks_up: tuple[Tick, ...]
    moments: tuple[Moment, ...]
    most: tuple[str, str]
    planned: float
    unknown: int


def memory_plot(report: ModelReport, kernels: Sequence[KernelView]) -> MemoryPlot | None:
    """The plot of ``main``; ``None`` where its graph or no call's time is known, or where nothing
    lies between."""
    graph = next(iter(report.graphs), None)
    if graph is None or not any(graph.live_bytes):
        return None
    live = graph.live_bytes
    known = {kernel.report.name: kernel.call_seconds for kernel in kernels}
    seconds = [known.get(call.kernel, 0.0) for call in graph.calls]
    total = sum(seconds)
    if not total:
        return None
    most_bytes = max(*live, report.planned) * 1.08
    across = (WIDTH - _LEFT - _RIGHT) / total
    up = (HEIGHT - _TOP - _BOTTOM) / most_bytes
    floor = HEIGHT - _BOTTOM
    x, path, moments = _LEFT, f"M{_LEFT} {floor}", []
    for call, own, size in zip(graph.calls, seconds, live, strict=True):
        text = f"{', '.join(call.names) or call.kernel}: {bytes_text(size)}"
        moments.append(Moment(x, own * across, text))
        path += f"V{floor - size * up:.1f}h{own * across:.2f}"
        x += own * across
    peak = max(range(len(live)), key=live.__getitem__)
    at = graph.calls[peak]
    return MemoryPlot(
        f"{path}V{floor}Z",
        tuple(Tick(_LEFT + value * across, time_text(value)) for value in _round_values(total)),
        tuple(Tick(floor - value * up, bytes_text(value)) for value in _round_values(most_bytes)),
        tuple(moments),
        (bytes_text(live[peak]), short(at.names or (at.kernel,), _ROOM)),
        floor - report.planned * up,
        sum(tensor.size is None for tensor in graph.tensors),
    )


def _round_values(most: float) -> Iterator[float]:
    """A few round values from zero on, each of one digit, or with a five behind it."""
    power = 10.0 ** math.floor(math.log10(most / _TICKS))
    step = next(n * power for n in (1, 2, 2.5, 5, 10) if n * power * _TICKS >= most * 0.999)
    return (step * n for n in range(int(most / step) + 1))


@dataclass(frozen=True, slots=True)
class Mark:
    """An offer in the plot of throughput over latency."""

    offer: OfferView
    x: float
    y: float
    text: str


@dataclass(frozen=True, slots=True)
class DeviceLine:
    """The offers of a device, those of fewest samples first, and the line through them."""

    device: str
    colour: str
    path: str
    marks: tuple[Mark, ...]


@dataclass(frozen=True, slots=True)
class LatencyPlot:
    """Offers by the time of a run and by samples a second.

    Attributes:
        ticks_across, ticks_up: of the axes.
        lines: one a device.
        limit: place of the longest time that a run may take; ``None`` where there is none on the
            axis.
    """

    ticks_across: tuple[Tick, ...]
    ticks_up: tuple[Tick, ...]
    lines: tuple[DeviceLine, ...]
    limit: float | None


def latency_plot(offers: Sequence[OfferView], latency: float | None) -> LatencyPlot | None:
    """The plot; ``None`` where no offer takes any time."""
    shown = [offer for offer in offers if offer.seconds]
    if not shown:
        return None
    across = _Log.over([offer.seconds for offer in shown], _LEFT, WIDTH - _RIGHT)
    up = _Log.over([offer.throughput for offer in shown], HEIGHT - _BOTTOM, _TOP)
    lines = []
    for number, device in enumerate(dict.fromkeys(offer.device for offer in shown)):
        own = sorted((o for o in shown if o.device == device), key=lambda offer: offer.samples)
        marks = tuple(
            Mark(o, across.at(o.seconds), up.at(o.throughput), _offer_text(o)) for o in own
        )
        path = "M" + "L".join(f"{mark.x:.1f} {mark.y:.1f}" for mark in marks)
        lines.append(DeviceLine(device, svg.colour(number, _LIGHTNESS), path, marks))
    is_on = latency and across.low <= math.log10(latency) <= across.high
    limit = across.at(latency) if latency and is_on else None
    ticks = across.ticks(time_text), up.ticks(plain_text)
    return LatencyPlot(*ticks, tuple(lines), limit)


def _offer_text(offer: OfferView) -> str:
    """An offer in words."""
    rate = f"{plain_text(offer.throughput)} samples a second"
    named = f"{offer.device}, {offer.samples} a run"
    return f"{named}: {time_text(offer.seconds)}, {rate}, {offer.standing.value}"
