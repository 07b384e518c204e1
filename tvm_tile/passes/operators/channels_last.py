"""Convolutions for the matrix units: with their channels last, once for a whole model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax, tirx
from tvm.relax.expr_functor import mutator

from tvm_tile import compat
from tvm_tile.frontend.fold import fold_constants
from tvm_tile.graph.functions import bindings_of, calls_in, relax_functions
from tvm_tile.graph.tile_graph import element_size
from tvm_tile.graph.user_names import Names, handed_on, names_of, with_named_values
from tvm_tile.passes.ir.rewriter import ModuleRewriter

_ALIGNMENT = 16  # bytes of channels, whose rows bulk copies take
_PERMUTATIONS = tuple(map(tvm.ir.Op.get, ("relax.permute_dims", "relax.layout_transform")))
_TRANSPOSED = "relax.nn.conv2d_transpose"
# Element by element, with attributes or scalars besides; ConvertLayout does not know them.
_TRANSPARENT = frozenset({"relax.astype", "relax.clip", "relax.round"})


@tvm.transform.module_pass(opt_level=0, name="ChannelsLast")
@dataclass(frozen=True, slots=True)
class ChannelsLast:
    """Give convolutions of ``matrix_dtypes`` channels-last operands.

    before: ``y = conv2d(x)`` with NCHW ``x`` and OIHW weights
    after:  ``y = permute(conv2d(permute(x)))`` with NHWC and OHWI, and no two permutations in a
            row: what lies between convolutions is computed channels last, too

    Only there do the copies of an implicit product find the summed channels contiguous. Few
    channels, an image's three, become 16 bytes with zeros, and the image gets its border with them,
    so that a whole row of the window is contiguous. TVM's ConvertLayout carries the layout through
    the operators between.
    """

    matrix_dtypes: frozenset[str]

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Called by TVM's pass infrastructure."""
        calls = calls_in(mod)
        if not any(self._is_to_change(call) or self._is_thin(call) for call in calls):
            return mod
        widened = _Widen(mod, self._is_thin).rewritten(mod)
        try:
            plain = handed_on(mod, _Unstack(widened).rewritten(widened))
            converted = relax.transform.ConvertLayout({}, self._layouts)(plain)
        except compat.TVM_ERRORS:
            return mod  # an operator whose layout TVM cannot tell: slower, but right
        converted = with_named_values(converted, _names_behind(plain, converted))
        merged = handed_on(converted, _MergePermutations(converted).rewritten(converted))
        return fold_constants(merged)  # the weights', too

    def _layouts(self, call: relax.Call) -> dict[str, list[str]]:
        """Layouts that TVM is asked for, of the operands of operators that change or must stay.

        It gives other operators the layouts that their operands come in.
        """
        if call.op == tvm.ir.Op.get(_TRANSPOSED):
            # TVM has loops for this one only.
            return {_TRANSPOSED: [call.attrs.data_layout, call.attrs.kernel_layout]}
        return {"relax.nn.conv2d": ["NHWC", "OHWI"]} if self._is_to_change(call) else {}

    def _is_to_change(self, call: relax.Call) -> bool:
        """Whether a convolution's channels are to be last: whole copies of them."""
        channels = self._channels(call)
        return channels is not None and not any(n % _least_channels(call) for n in channels)

    def _is_thin(self, call: relax.Call) -> bool:
        """Whether a convolution has fewer channels than a bulk copy takes."""
        channels = self._channels(call)
        if channels is None or int(call.attrs.groups) != 1:
            return False
        least = _least_channels(call)
        return channels[0] < least and channels[1] % least == 0

    def _channels(self, call: relax.Call) -> tuple[int, int] | None:
        """Channels of image and result; ``None`` for all but NCHW convolutions to change."""
        if call.op != tvm.ir.Op.get("relax.nn.conv2d") or call.attrs.data_layout != "NCHW":
            return None
        weight = call.args[1].ty
        extents = (call.args[0].ty.shape[1], weight.shape[0])
        if str(weight.dtype) not in self.matrix_dtypes:
            return None
        if not all(isinstance(extent, tirx.IntImm) for extent in extents):
            return None
        return int(extents[0]), int(extents[1])


