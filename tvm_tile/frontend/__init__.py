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
from tvm_tile.frontend.declared import Completed, completed
from tvm_tile.frontend.imported import Imported, with_weights
from tvm_tile.frontend.open_inputs import Sizes
from tvm_tile.frontend.plain import from_exported_program, from_onnx
from tvm_tile.frontend.prepare import prepared
from tvm_tile.frontend.read import is_instance, read_model
from tvm_tile.frontend.relay.given import RelayText
from tvm_tile.frontend.relay.importing import Params, RelayProgram, from_relay, import_relay
from tvm_tile.frontend.relay.importing import declared as declared_in_relay
from tvm_tile.frontend.sizes import bind_sizes, declared
from tvm_tile.graph.user_names import named, names_of_variables

__all__ = [
    "Imported",
    "Params",
    "RelayText",
    "all_sizes",
    "from_exported_program",
    "from_onnx",
    "from_relay",
    "import_model",
    "read_model",
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
    if isinstance(model, RelayProgram):
        return import_relay(model, params=params, inputs=inputs, **how)
    if isinstance(model, tvm.IRModule):
        return _import_relax(model, inputs or {}, how)
    if is_instance(model, "torch.export", "ExportedProgram"):
        from tvm_tile.frontend.torch import import_program

        return import_program(model, inputs=inputs, needs_values=needs_values, **how)
    from tvm_tile.frontend.onnx import import_onnx

    return import_onnx(model, inputs=inputs, in_loops=in_loops, **how)


def all_sizes(model: Any, sizes: Sizes) -> Completed:
    """What a user says of inputs' extents, and what is taken for those that a model leaves open.

    Args:
        model: what :func:`read_model` returns, or a ``torch.nn.Module``.
        sizes: input name -> extents; those of a ``torch.nn.Module`` are left as they are.

    Raises:
        DynamicShapeError: an extent is open, and nothing tells a value or a bound of it; or a range
            is not one of the model.
    """
    if isinstance(model, tvm.IRModule):
        has_main = any(var.name_hint == "main" for var in model.get_global_vars())
        return completed(declared(model), sizes) if has_main else Completed(sizes)
    if is_instance(model, "torch.nn", "Module"):
        return Completed(sizes)
    if is_instance(model, "torch.export", "ExportedProgram"):
        from tvm_tile.frontend.torch.sizes import declared as declared_in_torch

        return completed(declared_in_torch(model), sizes)
    if isinstance(model, RelayProgram):
        return completed(declared_in_relay(model), sizes)
    from tvm_tile.frontend.onnx.usual_sizes import declared as declared_in_onnx

    return completed(declared_in_onnx(model), sizes)


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
