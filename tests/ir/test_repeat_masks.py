"""Masks of a few numbers are computed where they are used; others, and what computes, once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from cpu_build import CPU
from tvm import relax
from tvm.relax import op

from tvm_tile.passes import RepeatMasks

Body = Callable[..., list[Any]]
KEYS = relax.const(np.arange(32, dtype="int64")[None])
LOW, NOTHING = (relax.const(np.float32(value)) for value in (-np.inf, 0))


def known(value: Any) -> Any:
    return relax.BlockBuilder.current().emit(value)


def seen(position: Any) -> Any:
    return known(op.less_equal(KEYS, known(op.expand_dims(position, 1))))


def both(mask: Any, x: Any) -> list[Any]:
    return [known(op.where(mask, x, LOW)), known(op.where(mask, NOTHING, x))]


def windowed(x: Any, position: Any) -> list[Any]:
    begin = known(op.subtract(position, relax.const(5, "int64")))
    late = known(op.greater(KEYS, known(op.expand_dims(begin, 1))))
    return both(known(op.logical_and(seen(position), late)), x)


def added(x: Any, position: Any) -> list[Any]:
    mask = known(op.where(seen(position), NOTHING, LOW))
    return [known(op.add(x, mask)), known(op.subtract(x, mask))]


def of_all(x: Any, _: Any) -> list[Any]:
    return both(known(op.less_equal(x, NOTHING)), x)


def summed(x: Any, position: Any) -> list[Any]:
    mask = seen(position)
    return [known(op.sum(known(op.astype(mask, "float32")), axis=1)), known(op.where(mask, x, LOW))]


def of_numbers(x: Any, position: Any) -> list[Any]:
    spread = known(
        op.broadcast_to(op.astype(known(op.expand_dims(position, 1)), "float32"), (8, 32))
    )
    return [known(op.add(x, spread)), known(op.subtract(x, spread))]


BODIES: dict[str, tuple[Body, str, int]] = {
    "one comparison": (lambda x, position: both(seen(position), x), "less_equal", 2),
    "of two": (windowed, "greater", 2),
    "added": (added, "less_equal", 2),
    "of the values themselves": (of_all, "less_equal", 1),
    "numbers, no bools": (of_numbers, "broadcast_to", 1),
    "what is summed up": (summed, "less_equal", 2),
}


def repeated(builder: relax.BlockBuilder) -> tuple[Any, list[str]]:
    """A module behind the pass, which computes what it did before, and the functions it calls."""
    passes = [relax.transform.LegalizeOps(), relax.transform.AnnotateTIROpPattern()]
    before = tvm.transform.Sequential(passes)(builder.get())
    after = RepeatMasks()(before)
    relax.analysis.well_formed(after)
    calls = [
        binding.value.args[0].name_hint
        for block in after["main"].body.blocks
        for binding in block.bindings
        if isinstance(binding.value, relax.Call)
    ]
    rng = np.random.default_rng(0)
    given = rng.normal(size=(8, 32)).astype("float32"), rng.integers(-2, 40, 8)
    outputs = []
    for mod in (before, after):
        machine = relax.VirtualMachine(tvm.compile(mod, CPU), tvm.cpu())
        outputs.append([o.numpy() for o in machine["main"](*map(tvm.runtime.tensor, given))])
    for got, want in zip(*outputs, strict=True):
        np.testing.assert_array_equal(got, want)
    return after, calls


def inputs() -> list[Any]:
    types = relax.TensorType((8, 32), "float32"), relax.TensorType((8,), "int64")
    return [relax.Var(name, own) for name, own in zip(("x", "position"), types, strict=True)]


@pytest.mark.parametrize("name", BODIES)
def test_each_reader_has_a_mask_of_its_own(name: str) -> None:
    body, made, count = BODIES[name]
    builder, given = relax.BlockBuilder(), inputs()
    with builder.function("main", given):
        with builder.dataflow():
            output = builder.emit_output(relax.Tuple(body(*given)))
        builder.emit_func_output(output)
    _, calls = repeated(builder)
    assert sum(made in call for call in calls) == count, calls


def test_what_a_mask_is_made_of_may_be_another_blocks() -> None:
    builder, (x, position) = relax.BlockBuilder(), inputs()
    with builder.function("main", [x, position]):
        with builder.dataflow():
            own = known(op.expand_dims(position, 1))
            mask = builder.emit_output(op.less_equal(KEYS, own))
            first = builder.emit_output(op.where(mask, x, LOW))
        between = builder.emit(op.negative(first))
        with builder.dataflow():
            second = builder.emit_output(op.where(mask, between, NOTHING))
        builder.emit_func_output(relax.Tuple([first, second]))
    mod, calls = repeated(builder)
    assert sum("less_equal" in call for call in calls) >= 2, calls
    assert len(mod["main"].body.blocks) > 1
