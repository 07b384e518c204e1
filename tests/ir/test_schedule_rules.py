"""Which rule takes which function, and what every scheduled function looks like."""

from __future__ import annotations

import itertools

import pytest
import tvm_ffi
from kernel_bodies import case
from kernel_cases import CASES
from kernels import Case, can_take, prim_functions, rules_of
from rowwise_cases import ROWWISE
from tvm import tirx
from tvm.relax import op

from tvm_tile.device import find_device
from tvm_tile.graph.extract import extract
from tvm_tile.schedule import RULES, Task, candidates
from tvm_tile.schedule.s_tir.contraction import schedule_contraction
from tvm_tile.schedule.s_tir.elementwise import schedule_elementwise
from tvm_tile.schedule.s_tir.matvec import schedule_matvec
from tvm_tile.schedule.s_tir.normalize import inlined
from tvm_tile.schedule.s_tir.reduction import schedule_reduction
from tvm_tile.schedule.s_tir.rows import schedule_rows
from tvm_tile.schedule.s_tir.window import schedule_window
from tvm_tile.tile.rules import CONTRACTION, MATVEC

H200 = find_device("nvidia/h200")
THREAD_LIMIT = 1024


def named(name: str) -> Case:
    return next(entry for entry in CASES if entry.name == name)


def task(name: str) -> Task:
    """The only, or the last, function of a case as a task."""
    func = list(prim_functions(named(name), H200).values())[-1]
    graph = extract(func)
    assert graph is not None
    return Task(func, graph, H200)


def thread_extents(func: tirx.PrimFunc) -> dict[str, set[int]]:
    """Extents of the loops bound to each thread axis."""
    loops: list[tirx.For] = []
    tvm_ffi.structural_walk(func.body, (tirx.For, loops.append), order="pre")
    found: dict[str, set[int]] = {}
    for loop in loops:
        if loop.thread_binding is not None:
            found.setdefault(str(loop.thread_binding.thread_tag), set()).add(int(loop.extent))
    return found


@pytest.mark.parametrize("entry", [*CASES, *ROWWISE], ids=lambda entry: entry.name)
def test_the_expected_rule_can_take_it(entry: Case) -> None:
    assert can_take(entry.rules, entry, H200)


@pytest.mark.parametrize("shape", [(1, 4096, 64), (4, 16384, 2), (2, 96, 13, 11)])
def test_elements_made_of_sums_are_not_left_to_the_threads_of_the_sums(
    shape: tuple[int, ...],
) -> None:
    """Other rules' threads that have a sum, or add its parts, make its elements one by one: these
    are of a kernel of rows, or of their own."""
    entry = case("", "rows", lambda x: op.subtract(x, op.mean(x, [1], keepdims=True)), shape)
    assert not {"rows", "elementwise"}.isdisjoint(rules_of(entry, H200).split())


FAMILIES = {
    "add_row": schedule_elementwise,
    "sum_last": schedule_reduction,
    "conv_depthwise": schedule_window,
    "mm_primes": schedule_contraction,
    "matvec_rows": schedule_matvec,
    "matvec_columns": schedule_matvec,
    "conv3x3": schedule_contraction,
    "softmax": schedule_rows,
    "layer_norm": schedule_rows,
}


@pytest.mark.parametrize("name", FAMILIES)
def test_a_rule_refuses_what_is_not_its_own(name: str) -> None:
    taken = [finder.find for finder in RULES if finder.find(task(name), 1)]
    assert taken[0] is FAMILIES[name]
    # A product and a window are also reductions, and a product with few vectors is a product;
    # nothing else belongs to two rules.
    wider = {
        schedule_matvec: [schedule_contraction, schedule_reduction],
        schedule_contraction: [schedule_reduction],
        schedule_window: [schedule_reduction],
    }
    assert taken[1:] == wider.get(taken[0], [])


@pytest.mark.parametrize("name", FAMILIES)
def test_the_launch_is_what_the_rule_says(name: str) -> None:
    given = task(name)
    (found,) = candidates(given, 1)
    extents = thread_extents(found.func)
    blocks = [extents.get(f"blockIdx.{axis}", {1}) for axis in "xyz"]
    threads = [extents.get(f"threadIdx.{axis}", {1}) for axis in "xyz"]
    assert all(len(values) == 1 for values in (*blocks, *threads)), extents
    assert found.grid == _product(blocks)
    assert found.block == _product(threads) <= THREAD_LIMIT
    assert found.seconds > H200.launch_latency
    assert found.tile


def _product(values: list[set[int]]) -> int:
    result = 1
    for value in values:
        (only,) = value
        result *= only
    return result


@pytest.mark.parametrize("name", FAMILIES)
def test_scheduling_is_repeatable_and_leaves_the_function_alone(name: str) -> None:
    given = task(name)
    before = given.func.script()
    (first,), (second,) = candidates(given, 1), candidates(given, 1)
    assert tvm_ffi.structural_equal(first.func, second.func)
    assert (first.tile, first.seconds) == (second.tile, second.seconds)
    assert given.func.script() == before


def test_candidates_are_ranked_by_predicted_time_but_for_near_ties() -> None:
    found = candidates(task("conv3x3"), 5, (CONTRACTION,))
    seconds = [own.seconds for own in found]
    assert len(found) == 5
    assert all(a <= 1.02 * b for a, b in itertools.pairwise(seconds))


def test_producers_of_a_product_stay_to_be_merged_into_its_copy() -> None:
    func = task("conv3x3").func
    _, form = inlined(func, keep_producers=True)
    assert form is not None
    assert (len(form.producers), len(form.reductions), len(form.outputs)) == (1, 1, 0)
    _, form = inlined(func, keep_producers=False)
    assert form is not None
    assert (len(form.producers), len(form.reductions), len(form.outputs)) == (0, 1, 0)


def test_the_sum_stays_in_registers_and_the_operands_in_shared_memory() -> None:
    given = task("mm_bias_gelu")
    (found,) = candidates(given, 1, (CONTRACTION,))
    assert found is not None
    buffers: list[tirx.BufferStore] = []
    tvm_ffi.structural_walk(found.func.body, (tirx.BufferStore, buffers.append), order="pre")
    scopes = {store.buffer.scope() for store in buffers}
    assert scopes - {"shared.dyn"} == {"local", "shared", "global"} - (
        {"shared"} if "shared.dyn" in scopes else set()
    )
    # Nothing but the output goes to global memory.
    written = {str(store.buffer.name) for store in buffers if store.buffer.scope() == "global"}
    assert written == {str(given.func.params[-1].name)}


@pytest.mark.parametrize("name", ["matvec_rows_bias_relu", "matvec_columns_bias_gelu"])
def test_the_long_operand_goes_straight_to_registers_in_vectors(name: str) -> None:
    (found,) = candidates(task(name), 1, (MATVEC,))
    stores: list[tirx.BufferStore] = []
    tvm_ffi.structural_walk(found.func.body, (tirx.BufferStore, stores.append), order="pre")
    scopes = {str(store.buffer.name): store.buffer.scope() for store in stores}
    assert scopes["x0_local"] == scopes["x1_local"] == "local"
    # In shared memory there are partial sums alone, in global memory the output.
    assert sum(scope.startswith("shared") for scope in scopes.values()) == ("columns" in name)
    assert sum(scope == "global" for scope in scopes.values()) == 1
    vectors: list[tirx.For] = []
    tvm_ffi.structural_walk(found.func.body, (tirx.For, vectors.append), order="pre")
    wide = [int(loop.extent) for loop in vectors if loop.kind == tirx.ForKind.VECTORIZED]
    assert 4 in wide
