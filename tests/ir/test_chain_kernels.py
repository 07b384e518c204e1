"""Two products as one kernel, without a GPU: what is taken, its text, its machine code."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chain_bodies import attention, band, constant, kept, masked, sunk, up_to
from chain_cases import CHAIN_CASES
from emulated import arguments, built, guarded, is_intact
from joined import joined_function, tile_of
from kernels import Case, Input, prim_functions, relative_difference, rules_of
from test_wgmma_kernels import TENSOR_MAP, box_bytes
from tvm import IRModule, relax
from tvm.relax import op
from warp_emulator import COMPILER, emulate, tensor_maps

from tvm_tile.build import Builder, Program
from tvm_tile.build.cubin import resources_of
from tvm_tile.device import find_device
from tvm_tile.graph.extract import extract
from tvm_tile.passes import schedule_module
from tvm_tile.schedule import Scheduled, Task
from tvm_tile.schedule.attention.find import AttentionMatch, find_chain
from tvm_tile.schedule.chain import schedule_chain
from tvm_tile.tile.attention.band import EVERYWHERE, Band

pytestmark = pytest.mark.bank(8)

H200 = find_device("nvidia/h200")
BY_NAME = {entry.name: entry for entry in CHAIN_CASES}
SAMPLES = 3
BUILT = ("256x512x128x128", "61x1024x64x72", "bfloat16", "biased", "rows_hidden", "causal_wide")
BUILT += ("feed_forward_turned", "feed_forward_half_turned")
IN_TURNS = "in turns"  # the first choice whose blocks take several items
# Whose text is run on the CPU: with every kind of edge, rows without a key, two turns of blocks.
EMULATED: dict[str, int | str] = {
    "slices": 0,
    "slices_one_batch": 1,
    "masked": 0,
    "shifted_windows": 0,
    "rows_hidden": 1,
    "causal": -1,
    "causal_longer": 1,
    "causal_no_key": 0,
    "causal_added": 1,
    "causal_lowest_no_key": 1,
    "causal_turns": IN_TURNS,
    "window_steep": 1,
    "window_around": -1,
    "causal_padded": 0,
    "positions": 0,
    "positions_later": 1,
    "positions_far": -1,
    "positions_no_key": 0,
    "positions_padded": 1,
    "positions_added": 0,
    "positions_window": -1,
    "positions_turns": IN_TURNS,
    "positions_of_batches": 0,
    "groups": 0,
    "groups_one_head": 1,
    "groups_both_scaled": 0,
    "groups_prompt": -1,
    "keys_of_all_heads": 0,
    "keys_and_values_turned": 1,
    "feed_forward": 0,
    "feed_forward_turned": 0,
    "feed_forward_ragged": 1,
    "feed_forward_half_turned": 0,
    "feed_forward_image": -1,
    "sunk": 0,
    "sunk_masked": 1,
    "sunk_no_key": -1,
    "sunk_steep": 0,
    "sunk_positions": 1,
    "sunk_prompt": 0,
    "sunk_number": -1,
    "sunk_band": 0,
}
SIZE = (2, 3, 96, 64)
HALVES = tuple(Input(SIZE, "float16") for _ in range(3))


def choices(entry: Case) -> list[Scheduled]:
    """Some of the rule's for a case's only function, from its first to its last."""
    return choices_of(function_of(entry))


def function_of(entry: Case) -> Any:
    return joined_function(entry, H200, schedule_chain)


def choices_of(func: Any) -> list[Scheduled]:
    graph = extract(func)
    assert graph is not None
    found = schedule_chain(Task(func, graph, H200), 1000)
    assert found, "no chain"
    written = [choice() for choice in found[:: max(1, len(found) // SAMPLES)]]
    return [item for item in written if item is not None]


@pytest.mark.parametrize("name", BY_NAME)
def test_one_kernel_whose_barriers_expect_what_the_copies_bring(name: str) -> None:
    for choice in choices(BY_NAME[name]):
        text = choice.func.script()
        boxes = {match["map"]: box_bytes(match) for match in TENSOR_MAP.finditer(text)}
        assert len(boxes) == 3
        expected, brought = [], []
        for line in text.splitlines():
            asked = re.search(r'T\.uint32\((\d+)\), "arrive", "expect_tx"', line)
            if asked:
                expected.append(int(asked[1]))
                brought.append(0)
            if "T.ptx.cp(" in line:
                (source,) = re.findall(r"T\.handle\(\)\.ty, T\.address_of\((\w+)\)", line)
                brought[-1] += boxes[source]
        assert len(expected) == 3  # the left operand, keys, values
        assert expected == brought


@pytest.mark.parametrize("name", BUILT)
def test_tiles_become_machine_code_that_spills_nothing(name: str) -> None:
    entry = BY_NAME[name]
    first, *_, last = choices(entry)
    found = [first, last]
    programs = Builder(H200).build_functions({f"t{i}": item.func for i, item in enumerate(found)})
    dtype = {"float16": "f16", "bfloat16": "bf16"}[entry.inputs[0].dtype]
    product = rf"wgmma\.mma_async\S*\.m64n(\d+)k16\.f32\.{dtype}\.{dtype} {{([%\d, ]+)}}, (\S+)"
    for choice, program in zip(found, programs.values(), strict=True):
        assert isinstance(program, Program), str(program)
        (kernel,) = program.kernels
        assert kernel.arg_types.count("tensormap") == 3
        products = re.findall(product, kernel.source)
        # Keys from shared memory, and weights from registers.
        assert sorted(left.startswith("{") for _, _, left in products) == [False, True]
        for columns, sums, _ in products:
            assert sums.count("%") == int(columns) // 2
        taken = resources_of(kernel.binary)
        assert taken.stack == 0, choice.tile
        # What a thread may have at launch; then the roles share them out.
        assert taken.registers * choice.block <= 65536, choice.tile
        body = kernel.source.rsplit("__launch_bounds__", 1)[-1]
        assert body.count("cta_sync()") == 1


def in_turns(func: Any) -> Scheduled:
    """The rule's first choice whose blocks take more than one item each."""
    graph = extract(func)
    assert graph is not None
    found = schedule_chain(Task(func, graph, H200), 1000)
    rounds = [tile_of(choice).rounds for choice in found]
    choice = next(own for own, r in zip(found, rounds, strict=True) if r.items > r.grid)()
    assert choice is not None
    return choice


