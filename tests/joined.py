"""Functions that are joined for one rule, whatever it would cost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from kernels import Case, prim_functions
from tvm import tirx

from tvm_tile.device import Device
from tvm_tile.graph.extract import extract
from tvm_tile.passes import sequence
from tvm_tile.passes.weld.place_parts import PlaceParts, parts_of
from tvm_tile.schedule import Choice, FindChoices, Scheduled, Task
from tvm_tile.tile.rules import ELEMENTWISE


def only(rule: FindChoices, device: Device) -> Callable[..., Scheduled]:
    """What to predict for functions, so that all are joined that a rule takes."""

    def predict(func: tirx.PrimFunc, _: object = None) -> Scheduled:
        graph = extract(func)
        choices = rule(Task(func, graph, device), 1) if graph else ()
        if not choices:
            return Scheduled(func, ELEMENTWISE, "", 1, 1, 1.0)
        found = choices[0]()
        assert found is not None
        return replace(found, seconds=1e-9)

    return predict


def place_all_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let functions that have parts seem so dear that these are always written apart."""

    def eager(device: Any, record: Any, predict: Any, refused: Any) -> PlaceParts:
        def dear(func: tirx.PrimFunc, rules: Any) -> Any:
            own = predict(func, rules)
            return replace(own, seconds=1.0) if own is not None and parts_of(func) else own

        return PlaceParts(device, record, dear, refused)

    monkeypatch.setattr(sequence, "PlaceParts", eager)


def joined_functions(case: Case, device: Device, rule: FindChoices) -> list[tirx.PrimFunc]:
    """What a case becomes where all is joined that the rule takes."""
    return list(prim_functions(case, device, only(rule, device)).values())


def joined_function(case: Case, device: Device, rule: FindChoices) -> tirx.PrimFunc:
    """The only function that a case becomes."""
    found = joined_functions(case, device, rule)
    assert len(found) == 1, [func.script() for func in found]
    return found[0]


def function_and_choices(
    case: Case, device: Device, rule: FindChoices
) -> tuple[tirx.PrimFunc, Sequence[Choice]]:
    """The only function that a case becomes, and all that the rule would make of it."""
    func = joined_function(case, device, rule)
    graph = extract(func)
    assert graph is not None
    return func, rule(Task(func, graph, device), 1000)


def tile_of(choice: Choice) -> Any:
    """The tile that a choice writes."""
    assert isinstance(choice.write, partial)
    return choice.write.args[-1]
