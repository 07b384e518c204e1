"""Inputs to verify a whole model with: integers from all that there are, places from those."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tvm
from tvm import relax

from tvm_tile.graph.signature import Signature
from tvm_tile.passes.ir.rewriter import is_call_tir, is_in_place
from tvm_tile.runtime.random_inputs import random_inputs
from tvm_tile.verify.arguments import integers
from tvm_tile.verify.compare import Array
from tvm_tile.verify.uses import Uses

_FEW = 2  # places that kernels compute of inputs, or that nobody knows


def places_in(mod: tvm.IRModule) -> Mapping[int, int]:
    """Find inputs of a module's ``main`` that are places: position -> how many there are.

    What goes to anything but a kernel may be one, too: it may end a loop.
    """
    main = mod["main"]
    uses = functools.cache(lambda var: Uses.of(mod[var]))
    of: dict[Any, set[int]] = {param: {at} for at, param in enumerate(main.params)}
    places: dict[int, int] = {}

    def limit(value: Any, most: int) -> None:
        for at in of.get(value, ()):
            own = most if value.same_as(main.params[at]) else min(_FEW, most)
            places[at] = min(own, places.get(at, own))

    for block in main.body.blocks:
        for binding in block.bindings:
            value = binding.value
            read = relax.analysis.free_vars(value)
            of[binding.var] = set().union(*(of.get(var, ()) for var in read))
            if is_call_tir(value) or is_in_place(value):
                own = uses(value.args[0])
                for argument, param in zip(
                    value.args[1].fields, mod[value.args[0]].params, strict=False
                ):
                    if param in own.below:
                        limit(argument, own.below[param])
                    if param in own.divisors:
                        limit(argument, _FEW)
            elif not isinstance(value, relax.TupleGetItem | relax.Tuple | relax.Var):
                for var in read:
                    limit(var, _FEW)
    return places


def whole_inputs(signatures: Sequence[Signature], places: Mapping[int, int]) -> list[Array]:
    """Random inputs: floats as of :func:`random_inputs`, integers of the whole range of their type,
    but for places."""
    rng = np.random.default_rng(0)
    drawn = []
    for at, (signature, given) in enumerate(
        zip(signatures, random_inputs(signatures), strict=True)
    ):
        if given.dtype.kind in "iu":
            size = math.prod(signature.shape)
            given = integers(given.dtype, size, rng, places.get(at)).reshape(signature.shape)
        drawn.append(given)
    return drawn
