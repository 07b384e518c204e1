"""Twelve networks of other suites with few layers and steps, which compile within seconds.

BERT and the two decoders are those of transformers, ResNet is timm's: other versions of these
libraries may ask for other kernels. The others are written here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from bench.suites import choose, load_suite
from bench.suites.facts import sizes
from bench.workload import Case, Workload

SOURCE = "networks of the suites models, rnn and decode, with fewer layers and steps"
# Suite, name, dtype, batch, and the sizes that differ from those of the suite.
_NETWORKS: tuple[tuple[str, str, str, int, Mapping[str, Any]], ...] = (
    ("models", "bert_base", "float16", 64, {"layers": 1}),
    ("models", "bsrn", "float32", 1, {"blocks": 1}),
    ("models", "conformer", "float16", 1, {"layers": 1}),
    ("models", "nafnet", "float16", 1, {"encoder": "1", "decoder": "1"}),
    ("models", "nerf", "float16", 1, {}),
    ("models", "resnet50", "float16", 1, {"timm": "resnet26"}),
    ("models", "shufflenet_v2", "float16", 64, {"repeats": "1 1 1"}),
    ("rnn", "deepspeech2", "float32", 1, {"layers": 1, "frames": 20}),
    ("rnn", "lstm", "float32", 1, {"layers": 2, "steps": 3}),
    ("rnn", "resnext29", "float32", 4, {"blocks": 1, "cardinality": 4}),
    ("decode", "granite-3.0-1b-a400m@128", "bfloat16", 16, {"num_hidden_layers": 1}),
    ("decode", "llama-3.2-1b@1024", "bfloat16", 1, {"num_hidden_layers": 1}),
)
_SUITES = {name: suite for suite, name, *_ in _NETWORKS}


def workloads() -> tuple[Workload, ...]:
    """One of each."""
    return tuple(_changed(*network) for network in _NETWORKS)


def case(workload: Workload) -> Case:
    """As its own suite builds it."""
    return load_suite(_SUITES[workload.name]).case(workload)


def _changed(suite: str, name: str, dtype: str, batch: int, changes: Mapping[str, Any]) -> Workload:
    (found,) = choose([suite], name=[name], dtype=[dtype], batch=[batch])
    return replace(found, suite="shallow", sizes=sizes({**dict(found.sizes), **changes}))
