"""Front doors: models in outside formats become one Relax module.

Nothing here imports ``onnx`` or ``torch`` before a model of that kind arrives. For pipelines of
one's own, :func:`from_exported_program`, :func:`from_onnx` and :func:`from_relay` make plain Relax.

Every door makes loops in one form, private functions that end with a call of themselves
(``loops.py``); ``scan.py`` reads and makes a tensor's rows in them, ``trips.py`` finds the loops
that a count ends, and :mod:`tvm_tile.build.tail_calls` makes the call a jump, behind all passes.

Weights of a few bits leave every door as codes: ``keep_codes.py`` finds those that can,
``trace_codes.py`` evaluates what decodes them, by ``evaluate.py``, and compares it with the codes
that are kept, bit by bit; :class:`tvm_tile.passes.ChooseCodes` folds those that had better be
numbers. Products of 8-bit codes: ``factors.py`` reads an operand back to ``(codes - zero) *
scale``, and ``narrow_products.py`` multiplies the codes, and argues why that is as exact. Both
happen before constants are folded, which would make floats of the weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tvm

from tvm_tile.errors import ModelError
from tvm_tile.frontend.declared import Completed, Shapes, completed
from tvm_tile.frontend.imported import Imported, with_weights
from tvm_tile.frontend.open_inputs import Sizes
from tvm_tile.frontend.plain import from_exported_program, from_onnx
from tvm_tile.frontend.prepare import prepared
from tvm_tile.frontend.read import is_instance, read_model
from tvm_tile.frontend.relay.given import RelayText
from tvm_tile.frontend.relay.importing import Params, RelayProgram, from_relay, import_relay
from tvm_tile.frontend.relay.importing import declared as declared_in_relay
from tvm_tile.frontend.several_models import Together, joined, together
from tvm_tile.frontend.sizes import bind_sizes, declared
from tvm_tile.graph.user_names import named, names_of_variables

__all__ = [
    "Imported",
    "Params",
    "RelayText",
    "Together",
    "all_sizes",
    "from_exported_program",
    "from_onnx",
    "from_relay",
    "import_model",
    "read_model",
    "together",
    "with_weights",
]


def import_model(
    model: Any,
    *,
    inputs: Mapping[str, Sequence[int]] | None = None,
    example_inputs: Sequence[Any] | Mapping[str, Any] | None = None,
    params: Params | None = None,
    matrix_dtypes: frozenset[str] = frozenset(),
    in_loops: bool = False,
    needs_values: bool = True,
) -> Imported:
    """Import a model of any supported kind.

    Args:
        model: as of :func:`read_model`, or what that returns.
        inputs: input name -> extents, for inputs whose shape the model leaves open.
        example_inputs: arguments of a module's ``forward``; needed for ``torch.nn.Module`` only.
        params: values of a Relay program's parameters; see :func:`from_relay`.
        matrix_dtypes: of codes that matrix units multiply as they are, also to half precision.
        in_loops: whether ONNX's recurrent operators are loops; else their steps are written out.
        needs_values: whether weights without values, of PyTorch's device ``meta``, are refused; or
            they are further inputs, said to be weights.

    Returns:
        The model as Relax operators, with its weights as constants, those that arrive as codes of a
        few bits as codes.

    Raises:
        ModelFileError: the file is missing, or no valid model.
        DynamicShapeError: an input's extent is neither in the model nor in ``inputs``.
        UnsupportedOperatorError: operators that cannot be imported, all of them by name.
        ModelError: ``model`` is of no supported kind, or the other arguments contradict it.
    """
    how: dict[str, Any] = {"matrix_dtypes": matrix_dtypes}
    model = read_model(model, example_inputs, params)
    if isinstance(model, Together):
        return joined(
            {
                name: import_model(one, inputs=_own(one, inputs or {}), in_loops=in_loops, **how)
                for name, one in model.models.items()
            }
        )
    if isinstance(model, RelayProgram):
        return import_relay(model, params=params, inputs=inputs, **how)
    if isinstance(model, tvm.IRModule):
        return _import_relax(model, inputs or {}, how)
    if is_instance(model, "torch.export", "ExportedProgram"):
        from tvm_tile.frontend.torch import import_program

        return import_program(model, inputs=inputs, needs_values=needs_values, **how)
    from tvm_tile.frontend.onnx import import_onnx

    return import_onnx(model, inputs=inputs, in_loops=in_loops, **how)


def all_sizes(model: Any, sizes: Sizes, batch: int | None = None) -> Completed:
    """What a user says of inputs' extents, and what is taken for those that a model leaves open.

    Args:
        model: what :func:`read_model` returns, or a ``torch.nn.Module``.
        sizes: input name -> extents; those of a ``torch.nn.Module`` are left as they are.
        batch: samples of a call, for the extents that are a batch; ``None`` where nobody tells.

    Raises:
        DynamicShapeError: an extent is open, and nothing tells a value or a bound of it; or a range
            is not one of the model, or none for the batch.
    """
    if isinstance(model, Together):
        return _sizes_together(model, sizes, batch)
    shapes = _declared(model)
    return Completed(sizes) if shapes is None else completed(shapes, sizes, batch)


def _declared(model: Any) -> Shapes | None:
    """The shapes of a model's inputs, by their names; ``None`` where it is not asked."""
    if isinstance(model, tvm.IRModule):
        has_main = any(var.name_hint == "main" for var in model.get_global_vars())
        return declared(model) if has_main else None
    if is_instance(model, "torch.nn", "Module"):
        return None
    if is_instance(model, "torch.export", "ExportedProgram"):
        from tvm_tile.frontend.torch.sizes import declared as declared_in_torch

        return declared_in_torch(model)
    if isinstance(model, RelayProgram):
        return declared_in_relay(model)
    from tvm_tile.frontend.onnx.usual_sizes import declared as declared_in_onnx

    return declared_in_onnx(model)


def _sizes_together(model: Together, sizes: Sizes, batch: int | None) -> Completed:
    """The sizes of several models' inputs; what one of them fixes holds for those of its name."""
    each = [_declared(one) or {} for one in model.models.values()]
    fixed = {
        name: tuple(extent for extent in shape if isinstance(extent, int))
        for shapes in each
        for name, shape in shapes.items()
        if all(isinstance(extent, int) for extent in shape)
    }
    found, notes, is_batched = dict[str, Any](), dict[str, None](), False
    for shapes in each:
        left = {name for name, s in shapes.items() if not all(isinstance(e, int) for e in s)}
        own: dict[str, Any] = {name: size for name, size in fixed.items() if name in left}
        own |= {name: size for name, size in sizes.items() if name in shapes}
        settled = completed(shapes, own, batch)
        found |= settled.sizes
        notes |= dict.fromkeys(settled.notes)
        is_batched |= settled.is_batched
    return Completed(found, tuple(notes), is_batched)


def _own(model: Any, sizes: Mapping[str, Sequence[int]]) -> dict[str, Sequence[int]]:
    """The sizes of a model's own inputs, among those of several models."""
    known = _declared(model) or {}
    return {name: size for name, size in sizes.items() if name in known}


def _import_relax(
    mod: tvm.IRModule, inputs: Mapping[str, Sequence[int]], how: Mapping[str, Any]
) -> Imported:
    names = [var.name_hint for var in mod.get_global_vars()]
    if "main" not in names:
        raise ModelError(
            "a Relax module must have a function named main",
            f"it has {', '.join(sorted(names)) or 'no functions'}",
            "rename the function to compile to main",
        )
    sized = bind_sizes(mod, inputs)
    return prepared(named(sized, names_of_variables(sized)), **how)
