"""The PyTorch front door: an exported program or a module becomes Relax operators.

An operator without a converter is broken down by PyTorch's own decompositions, or by one of
``own_decompositions.py`` where PyTorch's differs from its kernel. A converter takes each argument
of the operator's schema by name (``convert.py``) and raises ``Refusal`` for a form that it does not
do; its result is checked against PyTorch's shape and element type. Complex numbers become pairs of
real ones (``pairs/``), and what is computed of weights alone PyTorch computes
(``computed_weights.py``), of sparse ones, too (``sparse_weights.py``). Assignments to views and at
indices are known by ``updates.py``; ``writes.py`` decides which of them write in place.
``inner_tensors.py`` takes torchao's weights apart.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
import tvm
from torch import _prims_common
from torch.export import ExportedProgram
from torch.utils import _pytree

from tvm_tile.errors import ModelError, UnsupportedOperatorError
from tvm_tile.frontend.imported import NUM_INPUT, Imported
from tvm_tile.frontend.prepare import prepare, prepared
from tvm_tile.frontend.torch.computed_weights import with_computed_weights
from tvm_tile.frontend.torch.decompose import decomposed
from tvm_tile.frontend.torch.flex_attention import with_plain_attention
from tvm_tile.frontend.torch.inner_tensors import with_inner_tensors
from tvm_tile.frontend.torch.node_names import NodeNames
from tvm_tile.frontend.torch.one_of_each import with_one_of_each
from tvm_tile.frontend.torch.own_decompositions import own_decompositions
from tvm_tile.frontend.torch.pairs.program import with_pairs
from tvm_tile.frontend.torch.positions import with_indices
from tvm_tile.frontend.torch.program import Form, function_of, shortened
from tvm_tile.frontend.torch.refused import require_known_operators
from tvm_tile.frontend.torch.region_constants import with_region_constants
from tvm_tile.frontend.torch.sizes import concrete
from tvm_tile.frontend.torch.sorted_rows import with_rows_as_given
from tvm_tile.frontend.torch.sparse_weights import with_plain_weights
from tvm_tile.frontend.torch.structure import paths_of
from tvm_tile.frontend.torch.weights import with_memory
from tvm_tile.graph.signature import Effects

__all__ = ["Form", "exported", "import_program", "program_as_relax"]


def exported(
    module: torch.nn.Module, example_inputs: Sequence[Any] | Mapping[str, Any]
) -> ExportedProgram:
    """Export a module in evaluation mode.

    Args:
        module: the module; its training mode is the same afterwards.
        example_inputs: arguments of its ``forward``, in order or by name, also mappings, sequences
            and dataclasses that hold tensors; shapes and types are fixed.

    Raises:
        ModelError: the module cannot be exported.
    """
    was_training = {child: child.training for child in module.modules()}
    by_name = isinstance(example_inputs, Mapping)
    args = () if by_name else _apart(tuple(example_inputs))
    kwargs = _apart(dict(example_inputs)) if by_name else None
    module.eval()
    try:
        with torch.no_grad(), own_decompositions():
            return torch.export.export(module, args, kwargs)
    except Exception as error:  # torch.export raises many kinds, also the module's own errors
        raise ModelError(
            "the module must be exportable by torch.export.export",
            f"{type(module).__name__}: {shortened(error)}",
            "export it yourself (strict=False, or without control flow on data) and pass the "
            "ExportedProgram",
        ) from error
    finally:
        for child, training in was_training.items():
            child.training = training


def import_program(
    program: ExportedProgram,
    *,
    inputs: Mapping[str, Sequence[int]] | None = None,
    matrix_dtypes: frozenset[str] = frozenset(),
    needs_values: bool = True,
) -> Imported:
    """Import an exported program, float16 and bfloat16 ones included.

    Args:
        program: what ``torch.export.export`` returned.
        inputs: input name -> extents, for inputs exported with dynamic shapes.
        matrix_dtypes, needs_values: as of :func:`tvm_tile.frontend.import_model`.

    Raises:
        UnsupportedOperatorError: operators that cannot be imported, all of them by name.
        DynamicShapeError: an extent stays unknown.
        ModelError: ``inputs`` contradicts the program, or that was exported with one tensor as two
            of its inputs.
    """
    program, bare = with_memory(program)
    if bare and needs_values:
        raise ModelError(
            "weights must have values, unless a model is only to be predicted",
            f"{len(bare)} of them are on PyTorch's device 'meta', such as {min(bare)!r}",
            "load the weights; or call tvm_tile.predict",
        )
    mod, names, effects = _function(program, inputs, Form(bare=bare))
    said = (mod["main"].attrs or {}).get(NUM_INPUT)
    imported = prepared(mod, names, effects=effects, matrix_dtypes=matrix_dtypes)
    paths = paths_of(program)
    placed = (replace(one, path=paths.get(one.name, ())) for one in imported.inputs)
    imported = replace(imported, inputs=tuple(placed))
    if said is None:
        return imported
    imported.mod["main"] = imported.mod["main"].with_attr(NUM_INPUT, said)
    return replace(imported, without_values=len(names) - int(said))


def program_as_relax(
    program: Any, form: Form, *, inputs: Mapping[str, Sequence[int]] | None = None
) -> tvm.IRModule:
    """An exported program as Relax operators that are prepared as every front door's are.

    Args:
        program: what ``torch.export.export`` returned.
        form: of its function ``main``.
        inputs: as for :func:`import_program`.

    Raises:
        ModelError: as of :func:`import_program`, as are other errors; or it is no such program.
    """
    if not isinstance(program, ExportedProgram):
        raise ModelError(
            "it must be a torch.export.ExportedProgram",
            f"a {type(program).__module__}.{type(program).__qualname__}",
            "export the module: torch.export.export(module.eval(), example_inputs)",
        )
    return prepare(_function(program, inputs, form)[0])


def _function(
    program: ExportedProgram, inputs: Mapping[str, Sequence[int]] | None, form: Form
) -> tuple[tvm.IRModule, tuple[str, ...], Effects]:
    _require_apart(program)
    program = with_plain_attention(concrete(with_plain_weights(program), inputs or {}))
    program = with_region_constants(program)
    program = with_one_of_each(with_inner_tensors(program))
    names = NodeNames.of(program)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # deprecations inside torch's own decompositions
        try:
            program = with_pairs(program)
            program = with_rows_as_given(program)
            require_known_operators(program)
            broken_down = with_indices(decomposed(program))
            computed = with_computed_weights(program, broken_down)
            if computed is not program:
                broken_down = with_indices(decomposed(computed))
        except UnsupportedOperatorError:
            raise
        except Exception as error:  # PyTorch's decompositions raise many kinds
            raise ModelError(
                "PyTorch must be able to break the model's operators down",
                shortened(error),
                "rewrite the module without the operator that this names; where a model writes to "
                "its buffers, give each memory of its own",
            ) from error
        return function_of(broken_down, form, names)


def _apart(example_inputs: Any) -> Any:
    """The same inputs, each a tensor of its own.

    torch.export takes one tensor that is given twice, or that is a weight as well, for one value
    for good: whatever the inputs are later, the program reads one of them in both places. They keep
    their strides and offsets, which operators of PyTorch's count with.
    """
    return _pytree.tree_map_only(torch.Tensor, _prims_common.clone_preserve_strides, example_inputs)


def _require_apart(program: ExportedProgram) -> None:
    given = [v for v in _pytree.tree_leaves(program.example_inputs) if isinstance(v, torch.Tensor)]
    if len({id(tensor) for tensor in given}) < len(given):
        raise ModelError(
            "a program must be exported with a tensor of its own for each input",
            "one tensor stands for several of its example inputs, which torch.export takes for one",
            "export it with clones: torch.export.export(module, (x, x.clone()))",
        )
