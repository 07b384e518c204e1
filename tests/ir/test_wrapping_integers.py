"""Integers wrap in their type, in TVM's own builds for the CPU, and stay out of the simplifier."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import te, tirx

from tvm_tile.build.exact.in_tvm import exact_on_cpu
from tvm_tile.build.exact.integers import wrap_collected, wrap_integers
from tvm_tile.registered import is_as_written

DTYPES = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
COUNT = 64

Element = Callable[[Any, Any], Any]

# What TVM would simplify, or compute in a wider type, if numbers did not wrap.
WRITTEN: dict[str, tuple[Element, Element]] = {
    "sum": (lambda x, y: x + y, lambda x, y: x + y),
    "difference": (lambda x, y: tirx.Sub(x, y), lambda x, y: x - y),
    "product": (lambda x, y: x * y, lambda x, y: x * y),
    "complement": (lambda x, y: tirx.BitwiseNot(x), lambda x, y: ~x),
    "twice, halved": (
        lambda x, y: tirx.FloorDiv(tirx.Mul(x, like(2, x)), like(2, x)),
        lambda x, y: x * x.dtype.type(2) // x.dtype.type(2),
    ),
    "shifted left": (lambda x, y: tirx.LShift(x, y), np.left_shift),
    "shifted right": (lambda x, y: tirx.RShift(x, y), np.right_shift),
    "shifted by 3 to and fro": (
        lambda x, y: tirx.RShift(tirx.LShift(x, like(3, x)), like(3, x)),
        lambda x, y: (x << x.dtype.type(3)) >> x.dtype.type(3),
    ),
    "floor": (lambda x, y: tirx.FloorDiv(x, y), lambda x, y: x // y),
    "remainder": (lambda x, y: tirx.FloorMod(x, y), lambda x, y: x % y),
    "cut": (lambda x, y: tirx.Div(x, y), lambda x, y: truncated(x, y)),
    "rest": (lambda x, y: tirx.Mod(x, y), np.fmod),
    "byte, by 3": (
        lambda x, y: tirx.Cast(
            x.ty, tirx.FloorDiv(tirx.Cast("int8", x + y), tirx.const(3, "int8"))
        ),
        lambda x, y: ((x + y).astype("int8") // np.int8(3)).astype(x.dtype),
    ),
    "sum of remainder 3": (
        lambda x, y: tirx.FloorMod(x + y, like(3, x)),
        lambda x, y: (x + y) % x.dtype.type(3),
    ),
    "one more is more": (
        lambda x, y: tirx.Cast(x.ty, x + like(1, x) > x),
        lambda x, y: (x + x.dtype.type(1) > x).astype(x.dtype),
    ),
    "byte": (
        lambda x, y: tirx.Cast(x.ty, tirx.Cast("int8", x + y)),
        lambda x, y: (x + y).astype("int8").astype(x.dtype),
    ),
}


def like(number: int, value: Any) -> Any:
    return tirx.const(number, str(value.ty.dtype))


def truncated(x: np.ndarray[Any, Any], y: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    quotient = x // y
    is_lower = (x % y != 0) & (quotient < 0)
    return quotient + is_lower.astype(x.dtype)


def operands(dtype: str) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Numbers of the whole range, its ends among them, and shifts near and far."""
    rng, info = np.random.default_rng(0), np.iinfo(dtype)
    x = rng.integers(info.min, info.max, COUNT, dtype, endpoint=True)
    y = rng.integers(info.min, info.max, COUNT, dtype, endpoint=True)
    ends = [info.min, info.max, 0, 1]
    x[:16], y[:16] = np.repeat(np.array(ends, dtype), 4), np.tile(np.array(ends, dtype), 4)
    y[16:40] = rng.integers(0, info.bits + 2, 24).astype(dtype)
    y[40:44] = np.array([-1, -1, 0, 0]).astype(dtype)
    x[40:44] = np.array([info.min, 5, info.min, 5], dtype)
    return x, y


def loops(buffers: list[Any], value: Callable[[Any], Any], collects: bool = False) -> tirx.PrimFunc:
    """What is stored into the last buffer, written without te, which would simplify it."""
    i = tirx.Var("i", "int32")
    body = tirx.BufferStore(buffers[-1], value(i), [0 if collects else i])
    loop = tirx.For(i, 0, COUNT, tirx.ForKind.SERIAL, body)
    return tirx.PrimFunc(buffers, loop).with_attr({"tirx.noalias": True, "s_tir": True})


