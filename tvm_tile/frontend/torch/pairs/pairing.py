"""Compute PyTorch's operators with pairs of real tensors in place of complex ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._decomp import decomposition_table
from torch._ops import OpOverload
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from tvm_tile.frontend.torch.emit import Refusal
from tvm_tile.frontend.torch.pairs.formulas import FORMULAS, FORMULAS_OF
from tvm_tile.frontend.torch.pairs.fourier import TRANSFORMS
from tvm_tile.frontend.torch.pairs.pair import Pair, real_type

_ATEN = torch.ops.aten
# Operators of real tensors whose results are complex.
_MAKERS = frozenset({_ATEN.complex, _ATEN.polar, _ATEN.view_as_complex, _ATEN._fft_r2c})
# What PyTorch's schemas call arguments whose numbers, times a factor, the result is a sum of.
_VALUES = frozenset(
    {
        *("self", "other", "src", "source", "value", "values", "tensors", "fill_value", "input"),
        *("weight", "grad", "s"),
    }
)
_LINEAR = frozenset(
    {
        *(_ATEN.add, _ATEN.sub, _ATEN.rsub, _ATEN.neg, _ATEN.sum, _ATEN.mean, _ATEN.cumsum),
        *(_ATEN.cat, _ATEN.stack, _ATEN.where, _ATEN.clone, _ATEN.copy, _ATEN.fill, _ATEN.full),
        *(_ATEN.full_like, _ATEN.new_full, _ATEN.zeros, _ATEN.zeros_like, _ATEN.new_zeros),
        *(_ATEN.empty, _ATEN.empty_like, _ATEN.new_empty, _ATEN.scalar_tensor, _ATEN.flip),
        *(_ATEN.roll, _ATEN.repeat, _ATEN.tril, _ATEN.triu, _ATEN.diag_embed, _ATEN.trace),
        *(_ATEN.index, _ATEN._unsafe_index, _ATEN.index_select, _ATEN.gather, _ATEN.embedding),
        *(_ATEN.index_put, _ATEN._unsafe_index_put, _ATEN.index_add, _ATEN.index_copy),
        *(_ATEN.index_fill, _ATEN.scatter, _ATEN.scatter_add, _ATEN.masked_fill),
        *(_ATEN.masked_scatter, _ATEN.select_scatter, _ATEN.slice_scatter),
        *(_ATEN.diagonal_scatter, _ATEN.constant_pad_nd, _ATEN._unsafe_view, _ATEN._reshape_copy),
        *(_ATEN.lift_fresh_copy, _ATEN.select_backward, _ATEN.slice_backward, _ATEN.take),
        *(_ATEN.unfold_backward, _ATEN.as_strided_copy, _ATEN.empty_strided),
    }
)
_OF_ONES = frozenset({_ATEN.ones, _ATEN.ones_like, _ATEN.new_ones, _ATEN.arange, _ATEN.eye})
# Views of memory as it lies: that of numbers of two parts is not that of either part.
_OF_MEMORY = frozenset({_ATEN.view.dtype, _ATEN.as_strided.default, _ATEN._neg_view.default})
_OF_TRUTH = frozenset(
    {
        *(_ATEN.logical_not, _ATEN.logical_and, _ATEN.logical_or, _ATEN.logical_xor),
        *(_ATEN.any, _ATEN.all, _ATEN.count_nonzero),
    }
)

_OTHERS = _LINEAR | _OF_ONES | _OF_TRUTH | {_ATEN._to_copy}


class Pairing(TorchDispatchMode):
    """A frame within which operators take and make pairs wherever their numbers are complex."""

    def __torch_dispatch__(
        self, func: OpOverload, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Compute one operator.

        Raises:
            Refusal: there is no rule for complex numbers.
        """
        kwargs = kwargs or {}
        if func.overloadpacket not in _MAKERS and not any(
            map(is_complex, pytree.tree_leaves((args, kwargs)))
        ):
            return func(*args, **kwargs)
        with self:
            return _computed(func, args, kwargs)