@pytest.mark.skipif(COMPILER is None, reason="needs g++")
@pytest.mark.parametrize("name", EMULATED)
def test_the_text_computes_what_the_cpu_does(name: str, tmp_path: Path) -> None:
    """Copies arrive, and products end, as late as the kernel allows."""
    func = function_of(BY_NAME[name])
    of = arguments(func)
    own = EMULATED[name]
    choice = in_turns(func) if isinstance(own, str) else choices_of(func)[own]
    memory = {n: guarded(a, is_output=n in of.outputs) for n, a in of.given.items()}
    arrays = {n: inside for n, (_, inside) in memory.items()}
    kernel = built(choice, H200, only_text=True)
    maps = tensor_maps(choice.func.script(), arrays)
    grid, block = choice.grid, choice.block
    emulate(kernel, grid, block, arrays, tmp_path, late=True, backward=False, maps=maps)
    # The reference rounds scaled queries, and scores, the kernel neither.
    limit = {"float16": 4e-3, "bfloat16": 8e-3}[BY_NAME[name].inputs[0].dtype]
    for n in of.outputs:
        assert relative_difference(arrays[n].reshape(of.wanted[n].shape), of.wanted[n]) < limit
        assert is_intact(memory[n][0])


BANDS = {
    "causal": Band(None, 0),
    "causal_longer": Band(None, 80),
    "causal_prefix": Band(None, 15),
    "causal_no_key": Band(None, -60),
    "causal_added": Band(None, 0),
    "causal_lowest": Band(None, 0),
    "causal_padded": Band(None, 0),
    "anti_causal": Band(0, None),
    "window": Band(-20, 0),
    "window_around": Band(-40, 40),
    "sunk_band": Band(None, -60),
    # All keys of a row that has none weigh the same.
    "causal_lowest_no_key": EVERYWHERE,
    "all_but_a_band": EVERYWHERE,
    "masked": EVERYWHERE,
    "biased": EVERYWHERE,
    "rows_hidden": EVERYWHERE,
}


