"""Functions joined: how many kernels are left, which stay apart, and that they compute the same."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from cpu_build import CPU
from kernels import relative_difference
from tvm import IRModule, relax, tirx
from tvm.relax import op
from tvm_ffi import StructuralKey

from tvm_tile.device import Device, find_device
from tvm_tile.graph.extract import extract
from tvm_tile.passes import FuseTiles, schedule_module, with_blocks_only
from tvm_tile.passes.sequence import fusion_passes, welding
from tvm_tile.passes.weld.fuse_tiles import _joined
from tvm_tile.schedule import Scheduled, Task
from tvm_tile.schedule.halo import schedule_halo
from tvm_tile.schedule.s_tir.rows import schedule_rows
from tvm_tile.stages.fusing import fuse
from tvm_tile.tile.rules import CHAIN, ELEMENTWISE, HALO
from tvm_tile.tile.weld.connect import Decision

pytestmark = pytest.mark.bank(4)

Body = Callable[..., Any]
Shape = tuple[int, ...]
A100, H200 = find_device("nvidia/a100"), find_device("nvidia/h200")
BATCH, PLACES, HEADS, HEAD = 2, 128, 4, 64
WIDTH = HEADS * HEAD
PRODUCT = "product"
TOKENS, WEIGHT = (BATCH, PLACES, WIDTH), (WIDTH, WIDTH)


def module(body: Body, *shapes: Shape, dtype: str = "float16") -> IRModule:
    """A module whose ``main`` is ``body`` of inputs of these shapes."""
    builder = relax.BlockBuilder()
    inputs = [relax.Var(f"x{i}", relax.TensorType(s, dtype)) for i, s in enumerate(shapes)]
    with builder.function("main", inputs):
        with builder.dataflow():
            result = body(*inputs)
            output = builder.emit_output(relax.Tuple(result) if type(result) is tuple else result)
        builder.emit_func_output(output)
    return builder.get()


def unjoined(mod: IRModule, device: Device) -> IRModule:
    """A module as ``FuseTiles`` finds it."""
    passes = fusion_passes(device, welding(device))
    stages = itertools.takewhile(lambda stage: not isinstance(stage, FuseTiles), passes)
    with tvm.target.Target("llvm"):
        return tvm.transform.Sequential(list(stages))(mod)


def rules(body: Body, *shapes: Shape, device: Device = H200) -> list[str]:
    """One for each kernel; those of products on tensor cores, which contend, have one name."""
    _, reports = schedule_module(fuse(module(body, *shapes), device).mod, device)
    return sorted(PRODUCT if report.rule in ("wgmma", "mma") else report.rule for report in reports)


def product(x: Any, w: Any) -> Any:
    return op.astype(op.matmul(x, w, out_dtype="float32"), "float16")


def by_head(y: Any) -> Any:
    return op.permute_dims(op.reshape(y, (BATCH, PLACES, HEADS, HEAD)), [0, 2, 1, 3])


def part(y: Any, axis: int, number: int, size: int) -> Any:
    return op.strided_slice(y, [axis], [number * size], [(number + 1) * size])


def attention(q: Any, k: Any, v: Any) -> Any:
    """Of tensors by head, put side by side behind it."""
    scores = op.matmul(q, op.permute_dims(k, [0, 1, 3, 2]), out_dtype="float32")
    scores = op.multiply(scores, relax.const(np.float32(0.125)))
    heads = product(op.astype(op.nn.softmax(scores, -1), "float16"), v)
    return op.reshape(op.permute_dims(heads, [0, 2, 1, 3]), TOKENS)


def sliced(x: Any, w: Any, out: Any) -> Any:
    """A layer of attention: queries, keys and values are parts of one projection."""
    whole = product(x, w)
    return product(attention(*(by_head(part(whole, 2, i, WIDTH)) for i in range(3))), out)


def stacked(x: Any, w: Any, out: Any) -> Any:
    """The same with the three in a dimension of their own, as timm has them."""
    whole = op.reshape(product(x, w), (BATCH, PLACES, 3, HEADS, HEAD))
    whole = op.permute_dims(whole, [2, 0, 3, 1, 4])
    return product(attention(*(op.squeeze(part(whole, 0, i, 1), [0]) for i in range(3))), out)


def convolved(x: Any, w: Any) -> Any:
    layouts = {"data_layout": "NHWC", "kernel_layout": "OHWI"}
    wide = op.nn.conv2d(x, w, padding=1, out_dtype="float32", **layouts)
    return op.permute_dims(op.astype(wide, "float16"), [0, 3, 1, 2])


class TestJoined:
    @pytest.mark.parametrize("device", [H200, A100])
    def test_heads_behind_a_projection(self, device: Device) -> None:
        found = rules(lambda x, w: by_head(product(x, w)), TOKENS, WEIGHT, device=device)
        assert found == [PRODUCT]

    @pytest.mark.parametrize("device", [H200, A100])
    def test_a_slice_before_one(self, device: Device) -> None:
        def body(x: Any, w: Any) -> Any:
            return product(part(x, 2, 1, WIDTH), w)

        assert rules(body, (BATCH, PLACES, 3 * WIDTH), WEIGHT, device=device) == [PRODUCT]

    @pytest.mark.parametrize("layer", [sliced, stacked])
    def test_a_layer_of_attention_is_three_kernels(self, layer: Body) -> None:
        *products, attended = sorted(
            rules(layer, TOKENS, (WIDTH, 3 * WIDTH), WEIGHT), key=lambda rule: rule != PRODUCT
        )
        assert products == [PRODUCT, PRODUCT]
        assert attended in ("chain", "warp_attention")

    def test_two_layers_are_the_same_functions(self) -> None:
        """What is joined is known by its content, as what is not."""

        def twice(x: Any, w: Any, out: Any) -> Any:
            return sliced(sliced(x, w, out), w, out)

        assert len(rules(twice, TOKENS, (WIDTH, 3 * WIDTH), WEIGHT)) == 3


def bottleneck(dtype: str = "float16") -> IRModule:
    """An inverted one, channels last, as ``FuseTiles`` finds it."""

    def layer(x: Any, w: Any, **options: Any) -> Any:
        layouts = {"data_layout": "NHWC", "kernel_layout": "OHWI"}
        wide = op.nn.conv2d(x, w, out_dtype="float32", **layouts, **options)
        return op.astype(wide, dtype)

    def body(x: Any, a: Any, w: Any, b: Any) -> Any:
        y = op.nn.relu(layer(x, a))
        return op.add(layer(op.nn.relu(layer(y, w, padding=1, groups=32)), b), x)

    return unjoined(module(body, *BOTTLENECK, dtype=dtype), H200)


BOTTLENECK = ((1, 9, 7, 16), (32, 1, 1, 16), (32, 3, 3, 1), (16, 1, 1, 32))


def halo_taking(seconds: float) -> Callable[..., Scheduled]:
    """What to predict for functions: ``seconds`` for the rule's, one for each of the others."""

    def predict(func: tirx.PrimFunc, _: Any) -> Scheduled:
        graph = extract(func)
        choices = schedule_halo(Task(func, graph, H200), 1) if graph else ()
        rule, own = (HALO, seconds) if choices else (ELEMENTWISE, 1.0)
        return Scheduled(func, rule, "", grid=1, block=1, seconds=own)

    return predict


