"""Parts of a tensor are slices of it, which their readers take in place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax, tirx
from tvm.relax.expr_functor import mutator

from tvm_tile.passes.ir.rewriter import ModuleRewriter

_SPLIT = "relax.split"


@tvm.transform.module_pass(opt_level=0, name="SliceSplits")
@dataclass(frozen=True, slots=True)
class SliceSplits:
    """Write ``split`` as slices.

    before: ``parts = split(x, [4, 6], axis=1); y = f(parts[0]); z = g(parts[2])``
    after:  ``y = f(strided_slice(x, [1], [0], [4])); z = g(strided_slice(x, [1], [6], [9]))``

    A function of several outputs copies each of its parts, whoever reads them; a slice is fused
    with its reader, or read where it lies, and one that nobody reads is dead code. Left alone are
    splits of an extent that is open, and such as TVM gives parts of other extents.
    """

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Called by TVM's pass infrastructure."""
        return _SplitSlicing(mod).rewritten(mod)


@mutator
class _SplitSlicing(ModuleRewriter):
    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = super().visit_call_(call)
        sections = _sections(call) if getattr(call.op, "name", "") == _SPLIT else None
        if sections is None:
            return call
        x, axis = call.args[0], int(call.attrs.axis) % call.args[0].ty.ndim
        slices = [relax.op.strided_slice(x, [axis], [begin], [end]) for begin, end in sections]
        return relax.Tuple([self.builder_.emit(part) for part in slices])


def _sections(split: relax.Call) -> list[tuple[int, int]] | None:
    """Begin and end of each part; ``None`` where these, or the parts' types, are not known."""
    ty, axis = split.args[0].ty, int(split.attrs.axis)
    extent = _known(ty, axis)
    if extent is None or not isinstance(split.ty, relax.TupleType):  # one part is no tuple
        return None
    given = split.attrs.indices_or_sections
    bounds = _equal(extent, int(given)) if isinstance(given, tirx.IntImm) else list(map(int, given))
    if min(bounds, default=0) < 0:
        return None
    bounds = [min(bound, extent) for bound in bounds]
    sections = [
        (begin, max(begin, end)) for begin, end in zip([0, *bounds], [*bounds, extent], strict=True)
    ]
    counts = [end - begin for begin, end in sections]
    return sections if counts == [_known(field, axis) for field in split.ty.fields] else None


def _equal(extent: int, count: int) -> Sequence[int]:
    """Begin of each part but the first; the last parts are shorter where they must be."""
    size = -(-extent // count)
    return [size * number for number in range(1, count)]


def _known(ty: Any, axis: int) -> int | None:
    """The extent of a tensor type along an axis; ``None`` where it is open."""
    if not isinstance(ty, relax.TensorType) or not isinstance(ty.shape, relax.ShapeExpr):
        return None
    extent = ty.shape[axis]
    return int(extent) if isinstance(extent, tirx.IntImm) else None
