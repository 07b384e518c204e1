"""Which device, and how many samples a run: what each gives, and which are worth it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tvm_tile.device import Device
from tvm_tile.device.detect import resolve_device
from tvm_tile.device.device import MemoryLevel
from tvm_tile.errors import OptionError
from tvm_tile.errors.arguments import check_count, check_share
from tvm_tile.files.whole_file import replacing
from tvm_tile.frontend import all_sizes
from tvm_tile.frontend.asked import Asked
from tvm_tile.options import Options
from tvm_tile.oracle.oracle import Oracle
from tvm_tile.report.page.content import Choices, OfferView, Standing
from tvm_tile.report.screen.table import aligned
from tvm_tile.report.shown import Report
from tvm_tile.stages.guarded import one_compilation

_HOUR = 3600.0
_MILLION = 1e6
_VERSION = 1  # of the JSON


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
        run, in samples a second, and in cost where prices are known. The fastest run is first."""
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
        """Cells of a table for people, the headings first; the front has stars, what is not
        possible strokes, and what is estimated ``(~)``."""
        front, possible = self.front, self.possible
        priced = any(one.price is not None for one in self.all)
        headings = "", "device", "samples", "us a run", "samples/s", "GB"
        yield (*headings, "price of 1M") if priced else headings
        for one in self.all:
            mark = "*" if one in front else " " if one in possible else "-"
            cost = "" if one.cost is None else f"{one.cost:.4g}"
            least, about = one.report.at_least, " (~)" * one.report.is_estimated
            speed = f"{least}{one.seconds * 1e6:.1f}{about}", f"{one.throughput:.0f}"
            cells = mark, one.device, str(one.samples), *speed, f"{one.memory / 1e9:.3g}"
            yield (*cells, cost) if priced else cells

    def __str__(self) -> str:
        """The table."""
        return "\n".join(aligned(list(self.rows())))

    @property
    def notes(self) -> tuple[str, ...]:
        """What there is to know of the predictions, each note once."""
        return tuple(dict.fromkeys(note for one in self.all for note in one.report.notes))

    def to_json(self) -> str:
        """The offers as JSON.

        Fields stay as they are::

            {
              "version": 1,                  of this schema
              "latency_seconds": 0.005,      that a run may take; null: any
              "best": 0,                     place of the best among the offers; null: none
              "offers": [{
                "device": "nvidia/h200",
                "samples": 8,                of a run
                "predicted_seconds": 0.004,  of a run, or estimated where "is_estimated"
                "is_estimated": false,
                "is_bound": false,           whether it takes so long at least
                "samples_per_second": 2000.0,
                "memory_bytes": 5e7,
                "capacity_bytes": 1.4e11,
                "price_per_hour": 4.0,       null where nobody told; so is the next
                "price_per_million": 0.55,
                "is_possible": true,         fits into the memory, and into the latency
                "is_on_front": true
              }]
            }
        """
        best, possible, front = self.best, self.possible, self.front
        data = {
            "version": _VERSION,
            "latency_seconds": self.latency,
            "best": None if best is None else self.all.index(best),
            "offers": [
                {
                    "device": one.device,
                    "samples": one.samples,
                    "predicted_seconds": one.seconds,
                    "is_estimated": one.report.is_estimated,
                    "is_bound": one.report.is_bound,
                    "samples_per_second": one.throughput,
                    "memory_bytes": one.memory,
                    "capacity_bytes": one.capacity,
                    "price_per_hour": one.price,
                    "price_per_million": one.cost,
                    "is_possible": one in possible,
                    "is_on_front": one in front,
                }
                for one in self.all
            ],
        }
        return json.dumps(data, indent=2)

    def save_page(self, path: str | Path, *, title: str = "") -> None:
        """Write one HTML file that needs no network: throughput over latency, memory, the front.

        Args:
            path: the file's path; an existing file is replaced only once the new one is complete.
            title: name of the model on the page; by default that of the file.

        Raises:
            OSError: the file cannot be written.
        """
        from tvm_tile.report.page.html import render_choices  # a library for templates, for pages

        with replacing(Path(path)) as file:
            file.write(render_choices(self._shown(title or Path(path).stem)).encode())

    def _shown(self, title: str) -> Choices:
        """All that the page shows."""
        best = self.best
        views = tuple(
            OfferView(
                one.device,
                one.samples,
                one.seconds,
                one.throughput,
                one.memory,
                one.capacity,
                one.cost,
                self._standing(one),
                _remark(one.report),
            )
            for one in self.all
        )
        place = None if best is None else self.all.index(best)
        return Choices(title, views, place, self.latency, self.notes)

    def _standing(self, one: Offer) -> Standing:
        """How an offer does beside the others."""
        if not one.fits:
            return Standing.TOO_LARGE
        if one not in self.possible:
            return Standing.TOO_SLOW
        return Standing.FRONT if one in self.front else Standing.POSSIBLE