@pytest.mark.parametrize("name", BANDS)
def test_bands_of_keys_are_found(name: str) -> None:
    found = found_in(BY_NAME[name])
    assert found.chain.band == BANDS[name]
    if found.chain.band != EVERYWHERE and name != "causal_padded":
        assert found.weights.slope is not None  # what is left is a score times a constant


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (up_to(1), Band(None, 0)),
        (up_to(1, 5, is_added=True), Band(None, 5)),
        (up_to(1, 5, window=40), Band(-34, 5)),
        (up_to(2), EVERYWHERE),  # who knows how far the first rows of a prompt see
    ],
)
def test_positions_are_taken_for_those_of_a_prompt(body: Any, expected: Band) -> None:
    entry = Case("", "chain", attention(0.125, body), (*HALVES, Input((96,), "int64")))
    found = found_in(entry)
    assert found.reach is not None
    assert (found.chain.band, found.chain.expected) == (EVERYWHERE, expected)
    assert found.weights.slope is not None  # what is left is a score times a constant


@pytest.mark.parametrize("other", ["float", "finite", "of keys"])
def test_what_positions_do_not_hide_is_read(other: str) -> None:
    """Positions that are no integers, numbers that are not minus infinity, numbers of keys."""

    def after(scores: Any, dtype: str, drawn: Any) -> Any:
        keys = relax.const(np.arange(96), "float32" if other == "float" else "int64")
        own = op.expand_dims(drawn, -1)
        seen = op.less_equal(op.expand_dims(keys, 0), own) if other != "of keys" else None
        seen = op.less_equal(op.add(keys, drawn), own) if seen is None else seen
        return op.where(seen, scores, constant(-65504 if other == "finite" else -np.inf, dtype))

    drawn = Input((96,), "float32" if other == "float" else "int64")
    assert found_in(Case("", "chain", attention(0.125, after), (*HALVES, drawn))).reach is None


def found_in(entry: Case) -> AttentionMatch:
    (func,) = prim_functions(entry, H200).values()
    graph = extract(func)
    assert graph is not None
    found = find_chain(Task(func, graph, H200))
    assert found is not None
    return found


def of_two_masks(sizes: tuple[int, int], fill: float, *, is_bias: bool) -> Callable[..., Any]:
    """A band, at a number, and another mask or bias that is an input."""
    keep = relax.const(band(sizes, 0, None))

    def after(scores: Any, dtype: str, other: Any) -> Any:
        scores = op.add(scores, other) if is_bias else masked(scores, dtype, other)
        return op.where(keep, scores, constant(fill, dtype))

    return after


@pytest.mark.parametrize("is_bias", [False, True])
@pytest.mark.parametrize(("fill", "is_found"), [(-np.inf, True), (-65504, False), (-100, False)])
def test_numbers_hide_only_what_nothing_else_may_hide(
    fill: float, *, is_bias: bool, is_found: bool
) -> None:
    """Where another mask hides all keys of a row's band, those outside would weigh as much."""
    body = attention(0.125, of_two_masks((96, 96), fill, is_bias=is_bias))
    other = Input((2, 1, 96, 96), "float16" if is_bias else "bool")
    chain = found_in(Case("", "chain", body, (*HALVES, other))).chain
    assert chain.band == (Band(None, 0) if is_found else EVERYWHERE)


@pytest.mark.parametrize("other", ["mask", "bias", "low sinks"])
def test_beside_sinks_numbers_hide_what_nothing_brings_back(other: str) -> None:
    """A bias might, and sinks that are not known may weigh as little."""
    after = of_two_masks((96, 96), -65504, is_bias=other == "bias")
    body = sunk(0.125, after, is_constant=other != "low sinks")
    inputs = [*HALVES, Input((2, 1, 96, 96), "float16" if other == "bias" else "bool")]
    inputs += [Input((3,), "float16")] if other == "low sinks" else []
    found = found_in(Case("", "chain", body, tuple(inputs)))
    assert found.weights.sink is not None
    assert found.chain.band == (Band(None, 0) if other == "mask" else EVERYWHERE)


def test_a_number_that_other_scores_may_have_is_no_mask() -> None:
    body = attention(0.125, kept((96, 96), fill=-100))
    chain = found_in(Case("", "chain", body, HALVES)).chain
    assert chain.band == EVERYWHERE


def softmax_by_hand(
    numerator: Callable[[Any, Any], Any],
    summand: Callable[[Any, Any], Any],
    largest: Callable[[Any], Any] = lambda s: s,
    denominator: Callable[[Any], Any] = lambda total: total,
) -> Callable[..., Any]:
    """Attention whose softmax is made of these expressions of scores and of their maximum."""

    def body(q: Any, k: Any, v: Any) -> Any:
        scores = op.matmul(q, op.permute_dims(k, [0, 1, 3, 2]), out_dtype="float32")
        most = op.max(largest(scores), -1, keepdims=True)
        total = op.sum(summand(scores, most), -1, keepdims=True)
        weights = op.divide(numerator(scores, most), denominator(total))
        wide = op.matmul(op.astype(weights, "float16"), v, out_dtype="float32")
        return op.astype(wide, "float16")

    return body


