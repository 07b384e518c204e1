"""DropNeutral: what leaves elements as they are is gone, unless that changes anything."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch
import tvm
from cpu_build import CPU
from normal_forms import behind, operators
from scheduled import relax_module
from tvm import relax
from tvm.relax import op

import tvm_tile
from tvm_tile.passes.operators.drop_neutral import DropNeutral


def dropped(mod: Any) -> Any:
    return behind(DropNeutral(), mod)


def run(mod: Any, x: np.ndarray) -> np.ndarray:
    built = tvm.compile(mod, CPU)
    result: np.ndarray = relax.VirtualMachine(built, tvm.cpu())["main"](
        tvm.runtime.tensor(x)
    ).numpy()
    return result


def filled(shape: tuple[int, ...], value: int) -> Any:
    return relax.const(np.full(shape, value), "int64")


ZERO, ONE = filled((1,), 0), filled((1, 1), 1)
GONE = {
    "zeros before": lambda x: op.add(ZERO, x),
    "zeros behind": lambda x: op.add(x, filled((2, 3), 0)),
    "less nothing": lambda x: op.subtract(x, ZERO),
    "ones": lambda x: op.multiply(ONE, x),
    "there and back": lambda x: op.reshape(op.expand_dims(op.flatten(x), [0]), (2, 3)),
}


@pytest.mark.parametrize("name", GONE)
def test_what_changes_nothing_is_gone(name: str) -> None:
    after = dropped(relax_module(lambda x: op.negative(GONE[name](x)), ((2, 3),), "int64"))
    assert operators(after) == ["relax.negative"]


STAYS = {
    "from nothing": lambda x: op.subtract(ZERO, x),
    "other numbers": lambda x: op.add(x, ONE),
    "many of one": lambda x: op.add(x, filled((4, 2, 3), 0)),
}


@pytest.mark.parametrize("name", STAYS)
def test_what_changes_something_stays(name: str) -> None:
    after = dropped(relax_module(lambda x: op.negative(STAYS[name](x)), ((2, 3),), "int64"))
    assert len(operators(after)) == 2


def part(x: Any, first: int, end: int, step: int = 1) -> Any:
    return op.strided_slice(x, [-1], [first], [end], [step])


WHOLE = {
    "in order": lambda x: op.concat([part(x, 0, 4), part(x, 4, 5), part(x, -5, 1 << 40)], 1),
    "with nothing": lambda x: op.concat([part(x, 3, 3), x, part(x, 0, 0)], 1),
    "both": lambda x: op.concat([part(x, 0, 4), part(x, 4, 4), part(x, 4, 10)], -1),
}
OTHERS = {
    "turned": lambda x: op.concat([part(x, 4, 10), part(x, 0, 4)], 1),
    "one left out": lambda x: op.concat([part(x, 0, 4), part(x, 5, 10)], 1),
    "one twice": lambda x: op.concat([part(x, 0, 6), part(x, 5, 10)], 1),
    "along another axis": lambda x: op.concat([part(x, 0, 5), part(x, 5, 10)], 0),
    "in steps": lambda x: op.concat([part(x, 0, 5, 2), part(x, 3, 10)], 1),
    "of two": lambda x: op.concat([part(x, 0, 4), part(op.exp(x), 4, 10)], 1),
    "cut off": lambda x: op.concat([part(x, 0, 4), part(x, 4, 9)], 1),
}


@pytest.mark.parametrize("name", [*WHOLE, *OTHERS])
def test_slices_that_are_all_of_a_tensor_are_it(name: str) -> None:
    body = (WHOLE | OTHERS)[name]
    mod = relax_module(lambda x: op.negative(body(x)), ((2, 10),))
    after = dropped(mod)
    assert ("relax.concat" in operators(after)) == (name in OTHERS)
    x = np.random.default_rng(0).standard_normal((2, 10)).astype("float32")
    legal = relax.transform.LegalizeOps()
    np.testing.assert_array_equal(run(legal(after), x), run(legal(mod), x))


def test_zeros_of_floating_point_numbers_stay() -> None:
    """The sum of a negative zero and zero is zero."""
    after = dropped(relax_module(lambda x: op.add(x, relax.const(np.float32(0))), ((2, 3),)))
    assert operators(after) == ["relax.add"]


def test_positions_are_read_where_they_are_given() -> None:
    def body(x: Any) -> Any:
        places = op.add(ZERO, op.squeeze(x))
        return op.negative(op.expand_dims(places, [0]))

    after = dropped(relax_module(body, ((1,),), "int64"))
    assert operators(after) == ["relax.expand_dims", "relax.negative"]


def test_places_of_the_best_count_from_the_front() -> None:
    def body(x: Any) -> Any:
        places = op.topk(x, 2, ret_type="both", dtype="int64")[1]
        counted = op.add(places, relax.const(9, "int64"))
        return op.negative(op.where(op.less(places, ZERO), counted, places))

    after = dropped(relax_module(body, ((3, 9),)))
    assert operators(after) == ["relax.topk", "relax.negative"]


def _shapes(rng: random.Random, elements: int) -> tuple[int, ...]:
    divisors = [n for n in range(1, elements + 1) if elements % n == 0]
    first = rng.choice(divisors)
    return tuple(e for e in (first, 1, elements // first) if e > 1 or rng.random() < 0.5)


@pytest.mark.parametrize("seed", range(12))
def test_random_chains(seed: int) -> None:
    rng = random.Random(seed)
    elements = rng.choice([1, 6, 12])

    def body(x: Any) -> Any:
        values = [x]
        for _ in range(6):
            value = rng.choice(values)
            kind = rng.randrange(5)
            if kind == 0:
                value = op.reshape(value, _shapes(rng, elements))
            elif kind == 1:
                value = op.expand_dims(value, [0])
            elif kind == 2:
                value = op.squeeze(value)
            elif kind == 3:
                value = op.add(ZERO, value)
            else:
                value = op.multiply(value, filled((), rng.randint(1, 2)))
            values.append(builder.emit(value))
        return op.flatten(values[-1])

    builder = relax.BlockBuilder()
    given = relax.Var("x", relax.TensorType((elements,), "int64"))
    with builder.function("main", [given]):
        builder.emit_func_output(builder.emit(body(given)))
    mod = builder.get()
    x = np.random.default_rng(seed).integers(-9, 9, elements)
    assert np.array_equal(run(dropped(mod), x), run(mod, x))


class _Former(torch.nn.Module):
    """A view of a buffer of integers is read behind a write to the buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("kept", torch.arange(6))

    def forward(self, x: Any, at: Any) -> Any:
        before = (self.kept + 0).reshape(2, 3).reshape(6)
        self.kept.index_copy_(0, at, x)
        return before * 2, (self.kept + 0).reshape(3, 2)