def is_complex(value: Any) -> bool:
    """Whether a value is a complex tensor, number or element type."""
    if isinstance(value, torch.dtype | torch.Tensor):
        return value.is_complex if isinstance(value, torch.dtype) else value.is_complex()
    return isinstance(value, complex)


def has_rule(func: OpOverload) -> bool:
    """Whether there is a rule for complex numbers, or what PyTorch breaks an operator down to."""
    kind = func.overloadpacket
    ours = any(kind in table for table in (FORMULAS, TRANSFORMS, FORMULAS_OF, _OTHERS))
    theirs = func in decomposition_table or func._can_decompose()
    return ours or theirs or (_is_view(func) and func not in _OF_MEMORY)


def _computed(func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    kind = func.overloadpacket
    formula = FORMULAS.get(kind) or TRANSFORMS.get(kind)
    if formula is not None:
        return formula(*args, **kwargs)
    if kind in FORMULAS_OF:
        return FORMULAS_OF[kind](func, *args, **kwargs)
    if kind in _OF_TRUTH:
        return func(*pytree.tree_map_only(Pair, _is_true, args), **kwargs)
    if kind is _ATEN._to_copy:
        return _converted(func, *args, **kwargs)
    wanted = kwargs.get("dtype")
    is_real = isinstance(wanted, torch.dtype) and not wanted.is_complex
    if kind in _OF_ONES:
        re, _ = _of_parts(func, args, kwargs)
        return re if is_real else Pair(re, torch.zeros_like(re))
    if kind in _LINEAR or (_is_view(func) and func not in _OF_MEMORY):
        results = _of_parts(func, *_without_factors(func, args, kwargs))
        if isinstance(results[0], torch.Tensor):
            return results[0] if is_real else Pair(*results)
        return type(results[0])(map(Pair, *results))
    if func in decomposition_table:
        return decomposition_table[func](*args, **kwargs)
    raise Refusal("no rule for complex numbers")


def _of_parts(func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    """What an operator makes of real parts, and what it makes of imaginary ones."""
    names = [argument.name for argument in func._schema.arguments]
    results = []
    for take in (_real_part, _imaginary_part):
        own = [_part(name, value, take) for name, value in zip(names, args, strict=False)]
        results.append(func(*own, **{name: _part(name, kwargs[name], take) for name in kwargs}))
    return results


def _part(name: str, value: Any, take: Callable[[Any], Any]) -> Any:
    if isinstance(value, torch.dtype):
        return real_type(value) if value.is_complex else value
    if name not in _VALUES:
        return value
    return [take(one) for one in value] if isinstance(value, list | tuple) else take(value)


def _real_part(value: Any) -> Any:
    return value.re if isinstance(value, Pair) else _number(value, "real")


def _imaginary_part(value: Any) -> Any:
    if isinstance(value, Pair):
        return value.im
    return torch.zeros_like(value) if isinstance(value, torch.Tensor) else _number(value, "imag")


def _number(value: Any, part: str) -> Any:
    return getattr(value, part) if isinstance(value, int | float | complex) else value


def _without_factors(func: OpOverload, args: Any, kwargs: dict[str, Any]) -> tuple[Any, Any]:
    """Arguments without a complex ``alpha``, which multiplies the last tensor, but in ``rsub``."""
    alpha = kwargs.get("alpha")
    if not isinstance(alpha, complex):
        return args, kwargs
    place = 0 if func.overloadpacket is _ATEN.rsub else len(args) - 1
    factored = [value * alpha if n == place else value for n, value in enumerate(args)]
    return factored, {name: value for name, value in kwargs.items() if name != "alpha"}


def _converted(func: OpOverload, x: Any, *, dtype: Any = None, **kwargs: Any) -> Any:
    if dtype is None or dtype.is_complex:
        return Pair(*_of_parts(func, (x,), {"dtype": dtype, **kwargs}))
    return _is_true(x) if dtype == torch.bool else func(x.re, dtype=dtype, **kwargs)


def _is_true(z: Pair) -> torch.Tensor:
    return (z.re != 0) | (z.im != 0)


def _is_view(func: OpOverload) -> bool:
    return any(argument.alias_info for argument in func._schema.arguments)
