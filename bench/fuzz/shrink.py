"""Make a failing graph smaller for as long as it fails in the same way."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import torch

from bench.fuzz import torch_door
from bench.fuzz.graph import Call, Graph, Tensor
from bench.fuzz.judge import Settings, Verdict

Judge = Callable[[Graph, Settings], Verdict]


def shrink(
    graph: Graph, settings: Settings, verdict: Verdict, judge: Judge, *, limit_s: float
) -> tuple[Graph, Settings, Verdict]:
    """The smallest graph found, with the settings nearest to the defaults, and how it fails.

    Args:
        graph: that fails.
        settings: with these.
        verdict: how.
        judge: is asked about each smaller graph.
        limit_s: seconds after which the smallest so far is good enough.
    """
    end = time.monotonic() + limit_s
    for simpler in _simpler_settings(settings):
        found = judge(graph, simpler)
        if _is_same(found, verdict):
            settings, verdict = simpler, found
            break
    seen = {graph}
    progress = True
    while progress:
        progress = False
        for smaller in candidates(graph):
            if time.monotonic() > end:
                return graph, settings, verdict
            if smaller in seen:
                continue
            seen.add(smaller)
            found = judge(smaller, settings)
            if _is_same(found, verdict):
                graph, verdict, progress = smaller, found, True
                break
    return graph, settings, verdict


def _simpler_settings(settings: Settings) -> Iterator[Settings]:
    default = Settings(
        settings.device, run=settings.run, special=settings.special, door=settings.door
    )
    if settings != default:
        yield default
        for name in ("weld", "coschedule", "tf32", "topk"):
            yield replace(default, **{name: getattr(settings, name)})


def _is_same(found: Verdict, wanted: Verdict) -> bool:
    return found.kind == wanted.kind


def candidates(graph: Graph) -> Iterator[Graph]:
    """Smaller graphs, the boldest first; whether they make sense, running them tells."""
    made = [name for call in graph.calls for name in call.results]
    for name in made:
        if graph.outputs != (name,):
            yield replace(graph, outputs=(name,)).pruned()
    if len(set(graph.outputs)) > 1:
        for name in graph.outputs:
            yield replace(graph, outputs=tuple(o for o in graph.outputs if o != name)).pruned()
    shapes = _samples(graph)
    for at in reversed(range(len(graph.calls))):
        yield from _without_call(graph, at, shapes)
    yield from _smaller_extents(graph)
    for tensor in graph.tensors:
        if tensor.order:
            yield _with_tensor(graph, replace(tensor, order=()))
    for call in graph.calls:
        for simpler in _simpler_texts(call.text):
            yield _with_call(graph, replace(call, text=simpler))


def _samples(graph: Graph) -> dict[str, torch.Tensor]:
    values = torch_door.draw(replace(graph, dtype="float64"), 1)
    for call in graph.calls:
        results = torch_door.call(call.text, values)
        values |= dict(zip(call.results, results, strict=True))
    return values


def _without_call(graph: Graph, at: int, samples: dict[str, torch.Tensor]) -> Iterator[Graph]:
    """A call's results become inputs, or its operand takes their place."""
    call = graph.calls[at]
    rest = (*graph.calls[:at], *graph.calls[at + 1 :])
    inputs = tuple(_as_input(name, samples[name]) for name in call.results)
    names = {old: new.name for old, new in zip(call.results, inputs, strict=True)}
    renamed = tuple(replace(c, text=_renamed(c.text, names)) for c in rest)
    outputs = tuple(name for name in graph.outputs if name not in names)
    if outputs:
        tensors = (*graph.tensors, *inputs)
        yield replace(graph, calls=renamed, tensors=tensors, outputs=outputs).pruned()
    if len(call.results) == 1:
        result = samples[call.results[0]]
        for operand in call.operands:
            if samples[operand].shape == result.shape and samples[operand].dtype == result.dtype:
                names = {call.results[0]: operand}
                bypassed = tuple(replace(c, text=_renamed(c.text, names)) for c in rest)
                outputs = tuple(names.get(name, name) for name in graph.outputs)
                yield replace(graph, calls=bypassed, outputs=outputs).pruned()


def _as_input(name: str, sample: torch.Tensor) -> Tensor:
    kind = "float" if sample.dtype == torch.float64 else str(sample.dtype).removeprefix("torch.")
    below = 0 if kind == "float" or not sample.numel() else int(sample.max()) + 1
    return Tensor(f"x9{name[1:]}", tuple(sample.shape), kind, below)


def _renamed(text: str, names: dict[str, str]) -> str:
    return re.sub(r"\b[xcv]\d+\b", lambda found: names.get(found[0], found[0]), text)


def _smaller_extents(graph: Graph) -> Iterator[Graph]:
    """The same number everywhere, in shapes and in code, becomes a smaller one."""
    extents = sorted({e for tensor in graph.tensors for e in tensor.shape if e > 1}, reverse=True)
    for extent in extents:
        for smaller in dict.fromkeys((1, 2, extent // 4, extent // 2, extent - 1)):
            if 0 < smaller < extent:
                yield _with_extent(graph, extent, smaller, in_code=True)
                yield _with_extent(graph, extent, smaller, in_code=False)
    for tensor in graph.tensors:
        for axis, extent in enumerate(tensor.shape):
            for smaller in (1, extent // 2):
                if 0 < smaller < extent:
                    shape = (*tensor.shape[:axis], smaller, *tensor.shape[axis + 1 :])
                    yield _with_tensor(graph, replace(tensor, shape=shape))


def _with_extent(graph: Graph, old: int, new: int, *, in_code: bool) -> Graph:
    tensors = tuple(
        replace(
            tensor,
            shape=tuple(new if e == old else e for e in tensor.shape),
            below=min(tensor.below, new) if tensor.below == old else tensor.below,
        )
        for tensor in graph.tensors
    )
    calls = graph.calls
    if in_code:
        pattern = rf"(?<![\w.]){old}(?![\w.])"
        calls = tuple(replace(call, text=re.sub(pattern, str(new), call.text)) for call in calls)
    return replace(graph, tensors=tensors, calls=calls)


def _simpler_texts(text: str) -> Iterator[str]:
    """Numbers of tuples become ones and zeros."""
    for found in re.finditer(r"(stride|dilation|padding|output_padding)=\(([^)]*)\)", text):
        plain = "0" if "padding" in found[1] else "1"
        count = len([part for part in found[2].split(",") if part.strip()])
        value = f"({', '.join([plain] * count)}{',' if count == 1 else ''})"
        yield text.replace(found[0], f"{found[1]}={value}")


def _with_tensor(graph: Graph, tensor: Tensor) -> Graph:
    tensors = tuple(tensor if t.name == tensor.name else t for t in graph.tensors)
    return replace(graph, tensors=tensors)


def _with_call(graph: Graph, call: Call) -> Graph:
    calls = tuple(call if c.results == call.results else c for c in graph.calls)
    return replace(graph, calls=calls)
