"""Products leave out zeros of constant weights: whole chunks of them, or two of each four."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import tvm
from tvm import ir, relax, tirx
from tvm.relax.expr_functor import mutator

from tvm_tile.device.device import Device
from tvm_tile.graph.constant_tensors import constant_of_parts, elements_of
from tvm_tile.graph.extract import extract
from tvm_tile.graph.positions import Listed, listed_chunks
from tvm_tile.graph.sparsity import TWO_OF_FOUR, Compressed, Sparsity, compress, is_two_of_four
from tvm_tile.graph.tile_graph import element_size
from tvm_tile.passes.ir.rewriter import ModuleRewriter, is_call_tir
from tvm_tile.passes.scheduling.first_choices import FirstChoices, content_of
from tvm_tile.passes.weld.fuse_tiles import Predict
from tvm_tile.report.skipped_zeros import SkippedZeros
from tvm_tile.schedule.compressed import COMPRESSED, with_compressed
from tvm_tile.schedule.listed import LISTED, with_listed
from tvm_tile.tile.products.warpgroup import compressed_dtypes
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
    """Tell products which numbers of a weight are zeros, where their kernels are faster so.

    before: ``y = call_tir(f, (x, w))`` with ``y[i, j] = sum(x[i, k] * w[j, k])``
    after:  ``y = call_tir(g, (x, w, w_listed))``, ``g`` the same with the attribute
            ``tvm_tile.listed_chunks``, and a table of the chunks of ``k`` that have other numbers
            than zeros for each group of ``j``
    or:     ``y = call_tir(g, (x, w_kept, w_places))``, where at most two in each four of ``k`` are
            not zeros: these alone, and words that tell which they are, of which ``g`` makes ``w``

    The kernel of ``g`` may walk the chunks that the table lists, instead of all, or multiply what
    is kept: a factor that is infinite or no number then makes none of the zeros that it meets. This
    comes last, when it is known what else a kernel does.

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
class _Way:
    """A way to leave zeros of a matrix out.

    Attributes:
        func: the function that does.
        share: share of the matrix that is left to be read.
        constants: function that makes what is read in the place of the matrix, and what is read
            behind all inputs.
        sparsity: how many of a row's neighbours are kept, if that is what it is about.
    """

    func: tirx.PrimFunc
    share: float
    constants: Callable[[], tuple[Any, Any]]
    sparsity: Sparsity | None = None


@dataclass(frozen=True, slots=True)
class _Fastest:
    """The fastest way, and what it is worth, in predicted seconds of a call."""

    way: _Way
    seconds: float
    seconds_whole: float


