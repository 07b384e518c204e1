"""One graph of open extents in this process: compiled once, compared wherever it is called."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from bench.fuzz import torch_door
from bench.fuzz.graph import Graph
from bench.fuzz.judge import (
    SEEDS,
    Settings,
    Verdict,
    against_references,
    compiled,
    first_line,
    has_specials,
    outputs_of,
    place,
    poisoned,
    refusal,
    rounding_of,
    same,
    trace,
    with_specials,
)
from bench.fuzz.open_extents import at, inputs_of, is_valid, points

Point = tuple[int, ...]


def judge_open(graph: Graph, settings: Settings) -> Verdict:
    """Compile a graph for all its extents and compare what it computes at some."""
    from tvm_tile.errors import BuildError, TileError

    if not inputs_of(graph, settings.open) or not is_valid(graph, settings.open):
        return Verdict("invalid", "it makes no sense at all extents")
    try:
        model = _compiled(graph, settings)
    except TileError as error:
        is_ours = isinstance(error, BuildError) or "report it" in error.remedy
        status = "error" if is_ours else "refused"
        return Verdict(status, _without_numbers(refusal(error)), str(error)[:2000])
    except Exception as error:
        return Verdict("error", place(error), trace(error))
    if not settings.run:
        return Verdict("compiled")
    try:
        for point, wrong in _wrongs(graph, model, settings):
            if wrong:
                what = "special values" if wrong.startswith("special") else "kernels"
                culprit = (
                    f"fixed extents, too: {what}" if _is_fixed(graph, settings, point) else what
                )
                rules = " ".join(sorted({f"{k.rule}" for k in model.report.kernels}))
                return Verdict("wrong", f"{culprit}: rules {rules}", f"at {point}: {wrong}")
    except TileError as error:
        return Verdict("error", f"call: {refusal(error)}", str(error)[:2000])
    except Exception as error:
        return Verdict("error", place(error), trace(error))
    return Verdict("right")


def _compiled(graph: Graph, settings: Settings) -> Any:
    whole = at(graph, settings.open, [one.high for one in settings.open])
    drawn = torch_door.draw(whole, 1)
    module = torch_door.module(whole, drawn, getattr(torch, graph.dtype))
    return compiled(
        module,
        settings,
        inputs=inputs_of(graph, settings.open),
        example_inputs=torch_door.inputs_of(whole, drawn),
    )


def _wrongs(graph: Graph, model: Any, settings: Settings) -> Iterator[tuple[Point, str]]:
    """Points of calls, and what is wrong there; empty where nothing is.

    Ahead of each, a call with the greatest extents leaves NaN wherever memory is used again.
    """
    high = tuple(one.high for one in settings.open)
    whole = at(graph, settings.open, high)
    nothing = {name: poisoned(t) for name, t in torch_door.draw(whole, SEEDS[0]).items()}
    called = points(settings.open)
    for number, point in enumerate([*called, called[0]]):
        outputs_of(whole, model, nothing)
        drawn = torch_door.draw(at(graph, settings.open, point), SEEDS[number % 2])
        yield point, _wrong(at(graph, settings.open, point), model, drawn, settings)
    if settings.special and has_specials(graph):
        one = at(graph, settings.open, called[1])
        strange = with_specials(one, torch_door.draw(one, SEEDS[0]))
        wrong = _wrong(one, model, strange, settings)
        yield called[1], f"special values: {wrong}" if wrong else ""


def _wrong(graph: Graph, model: Any, drawn: torch_door.Tensors, settings: Settings) -> str:
    given = [tensor.clone() for tensor in torch_door.inputs_of(graph, drawn)]
    outputs = outputs_of(graph, model, drawn)
    for tensor, before in zip(torch_door.inputs_of(graph, drawn), given, strict=True):
        if not same(tensor, before):
            return "an input changed"
    return against_references(graph, drawn, outputs, rounding_of(graph, settings))


def _is_fixed(graph: Graph, settings: Settings, point: Sequence[int]) -> bool:
    """Whether the graph is wrong, too, where it is compiled for the extents of a point."""
    one = at(graph, settings.open, point)
    drawn = torch_door.draw(one, SEEDS[0])
    try:
        model = compiled(torch_door.exported(one, drawn), settings)
        strange = with_specials(one, drawn) if settings.special else drawn
        return any(_wrong(one, model, given, settings) for given in (drawn, strange))
    except Exception as error:
        return bool(first_line(error))


def _without_numbers(text: str) -> str:
    return re.sub(r"\d+(\.\d+)?(e-?\d+)?", "#", text)