def test_what_is_written_over_is_read_before() -> None:
    model, x, at = _Former(), torch.tensor([7]), torch.tensor([2])
    compiled = tvm_tile.compile(torch.export.export(model, (x, at)), device="emulated")
    for place in (2, 5, 0):
        x, at = torch.tensor([place + 10]), torch.tensor([place])
        for got, wanted in zip(compiled(x.numpy(), at.numpy()), model(x, at), strict=True):
            assert np.array_equal(got, wanted.numpy())


@pytest.mark.parametrize("left", [(4, 1), (2, 4, 1), (3, 1, 4, 1)], ids=str)
@pytest.mark.parametrize("right", [(1, 5), (2, 1, 5)], ids=str)
def test_products_of_depth_one_are_no_sums(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    numbers = np.random.default_rng(1).standard_normal(right).astype("float32")
    weight = relax.const(numbers)
    mod = relax_module(lambda x: op.matmul(x, weight), (left,))
    found = dropped(mod)
    assert operators(found) == ["relax.multiply"]
    x = np.random.default_rng(2).standard_normal(left).astype("float32")
    np.testing.assert_array_equal(run(found, x), x @ numbers)


def test_products_of_depth_one_have_their_own_type() -> None:
    weight = relax.const(np.full((1, 5), 60000, "float16"))
    mod = relax_module(lambda x: op.matmul(x, weight, out_dtype="float32"), ((4, 1),), "float16")
    found = dropped(mod)
    assert operators(found) == ["relax.astype", "relax.astype", "relax.multiply"]
    assert np.all(run(found, np.full((4, 1), 2, "float16")) == 120000)


def test_other_products_stay() -> None:
    deep = relax.const(np.ones((2, 5), "float32"))
    mod = relax_module(lambda x: op.matmul(x, deep), ((4, 2),))
    assert operators(dropped(mod)) == ["relax.matmul"]
    mod = relax_module(op.matmul, ((4, 1), (1, 5)))
    assert operators(dropped(mod)) == ["relax.matmul"]
