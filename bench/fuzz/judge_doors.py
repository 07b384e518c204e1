"""One graph through two front doors: as PyTorch's exported program and as an ONNX model."""

from __future__ import annotations

from dataclasses import replace

from bench.fuzz.graph import Graph
from bench.fuzz.judge import Settings, Verdict, judge

BOTH = "both"
_DOORS = ("onnx", "torch")  # what ONNX's exporter does not take is found out first
# Which of two verdicts is the graph's: the first that either door gives.
_WORST = ("error", "wrong", "invalid", "refused", "compiled", "right")


def judge_doors(graph: Graph, settings: Settings) -> Verdict:
    """Compile a graph through both doors, and compare what each model computes.

    Both models get the same inputs and are held against the same references in float64, so that
    a graph is right only where its two models agree with them, and thereby with each other:
    integers and truths in each bit, other numbers within what roundings may move.

    Returns:
        The worse of the two verdicts, whose reason ends with its door's name.
    """
    verdicts = []
    for door in _DOORS:
        found = judge(graph, replace(settings, door=door))
        named = f"{found.reason} (door {door})" if found.reason else ""
        verdicts.append(replace(found, reason=named))
        if found.status == "invalid":
            break
    return min(verdicts, key=lambda verdict: _WORST.index(verdict.status))
