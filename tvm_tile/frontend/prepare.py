"""What every front door does to its Relax module before handing it on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import tvm
from tvm import relax, tirx

from tvm_tile.frontend.fold import fold_constants
from tvm_tile.frontend.imported import Imported, describe
from tvm_tile.frontend.keep_codes import keep_codes
from tvm_tile.frontend.masks import fold_masks
from tvm_tile.frontend.narrow_products import narrow_products
from tvm_tile.frontend.precision import accumulate_in_float32
from tvm_tile.frontend.sink_constants import sink_constants
from tvm_tile.graph.functions import mutated
from tvm_tile.graph.signature import NO_EFFECTS, Effects
from tvm_tile.graph.user_names import handed_on
from tvm_tile.report.coded_weights import CodedWeight


def prepare(mod: tvm.IRModule, *, matrix_dtypes: frozenset[str] = frozenset()) -> tvm.IRModule:
    """Multiply codes of 8 bits as they are, sink and fold constants, but weights that arrive as
    codes, bound indices, and make half precision accumulate in float32.

    Args:
        mod: Relax operators as an importer made them.
        matrix_dtypes: what the device's matrix units multiply, as :func:`narrow_products` asks.

    Returns:
        The module with the same ``main`` from outside: inputs, outputs, shapes, element types.
    """
    return _prepared(mod, matrix_dtypes)[0]


def _prepared(
    mod: tvm.IRModule, matrix_dtypes: frozenset[str]
) -> tuple[tvm.IRModule, tuple[CodedWeight, ...]]:
    narrow = narrow_products(sink_constants(mod), matrix_dtypes)
    kept, weights = keep_codes(narrow)
    # In this order: casts of weights to float32 would keep the folds from seeing constants.
    folded = fold_masks(fold_constants(kept))
    return handed_on(mod, accumulate_in_float32(bound_indices(folded))), weights


def prepared(
    mod: tvm.IRModule,
    input_names: Sequence[str] = (),
    output_names: Sequence[str] = (),
    effects: Effects = NO_EFFECTS,
    *,
    matrix_dtypes: frozenset[str] = frozenset(),
) -> Imported:
    """A module that an importer made, prepared, with the signatures of its ``main``.

    Args:
        mod: Relax operators.
        input_names, output_names, effects: as of :func:`describe`, as are the errors.
        matrix_dtypes: as of :func:`prepare`.
    """
    mod, weights = _prepared(mod, matrix_dtypes)
    described = describe(mod, input_names, output_names, effects)
    return replace(described, weights=weights)


def bound_indices(mod: tvm.IRModule) -> tvm.IRModule:
    """Let a ``take`` with an index beyond the end read the last element.

    The importers ask for no check at all, so that a wrong input would read foreign memory. At one
    index that is known, a ``take`` is a slice: a view, which costs no kernel before a product::

        take(x, 1, axis=0)   =>   squeeze(strided_slice(x, [0], [1], [2]), [0])
    """
    return mutated(mod, _BoundIndices(mod))


@relax.expr_functor.mutator
class _BoundIndices(relax.PyExprMutator):
    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = self.visit_expr_post_order(call)
        if getattr(call.op, "name", "") != "relax.take" or call.attrs.mode != "fast":
            return call
        source, index = call.args
        axis, position = call.attrs.axis, _known(index)
        if axis is not None and position is not None and _is_within(position, source, int(axis)):
            part = relax.op.strided_slice(source, [int(axis)], [position], [position + 1])
            return relax.op.squeeze(self.builder_.emit(part), [int(axis)])
        return relax.op.take(source, index, axis=axis, mode="clip")


def _known(index: relax.Expr) -> int | None:
    """The value of a constant of rank 0."""
    if not isinstance(index, tvm.ir.GenericConst) or index.ty.ndim != 0:
        return None
    return int(index.value.numpy())


def _is_within(position: int, source: relax.Expr, axis: int) -> bool:
    extent = source.ty.shape[axis]
    return isinstance(extent, tirx.IntImm) and 0 <= position < int(extent)