def functions(dtype: str) -> tvm.IRModule:
    """Each case as a function, whose result is read again in 64 bits; and a sum of all products."""
    x, y = (tirx.decl_buffer((COUNT,), dtype, name) for name in "xy")
    z, total = tirx.decl_buffer((COUNT,), wide(dtype), "z"), tirx.decl_buffer((1,), dtype, "total")

    def widened(element: Element) -> Callable[[Any], Any]:
        return lambda i: tirx.Cast(wide(dtype), element(x[i], y[i]))

    made = {named(n): loops([x, y, z], widened(element)) for n, (element, _) in WRITTEN.items()}
    summed = loops([x, y, total], lambda i: total[0] + tirx.Mul(x[i], y[i]), collects=True)
    return tvm.IRModule({**made, "total": summed})


def wide(dtype: str) -> str:
    return "uint64" if dtype.startswith("uint") else "int64"


def named(case: str) -> str:
    return case.replace(" ", "_").replace(",", "")


@pytest.mark.parametrize("dtype", DTYPES)
def test_built_for_the_cpu(dtype: str) -> None:
    exact = {
        str(var.name_hint): exact_on_cpu(func).with_attr("global_symbol", str(var.name_hint))
        for var, func in functions(dtype).functions_items()
    }
    built = tvm.compile(tvm.IRModule(exact), target="llvm")
    x, y = operands(dtype)
    given = [tvm.runtime.tensor(value) for value in (x, y)]
    with np.errstate(all="ignore"):
        for name, (_, wanted) in WRITTEN.items():
            got = tvm.runtime.tensor(np.full(COUNT, 77, wide(dtype)))
            built[named(name)](*given, got)
            assert np.array_equal(got.numpy(), wanted(x, y).astype(wide(dtype))), name
        got = tvm.runtime.tensor(np.zeros(1, dtype))
        built["total"](*given, got)
        assert got.numpy()[0] == (x * y).sum(dtype=dtype)


@pytest.mark.parametrize("dtype", ["uint8", "int32", "int64"])
def test_simplifier_leaves_it(dtype: str) -> None:
    """Nothing is found out about a number that may have wrapped."""
    mod = functions(dtype)
    for name in ("twice_halved", "one_more_is_more", "byte"):
        wrapped = wrap_integers(mod[name])
        simplified = tvm.s_tir.transform.StmtSimplify()(tvm.IRModule({"main": wrapped}))["main"]
        assert count_hidden(simplified) == count_hidden(wrapped) > 0


def count_hidden(func: Any) -> int:
    found: list[Any] = []
    tvm_ffi.structural_walk(
        func, (tvm.ir.Call, lambda c: found.append(c) if is_as_written(c) else None)
    )
    return len(found)


def test_places_and_what_fits_stay() -> None:
    """Indices, known or gathered, sums of bytes as int32, and what memory collects."""
    i, j = te.placeholder((8,), "int32", "i"), te.placeholder((64,), "int8", "j")
    along = te.reduce_axis((0, 8))
    gathered = te.compute((8,), lambda a: j[i[a] * 8 + a], "gathered")
    wide = te.compute(
        (8,), lambda a: tirx.Cast("int32", gathered[a]) * tirx.Cast("int32", j[a]), "wide"
    )
    summed = te.compute((1,), lambda _: te.sum(wide[along], axis=along), "summed")
    func = te.create_prim_func([i, j, summed])
    assert wrap_integers(func).same_as(func)
    assert not wrap_collected(func).same_as(func)


def test_numbers_of_loops_that_do_not_fit() -> None:
    """An arithmetic sequence is a value, however it is made."""
    fits = te.create_prim_func([te.compute((100,), lambda i: i * 3, "y")])
    hashed = te.create_prim_func([te.compute((100,), lambda i: i * 1103515245, "y")])
    assert wrap_integers(fits).same_as(fits)
    assert count_hidden(wrap_integers(hashed)) == 1


@pytest.mark.parametrize("shifted", [tirx.LShift, tirx.RShift])
def test_amounts_are_written_once(shifted: Callable[[Any, Any], Any]) -> None:
    """Shifts by shifts do not grow with each level."""
    x = te.placeholder((8,), "int32", "x")

    def nested(i: Any) -> Any:
        value = x[i]
        for _ in range(12):
            value = shifted(x[i], value)
        return value

    func = wrap_integers(te.create_prim_func([x, te.compute((8,), nested, "y")]))
    loads: list[Any] = []
    tvm_ffi.structural_walk(func.body, (tvm.ir.TensorLoad, loads.append))
    assert len(loads) == 13