def joined_for(before: IRModule, seconds: float) -> tuple[IRModule, tuple[Decision, ...]]:
    var = before.get_global_var("main")
    return _joined(before, var, before["main"], halo_taking(seconds), {})


class TestBottlenecks:
    """A product, windows over its values, and a product of their sums."""

    @pytest.mark.parametrize(("seconds", "left"), [(1.5, 1), (2.5, 1), (3.0, 3), (4.0, 3)])
    def test_one_function_where_that_takes_less_time(self, seconds: float, left: int) -> None:
        """Half of it as one would take as long as all of it."""
        before = bottleneck()
        after, decisions = joined_for(before, seconds)
        assert relax.analysis.check_well_formed(after)
        assert (calls(before), calls(after)) == (3, left)
        (found,) = [decision for decision in decisions if len(decision.functions) == 3]
        assert (found.rule, found.apart, found.together) == ("halo", 3.0, seconds)
        assert found.reason == ("" if left == 1 else "one kernel takes no less time")

    def test_it_computes_what_its_layers_did(self) -> None:
        before = bottleneck()
        after, _ = joined_for(before, 1.0)
        rng = np.random.default_rng(0)
        inputs = [rng.standard_normal(shape).astype("float16") for shape in BOTTLENECK]
        (got,), (want,) = outputs(after, inputs), outputs(before, inputs)
        assert relative_difference(got, want) < 1e-5

    def test_no_other_dtype(self) -> None:
        before = bottleneck("float32")
        after, _ = joined_for(before, 0.5)
        tvm.ir.assert_structural_equal(after, before, map_free_vars=True)


