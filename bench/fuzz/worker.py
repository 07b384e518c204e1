"""What judges graphs in a process of its own."""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import torch
from torch._export import utils as export_utils

from bench.fuzz.drawing import Misfit
from bench.fuzz.generate import generate, generate_open
from bench.fuzz.graph import Graph
from bench.fuzz.judge import Settings, Verdict, judge
from bench.fuzz.judge_doors import BOTH, judge_doors
from bench.fuzz.judge_open import judge_open


def graph_of(seed: int, dtype: str, settings: Settings) -> Graph:
    """The graph of a seed.

    Raises:
        Misfit: its extents are open, and no graph of the seed makes sense at all of them.
    """
    if settings.open:
        return generate_open(seed, dtype, settings.open)
    return generate(seed, dtype)


def _judge_of(settings: Settings) -> Callable[[Graph, Settings], Verdict]:
    if settings.open:
        return judge_open
    return judge_doors if settings.door == BOTH else judge


def make_worker() -> Callable[[str], dict[str, Any]]:
    """In a worker process: a function from a job, as JSON, to a verdict, as data, and the CPU's
    ``seconds`` that it took."""
    torch.set_num_threads(1)
    torch._C._jit_onnx_log = lambda *_: None  # the exporter prints each graph that it does not take
    # Half of an export's time: it looks for operators that may be decomposed, each time anew.
    export_utils._collect_all_valid_cia_ops_for_namespace = functools.cache(
        export_utils._collect_all_valid_cia_ops_for_namespace
    )

    def work(job: str) -> dict[str, Any]:
        start = time.process_time()
        data = json.loads(job)
        settings = Settings.from_data(data["settings"])
        try:
            if "seed" in data:
                graph = graph_of(data["seed"], data["dtype"], settings)
            else:
                graph = Graph.from_data(data["graph"])
            verdict = _judge_of(settings)(graph, settings)
        except Misfit:
            verdict = Verdict("invalid", "no graph of this seed makes sense at all extents")
        return {**asdict(verdict), "seconds": round(time.process_time() - start, 2)}

    return work
