"""Measure one product in one format: all systems in turns, each compared with float64."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from bench.gpu import Stage
from bench.low_bit.compiling import Models, obstacle, requests_of, rules_of
from bench.low_bit.formats import LowBit
from bench.low_bit.operands import Operands, operands_of
from bench.low_bit.peers import PEERS, Peer, Run
from bench.low_bit.products import Product
from bench.low_bit.record import FLOATS, OURS, Measured
from bench.open_shapes.compiling import reason
from bench.open_shapes.record import Provenance
from bench.protocol import Times, checked, measure

OUR_TOLERANCE = 2e-3
# The matrix units of Hopper add products of 8-bit floats up with 14 bits.
_FLOAT8_TOLERANCE = 1e-2


@dataclass(frozen=True, slots=True)
class Bench:
    """What all measurements of a run share.

    Attributes:
        models: our compiled products.
        read_bandwidth: of the device's record, bytes per second.
        stage: where runs are timed.
        where: PyTorch's name of the device that has the operands.
        systems: that are measured, by name.
        origin: for the records.
        seed: of operands.
    """

    models: Models
    read_bandwidth: float
    stage: Stage
    where: str
    systems: tuple[str, ...]
    origin: Provenance
    seed: int = 1

    def measured(
        self, low: LowBit, product: Product, without: frozenset[str] = frozenset()
    ) -> Iterator[Measured]:
        """A record of each system, those of ``without`` left out; nothing where none is left.

        Each is made as soon as it is known: what comes next may end the process.
        """
        wanted = [name for name in self.systems if name not in without]
        if not wanted:
            return
        operands = operands_of(low, product, self.where, self.seed)
        contenders = [found for name in wanted if (found := self._contender(name, operands))]
        expected = [operands.wanted()]
        runs: dict[str, Run] = {}
        records: dict[str, Measured] = {}
        for one in contenders:
            blank = self._blank(one, low, product)
            try:
                runs[one.name], records[one.name] = self._checked(one, blank, expected)
            except Exception as error:  # the others are to be measured
                yield replace(blank, status=one.refusal or reason(error))
                self.stage.synchronize()  # raises where the GPU is in error: --resume goes on
        del expected
        yield from self._timed(runs, records)

    def _contender(self, name: str, operands: Operands) -> Contender | None:
        """``None`` where a system is not for such products."""
        if name in PEERS:
            return _of_peer(PEERS[name], operands) if PEERS[name].takes(operands) else None
        low = operands.low
        asked = [one for one in requests_of(low, operands.product) if one.system == name]
        if not asked:
            return None
        given = operands.halves if name == FLOATS else operands.arguments
        tolerance = OUR_TOLERANCE if low.vectors != "float8_e4m3fn" else _FLOAT8_TOLERANCE
        model = self.models.load(asked[0])
        if isinstance(model, str):
            return Contender(name, _nothing, tolerance, refusal=model)
        why = obstacle(model, low) if name == OURS else ""
        return Contender(name, lambda: partial(model, *given), tolerance, rules_of(model), why)

    def _blank(self, one: Contender, low: LowBit, product: Product) -> Measured:
        least = low.least_bytes(product.vectors, product.rows, product.depth)
        return Measured(
            product.family,
            product.name,
            product.vectors,
            product.rows,
            product.depth,
            low.name,
            one.name,
            "",
            least,
            least / self.read_bandwidth * 1e6,
            tolerance=one.tolerance,
            rules=one.rules,
            obstacle=one.obstacle,
            provenance=self.origin,
        )

    def _checked(
        self, one: Contender, blank: Measured, expected: list[Any]
    ) -> tuple[Run, Measured]:
        """What enqueues a run, and a record of whether it is right."""
        run = one.start()
        run()
        self.stage.synchronize()
        error = checked(lambda: one.finish(run()), expected, self.stage)
        is_right = error <= one.tolerance  # NaN is not
        status = "ok" if is_right else f"wrong: error above {one.tolerance:.1e}"
        known = error if math.isfinite(error) else None
        return run, replace(blank, status=status, error=known)

    def _timed(self, runs: dict[str, Run], records: dict[str, Measured]) -> Iterator[Measured]:
        """Times of all, taken in turns; one that fails is told, and the others begin again."""
        turn = [""]
        while runs:
            try:
                found = measure(runs, self.stage, cold=True, on_system=partial(_noted, turn))
            except Exception as error:
                yield replace(records[turn[0]], status=reason(error))
                del runs[turn[0]]
                self.stage.synchronize()
                continue
            for name, times in found.items():
                yield _with_times(records[name], times)
            return


@dataclass(frozen=True, slots=True)
class Contender:
    """A system that takes part.

    Attributes:
        name: of the system.
        start: makes what enqueues one run.
        tolerance: of its result.
        rules: that wrote our kernels.
        obstacle: as of :class:`Measured`.
        refusal: why it cannot start; empty where it can.
        finish: makes a result what is compared.
    """

    name: str
    start: Callable[[], Run]
    tolerance: float
    rules: str = ""
    obstacle: str = ""
    refusal: str = ""
    finish: Callable[[Any], Any] = lambda result: result


def _nothing() -> Run:
    raise RuntimeError("there is no such kernel")


def _of_peer(peer: Peer, operands: Operands) -> Contender:
    start = partial(peer.start, operands)
    if peer.is_unscaled:
        return Contender(peer.name, start, peer.tolerance, finish=operands.scaled)
    return Contender(peer.name, start, peer.tolerance)


def _noted(turn: list[str], name: str) -> None:
    turn[0] = name


def _with_times(record: Measured, times: Times) -> Measured:
    first, median, third = statistics.quantiles(times.samples, n=4, method="inclusive")
    return replace(
        record,
        median_us=round(median * 1e6, 3),
        first_quartile_us=round(first * 1e6, 3),
        third_quartile_us=round(third * 1e6, 3),
        repeats=len(times.samples),
    )
