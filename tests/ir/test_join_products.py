"""Products of one value become one product, and their results slices of it, to the bit."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from cpu_build import CPU
from scheduled import relax_module
from tvm import relax, te
from tvm.relax import op

from tvm_tile.passes import JoinProducts
from tvm_tile.tile.weld.connect import Decision
from tvm_tile.tile.weld.side_by_side import Cost

pytestmark = pytest.mark.bank(6)

RNG = np.random.default_rng(0)
DEPTH = 16
Body = Callable[[Any], Any]


def calls(mod: tvm.IRModule) -> Counter[str]:
    """How often ``main`` has each operator."""
    found: Counter[str] = Counter()

    def visit(node: Any) -> None:
        if isinstance(node, relax.Call):
            found[str(getattr(node.op, "name", "")).removeprefix("relax.")] += 1

    relax.analysis.post_order_visit(mod["main"], visit)
    return found


def fewest(mod: tvm.IRModule) -> Cost:
    """As if each product took a second and all else nothing."""
    assert relax.analysis.check_well_formed(mod)
    return Cost(float(calls(mod)["matmul"]), 0)


def joined(
    body: Body,
    shape: tuple[int, ...] = (2, 5, DEPTH),
    dtype: str = "float32",
    cost: Callable[[Any], Cost | None] = fewest,
    record: Callable[[Decision], None] | None = None,
) -> tuple[tvm.IRModule, tvm.IRModule]:
    """A function of one tensor before and after, what nothing reads left out."""
    ready = [relax.transform.Normalize(), relax.transform.ConvertToDataflow()]
    before = tvm.transform.Sequential(ready)(relax_module(body, (shape,), dtype))
    last = [relax.transform.CanonicalizeBindings(), relax.transform.DeadCodeElimination()]
    after = tvm.transform.Sequential([JoinProducts(cost, record), *last])(before)
    assert relax.analysis.check_well_formed(after)
    return before, after


def weights(columns: int, dtype: str = "float32", depth: int = DEPTH) -> Any:
    return relax.const(RNG.standard_normal((depth, columns)).astype(dtype))


def constant(columns: int, dtype: str = "float32") -> Any:
    return relax.const(RNG.standard_normal(columns).astype(dtype))


def run(mod: tvm.IRModule, x: np.ndarray) -> list[np.ndarray]:
    machine = relax.VirtualMachine(tvm.compile(mod, CPU), tvm.cpu())
    found = machine["main"](tvm.runtime.tensor(x))
    return [found.numpy()] if hasattr(found, "numpy") else [value.numpy() for value in found]


def check_equal(before: tvm.IRModule, after: tvm.IRModule) -> None:
    (param,) = before["main"].params
    shape, dtype = tuple(map(int, param.ty.shape)), str(param.ty.dtype)
    x = RNG.standard_normal(shape).astype(dtype)
    for one, other in zip(run(before, x), run(after, x), strict=True):
        assert one.tobytes() == other.tobytes()


def constants(mod: tvm.IRModule) -> list[tuple[int, ...]]:
    """Shapes of the constants of ``main``."""
    found: dict[int, tuple[int, ...]] = {}

    def visit(node: Any) -> None:
        if isinstance(node, tvm.ir.Constant) and isinstance(node.ty, relax.TensorType):
            found[node.value.data_ptr()] = tuple(map(int, node.ty.shape))

    relax.analysis.post_order_visit(mod["main"], visit)
    return sorted(found.values())


def test_products_become_one_and_their_results_slices() -> None:
    parts = [weights(columns) for columns in (8, 8, 24)]
    before, after = joined(lambda x: tuple(op.matmul(x, w) for w in parts))
    assert calls(after) == {"matmul": 1, "strided_slice": 3}
    check_equal(before, after)
    # The parts are gone.
    assert constants(after) == [(DEPTH, 40)]


def test_biases_are_one_and_minus_zero_where_there_is_none() -> None:
    parts = [weights(8) for _ in range(3)]
    bias, other = constant(8), relax.const(RNG.standard_normal((1, 1, 8)).astype("float32"))

    def body(x: Any) -> Any:
        q, k, v = (op.matmul(x, w) for w in parts)
        return op.add(q, bias), k, op.add(other, v)

    before, after = joined(body)
    assert calls(after) == {"matmul": 1, "add": 1, "strided_slice": 3}
    check_equal(before, after)
    (added,) = [shape for shape in constants(after) if len(shape) == 1]
    assert added == (24,)


def test_zeros_keep_their_signs_where_there_is_no_bias() -> None:
    minus, parts = relax.const(-1.0), [relax.const(np.zeros((DEPTH, 4), "float32"))] * 2

    def body(x: Any) -> Any:
        first, second = (op.multiply(op.matmul(x, w), minus) for w in parts)
        return first, op.add(second, constant(4))

    before, after = joined(body)
    assert calls(after) == {"matmul": 1, "multiply": 1, "add": 1, "strided_slice": 2}
    assert np.signbit(run(before, np.zeros((2, 5, DEPTH), "float32"))[0]).all()
    check_equal(before, after)


def test_a_scale_behind_reshapes_and_permutations_is_a_constant_of_columns() -> None:
    parts = [weights(8, "float16") for _ in range(3)]

    def heads(x: Any) -> Any:
        return op.permute_dims(op.reshape(x, (2, 5, 2, 4)), [0, 2, 1, 3])

    def body(x: Any) -> Any:
        sums = [op.astype(op.matmul(x, w, out_dtype="float32"), "float16") for w in parts]
        q, k, v = map(heads, sums)
        return op.multiply(q, relax.const(0.5, "float16")), k, v

    before, after = joined(body, dtype="float16")
    assert calls(after)["matmul"] == calls(after)["astype"] == calls(after)["multiply"] == 1
    scales = [shape for shape in constants(after) if len(shape) == 1]
    assert scales == [(24,)]
    check_equal(before, after)


def test_weights_that_are_stored_transposed() -> None:
    stored = [relax.const(RNG.standard_normal((n, DEPTH)).astype("float32")) for n in (8, 12)]
    before, after = joined(lambda x: tuple(op.matmul(x, op.permute_dims(w)) for w in stored))
    assert calls(after) == {"permute_dims": 1, "matmul": 1, "strided_slice": 2}
    check_equal(before, after)


def test_what_all_products_go_through_is_done_once() -> None:
    parts = [weights(8), weights(12)]

    def body(x: Any) -> Any:
        return tuple(op.nn.relu(op.add(op.matmul(x, w), relax.const(0.5))) for w in parts)

    before, after = joined(body)
    assert calls(after) == {"matmul": 1, "add": 1, "nn.relu": 1, "strided_slice": 2}
    check_equal(before, after)


def test_what_only_some_go_through_stays_behind_the_slices() -> None:
    parts = [weights(8), weights(8)]

    def body(x: Any) -> Any:
        gate, up = (op.matmul(x, w) for w in parts)
        return op.multiply(op.nn.silu(gate), up)

    before, after = joined(body)
    assert calls(after) == {"matmul": 1, "strided_slice": 2, "nn.silu": 1, "multiply": 1}
    check_equal(before, after)


def test_a_result_that_others_read_too() -> None:
    first, second = weights(8), weights(8)

    def body(x: Any) -> Any:
        a, b = op.matmul(x, first), op.matmul(x, second)
        return a, op.add(a, relax.const(1.0)), op.add(b, relax.const(1.0)), op.exp(b)

    before, after = joined(body)
    assert calls(after)["matmul"] == 1
    check_equal(before, after)


def test_weights_of_several_layers_are_one_constant() -> None:
    square = [weights(DEPTH), weights(DEPTH)]

    def body(x: Any) -> Any:
        for _ in range(3):
            a, b = (op.matmul(x, w) for w in square)
            x = op.subtract(a, b)
        return x

    before, after = joined(body)
    assert calls(after)["matmul"] == 3
    assert constants(after) == [(DEPTH, 2 * DEPTH)]
    check_equal(before, after)


def test_weights_that_something_else_reads_stay_as_well() -> None:
    shared, other = weights(DEPTH), weights(DEPTH)

    def body(x: Any) -> Any:
        return op.matmul(x, shared), op.matmul(x, other), op.matmul(op.exp(x), shared)

    before, after = joined(body)
    assert constants(after) == [(DEPTH, DEPTH), (DEPTH, 2 * DEPTH)]
    check_equal(before, after)


ALONE: dict[str, Body] = {
    "one product": lambda x: op.matmul(x, weights(8)),
    "products of different values": lambda x: (
        op.matmul(x, weights(8)),
        op.matmul(op.exp(x), weights(8)),
    ),
    "weights of three dimensions": lambda x: tuple(
        op.matmul(x, relax.const(RNG.standard_normal((2, DEPTH, 8)).astype("float32")))
        for _ in range(2)
    ),
    "vectors": lambda x: tuple(op.matmul(x, constant(DEPTH)) for _ in range(2)),
    "sums of different types": lambda x: (
        op.matmul(x, weights(8)),
        op.matmul(x, weights(8), out_dtype="float64"),
    ),
    "the constant on the left": lambda x: tuple(
        op.matmul(weights(5, depth=3), x) for _ in range(2)
    ),
    "what makes values of open shapes": lambda x: (
        op.matmul(x, weights(8)),
        op.nonzero(op.matmul(x, weights(8))),
    ),
    "no constant": lambda x: tuple(
        op.matmul(x, op.permute_dims(op.exp(x), [0, 2, 1])) for _ in range(2)
    ),
}


@pytest.mark.parametrize("name", ALONE)
def test_what_stays(name: str) -> None:
    before, after = joined(ALONE[name])
    assert calls(after)["strided_slice"] == 0
    assert calls(after)["matmul"] == calls(before)["matmul"]


def test_open_shapes_stay() -> None:
    rows = tvm.tirx.Var("n", "int64")
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((rows, DEPTH), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            made = [builder.emit(op.matmul(x, weights(8))) for _ in range(2)]
            output = builder.emit_output(relax.Tuple(made))
        builder.emit_func_output(output)
    after = JoinProducts(fewest)(builder.get())
    assert calls(after)["matmul"] == 2


def test_a_part_that_is_asked_about_has_the_functions_that_it_calls() -> None:
    builder = relax.BlockBuilder()
    value = relax.Var("value", relax.TensorType((5, 8), "float32"))
    with builder.function("half", [value], private=True):
        with builder.dataflow():
            call = builder.call_te(lambda t: te.compute(t.shape, lambda *i: t(*i) * 0.5), value)
            output = builder.emit_output(call)
        builder.emit_func_output(output)
    half = builder.get().get_global_var("half")
    x = relax.Var("x", relax.TensorType((5, DEPTH), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            first, second = (builder.emit(op.matmul(x, weights(8))) for _ in range(2))
            total = op.add(builder.emit(relax.Call(half, [first])), second)
            output = builder.emit_output(total)
        builder.emit_func_output(output)
    before = builder.get()
    after = JoinProducts(fewest)(before)
    assert calls(after)["matmul"] == 1
    check_equal(before, after)


def test_a_part_that_is_asked_about_names_its_values_apart() -> None:
    """Buffers get the names of variables, and two of one name would be one tensor to the rules."""
    asked: list[tvm.IRModule] = []

    def cost(mod: tvm.IRModule) -> Cost:
        asked.append(mod)
        return fewest(mod)

    joined(lambda x: tuple(op.nn.relu(op.matmul(x, weights(n))) for n in (8, 12)), cost=cost)
    bindings = [b for mod in asked for b in mod["main"].body.blocks[0].bindings]
    assert len(bindings) > 2
    for mod in asked:
        names = [str(b.var.name) for b in mod["main"].body.blocks[0].bindings]
        assert len(set(names)) == len(names)


class TestTheModelDecides:
    PARTS = (weights(8), weights(12))

    def body(self, x: Any) -> Any:
        return tuple(op.matmul(x, w) for w in self.PARTS)

    @pytest.mark.parametrize(
        ("cost", "reason"),
        [
            (lambda mod: Cost(2.0 - calls(mod)["matmul"], 0), "one kernel takes no less time"),
            (
                lambda mod: Cost(calls(mod)["matmul"], -(10**6) * calls(mod)["matmul"]),
                "more would be written",
            ),
            (lambda _: None, "no rule"),
        ],
    )
    def test_against_it(self, cost: Any, reason: str) -> None:
        decisions: list[Decision] = []
        _, after = joined(self.body, cost=cost, record=decisions.append)
        assert calls(after)["matmul"] == 2
        (decision,) = decisions
        assert decision.functions == ("matmul_8", "matmul_12")
        assert reason in decision.reason

    def test_for_it(self) -> None:
        decisions: list[Decision] = []
        joined(self.body, record=decisions.append)
        (decision,) = decisions
        assert (decision.reason, decision.apart, decision.together) == ("", 2.0, 1.0)

    def test_equal_layers_are_asked_about_once(self) -> None:
        asked: list[Any] = []

        def cost(mod: tvm.IRModule) -> Cost:
            asked.append(mod)
            return fewest(mod)

        def body(x: Any) -> Any:
            for _ in range(4):
                a, b = (op.matmul(x, weights(DEPTH)) for _ in range(2))
                x = op.exp(op.subtract(a, b))
            return x

        _, after = joined(body, cost=cost)
        assert calls(after)["matmul"] == 4
        assert len(asked) == 2  # apart and together


def _branch(draw: random.Random, x: Any, dtype: str) -> list[Any]:
    """A product of ``x`` and what may be behind it: values that are outputs."""
    columns, kind, outputs = draw.choice((1, 4, 6, 8, 12)), "float32", []
    right = weights(columns, dtype)
    if draw.random() < 0.3:
        right = op.permute_dims(relax.const(np.ascontiguousarray(right.value.numpy().T)))
    emit = relax.BlockBuilder.current().emit
    value = emit(op.matmul(x, right, out_dtype="float32"))
    for _ in range(draw.randrange(6)):
        step = draw.choice(("cast", "bias", "scale", "divide", "relu", "tanh", "heads", "output"))
        match step:
            case "cast":
                value, kind = op.astype(value, dtype), dtype
            case "bias":
                value = draw.choice((op.add, op.subtract))(value, constant(columns, kind))
            case "scale":
                value = op.multiply(relax.const(0.3, kind), value)
            case "divide":
                value = op.divide(value, relax.const(1.7, kind))
            case "relu":
                value = op.nn.relu(value)
            case "tanh":
                value = op.tanh(value)
            case "heads":
                value = op.permute_dims(op.reshape(value, (5, -1, columns)), [1, 0, 2])
            case "output":
                outputs.append(value)
        value = emit(value)
    return [*outputs, value]


@pytest.mark.parametrize("seed", range(30))
def test_random_graphs_are_equal_to_the_bit(seed: int) -> None:
    draw = random.Random(seed)
    dtype = draw.choice(("float32", "float16"))

    def body(x: Any) -> Any:
        return tuple(v for _ in range(draw.randrange(2, 5)) for v in _branch(draw, x, dtype))

    before, after = joined(body, dtype=dtype)
    assert calls(after)["matmul"] == 1
    check_equal(before, after)
