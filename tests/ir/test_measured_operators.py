"""The operators that tests rank tiles of without TVM are those that were measured.

After new measurements: ``pytest --whole --update-golden`` of this file.
"""

from __future__ import annotations

import json

import pytest

pytest.importorskip("torch")

from measured_operators import FILE, MeasuredOperator, measured_operators

from bench.candidates import find_workload
from bench.compare.trees import ROOT
from bench.functions import fused_function
from bench.lines import rewrite
from bench.suites import load_suite
from tvm_tile.device import find_device
from tvm_tile.graph.extract import extract
from tvm_tile.schedule.ranking import predicted_of
from tvm_tile.schedule.rule import Task
from tvm_tile.schedule.s_tir.staged import draft
from tvm_tile.schedule.tensor_cores.found import find_in
from tvm_tile.tile.products.mma import mma_dtypes
from tvm_tile.tile.units.product import find_product

H200 = find_device("nvidia/h200")


def task_of(name: str) -> Task:
    workload = find_workload(name)
    func = fused_function(load_suite(workload.suite).case(workload), H200)
    assert func is not None
    graph = extract(func)
    assert graph is not None
    return Task(func, graph, H200)


def described(name: str, task: Task) -> MeasuredOperator:
    staged, found = draft(task), find_in(task, mma_dtypes(H200))
    operator = None if staged is None else staged.operator
    product = None if found is None else found.product
    is_told = operator is not None and find_product(operator) == product
    return MeasuredOperator(name, operator, None if is_told else product)


@pytest.mark.whole
def test_what_is_kept_is_what_rules_find(request: pytest.FixtureRequest) -> None:
    path = ROOT / "bench" / "results" / "candidates.json"
    records = json.loads(path.read_text(encoding="utf-8"))["records"]
    pairs = dict.fromkeys((record["operator"], record["rule"]) for record in records)
    tasks = {name: task_of(name) for name in dict.fromkeys(name for name, _ in pairs)}
    found = {name: described(name, task) for name, task in tasks.items()}
    if request.config.getoption("--update-golden"):
        rewrite(FILE, found.values())
    assert found == measured_operators()
    for name, rule in pairs:
        expected = predicted_of(tasks[name], rule)
        ranked = found[name].ranked(rule, H200)
        assert ranked[0][0] == next(iter(expected)), (name, rule)
        assert set(ranked) >= set(expected.items()), (name, rule)