def _least_channels(call: relax.Call) -> int:
    """Channels that 16 bytes hold."""
    return _ALIGNMENT // element_size(str(call.args[1].ty.dtype))


def _names_behind(plain: tvm.IRModule, converted: tvm.IRModule) -> dict[Any, Names]:
    """The names of values behind ConvertLayout, which renews their variables.

    It leaves the operators in their order, and writes only permutations between them.
    """
    pairs = zip(_operators(plain), _operators(converted), strict=False)
    return {var: names_of(old) for (_, old), (var, new) in pairs if old.op == new.op}


def _operators(mod: tvm.IRModule) -> Iterator[tuple[Any, relax.Call]]:
    """Variables and the calls that make their values, but for permutations, in order."""
    functions = relax_functions(mod)
    for name in sorted(functions, key=lambda var: str(var.name_hint)):
        for var, value in bindings_of(functions[name].body):
            if isinstance(value, relax.Call) and value.op not in _PERMUTATIONS:
                yield var, value


@mutator
class _Widen(ModuleRewriter):
    """Gives thin convolutions eight channels, and the image its border there in memory."""

    def __init__(self, mod: tvm.IRModule, is_thin: Callable[[relax.Call], bool]) -> None:
        super().__init__(mod)
        self._is_thin = is_thin

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = super().visit_call_(call)
        if not self._is_thin(call):
            return call
        image, weight = call.args
        missing = _least_channels(call) - int(image.ty.shape[1])
        top, left, bottom, right = (int(extent) for extent in call.attrs.padding)
        border = [0, 0, 0, missing, top, bottom, left, right]
        return relax.op.nn.conv2d(
            self.builder_.emit(relax.op.nn.pad(image, border)),
            self.builder_.emit(relax.op.nn.pad(weight, [0, 0, 0, missing, 0, 0, 0, 0])),
            strides=call.attrs.strides,
            dilation=call.attrs.dilation,
            out_dtype=str(call.ty.dtype),
        )


@mutator
class _Unstack(ModuleRewriter):
    """Writes ``stack(x, y)`` as a concatenation: ConvertLayout fails on the former."""

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = super().visit_call_(call)
        if call.op != tvm.ir.Op.get("relax.stack"):
            return call
        fields = self.made(call.args[0])
        if not isinstance(fields, relax.Tuple):
            return call
        axis = int(call.attrs.axis) % (fields.fields[0].ty.ndim + 1)
        parts = [self.builder_.emit(relax.op.expand_dims(x, axis)) for x in fields.fields]
        return relax.op.concat(parts, axis)


@mutator
class _MergePermutations(ModuleRewriter):
    """Makes one permutation of two, or none, and lets ``clip(permute(x))`` permute last."""

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = super().visit_call_(call)
        before = self._permutation(call.args[0]) if call.args else None
        if before is not None and getattr(call.op, "name", "") in _TRANSPARENT:
            source, axes = before
            same = self.builder_.emit(relax.Call(call.op, [source, *call.args[1:]], call.attrs))
            return relax.op.permute_dims(same, axes)
        own = self._permutation(call)
        if own is None:
            return call
        source, axes = own
        if before is not None:
            source, axes = before[0], [before[1][axis] for axis in axes]
        return source if axes == sorted(axes) else relax.op.permute_dims(source, axes)

    def _permutation(self, value: Any) -> tuple[relax.Expr, list[int]] | None:
        """The value that is permuted, and for each axis of the result the axis of that value."""
        value = self.made(value)
        if not isinstance(value, relax.Call) or value.op != tvm.ir.Op.get("relax.permute_dims"):
            return None
        rank = value.args[0].ty.ndim
        if value.attrs.axes is None:
            return value.args[0], list(reversed(range(rank)))
        return value.args[0], [int(axis) % rank for axis in value.attrs.axes]