def test_groups_that_compute_the_same_are_asked_about_once() -> None:
    def twice(x: Any, w: Any, out: Any) -> Any:
        return sliced(sliced(x, w, out), w, out)

    asked: list[Any] = []

    def count(func: tirx.PrimFunc, rules: Any) -> Scheduled:
        if rules is not None:
            asked.append(StructuralKey(func))
        return joining_all(func, rules)

    mod = unjoined(module(twice, TOKENS, (WIDTH, 3 * WIDTH), WEIGHT), H200)
    _joined(mod, mod.get_global_var("main"), mod["main"], count, {})
    assert asked
    assert len(asked) == len(set(asked))


def normalized(x: Any) -> Any:
    length = int(x.ty.shape[-1])
    weights = (relax.const(np.ones(length, "float16")) for _ in range(2))
    return op.nn.layer_norm(x, *weights, axes=[-1])


def softened(x: Any) -> Any:
    return op.nn.softmax(x, -1)


class TestRows:
    """Elements of rows that get another shape, in their order."""

    @pytest.mark.parametrize(
        ("rows", "shape", "other"),
        [
            (normalized, TOKENS, (BATCH, PLACES, HEADS, HEAD)),
            (normalized, TOKENS, (BATCH * PLACES, WIDTH)),
            (softened, (6, 8, 24), (2, 3, 8, 24)),
            (softened, (2, 3, 8, 24), (6, 4, 48)),
            (softened, (1, 40, 24), (4, 1, 240)),
        ],
        ids=["heads", "places", "split", "lines", "units"],
    )
    @pytest.mark.parametrize("device", [find_device("amd/mi300x"), H200], ids=str)
    def test_one_kernel(self, rows: Body, shape: Shape, other: Shape, device: Device) -> None:
        def output(x: Any) -> Any:
            return op.reshape(rows(x), other)

        def further(x: Any, y: Any) -> Any:
            return op.add(op.nn.silu(output(x)), y)

        for body, shapes in ((output, [shape]), (further, [shape, other])):
            fused = fuse(module(body, *shapes), device).mod
            (func,) = (f for f in fused.functions.values() if isinstance(f, tirx.PrimFunc))
            graph = extract(func)
            assert graph is not None
            choices = schedule_rows(Task(func, graph, device), 1000)
            assert any("in vectors of 8" in choice.tile for choice in choices)

    def test_apart_where_an_axis_ends_amid_another(self) -> None:
        found = rules(lambda x: op.nn.relu(op.reshape(softened(x), (6, 4))), (4, 6))
        assert found == ["elementwise", "rows"]

    @pytest.mark.parametrize(
        "body",
        [
            lambda y: op.nn.relu(op.permute_dims(y, [0, 2, 1])),
            lambda y: op.nn.relu(op.flip(y, 1)),
            lambda y: op.nn.relu(op.take(y, relax.const([3, 1, 1], "int64"), 1)),
            lambda y: op.nn.relu(op.repeat(y, 2, 1)),
            lambda y: op.nn.relu(part(y, 2, 1, 7)),
        ],
        ids=["turned", "backwards", "picked", "repeated", "cut"],
    )
    def test_apart_where_order_changes(self, body: Body) -> None:
        found = rules(lambda x: body(softened(x)), (6, 8, 24))
        assert len(found) >= 2
        assert "rows" in found

    def test_views_on_the_way_to_a_product_cost_nothing(self) -> None:
        def body(x: Any, w: Any) -> Any:
            return op.matmul(op.reshape(softened(x), (48, 24)), w)

        _, reports = schedule_module(fuse(module(body, (6, 8, 24), (24, 16)), H200).mod, H200)
        (rows,) = (report for report in reports if report.rule == "rows")
        assert rows.name.startswith("softmax")


