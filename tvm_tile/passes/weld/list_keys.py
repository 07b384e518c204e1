"""Attention whose mask constants decide walks through the tiles of keys that the mask leaves."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import ir, relax, tirx
from tvm.relax.expr_functor import mutator

from tvm_tile.device.device import Device
from tvm_tile.graph.constant_tensors import elements_of
from tvm_tile.graph.extract import extract
from tvm_tile.passes.ir.rewriter import ModuleRewriter, is_call_tir
from tvm_tile.passes.scheduling.first_choices import FirstChoices
from tvm_tile.passes.weld.fuse_tiles import Predict
from tvm_tile.schedule.attention.find import find_chain
from tvm_tile.schedule.attention.listed import listed, with_table
from tvm_tile.schedule.attention.seen import find_seen, granules_of
from tvm_tile.schedule.rule import Task
from tvm_tile.tile.attention.key_tiles import GRANULE, KeyTiles
from tvm_tile.tile.attention.warpgroups import construct_chain

_SIZES = (GRANULE, 2 * GRANULE, 3 * GRANULE)  # of tiles, both of rows and of keys
_SOFTMAX = 4  # reductions of attention at least


@tvm.transform.module_pass(opt_level=0, name="ListKeys")
@dataclass(frozen=True, slots=True)
class ListKeys:
    """Hand attention a table of the tiles of keys that its rows see, where that makes it faster.

    before: ``y = call_tir(attention, (q, k, v, documents))``
    after:  ``y = call_tir(attention, (q, k, v, documents, table))``, which nothing reads but a
            kernel that walks through the tiles of keys that the table lists

    The mask is looked at where constants and indices decide it: what may be seen stays, also where
    a tensor that is no constant has a say. Bands need no table.

    Args:
        device: the device that the kernels are made for.
        predict: scheduler of functions, shared with whoever schedules them afterwards.
    """

    device: Device
    predict: Predict | None = None

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Called by TVM's pass infrastructure."""
        predict = self.predict or FirstChoices(self.device)
        listing = _KeyListing(mod, self.device, predict)
        changed = listing.rewritten(mod)
        return relax.transform.DeadCodeElimination()(changed) if listing.has_listed else mod


@mutator
class _KeyListing(ModuleRewriter):
    def __init__(self, mod: tvm.IRModule, device: Device, predict: Predict) -> None:
        super().__init__(mod)
        self._mod, self._device, self._predict = mod, device, predict
        self.has_listed = False
        self._known: dict[Any, tuple[Any, relax.Expr] | None] = {}

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = super().visit_call_(call)
        if not is_call_tir(call) or len(call.args) != 2:
            return call
        var, args = call.args[0], list(call.args[1].fields)
        constants = tuple(arg if isinstance(arg, ir.Constant) else None for arg in args)
        key = var, constants
        if key not in self._known:
            self._known[key] = self._listed(var, constants)
        found = self._known[key]
        if found is None:
            return call
        self.has_listed = True
        return relax.call_tir(found[0], [*args, found[1]], call.ty_args[0])

    def _listed(self, var: Any, constants: tuple[Any, ...]) -> tuple[Any, relax.Expr] | None:
        """The function with a table, and this; ``None`` where none makes it faster."""
        func = self._mod[var]
        tensors = {
            str(param.name): elements_of(constant)
            for param, constant in zip(func.params, constants, strict=False)
            if constant is not None
        }
        found = best_table(func, tensors, self._device)
        if found is None:
            return None
        tiles, table, seconds = found
        dense = self._predict(func, None)
        if dense is not None and dense.seconds <= seconds:
            return None
        made = with_table(func, len(constants), tiles)
        name = self.builder_.add_func(made, str(var.name_hint))
        return name, relax.const(table, "int32")


def best_table(
    func: tirx.PrimFunc, tensors: Mapping[str, np.ndarray], device: Device
) -> tuple[KeyTiles, np.ndarray, float] | None:
    """The tiles of the fastest kernel with a table, the table and the kernel's predicted seconds.

    Args:
        func: a function that may be attention.
        tensors: the parameters that are known, by name.
        device: the device that the kernel is made for.

    Returns:
        ``None`` for what is no attention, or whose mask nothing is known of.
    """
    graph = extract(func)
    if graph is None or len(graph.reductions) < _SOFTMAX:
        return None
    task = Task(func, graph, device)
    match = find_chain(task)
    if match is None or match.keys is not None or match.limits or match.reach is not None:
        return None
    seen = find_seen(match.weights)
    if seen is None or not construct_chain(match.chain, device, 1, task.scene):
        return None
    granules = granules_of(match.chain, seen.condition, tensors)
    if granules is None or granules.seen.all():
        return None
    best: tuple[KeyTiles, np.ndarray, float] | None = None
    for rows, keys in itertools.product(_SIZES, _SIZES):
        tiles, table = granules.tiles(rows, keys)
        chain = listed(match, seen, tiles, "").chain
        for tile in construct_chain(chain, device, 1, task.scene):
            if best is None or tile.seconds < best[2]:
                best = tiles, table, tile.seconds
    return best
