"""The ONNX front door: a file or ModelProto becomes Relax operators."""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from tvm import relax
from tvm.relax.frontend.onnx import onnx_frontend

from tvm_tile.errors import UnsupportedOperatorError
from tvm_tile.frontend.imported import Imported, describe
from tvm_tile.frontend.onnx_model import (
    bind_constants,
    fix_sizes,
    fold,
    free_inputs,
    read_model,
    validate_model,
)
from tvm_tile.frontend.onnx_rewrite import (
    STANDARD_DOMAINS,
    expand_functions,
    opset_version,
    take_constant_branches,
    walk_nodes,
)
from tvm_tile.frontend.prepare import prepare

# The importer takes these two outside its table of converters.
_HANDLED_APART = frozenset({"If", "Constant"})
_DOMAINS = STANDARD_DOMAINS | {"com.microsoft"}


def import_onnx(
    model: str | Path | onnx.ModelProto,
    *,
    inputs: Mapping[str, Sequence[int]] | None = None,
    constants: Mapping[str, np.ndarray] | None = None,
) -> Imported:
    """Import an ONNX model.

    Sizes are fixed and constants folded before TVM sees the model, because its importer needs
    many values (shapes to reshape to, axes, scales) to be constants.

    Args:
        model: path of a file, or the model itself, which is not changed.
        inputs: input name -> extents, for inputs whose shape the model leaves open.
        constants: input name -> value, for inputs that never change; they are no inputs then.

    Returns:
        The model with its weights as constants.

    Raises:
        ModelFileError: the file is missing or not a valid ONNX model.
        DynamicShapeError: an input's extent is neither in the model nor in ``inputs``.
        UnsupportedOperatorError: operators that cannot be imported, all of them by name.
        ModelError: ``inputs`` or ``constants`` contradict the model.
    """
    if isinstance(model, onnx.ModelProto):
        name = model.graph.name or "model"
        copy = onnx.ModelProto()
        copy.CopyFrom(model)
        validate_model(copy, f"ModelProto {name!r}")
        model = copy
    else:
        name = Path(model).stem
        model = read_model(Path(model))
    bind_constants(model, constants or {})
    fix_sizes(model, inputs or {})
    model = _simplify(model)
    _require_supported(model)
    mod = prepare(_to_relax(model))
    return describe(
        mod,
        name,
        [value.name for value in free_inputs(model.graph)],
        [value.name for value in model.graph.output],
    )


def _simplify(model: onnx.ModelProto) -> onnx.ModelProto:
    model = fold(expand_functions(model, _known_operators(model)))
    while take_constant_branches(model.graph):
        model = fold(model)
    return model


def _known_operators(model: onnx.ModelProto) -> frozenset[str]:
    known = _HANDLED_APART | set(onnx_frontend._get_convert_map())
    # TVM's converter of this name is for the operator of another domain.
    return known - {"Attention"} if opset_version(model) >= 23 else known


def _require_supported(model: onnx.ModelProto) -> None:
    known = _known_operators(model)
    missing: dict[str, list[str]] = {}
    for node in walk_nodes(model.graph):
        if node.domain not in _DOMAINS or node.op_type not in known:
            operator = f"{node.domain}::{node.op_type}" if node.domain else node.op_type
            missing.setdefault(operator, []).append(node.name or node.output[0])
    if missing:
        raise UnsupportedOperatorError(
            "every operator of the model must be known to TVM's ONNX importer",
            "; ".join(f"{op} (nodes {', '.join(names)})" for op, names in missing.items()),
            "export the model without these operators, or to another opset",
        )


def _to_relax(model: onnx.ModelProto) -> Any:
    importer = _Importer({}, None)
    # The importer prints each failure and warns about each input name it changes.
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importer.from_onnx(model.graph, opset_version(model))


class _Importer(onnx_frontend.ONNXGraphImporter):
    """TVM's importer, saying which node it could not convert."""

    def _convert_operator(
        self, op_name: str, inputs: Any, attrs: dict[str, Any], opset: int
    ) -> relax.Expr:
        try:
            return super()._convert_operator(op_name, inputs, attrs, opset)
        except Exception as error:  # converters raise whatever comes up
            node = attrs.get("tvm_custom", {}).get("name") or "without a name"
            raise UnsupportedOperatorError(
                f"operator {op_name} must be in a form that TVM's ONNX importer knows",
                f"node {node!r}: {type(error).__name__}: {_first_line(error)}",
                "give the sizes of all inputs, or export this operator in another form",
            ) from error


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else "no message"