def scaled(factor: float) -> Callable[[Any], Any]:
    return lambda s: op.multiply(s, relax.const(np.float32(factor)))


def power(factor: float) -> Callable[[Any, Any], Any]:
    return lambda s, most: op.exp(op.subtract(scaled(factor)(s), most))


def unshifted(scores: Any, _: Any) -> Any:
    return op.exp(scores)


def of_axis(axis: int) -> Callable[..., Any]:
    """Attention whose softmax is along some axis of the scores."""

    def body(q: Any, k: Any, v: Any) -> Any:
        scores = op.matmul(q, op.permute_dims(k, [0, 1, 3, 2]), out_dtype="float32")
        weights = op.astype(op.nn.softmax(scores, axis), "float16")
        return op.astype(op.matmul(weights, v, out_dtype="float32"), "float16")

    return body


def through(dtype: str) -> Callable[..., Any]:
    """Weights rounded to another dtype on their way."""

    def body(q: Any, k: Any, v: Any) -> Any:
        scores = op.matmul(q, op.permute_dims(k, [0, 1, 3, 2]), out_dtype="float32")
        weights = op.astype(op.astype(op.nn.softmax(scores, -1), dtype), "float16")
        return op.astype(op.matmul(weights, v, out_dtype="float32"), "float16")

    return body


ONE = relax.const(np.float32(1))
APART = {
    "the sum's scale is another one": softmax_by_hand(power(0.5), power(0.25), scaled(0.5)),
    "the maximum's scale is another one": softmax_by_hand(power(0.5), power(0.5), scaled(0.25)),
    "the weights' scale is another one": softmax_by_hand(power(0.25), power(0.5), scaled(0.5)),
    "weights without the maximum": softmax_by_hand(unshifted, power(1), scaled(1)),
    "a sum without the maximum": softmax_by_hand(power(1), unshifted, scaled(1)),
    "one more in the sum": softmax_by_hand(
        power(1), power(1), scaled(1), lambda total: op.add(total, ONE)
    ),
    "no maximum": softmax_by_hand(unshifted, unshifted),
    "of a key's rows": of_axis(-2),
    "of heads": of_axis(1),
    "weights of integers": through("int8"),
}
COMPILED = ("one more in the sum", "of a key's rows")


def test_a_softmax_by_hand_is_taken() -> None:
    body = softmax_by_hand(power(0.5), power(0.5), scaled(0.5))
    assert choices(Case("", "chain", body, HALVES))


@pytest.mark.parametrize("name", APART)
def test_what_is_no_softmax_of_rows_stays_apart(name: str) -> None:
    functions = prim_functions(Case(name, "", APART[name], HALVES), H200)
    assert len(functions) > 1
    scheduled, reports = schedule_module(IRModule(functions), H200)
    assert "chain" not in {report.rule for report in reports}
    assert len(reports) == len(functions)
    if name in COMPILED:
        assert Builder(H200).find_failures(scheduled) == {}


def test_scores_cut_to_integers_are_weighed_as_integers() -> None:
    def body(q: Any, k: Any, v: Any) -> Any:
        scores = op.matmul(q, op.permute_dims(k, [0, 1, 3, 2]), out_dtype="float32")
        cut = op.astype(op.astype(scores, "int32"), "float32")
        weights = op.astype(op.nn.softmax(cut, -1), "float16")
        return op.astype(op.matmul(weights, v, out_dtype="float32"), "float16")

    choice = choices(Case("", "chain", body, HALVES))[0]
    assert 'T.Cast("float32", T.Cast("int32", ' in choice.func.script()


@pytest.mark.parametrize("name", ["nvidia/a100", "emulated"])
def test_other_devices(name: str) -> None:
    entry = Case("", "", attention(0.125), HALVES)
    assert "chain" not in rules_of(entry, find_device(name))


def test_float32_stays_apart() -> None:
    inputs = tuple(Input(SIZE) for _ in range(3))
    assert "chain" not in rules_of(Case("", "", attention(0.125), inputs), H200)