class TestApart:
    def test_what_is_used_elsewhere_too(self) -> None:
        def both(x: Any, w: Any) -> Any:
            y = product(x, w)
            return by_head(y), y

        assert rules(both, TOKENS, WEIGHT) == ["elementwise", PRODUCT]

    def test_scores_that_are_an_output_too(self) -> None:
        def both(q: Any, k: Any, v: Any) -> Any:
            weights = op.nn.softmax(op.matmul(q, k), -1)
            return op.matmul(weights, v), weights

        found = rules(both, (128, 64), (64, 128), (128, 64))
        assert "chain" not in found
        assert len(found) == 3

    @pytest.mark.parametrize("order", [[0, 2, 1], [1, 2, 0]])
    def test_neighbours_that_part(self, order: list[int]) -> None:
        found = rules(lambda x, w: op.permute_dims(product(x, w), order), TOKENS, WEIGHT)
        assert len(found) == 2
        assert PRODUCT in found

    def test_channels_that_come_first_again(self) -> None:
        found = rules(convolved, (2, 14, 14, 64), (72, 3, 3, 64))
        assert len(found) == 2
        assert PRODUCT in found

    def test_a_part_of_an_output(self) -> None:
        """The rest would be computed, too, and stored nowhere."""
        found = rules(lambda x, w: part(product(x, w), 2, 1, HEAD), TOKENS, WEIGHT)
        assert len(found) == 2

    @pytest.mark.parametrize("device", [find_device("emulated"), with_blocks_only(H200)])
    def test_devices_without_matrix_units(self, device: Device) -> None:
        """Attention is all that is joined."""
        mod = unjoined(module(stacked, TOKENS, (WIDTH, 3 * WIDTH), WEIGHT), device)
        decisions: list[Decision] = []
        FuseTiles(device, decisions.append)(mod)
        assert {own.rule for own in decisions if not own.reason} == {"attention"}


def joining_all(func: tirx.PrimFunc, _: Any) -> Scheduled:
    """Each kernel takes as long, whatever it does: the fewer the better."""
    return Scheduled(func, CHAIN, "", grid=1, block=1, seconds=1.0)


def random_body(rng: random.Random) -> tuple[Body, list[Shape]]:
    """Attention of small tensors, with views, a mask, and more, as it comes; its inputs' shapes."""
    heads, places, head = rng.choice([1, 2, 3]), rng.choice([4, 7]), rng.choice([4, 6])
    by_heads, tokens = (2, places, heads, head), (2, places, heads * head)

    def mixed(q: Any, k: Any, v: Any, bias: Any) -> Any:
        def heads_of(x: Any, is_sliced: bool) -> Any:
            if is_sliced:
                x = op.strided_slice(op.concat([x, x], 2), [2], [head], [head + tokens[2]])
            return op.permute_dims(op.reshape(x, by_heads), [0, 2, 1, 3])

        q, k, v = (heads_of(x, rng.random() < 0.4) for x in (q, k, v))
        scores = op.matmul(q, op.permute_dims(k, [0, 1, 3, 2]))
        scores = op.multiply(scores, relax.const(np.float32(rng.choice([0.5, 1.0, -2.0]))))
        between = rng.choice([op.nn.softmax, op.nn.softmax, op.nn.relu, lambda x: x])
        added = rng.random()
        if added < 0.4:
            scores = op.add(scores, bias)
        elif added < 0.8:
            low = relax.const(np.float32(-np.inf if between is op.nn.softmax else -3))
            scores = op.where(op.greater(bias, relax.const(np.float32(-1))), scores, low)
        y = op.matmul(between(scores), v)
        if rng.random() < 0.7:
            y = op.reshape(op.permute_dims(y, [0, 2, 1, 3]), tokens)
        y = op.nn.gelu(y) if rng.random() < 0.4 else y
        return (y, scores) if rng.random() < 0.2 else y

    return mixed, [tokens, tokens, tokens, (1, 1, places, places)]


def outputs(mod: IRModule, inputs: list[np.ndarray]) -> list[np.ndarray]:
    """Of TVM's own build for the CPU."""
    machine = relax.VirtualMachine(tvm.compile(mod, CPU), tvm.cpu())
    found = machine["main"](*map(tvm.runtime.tensor, inputs))
    return [y.numpy() for y in ([found] if hasattr(found, "numpy") else found)]


def calls(mod: IRModule) -> int:
    """Kernels that ``main`` launches."""
    call_tir = tvm.ir.Op.get("relax.call_tir")
    bindings = [b for block in mod["main"].body.blocks for b in block.bindings]
    return sum(isinstance(b.value, relax.Call) and b.value.op == call_tir for b in bindings)


@pytest.mark.parametrize("seed", range(4))
def test_what_is_joined_computes_what_its_members_did(seed: int) -> None:
    body, shapes = random_body(random.Random(seed))
    before = unjoined(module(body, *shapes, dtype="float32"), H200)
    var = before.get_global_var("main")
    after, _ = _joined(before, var, before["main"], joining_all, {})
    assert relax.analysis.check_well_formed(after)
    assert calls(after) < calls(before)
    rng = np.random.default_rng(seed)
    inputs = [rng.standard_normal(shape).astype("float32") for shape in shapes]
    for got, want in zip(outputs(after, inputs), outputs(before, inputs), strict=True):
        assert relative_difference(got, want) < 1e-5
