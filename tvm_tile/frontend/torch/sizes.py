"""Open extents of an exported program: their ranges, and the program for certain extents.

It is exported again for these.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind
from torch.utils import _pytree as pytree

from tvm_tile.errors import DynamicShapeError, ModelError
from tvm_tile.frontend.declared import Declared, Shapes
from tvm_tile.frontend.open_inputs import require_names
from tvm_tile.frontend.torch.program import shortened


def concrete(program: ExportedProgram, sizes: Mapping[str, Sequence[int]]) -> ExportedProgram:
    """The program for inputs of certain sizes; the program itself where none of them is open.

    Args:
        program: some of whose inputs may have open extents.
        sizes: input name -> extents. A symbol that one input settles is settled for all.

    Raises:
        ModelError: an unknown input name, a wrong rank, or a contradiction of the program.
        DynamicShapeError: an extent stays unknown.
    """
    examples = _examples(program)
    tensors = {name: v for name, v in examples.items() if isinstance(v, torch.Tensor)}
    settled = _settled(tensors, sizes)
    shapes = {name: _shape(name, v, sizes.get(name), settled) for name, v in tensors.items()}
    if not any(_is_open(value) for value in examples.values()):
        return program
    flat = []
    for name, value in examples.items():
        if isinstance(value, torch.SymInt):
            raise DynamicShapeError(
                "numbers among a model's arguments must be known when it is compiled",
                f"argument {name!r} was exported as an open number",
                "export the model with a fixed number",
            )
        is_tensor = name in shapes
        flat.append(torch.zeros(shapes[name], dtype=value.dtype) if is_tensor else value)
    args, kwargs = pytree.tree_unflatten(flat, program.call_spec.in_spec)
    try:
        return torch.export.export(program.module(), args, kwargs)
    except Exception as error:  # PyTorch's guards raise many kinds
        raise ModelError(
            "inputs= must agree with what the program was exported for",
            f"{dict(shapes)}: {shortened(error)}",
            "give sizes within the program's ranges, or export it for these",
        ) from error


def declared(program: ExportedProgram) -> Shapes:
    """The shapes of a program's inputs, its open extents with the ranges that it is for.

    A multiple of what is no other extent's part has a range in steps; other expressions are
    derived.
    """
    tensors = {n: v for n, v in _examples(program).items() if isinstance(v, torch.Tensor)}
    extents = [e for v in tensors.values() for e in v.shape if isinstance(e, torch.SymInt)]
    names = _names(extents)
    expressions = {extent.node.expr for extent in extents}
    hints = {e.node.expr: int(e.node.hint) for e in extents if e.node.has_hint()}
    ranges = {
        e: replace(_declared(e, expressions - {e}, program, names), example=hints.get(e))
        for e in expressions
    }
    return {
        name: tuple(ranges[e.node.expr] if isinstance(e, torch.SymInt) else e for e in value.shape)
        for name, value in tensors.items()
    }


def _declared(
    expression: Any, others: set[Any], program: ExportedProgram, names: Mapping[Any, str]
) -> Declared:
    symbol, factor = _factor(expression)
    if symbol is None or (factor > 1 and any(symbol in other.free_symbols for other in others)):
        return Declared(str(expression), is_derived=True)
    span = program.range_constraints.get(symbol)
    low = 1 if span is None else max(1, int(span.lower))
    high = int(span.upper) * factor if span is not None and span.upper.is_Integer else None
    name = names.get(symbol, str(symbol))
    text = name if factor == 1 else f"{factor}*{name}"
    return Declared(text, low * factor, high, factor)


def _factor(expression: Any) -> tuple[Any, int]:
    """The symbol and the number whose product an expression is; no symbol where it is none."""
    if expression.is_Symbol:
        return expression, 1
    number, rest = expression.as_coeff_Mul()
    known = rest.is_Symbol and number.is_Integer and number > 1
    return (rest, int(number)) if known else (None, 1)


def _names(extents: Sequence[torch.SymInt]) -> dict[Any, str]:
    """What the user who exported a program called its symbols; a loaded program has no names."""
    names = {}
    for environment in {id(e.node.shape_env): e.node.shape_env for e in extents}.values():
        called = environment.source_name_to_debug_name
        for source, symbol in environment.source_to_var.items():
            if source in called:
                names[environment.replace(symbol)] = str(called[source])
    return names


def _examples(program: ExportedProgram) -> dict[str, Any]:
    """What PyTorch knows of each argument: a tensor without data, or the argument itself."""
    values = {node.name: node.meta.get("val") for node in program.graph.nodes}
    return {
        spec.arg.name: spec.arg.value
        if isinstance(spec.arg, ConstantArgument)
        else values[spec.arg.name]
        for spec in program.graph_signature.input_specs
        if spec.kind == InputKind.USER_INPUT
    }


def _settled(
    tensors: Mapping[str, torch.Tensor], sizes: Mapping[str, Sequence[int]]
) -> dict[Any, int]:
    """The value of each symbol that an input's extent is."""
    settled: dict[Any, int] = {}
    require_names(sizes, list(tensors))
    for name, size in sizes.items():
        declared = tensors[name].shape
        if len(declared) != len(size):
            raise _contradiction(name, declared, size)
        for extent, value in zip(declared, size, strict=True):
            symbol = extent.node.expr if isinstance(extent, torch.SymInt) else None
            is_symbol = symbol is not None and symbol.is_Symbol
            known = settled.setdefault(symbol, int(value)) if is_symbol else int(value)
            if known != int(value) or known < 0:
                raise _contradiction(name, declared, size)
    return settled


def _shape(
    name: str, tensor: torch.Tensor, size: Sequence[int] | None, settled: Mapping[Any, int]
) -> tuple[int, ...]:
    """The extents of an input; what its symbols say must be what ``size`` says."""
    shape = []
    for extent in tensor.shape:
        known = extent.node.expr.subs(settled) if isinstance(extent, torch.SymInt) else extent
        shape.append(known)
    if size is not None:
        for i, value in enumerate(size):
            if getattr(shape[i], "free_symbols", ()):
                shape[i] = value
            if int(shape[i]) != int(value):
                raise _contradiction(name, tensor.shape, size)
    if any(getattr(extent, "free_symbols", ()) for extent in shape):
        raise DynamicShapeError(
            "every extent of every input must be known when the model is compiled",
            f"input {name!r} has shape ({', '.join(map(str, shape))})",
            f"give its shape: inputs={{{name!r}: (...)}}",
        )
    return tuple(int(extent) for extent in shape)


def _is_open(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return not all(isinstance(extent, int) for extent in value.shape)
    return isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool)


def _contradiction(name: str, declared: Sequence[Any], size: Sequence[int]) -> ModelError:
    return ModelError(
        f"the size of input {name!r} must agree with the model: {tuple(declared)}",
        f"{tuple(size)}",
        "give one extent per dimension, the model's own where it fixes them",
    )
