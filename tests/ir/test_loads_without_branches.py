"""Text of kernels whose tiles overhang: no load waits behind a test for another."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from emulated import all_built
from kernels import Case, prim_functions
from wgmma_cases import product_case

from tvm_tile.device import find_device
from tvm_tile.graph.extract import extract
from tvm_tile.schedule import Task
from tvm_tile.schedule.s_tir.contraction import schedule_contraction
from tvm_tile.schedule.s_tir.reduction import schedule_reduction

pytestmark = pytest.mark.bank(8)
H200 = find_device("nvidia/h200")
TESTED = re.compile(r"^\s*if \(.*< (\d+)\)", re.MULTILINE)


def first_text(entry: Case, finder: Callable[[Task, int], Sequence[Any]]) -> str:
    """The first kernel of the first choice of a rule."""
    (func,) = prim_functions(entry, H200).values()
    graph = extract(func)
    assert graph is not None
    written = finder(Task(func, graph, H200), 1)[0]()
    source: str = all_built(written, H200, only_text=True)[0].source
    return source[source.rindex('extern "C"') :]


@pytest.mark.parametrize("layout", ["NT", "NN"])
def test_staging_copies_test_no_rows(layout: str) -> None:
    text = first_text(product_case(layout, 66, 797, 1255, dtype="float32"), schedule_contraction)
    loads = text[: text.rindex("__syncthreads()")]
    assert "min(" in loads
    # Threads that a copy leaves over are tested for, and ends of sums where an element is loaded.
    limits = {int(limit) for limit in TESTED.findall(loads)}
    assert limits.isdisjoint({66, 797})


def test_windows_test_no_outputs_in_their_loops() -> None:
    text = first_text(product_case("NN", 6, 701, 8, dtype="float32"), schedule_reduction)
    loop = text[text.index("for (") : text.rindex("if (")]
    assert "if (" not in loop
    assert "min(" in loop


def test_shared_rows_test_no_outputs_in_their_loops() -> None:
    text = first_text(product_case("NT", 1, 5849, 1485, dtype="float16"), schedule_reduction)
    loop = text[text.index("for (") : text.index("__activemask")]
    assert not {int(limit) for limit in TESTED.findall(loop)} & {5849}


def test_floats_of_eight_bits_become_wider_in_vectors() -> None:
    text = first_text(product_case("NT", 1, 4096, 4096, dtype="float8_e4m3fn"), schedule_reduction)
    assert "(float4)(" in text
    assert not re.search(r"\(float\)\w+_local_ptr", text)
