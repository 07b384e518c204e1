"""Vectors around functions that TVM computes number by number."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from kernel_bodies import gelu, mm
from kernels import Case, Input, prim_functions
from tvm import IRModule
from tvm.relax import op
from tvm.script import tirx as T

from tvm_tile.build import Builder, Program
from tvm_tile.build.vector_calls import TakeCallsApart
from tvm_tile.device import find_device
from tvm_tile.schedule import schedule

H200 = find_device("nvidia/h200")
FLOATS = Input((2048, 2048), "float32")


def text_of(body: Callable[..., Any], *inputs: Input) -> str:
    """The statements of the first choice's kernel."""
    (func,) = prim_functions(Case("case", "any", body, inputs), H200).values()
    (choice,) = schedule(func, H200)
    program = Builder(H200).build_functions({"case": choice.func})["case"]
    assert isinstance(program, Program), str(program)
    (kernel,) = program.kernels
    return kernel.source.rsplit("__launch_bounds__", 1)[-1]


@pytest.mark.parametrize(
    ("body", "inputs"),
    [
        (lambda x: op.multiply(x, op.erf(x)), (FLOATS,)),
        (lambda x, w, r: op.erf(op.add(mm("NN")(x, w), r)), (FLOATS, FLOATS, FLOATS)),
        (lambda x, w: gelu(mm("NN")(x, w)), (FLOATS, FLOATS)),
    ],
    ids=["elementwise", "behind_a_product", "gelu_behind_a_product"],
)
def test_what_is_loaded_and_stored_stays_a_vector(
    body: Callable[..., Any], inputs: tuple[Input, ...]
) -> None:
    text = text_of(body, *inputs)
    assert "erff(" in text
    parameters = re.findall(r"float\* __restrict__ (\w+)", text.partition("{")[0])
    wide, single = (
        [p for p in parameters if re.search(rf"^\s*{start}{p}\b.* = ", text, re.MULTILINE)]
        for start in (r"\*\(float4\*\)\(", "")
    )
    assert len(wide) == 1  # the output
    assert not single


@T.prim_func(private=True, s_tir=True)
def erf_between(x: T.Buffer((4,), "float32"), y: T.Buffer((4,), "float32")) -> None:
    for at in T.vectorized(4):
        y[at] = x[at] * T.erf(x[at] + T.float32(1))


@T.prim_func(private=True, s_tir=True)
def exp_between(x: T.Buffer((4,), "float32"), y: T.Buffer((4,), "float32")) -> None:
    for at in T.vectorized(4):
        y[at] = x[at] * T.exp(x[at] + T.float32(1))


@T.prim_func(private=True, s_tir=True)
def erf_by_choice(x: T.Buffer((4,), "float32"), y: T.Buffer((4,), "float32")) -> None:
    for at in T.vectorized(4):
        y[at] = T.if_then_else(x[at] > T.float32(0), T.erf(x[at]), x[at])


@T.prim_func(private=True, s_tir=True)
def atan2_of_one(
    x: T.Buffer((4,), "float32"), n: T.Buffer((1,), "float32"), y: T.Buffer((4,), "float32")
) -> None:
    for at in T.vectorized(4):
        y[at] = T.atan2(x[at], n[0])


@T.prim_func(private=True, s_tir=True)
def negated(x: T.Buffer((4,), "float32"), y: T.Buffer((4,), "float32")) -> None:
    for at in T.vectorized(4):
        y[at] = T.Select(T.Not(x[at] < T.float32(0)), x[at], T.float32(1))


def after(func: Any) -> str:
    return str(TakeCallsApart()(IRModule({"f": func}))["f"].script())


def test_a_function_is_computed_between_two_vectors() -> None:
    text = after(erf_between)
    assert text.count("T.vectorized(4)") == 2
    assert text.count("T.unroll(4)") == 1


def test_what_all_numbers_share_is_no_vector() -> None:
    text = after(atan2_of_one)
    assert "T.atan2(given[at], n[0])" in text


def test_truths_are_negated_one_by_one() -> None:
    text = after(negated)
    assert "T.vectorized" not in text
    assert text.count("T.unroll(4)") == 1


@pytest.mark.parametrize("func", [exp_between, erf_by_choice], ids=["vectors_of_it", "by_choice"])
def test_what_stays_as_it_is(func: Any) -> None:
    """What TVM has vectors of, and what is computed only where a choice says so."""
    assert after(func) == func.script()