def choose(
    models: Mapping[int, Any],
    devices: Sequence[Any],
    *,
    latency: float | None = None,
    prices: Mapping[Any, float] | None = None,
    example_inputs: Mapping[int, Any] | None = None,
    inputs: Mapping[int, Any] | None = None,
    options: Options | Mapping[str, Any] | None = None,
    **named: Any,
) -> Offers:
    """What a model would take on several GPUs, with several numbers of samples a run.

    Args:
        models: number of samples -> the model for so many, as of :func:`tvm_tile.predict`; the same
            one for all where it leaves its batch open, which is that number then, or where
            ``example_inputs`` or ``inputs`` tell the number.
        devices: device records, or whatever names one, as of :func:`tvm_tile.compile`.
        latency: seconds that a run may take.
        prices: one of ``devices``, or the name of its record -> what it costs an hour.
        example_inputs, inputs: number of samples -> these arguments of :func:`tvm_tile.predict`.
        options: how the models would be compiled; also by name.

    Raises:
        OptionError: a number of samples is no positive whole number, there is no device, a price is
            of no device or no price, the latency is none, or an option is unknown. Others are those
            of :func:`tvm_tile.predict`.
    """
    prices = prices or {}
    _check(models, devices, latency, prices)
    asked_about = {device: resolve_device(device) for device in devices}
    records = tuple(dict.fromkeys(asked_about.values()))
    known = _named_prices(asked_about, prices)
    oracle = Oracle(*records, options=options, **named)
    found = []
    for samples, model in models.items():
        examples = (example_inputs or {}).get(samples)
        asked = Asked(model, (inputs or {}).get(samples), examples)
        with one_compilation():
            sizes = all_sizes(asked.source, asked.sizes, samples).sizes
        reports = oracle.on_all(asked.source, example_inputs=examples, inputs=sizes)
        for record in records:
            report = reports[record.name]
            memory = float(report.weights + report.planned)
            capacity = float(record.memory(MemoryLevel.GLOBAL).capacity)
            price = known.get(record.name)
            found.append(Offer(record.name, samples, report, memory, capacity, price))
    order = {record.name: number for number, record in enumerate(records)}
    return Offers(tuple(sorted(found, key=lambda one: order[one.device])), latency)


def _check(
    models: Mapping[int, Any],
    devices: Sequence[Any],
    latency: float | None,
    prices: Mapping[Any, float],
) -> None:
    """Refuse numbers of samples, seconds and prices that are none, and no device at all."""
    if not devices:
        raise OptionError(
            "there must be a device to ask about", "none was given", "give devices=['nvidia/h200']"
        )
    for samples in models:
        check_count("number of samples", samples, 1, "give {1: model, 8: model_of_8}")
    if latency is not None:
        check_share("latency", latency, "give the seconds that a run may take")
    for price in prices.values():
        check_share("a price", price, "give what an hour of the device costs")


def _named_prices(devices: Mapping[Any, Device], prices: Mapping[Any, float]) -> dict[str, float]:
    """Prices by the names of records; those that nobody would see are refused."""
    names = {one: record.name for one, record in devices.items()}
    names |= {record.name: record.name for record in devices.values()}
    if unknown := [str(getattr(one, "name", one)) for one in prices if one not in names]:
        raise OptionError(
            "prices are those of the devices that are asked about",
            ", ".join(sorted(unknown)),
            f"give those of {', '.join(dict.fromkeys(names.values()))}",
        )
    return {names[one]: price for one, price in prices.items()}


def _remark(report: Report) -> str:
    """What there is to say of a prediction."""
    said = ["an estimate: nobody measured this device"] if report.is_estimated else []
    said += ["takes so long at least"] if report.is_bound else []
    said += [f"{len(report.fallbacks)} kernels fell back"] if report.fallbacks else []
    return "; ".join(said)


def _grades(one: Offer) -> tuple[float, ...]:
    """What is the better the less it is."""
    return (one.seconds, -one.throughput, *(() if one.cost is None else (one.cost,)))


def _beats(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    """Whether these grades are all as good, and one is better; those without a price by what they
    have."""
    pairs = list(zip(one, other, strict=False))
    return all(a <= b for a, b in pairs) and any(a < b for a, b in pairs)
