"""The suites, by name: each a module of workloads as data, and how they are built."""

from __future__ import annotations

import importlib
from collections.abc import Collection, Iterable
from typing import Any, Protocol

from bench.workload import Case, Workload

_SUITES = (
    "ops",
    "drawn",
    "drawn_products",
    "experts",
    "gemm",
    "conv",
    "attention",
    "flex",
    "norm",
    "models",
    "rnn",
    "control_flow",
    "decode",
    "prefill",
    "diffusion",
    "shallow",
    "predictions",
)


class Suite(Protocol):
    """What a suite's module offers.

    Attributes:
        SOURCE: where the workloads come from.
    """

    SOURCE: str

    def workloads(self) -> tuple[Workload, ...]:
        """All of them; instant, without torch or TVM."""
        ...

    def case(self, workload: Workload) -> Case:
        """A workload as a module with inputs."""
        ...


def names() -> tuple[str, ...]:
    """All suites."""
    return _SUITES


def load_suite(name: str) -> Suite:
    """A suite by its name here, or any other by its module's dotted name."""
    path = f"bench.suites.{name}" if name in _SUITES else name
    suite: Suite = importlib.import_module(path)  # type: ignore[assignment]
    return suite


def choose(
    suites: Iterable[str], **allowed: Collection[str | int | None] | None
) -> tuple[Workload, ...]:
    """The workloads of some suites whose ``name``, ``family``, ``dtype`` and ``batch``, or what
    else is among their sizes, are allowed.

    Where ``allowed`` has None for one of these, all are; values are compared as text.
    """

    def fits(workload: Workload) -> bool:
        return all(
            wanted is None or _value(workload, key) in map(str, wanted)
            for key, wanted in allowed.items()
        )

    found = (workload for suite in suites for workload in load_suite(suite).workloads())
    return tuple(filter(fits, found))


def _value(workload: Workload, key: str) -> str:
    found = getattr(workload, key, None) if key not in dict(workload.sizes) else workload.size(key)
    return str(found)


def is_search(suite: str) -> bool:
    """Whether its workloads of a family and a batch are what somebody would choose one of."""
    return getattr(load_suite(suite), "IS_SEARCH", False)


def vendor_module(workload: Workload, suite: str) -> Any | None:
    """The module that PyTorch's users would write: vendor's attention, cuDNN's LSTM; or None."""
    made = getattr(load_suite(suite), "vendor_module", None)
    return None if made is None else made(workload)
