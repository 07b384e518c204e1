"""Where a model's random numbers come from: two integers that it keeps from call to call.

A model that draws keeps the tensor ``random numbers``, two int64: a seed and a count of its calls.
A call computes its numbers of both (:mod:`tvm_tile.loops.random`), and raises the count when
nothing reads it any more::

    before: main(x): y = add(x, call_tir(uniform, (random, 0))); return y
    after:  main(x, random): y = add(x, call_tir(uniform, (random, 0)))
                             random = call_tir_inplace(next_call, (random,)); return y, random

No input is added, so that a call is written as one of the source model is. A kernel raises the
count, so that a CUDA graph that is run again draws anew. What a model keeps in other ways holds for
this, too: it is set through ``model.state``, begins anew by ``reset``, is saved by
``save(state=True)``, and the entries of one model have one, so that none repeats another's numbers.
The seed is 0 at first: what a compiled model computes is the same in each process.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from tvm import relax, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as ib

from tvm_tile.graph.signature import RANDOM, Signature, State
from tvm_tile.loops.random import Draw

STATE = State(Signature(RANDOM, (2,), "int64"), is_in_place=True)
"""What a model that draws keeps, at first."""


def random_state() -> relax.Var:
    """A variable for the tensor that a model keeps: the last of the parameters of ``main``."""
    return relax.Var("random_numbers", relax.TensorType(STATE.signature.shape, "int64"))


@dataclass(frozen=True, slots=True)
class Draws:
    """Writes the operators of a model that draw random numbers.

    Attributes:
        state: the tensor that the model keeps.
        numbers: numbers of the streams of further operators.
    """

    state: relax.Var
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def __call__(self, builder: relax.BlockBuilder, draw: Draw, key: int = 0) -> relax.Var:
        """Write an operator that draws.

        Args:
            builder: where it goes.
            draw: what it draws; see :mod:`tvm_tile.loops.random`.
            key: 32 bits, such as an operator's own seed, which change all numbers.

        Returns:
            The tensor that is drawn.
        """
        stream = np.array((key << 32) + next(self.numbers), np.uint64).view(np.int64)
        number = relax.const(stream, "int64")
        return builder.emit_te(draw, self.state, number, primfunc_name_hint=draw.__name__)

    def next_call(self, builder: relax.BlockBuilder, *, writes: bool = True) -> relax.Var:
        """Write what the state is behind a call: the last of the results of ``main``.

        Args:
            builder: where it goes, behind all that draws.
            writes: whether it is written to the memory of the old state.
        """
        if not writes:
            return builder.emit(relax.op.add(self.state, relax.const(np.array([0, 1]), "int64")))
        name = builder.add_func(_next_call(), "next_call")
        return builder.emit(relax.op.call_tir_inplace(name, [self.state], [0], self.state.ty))


def _next_call() -> tirx.PrimFunc:
    """``state[1] += 1``, written so that schedules take it for no sum, each thread its element."""
    with IRBuilder() as builder, ib.prim_func(s_tir=True):
        ib.func_name("next_call")
        ib.func_attr({"tirx.noalias": True})
        state = ib.arg("state", ib.buffer([2], "int64"))
        with ib.grid(2) as loop, ib.sblock("next_call"):
            at = ib.axis.spatial(2, loop)
            ib.reads()
            ib.writes(state[at])
            own = tirx.BufferLoad(state, [at])
            ib.buffer_store(state, own + tirx.Cast("int64", at), [at])
    return builder.get().without_attr("global_symbol")
