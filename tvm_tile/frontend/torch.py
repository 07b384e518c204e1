"""The PyTorch front door: an exported program or a module becomes Relax operators."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram
from tvm import relax
from tvm.relax.frontend.torch.exported_program_translator import ExportedProgramImporter

from tvm_tile.errors import ModelError, UnsupportedOperatorError
from tvm_tile.frontend.decompose import decomposed
from tvm_tile.frontend.imported import Imported, describe
from tvm_tile.frontend.prepare import prepare
from tvm_tile.frontend.sizes import bind_sizes

# (rank of the input, transposed) -> operator, layout of the data, layout of the weights.
_CONVOLUTIONS: dict[tuple[int, bool], tuple[str, str, str]] = {
    (3, False): ("conv1d", "NCW", "OIW"),
    (4, False): ("conv2d", "NCHW", "OIHW"),
    (5, False): ("conv3d", "NCDHW", "OIDHW"),
    (3, True): ("conv1d_transpose", "NCW", "IOW"),
    (4, True): ("conv2d_transpose", "NCHW", "IOHW"),
    (5, True): ("conv3d_transpose", "NCDHW", "IODHW"),
}


def import_module(
    module: torch.nn.Module,
    example_inputs: Sequence[Any],
    *,
    inputs: Mapping[str, Sequence[int]] | None = None,
) -> Imported:
    """Export a module in evaluation mode and import it.

    Args:
        module: the module; its training mode is the same afterwards.
        example_inputs: positional arguments of its ``forward``; their shapes and types are fixed.
        inputs: as for :func:`import_program`.

    Raises:
        ModelError: the module cannot be exported.
        UnsupportedOperatorError: operators that cannot be imported, all of them by name.
    """
    was_training = {child: child.training for child in module.modules()}
    module.eval()
    try:
        with torch.no_grad():
            program = torch.export.export(module, tuple(example_inputs))
    except Exception as error:  # torch.export raises many kinds, also the module's own errors
        raise ModelError(
            "the module must be exportable by torch.export.export",
            f"{type(module).__name__}: {type(error).__name__}: {error}",
            "export it yourself (strict=False, or without control flow on data) and pass the "
            "ExportedProgram",
        ) from error
    finally:
        for child, training in was_training.items():
            child.training = training
    return import_program(program, inputs=inputs, name=type(module).__name__)


def import_program(
    program: ExportedProgram,
    *,
    inputs: Mapping[str, Sequence[int]] | None = None,
    name: str | None = None,
) -> Imported:
    """Import an exported program, float16 and bfloat16 ones included.

    Args:
        program: what ``torch.export.export`` returned.
        inputs: input name -> extents, for inputs exported with dynamic shapes.
        name: name of the model; that of the exported module where ``None``.

    Raises:
        UnsupportedOperatorError: operators that cannot be imported, all of them by name.
        DynamicShapeError: an extent stays unknown.
        ModelError: ``inputs`` contradicts the program.
    """
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # deprecations inside torch's own decompositions
        program = decomposed(program)
        importer = _Importer()
        _require_supported(program, importer)
        mod = importer.from_exported_program(
            program,
            keep_params_as_input=False,
            unwrap_unit_return_tuple=True,
            no_bind_return_tuple=False,
            custom_convert_map=None,
        )
    names = [str(name) for name in program.graph_signature.user_inputs]
    mod = prepare(bind_sizes(mod, inputs or {}))
    return describe(mod, name or type(program.graph_module).__name__, names)


def _require_supported(program: ExportedProgram, importer: ExportedProgramImporter) -> None:
    missing: dict[str, list[str]] = {}
    for node in program.graph.nodes:
        if node.op == "call_function" and node.target.__name__ not in importer.convert_map:
            missing.setdefault(str(node.target), []).append(node.name)
    if missing:
        raise UnsupportedOperatorError(
            "every operator of the model must be known to TVM's PyTorch importer",
            "; ".join(f"{op} (nodes {', '.join(names)})" for op, names in missing.items()),
            "rewrite the module without these operators",
        )


class _Importer(ExportedProgramImporter):
    """TVM's importer, keeping element types and naming what it cannot convert.

    The original writes float32 as the result type of products and convolutions of any type.
    """

    def __init__(self) -> None:
        super().__init__()
        self._transposed: dict[relax.Expr, relax.Var] = {}

    def create_convert_map(self) -> dict[str, Callable[[fx.Node], Any]]:
        converters = super().create_convert_map()
        for name in ("mm.default", "bmm.default", "matmul.default"):
            converters[name] = self._matmul
        converters["linear.default"] = self._linear
        return {name: _naming_failures(convert) for name, convert in converters.items()}

    def _matmul(self, node: fx.Node) -> relax.Var:
        return self.block_builder.emit(relax.op.matmul(*self.retrieve_args(node)[:2]))

    def _linear(self, node: fx.Node) -> relax.Var:
        data, weight, *bias = self.retrieve_args(node)
        # Once each: folding makes a constant of it, and an unrolled loop takes the same again.
        if weight not in self._transposed:
            self._transposed[weight] = self.block_builder.emit(relax.op.permute_dims(weight))
        product = self.block_builder.emit(relax.op.matmul(data, self._transposed[weight]))
        if not bias or self._is_no_bias(bias[0]):
            return product
        return self.block_builder.emit(relax.op.add(product, bias[0]))

    def _addmm(self, node: fx.Node) -> relax.Var:
        bias, left, right = self.retrieve_args(node)[:3]
        product = self.block_builder.emit(relax.op.matmul(left, right))
        scaled = self._scaled(product, node.kwargs.get("alpha", 1))
        return self.block_builder.emit(
            relax.op.add(scaled, self._scaled(bias, node.kwargs.get("beta", 1)))
        )

    def _scaled(self, value: relax.Expr, factor: float) -> relax.Expr:
        if factor == 1:
            return value
        constant = relax.const(factor, str(value.ty.dtype))
        return self.block_builder.emit(relax.op.multiply(value, constant))

    def _convolution(self, node: fx.Node) -> relax.Var:
        data, weight, bias, strides, padding, dilation, transposed, output_padding, groups = (
            self.retrieve_args(node)
        )
        rank = len(data.ty.shape)
        function, data_layout, kernel_layout = _CONVOLUTIONS[rank, bool(transposed)]
        only_transposed = {"output_padding": output_padding} if transposed else {}
        result = self.block_builder.emit(
            getattr(relax.op.nn, function)(
                data,
                weight,
                strides=strides,
                padding=padding,
                dilation=dilation,
                groups=groups,
                data_layout=data_layout,
                kernel_layout=kernel_layout,
                **only_transposed,
            )
        )
        if self._is_no_bias(bias):
            return result
        column = self.block_builder.emit(relax.op.reshape(bias, (1, -1, *(1,) * (rank - 2))))
        return self.block_builder.emit(relax.op.add(result, column))

    def _cumsum(self, node: fx.Node) -> relax.Var:
        source, dim = self.retrieve_args(node)[:2]
        if str(source.ty.dtype) != "bool" or "dtype" in node.kwargs:
            return super()._cumsum(node)
        # PyTorch counts in int64; the original keeps bool, which overflows at the second one.
        return self.block_builder.emit(relax.op.cumsum(source, dim, "int64"))

    def _select(self, node: fx.Node) -> relax.Var:
        source, dim, index = self.retrieve_args(node)
        if index < 0:  # the original clips it to the first
            index += int(source.ty.shape[dim])
        position = relax.const(index, "int64")
        return self.block_builder.emit(relax.op.take(source, position, dim))


def _naming_failures(convert: Callable[[fx.Node], Any]) -> Callable[[fx.Node], Any]:
    def convert_or_explain(node: fx.Node) -> Any:
        try:
            return convert(node)
        except Exception as error:  # converters raise whatever comes up
            raise UnsupportedOperatorError(
                f"operator {node.target} must be in a form that TVM's PyTorch importer knows",
                f"node {node.name!r}: {type(error).__name__}: {error}",
                "rewrite the module without this form of the operator",
            ) from error

    return convert_or_explain
