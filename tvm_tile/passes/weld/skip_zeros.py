"""Products leave out the chunks of constant weights that are zeros."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import ir, relax, tirx
from tvm.relax.expr_functor import mutator

from tvm_tile.device.device import Device
from tvm_tile.graph.constant_tensors import elements_of
from tvm_tile.graph.extract import extract
from tvm_tile.graph.positions import Listed, listed_chunks
from tvm_tile.passes.ir.rewriter import ModuleRewriter, is_call_tir
from tvm_tile.passes.scheduling.first_choices import FirstChoices, content_of
from tvm_tile.passes.weld.fuse_tiles import Predict
from tvm_tile.report.skipped_zeros import SkippedZeros
from tvm_tile.schedule.listed import LISTED, with_listed
from tvm_tile.tile.products.warpgroup_tile import LINE
from tvm_tile.tile.units.product import find_product

_MATRIX = 2  # dimensions
_SAMPLES = 1 << 12  # elements that are looked at before all are
_LEAST_SHARE = 0.1  # of zeros that are worth a list
_NEAR_TIE = 1.02
"""Kernels whose predicted times are nearer than this are no reason to skip anything."""

Matrix = tuple[int, int]
"""Place of a parameter, and the number of its dimension that is not summed up."""

RecordZeros = Callable[[SkippedZeros], None]


@tvm.transform.module_pass(opt_level=0, name="SkipZeros")
@dataclass(frozen=True, slots=True)
class SkipZeros:
    """Tell products which chunks of a constant weight are zeros, where their kernels are faster so.

    before: ``y = call_tir(f, (x, w))`` with ``y[i, j] = sum(x[i, k] * w[j, k])``
    after:  ``y = call_tir(g, (x, w, w_listed))``, ``g`` the same with the attribute
            ``tvm_tile.listed``, and a table of the chunks of ``k`` that have other numbers than
            zeros for each group of ``j``

    The kernel of ``g`` may walk the chunks that the table lists, instead of all: a factor that is
    infinite or no number then makes none of the zeros that it meets. This comes last, when it is
    known what else a kernel does.

    Args:
        device: the device that the kernels are made for.
        predict: scheduler of functions, shared with whoever schedules them afterwards.
        refused: why functions must not be made of others, by their contents.
        record: called with each matrix that has such zeros, for ``explain()``.
        skips: whether they are left out, or only told.
    """

    device: Device
    predict: Predict | None = None
    refused: Mapping[Any, str] | None = None
    record: RecordZeros | None = None
    skips: bool = True

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Called by TVM's pass infrastructure."""
        predict = self.predict or FirstChoices(self.device)
        changed = _Zeros(mod, self, predict).rewritten(mod)
        return relax.transform.DeadCodeElimination()(changed)


@dataclass(frozen=True, slots=True)
class _Shorter:
    """A function that is told its zeros, and what that is worth, in predicted seconds of a call."""

    func: tirx.PrimFunc
    seconds: float
    seconds_whole: float


@mutator
class _Zeros(ModuleRewriter):
    def __init__(self, mod: tvm.IRModule, options: SkipZeros, predict: Predict) -> None:
        super().__init__(mod)
        self._mod, self._options, self._predict = mod, options, predict
        self._matrices: dict[Any, tuple[Matrix, ...]] = {}
        self._lists: dict[tuple[Any, int, str], Listed | None] = {}
        self._faster: dict[tuple[Any, Listed], _Shorter | None] = {}

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = super().visit_call_(call)
        if not is_call_tir(call) or not isinstance(call.args[1], relax.Tuple):
            return call
        var, args = call.args[0], list(call.args[1].fields)
        if var not in self._matrices:
            self._matrices[var] = matrices_of(self._mod[var])
        own = [one for one in self._matrices[var] if isinstance(args[one[0]], ir.Constant)]
        if not own:
            return call
        place, axis = own[0]
        source = f"{self._mod[var].params[place].name}_listed"
        lists = self._listed(args[place], axis, source)
        if lists is None:
            return call
        if (var, lists) not in self._faster:
            self._faster[var, lists] = self._faster_of(self._mod[var], place, axis, lists, args)
        faster = self._faster[var, lists]
        if faster is None:
            return call
        self._tell(str(var.name_hint), args[place], lists, faster)
        if not self._options.skips:
            return call
        name = self.builder_.add_func(faster.func, str(var.name_hint))
        return relax.call_tir(name, [*args, relax.const(lists.table())], call.ty_args[0])

    def _listed(self, weights: Any, axis: int, source: str) -> Listed | None:
        """The lists of a matrix by the dimension of its columns; ``None`` if all has to be read."""
        key = weights, axis, source
        if key not in self._lists:
            self._lists[key] = _lists_of(elements_of(weights), axis, source)
        return self._lists[key]

    def _faster_of(
        self, func: tirx.PrimFunc, place: int, axis: int, lists: Listed, args: list[Any]
    ) -> _Shorter | None:
        """The function with lists; ``None`` where it takes no less time so."""
        other = with_listed(func, (place, axis), lists, len(args))
        whole = self._predict(func, None)
        if whole is None or content_of(other) in (self._options.refused or {}):
            return None
        found = self._predict(other, None)
        if found is None or whole.seconds < _NEAR_TIE * found.seconds:
            return None
        return _Shorter(other, found.seconds, whole.seconds)

    def _tell(self, name: str, weights: Any, lists: Listed, faster: _Shorter) -> None:
        if self._options.record is not None:
            rows, columns = (int(extent) for extent in weights.ty.shape if int(extent) > 1)
            times = faster.seconds, faster.seconds_whole
            own = SkippedZeros(name, (rows, columns), lists.share, *times, self._options.skips)
            self._options.record(own)


def matrices_of(func: Any) -> tuple[Matrix, ...]:
    """The parameters that a function multiplies as matrices, if that is all that it sums up."""
    graph = extract(func) if isinstance(func, tirx.PrimFunc) else None
    if graph is None or len(graph.reductions) != 1 or LISTED in (func.attrs or {}):
        return ()
    product = find_product(graph.reductions[0])
    if product is None or product.steps or product.batch:
        return ()
    names = [str(param.name) for param in func.params]
    return tuple(
        (names.index(side.tensor.name), 0 if side.is_depth_major else 1)
        for side in (product.right, product.left)
        if side.tensor.name in names and len(side.tensor.shape) == _MATRIX
    )


def _lists_of(weights: np.ndarray, axis: int, source: str) -> Listed | None:
    """The lists of a matrix by the dimension of its columns; ``None`` if all has to be read."""
    flat = weights.reshape(-1)
    # Neighbours in a column would tell of it alone.
    sampled = flat[:: flat.size // _SAMPLES | 1]
    if np.count_nonzero(sampled == 0) <= _LEAST_SHARE * sampled.size:
        return None
    matrix = weights.reshape([extent for extent in weights.shape if extent > 1])
    chunk = LINE // weights.itemsize
    found = listed_chunks(matrix.T if axis else matrix, chunk, source)
    return found if found.share <= 1 - _LEAST_SHARE else None
