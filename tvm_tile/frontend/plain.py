"""Models as plain Relax, for pipelines of one's own: what TVM's functions of these names return.

The importers are those of :func:`tvm_tile.compile`. Of operators that remain, TVM writes the loops;
where these are wrong, the operator is written out as loops of ours, a TensorIR function.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tvm
from tvm import ir, relax

from tvm_tile.build.exact.integer_types import in_longer
from tvm_tile.build.exact.integers import wrap_integers
from tvm_tile.errors import UnsupportedOperatorError
from tvm_tile.frontend.imported import with_parameters
from tvm_tile.frontend.keep_codes import fold_codes
from tvm_tile.graph.functions import expressions_in, mutated, with_prim_funcs
from tvm_tile.loops import LEGALIZATIONS
from tvm_tile.loops.arithmetic import ARITHMETIC, is_right_in_tvm, may_trap
from tvm_tile.registered import in_plain_tir

# TVM's loops of these are as right where TVM builds them: ours are for kernels that we schedule.
_AS_RIGHT = frozenset({"relax.where", *(f"relax.nn.max_pool{rank}d" for rank in (1, 2, 3))})


def from_exported_program(
    exported_program: Any,
    *,
    keep_params_as_input: bool = False,
    unwrap_unit_return_tuple: bool = False,
    no_bind_return_tuple: bool = False,
    inputs: Mapping[str, Sequence[int]] | None = None,
) -> tvm.IRModule:
    """An exported program as Relax, in place of TVM's ``relax.frontend.torch`` function.

    What a program writes to is returned: behind its outputs come the new values, first of inputs
    that it writes to, in their order, then of its buffers; ``main`` takes the former values of
    these buffers behind the inputs. (TVM's function leaves new values out.) A program that draws
    random numbers takes and returns, as if that were its last buffer, what these are computed of:
    two int64, a seed and a count of calls.

    Args:
        exported_program: a ``torch.export.ExportedProgram``; what has no converter is broken down
            by PyTorch's decompositions in any case.
        keep_params_as_input: whether ``main`` takes the module's parameters, too, behind all else.
            Their values are its attribute ``"params"``, which ``relax.frontend.detach_params``
            takes off, and ``"num_input"`` counts what is before them. Otherwise they are constants,
            as buffers are that the program only reads.
        unwrap_unit_return_tuple: whether one output is returned as it is, not in a tuple.
        no_bind_return_tuple: whether the tuple that is returned is bound to no variable.
        inputs: input name -> extents, for inputs exported with open ones.

    Returns:
        A module whose ``main`` computes what the program does. All extents are known.

    Raises:
        UnsupportedOperatorError: operators that cannot be imported, all of them by name.
        DynamicShapeError: an extent is neither in the program nor in ``inputs``.
        ModelError: it is no exported program, or ``inputs`` contradicts it.
    """
    from tvm_tile.frontend.torch import Form, program_as_relax

    form = Form(
        takes_parameters=keep_params_as_input,
        is_tuple=not unwrap_unit_return_tuple,
        is_bound=not no_bind_return_tuple,
        writes=False,
    )
    return written_out(program_as_relax(exported_program, form, inputs=inputs))


def from_onnx(
    model: Any,
    shape_dict: Mapping[str, Sequence[int]] | None = None,
    *,
    keep_params_in_input: bool = False,
) -> tvm.IRModule:
    """An ONNX model as Relax, in place of TVM's ``relax.frontend.onnx`` function.

    Element types and the opset are the model's own, names of inputs become identifiers.

    Args:
        model: an ``onnx.ModelProto``, which is not changed, or the path of a file.
        shape_dict: input name -> extents, for inputs whose shape the model leaves open.
        keep_params_in_input: whether ``main`` takes the tensors with dimensions that are constants
            of the imported model, behind its inputs. Their values are its attribute ``"params"``,
            which ``relax.frontend.detach_params`` takes off, and ``"num_input"`` counts the inputs.

    Returns:
        A module whose ``main`` takes the inputs in their order, and returns the output, or a tuple
        of several. If the model draws random numbers, the last of each is the state that these are
        computed of: a seed and a count of calls, two int64. All extents are known but those of
        results that data decide.

    Raises:
        ModelFileError: the file is missing, or no valid ONNX model.
        DynamicShapeError: an input's extent is neither in the model nor in ``shape_dict``.
        UnsupportedOperatorError: operators that cannot be imported, all of them by name.
        ModelError: ``shape_dict`` contradicts the model, or that is too large.
    """
    from tvm_tile.frontend.onnx import import_onnx

    given = Path(model) if isinstance(model, str) else model
    mod = written_out(import_onnx(given, inputs=shape_dict, writes=False).mod)
    return _with_parameters(mod) if keep_params_in_input else mod


def written_out(mod: tvm.IRModule) -> tvm.IRModule:
    """The module with loops of ours in place of operators of which TVM's loops are wrong.

    before: ``y = argmax(x)``
    after:  ``y = call_tir(argmax, (x,))``, of a TensorIR function that knows NaN

    Quotients and shifts of integers are written out, too, at some of which processors stop. TVM's
    builds begin maxima at the lowest finite number, and its simplifier takes floating-point numbers
    for real ones, and integers never to overflow: these stay as they are.

    Raises:
        UnsupportedOperatorError: the module computes with 8-bit floats.
    """
    _require_no_8_bit_floats(mod)
    mod = fold_codes(mod)
    written = mutated(mod, _WrittenOut(mod))
    return with_prim_funcs(written, lambda func: in_plain_tir(wrap_integers(func, in_longer)))


def _require_no_8_bit_floats(mod: tvm.IRModule) -> None:
    calls = expressions_in(mod, relax.Call)
    casts = [call for call in calls if getattr(call.op, "name", "") == "relax.astype"]
    found = {str(call.args[0].ty.dtype) for call in casts}
    floats = sorted(dtype for dtype in found if dtype.startswith("float8"))
    if floats:
        raise UnsupportedOperatorError(
            "models for TVM's own builds must have no 8-bit floats: on the CPU these are wrong",
            f"numbers of {', '.join(floats)} that are computed with",
            "compile it for a GPU by tvm_tile.compile",
        )


@relax.expr_functor.mutator
class _WrittenOut(relax.PyExprMutator):
    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = self.visit_expr_post_order(call)
        name = str(getattr(call.op, "name", ""))
        if not isinstance(call.op, ir.Op):
            return call
        if may_trap(call):
            return LEGALIZATIONS.get(name, call.op.get_attr("FLegalize"))(self.builder_, call)
        own = LEGALIZATIONS.get(name)
        if own is None or name in _AS_RIGHT or (name in ARITHMETIC and is_right_in_tvm(call)):
            return call
        return own(self.builder_, call)


def _with_parameters(mod: tvm.IRModule) -> tvm.IRModule:
    """The constants of ``main`` that have dimensions become its last parameters."""
    taken = _TakenConstants(mod)
    main = mod["main"]
    body = taken.visit_expr(main.body)
    params = [*main.params, *taken.variables.values()]
    made = relax.Function(params, body, main.ret_ty, main.is_pure, main.attrs)
    result = mod.clone()
    values = [constant.value for constant in taken.variables]
    result["main"] = with_parameters(made, len(main.params), values)
    return result


@relax.expr_functor.mutator
class _TakenConstants(relax.PyExprMutator):
    """Replaces constants with variables."""

    def __init__(self, mod: tvm.IRModule) -> None:
        super().__init__(mod)
        self.variables: dict[Any, relax.Var] = {}

    def visit_generic_const_(self, constant: ir.GenericConst) -> relax.Expr:
        if not constant.ty.ndim:
            return constant
        if constant not in self.variables:
            self.variables[constant] = relax.Var(f"weight{len(self.variables)}", constant.ty)
        return self.variables[constant]
