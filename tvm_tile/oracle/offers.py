"""Which device, and how many samples a run: what each gives, and which are worth it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tvm_tile.device import find_device
from tvm_tile.device.device import MemoryLevel
from tvm_tile.errors import OptionError
from tvm_tile.errors.arguments import check_count
from tvm_tile.options import Options
from tvm_tile.oracle.oracle import Oracle
from tvm_tile.report.screen.table import aligned
from tvm_tile.report.shown import Report

_HOUR = 3600.0
_MILLION = 1e6


@dataclass(frozen=True, slots=True)
class Offer:
    """A model on a device, with so many samples in a run.

    Attributes:
        device: name of the device's record.
        samples: samples of a run.
        report: the prediction, with its kernels.
        memory: bytes of weights and of what lies between kernels; a caller's inputs and outputs
            are not among them.
        capacity: bytes of the device's memory.
        price: an hour of the device costs so much, in whatever currency; ``None`` where nobody
            told.
    """

    device: str
    samples: int
    report: Report
    memory: float
    capacity: float
    price: float | None = None

    @property
    def seconds(self) -> float:
        """Predicted seconds of a run."""
        return self.report.predicted_seconds

    @property
    def throughput(self) -> float:
        """Samples a second, one run behind the other."""
        return self.samples / self.seconds

    @property
    def cost(self) -> float | None:
        """Price of a million samples; ``None`` where the device's is not known."""
        return None if self.price is None else self.price / _HOUR / self.throughput * _MILLION

    @property
    def fits(self) -> bool:
        """Whether the device's memory holds it."""
        return self.memory <= self.capacity


@dataclass(frozen=True, slots=True)
class Offers:
    """What there is to choose from, that of a device side by side.

    Attributes:
        all: each of them.
        latency: seconds that a run may take; ``None``: any.
    """

    all: tuple[Offer, ...]
    latency: float | None = None

    @property
    def possible(self) -> tuple[Offer, ...]:
        """The choices of which a run fits into the device's memory, and into the latency."""
        most = float("inf") if self.latency is None else self.latency
        return tuple(one for one in self.all if one.fits and one.seconds <= most)

    @property
    def front(self) -> tuple[Offer, ...]:
        """Possible ones than which none is as good in all and better in something: in seconds of a
        run, in samples a second, and in cost where all prices are known. The fastest run is
        first."""
        own = [(_grades(one), one) for one in self.possible]
        kept = [one for grades, one in own if not any(_beats(other, grades) for other, _ in own)]
        return tuple(sorted(kept, key=lambda one: one.seconds))

    @property
    def best(self) -> Offer | None:
        """The cheapest possible one for a sample; where prices are not known, the one with most
        samples a second. ``None`` where none is possible."""
        priced = all(one.price is not None for one in self.possible)

        def rank(one: Offer) -> float:
            return one.cost if priced and one.cost is not None else -one.throughput

        return min(self.possible, key=rank, default=None)

    def rows(self) -> Iterator[tuple[str, ...]]:
        """Cells of a table for people, the headings first; the front has stars."""
        yield "", "device", "samples", "us a run", "samples/s", "GB", "price of 1M"
        front, possible = self.front, self.possible
        for one in self.all:
            mark = "*" if one in front else " " if one in possible else "-"
            cost = "" if one.cost is None else f"{one.cost:.4g}"
            speed = f"{one.seconds * 1e6:.1f}", f"{one.throughput:.0f}"
            yield mark, one.device, str(one.samples), *speed, f"{one.memory / 1e9:.2f}", cost

    def __str__(self) -> str:
        """The table."""
        return "\n".join(aligned(list(self.rows())))


def choose(
    models: Mapping[int, Any],
    devices: Sequence[str],
    *,
    latency: float | None = None,
    prices: Mapping[str, float] | None = None,
    example_inputs: Mapping[int, Any] | None = None,
    inputs: Mapping[int, Any] | None = None,
    options: Options | Mapping[str, Any] | None = None,
    **named: Any,
) -> Offers:
    """What a model would take on several GPUs, with several numbers of samples a run.

    Args:
        models: number of samples -> the model for so many, as of :func:`tvm_tile.predict`; the same
            module for all where ``example_inputs`` or ``inputs`` tell the number.
        devices: names of device records.
        latency: seconds that a run may take.
        prices: name of a device -> what it costs an hour.
        example_inputs, inputs: number of samples -> these arguments of :func:`tvm_tile.predict`.
        options: how the models would be compiled; also by name.

    Raises:
        OptionError: a number of samples is no positive whole number, a price is of no device, or an
            option is unknown. Others are those of :func:`tvm_tile.predict`.
    """
    prices = prices or {}
    _check(models, devices, prices)
    oracle = Oracle(*devices, options=options, **named)
    found = []
    for samples, model in models.items():
        given = (example_inputs or {}).get(samples), (inputs or {}).get(samples)
        reports = oracle.on_all(model, example_inputs=given[0], inputs=given[1])
        for name, report in reports.items():
            memory = float(report.weights + report.planned)
            capacity = float(find_device(name).memory(MemoryLevel.GLOBAL).capacity)
            found.append(Offer(name, samples, report, memory, capacity, prices.get(name)))
    order = {name: number for number, name in enumerate(devices)}
    return Offers(tuple(sorted(found, key=lambda one: order.get(one.device, 0))), latency)


def _check(models: Mapping[int, Any], devices: Sequence[str], prices: Mapping[str, float]) -> None:
    """Refuse numbers of samples that are none, and prices that nobody would see."""
    for samples in models:
        check_count("number of samples", samples, 1, "give {1: model, 8: model_of_8}")
    unknown = sorted(set(prices) - set(devices))
    if unknown:
        raise OptionError(
            "prices are those of the devices that are asked about",
            ", ".join(unknown),
            f"give those of {', '.join(devices)}",
        )


def _grades(one: Offer) -> tuple[float, ...]:
    """What is the better the less it is."""
    return (one.seconds, -one.throughput, *(() if one.cost is None else (one.cost,)))


def _beats(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    """Whether these grades are all as good, and one is better; those without a price by what they
    have."""
    pairs = list(zip(one, other, strict=False))
    return all(a <= b for a, b in pairs) and any(a < b for a, b in pairs)