@mutator
class _Zeros(ModuleRewriter):
    def __init__(self, mod: tvm.IRModule, options: SkipZeros, predict: Predict) -> None:
        super().__init__(mod)
        self._mod, self._options, self._predict = mod, options, predict
        self._matrices: dict[Any, tuple[Matrix, ...]] = {}
        self._lists: dict[tuple[Any, int, str], Listed | None] = {}
        self._compressed: dict[tuple[Any, int], bool] = {}
        self._constants: dict[tuple[Any, int], tuple[Any, Any]] = {}
        self._seconds: dict[Any, float | None] = {}
        self._funcs: dict[tuple[Any, Matrix, Listed | Sparsity], tirx.PrimFunc] = {}
        self._dtypes = compressed_dtypes(options.device)

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
        faster = self._fastest(self._mod[var], self._ways(var, (place, axis), args))
        if faster is None:
            return call
        self._tell(str(var.name_hint), args[place], faster)
        if not self._options.skips:
            return call
        name = self.builder_.add_func(faster.way.func, str(var.name_hint))
        args[place], last = faster.way.constants()
        return relax.call_tir(name, [*args, last], call.ty_args[0])

    def _ways(self, var: Any, matrix: Matrix, args: list[Any]) -> list[_Way]:
        """The ways to leave out zeros of a function's matrix, as far as this has some."""
        (place, axis), func, found = matrix, self._mod[var], []
        weights = args[place]
        lists = self._listed(weights, axis, f"{func.params[place].name}_listed")
        if lists is not None:
            key = var, matrix, lists
            if key not in self._funcs:
                self._funcs[key] = with_listed(func, matrix, lists, len(args))
            constants = partial(_with_table, weights, lists)
            found.append(_Way(self._funcs[key], lists.share, constants))
        if self._is_two_of_four(weights, axis):
            # Which two are kept is no matter of the function: layers that are alike have one.
            two = var, matrix, TWO_OF_FOUR
            if two not in self._funcs:
                self._funcs[two] = with_compressed(func, matrix, len(args))
            constants = partial(self._kept, weights, axis)
            told = Compressed(TWO_OF_FOUR, "").places_bytes(1)
            share = TWO_OF_FOUR.share + told / element_size(str(weights.ty.dtype))
            found.append(_Way(self._funcs[two], share, constants, TWO_OF_FOUR))
        return found

    def _listed(self, weights: Any, axis: int, source: str) -> Listed | None:
        """The lists of a matrix by the dimension of its columns; ``None`` if all has to be read."""
        key = weights, axis, source
        if key not in self._lists:
            self._lists[key] = _lists_of(elements_of(weights), axis, source)
        return self._lists[key]

    def _is_two_of_four(self, weights: Any, axis: int) -> bool:
        """Whether a matrix has two numbers in each four that are summed up, and is of a type of
        which the device multiplies these alone."""
        if str(weights.ty.dtype) not in self._dtypes:
            return False
        key = weights, axis
        if key not in self._compressed:
            self._compressed[key] = is_two_of_four(_rows_of(weights, axis))
        return self._compressed[key]

    def _kept(self, weights: Any, axis: int) -> tuple[Any, Any]:
        """The kept numbers of a matrix, and the words that tell which they are, as constants."""
        key = weights, axis
        if key not in self._constants:
            dtype = str(weights.ty.dtype)
            values, words = compress(_rows_of(weights, axis))
            self._constants[key] = constant_of_parts([values], 0, dtype), relax.const(words)
        return self._constants[key]

    def _fastest(self, func: tirx.PrimFunc, ways: Sequence[_Way]) -> _Fastest | None:
        """The fastest way; ``None`` where the function takes no less time so."""
        times = [(self._predicted(way.func), way) for way in ways]
        known = [(seconds, way) for seconds, way in times if seconds is not None]
        whole = self._predicted(func) if known else None
        if whole is None:
            return None
        seconds, way = min(known, key=lambda one: one[0])
        return _Fastest(way, seconds, whole) if whole >= _NEAR_TIE * seconds else None

    def _predicted(self, func: tirx.PrimFunc) -> float | None:
        """Seconds of a function; ``None`` where it is refused, or no rule takes it."""
        if func not in self._seconds:
            is_refused = content_of(func) in (self._options.refused or {})
            found = None if is_refused else self._predict(func, None)
            self._seconds[func] = None if found is None else found.seconds
        return self._seconds[func]

    def _tell(self, name: str, weights: Any, faster: _Fastest) -> None:
        if self._options.record is not None:
            rows, columns = (int(extent) for extent in weights.ty.shape if int(extent) > 1)
            way, times = faster.way, (faster.seconds, faster.seconds_whole)
            told = way.share, *times, self._options.skips, way.sparsity
            self._options.record(SkippedZeros(name, (rows, columns), *told))


def matrices_of(func: Any) -> tuple[Matrix, ...]:
    """The parameters that a function multiplies as matrices, if that is all that it sums up."""
    graph = extract(func) if isinstance(func, tirx.PrimFunc) else None
    if graph is None or len(graph.reductions) != 1 or _is_told(func):
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


def _is_told(func: tirx.PrimFunc) -> bool:
    """Whether a function is told of zeros already."""
    return any(name in (func.attrs or {}) for name in (LISTED, COMPRESSED))


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


def _with_table(weights: Any, lists: Listed) -> tuple[Any, Any]:
    """A matrix as it is, and the table of its lists, as constants."""
    return weights, relax.const(lists.table())


def _rows_of(weights: Any, axis: int) -> np.ndarray:
    """A matrix by rows of what is summed up, given the dimension of these rows."""
    elements = elements_of(weights)
    matrix = elements.reshape([extent for extent in elements.shape if extent > 1])
    return matrix.T if axis else matrix
