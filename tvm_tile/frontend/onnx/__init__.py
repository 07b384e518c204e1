"""The ONNX front door: a file or ModelProto becomes Relax operators.

``operators.py`` lists the operators that are converted here, each by a function of a ``Node`` in
the file of its topic; TVM's importer does the others. ONNX graphs are folded before they become
Relax: ``codes.py`` says which weights stay codes then, and ``unrolling.py`` writes out loops
of a known count.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from tvm import relax, tirx
from tvm.relax.frontend.onnx import onnx_frontend

from tvm_tile.errors import TileError, UnsupportedOperatorError
from tvm_tile.frontend.imported import Imported
from tvm_tile.frontend.onnx.counting import count_loops
from tvm_tile.frontend.onnx.fold import fold
from tvm_tile.frontend.onnx.limits import require_bounded, require_few_nodes
from tvm_tile.frontend.onnx.loops import Loops
from tvm_tile.frontend.onnx.microsoft import written_out
from tvm_tile.frontend.onnx.model import (
    ValidModel,
    bind_constants,
    fix_sizes,
    free_inputs,
    require_type,
    require_types,
    unwrap_optionals,
)
from tvm_tile.frontend.onnx.names import NodeNames
from tvm_tile.frontend.onnx.node import Node
from tvm_tile.frontend.onnx.operators import (
    ADDED_OPERATORS,
    DOMAINS,
    convert_operator,
    is_misread,
)
from tvm_tile.frontend.onnx.random import NEXT_CALL, draws_numbers, with_random_state
from tvm_tile.frontend.onnx.rewrite import (
    STANDARD_DOMAINS,
    drop_identities,
    expand_functions,
    has_definition,
    opset_version,
    take_constant_branches,
    walk_nodes,
)
from tvm_tile.frontend.onnx.types import inferred_types, static_extents
from tvm_tile.frontend.onnx.unrolling import unroll_loops
from tvm_tile.frontend.open_blocks import ending_blocks
from tvm_tile.frontend.prepare import prepared
from tvm_tile.frontend.random_state import STATE, Draws
from tvm_tile.graph.signature import NO_EFFECTS, RANDOM, Effects
from tvm_tile.graph.user_names import Names, named

_COMPLEX = frozenset({onnx.TensorProto.COMPLEX64, onnx.TensorProto.COMPLEX128})
# The importer takes these two outside its table of converters.
_HANDLED_APART = frozenset({"If", "Constant"})
_LOOPS = frozenset({"Loop", "Scan"})
# Nodes that a loop of a known count may become: written out, it is compiled as a whole, which takes
# its time; and where it cannot be written otherwise, as one whose iterations are not alike.
_UNROLLED, _MOST_UNROLLED = 256, 8192


def import_onnx(
    model: str | Path | onnx.ModelProto | ValidModel,
    *,
    inputs: Mapping[str, Sequence[int]] | None = None,
    constants: Mapping[str, np.ndarray] | None = None,
    matrix_dtypes: frozenset[str] = frozenset(),
    in_loops: bool = False,
    writes: bool = True,
) -> Imported:
    """Import an ONNX model.

    Sizes are fixed and constants folded before TVM sees the model, because its importer needs
    many values (shapes to reshape to, axes, scales) to be constants.

    Args:
        model: path of a file, or the model itself, which is not changed.
        inputs: input name -> extents, for inputs whose shape the model leaves open.
        constants: input name -> value, for inputs that never change; they are no inputs then.
        matrix_dtypes, in_loops: as of :func:`tvm_tile.frontend.import_model`.
        writes: whether the state of random numbers is written to its memory, or made anew.

    Returns:
        The model with its weights as constants.

    Raises:
        ModelFileError: the file is missing or not a valid ONNX model.
        DynamicShapeError: an input's extent is neither in the model nor in ``inputs``.
        UnsupportedOperatorError: operators that cannot be imported, all of them by name.
        ModelError: ``inputs`` or ``constants`` contradict the model, or it is too large.
    """
    model = ValidModel.of(model).copy()
    require_few_nodes(model)
    _require_real(model.graph)
    unwrap_optionals(model.graph)
    bind_constants(model, constants or {})
    fix_sizes(model, inputs or {})
    names = NodeNames.of(model)
    model = written_out(model)
    mod, model = _convert(model, names, in_loops=in_loops, writes=writes)
    imported = prepared(
        mod,
        [value.name for value in free_inputs(model.graph)],
        [value.name for value in model.graph.output],
        Effects(state=(STATE,)) if draws_numbers(model.graph) else NO_EFFECTS,
        matrix_dtypes=matrix_dtypes,
    )
    for value, signature in zip(model.graph.output, imported.outputs, strict=True):
        require_type(value, signature.dtype)
    return imported


def _convert(
    model: onnx.ModelProto, names: NodeNames, *, in_loops: bool, writes: bool
) -> tuple[Any, onnx.ModelProto]:
    """The Relax module, and the simplified model that it stands for."""
    known = _HANDLED_APART | _LOOPS | ADDED_OPERATORS | set(onnx_frontend._get_convert_map())
    known -= {"Attention"}  # TVM's converter of this name is for another domain's operator
    known -= {node.op_type for node in walk_nodes(model.graph) if is_misread(node)}
    unrolled = _UNROLLED
    while True:
        expanded = expand_functions(model, known)
        require_types(expanded)
        simple = _simplify(expanded, unrolled)
        names.name_nodes(simple.graph)
        _require_supported(simple, known)
        types = inferred_types(simple)
        require_bounded(types)
        try:
            return _to_relax(simple, types, in_loops=in_loops, writes=writes), simple
        except _Rejected as rejected:
            # Some converters refuse forms (types, attributes) that ONNX's own definition of the
            # operator through simpler ones covers.
            if unrolled < _MOST_UNROLLED and any(n.op_type == "Loop" for n in simple.graph.node):
                unrolled = _MOST_UNROLLED
                continue
            is_final = isinstance(rejected.error, TileError)
            if is_final or not has_definition(rejected.op_type, "", opset_version(model)):
                raise rejected.explain() from rejected
            known -= {rejected.op_type}


def _simplify(model: onnx.ModelProto, unrolled: int) -> onnx.ModelProto:
    simple = fold(model)
    while (
        take_constant_branches(simple.graph)
        or count_loops(simple)
        or unroll_loops(simple, unrolled)
    ):
        simple = fold(simple)
    drop_identities(simple.graph)
    return simple


def _require_real(graph: onnx.GraphProto) -> None:
    """Refuse tensors of complex numbers, but for what nodes compute of others."""
    tensors = [(one.name, one.type.tensor_type.elem_type) for one in (*graph.input, *graph.output)]
    tensors += [(one.name, one.data_type) for one in graph.initializer]
    for node in walk_nodes(graph):
        values = (one.t for one in node.attribute if one.type == onnx.AttributeProto.TENSOR)
        tensors += [(node.output[0], value.data_type) for value in values]
    found = [repr(name) for name, dtype in tensors if dtype in _COMPLEX]
    if found:
        raise UnsupportedOperatorError(
            "a model's tensors must be of real numbers: TVM has no complex ones",
            f"complex tensors: {', '.join(found)}",
            "export the parts of complex numbers as a last dimension of two, as DFT takes them",
        )


def _require_supported(model: onnx.ModelProto, known: Collection[str]) -> None:
    missing: dict[str, list[str]] = {}
    for node in walk_nodes(model.graph):
        if node.op_type not in known or not _is_of_known_domain(node):
            operator = f"{node.domain}::{node.op_type}" if node.domain else node.op_type
            missing.setdefault(operator, []).append(node.name or node.output[0])
    if missing:
        raise UnsupportedOperatorError(
            "every operator of the model must be known to TVM's ONNX importer",
            "; ".join(f"{op} (nodes {', '.join(names)})" for op, names in missing.items()),
            "export the model without these operators, or to another opset",
        )


def _is_of_known_domain(node: onnx.NodeProto) -> bool:
    if node.op_type in DOMAINS:
        return bool(node.domain == DOMAINS[node.op_type])
    return node.domain in STANDARD_DOMAINS


def _to_relax(
    model: onnx.ModelProto,
    types: Mapping[str, onnx.TypeProto.Tensor],
    *,
    in_loops: bool,
    writes: bool,
) -> Any:
    # Given apart, because the importer takes an extent of 0 for an unknown one.
    shapes = {
        value.name: [int(dim.dim_value) for dim in value.type.tensor_type.shape.dim]
        for value in free_inputs(model.graph)
    }
    importer = _Importer(shapes, None)
    importer.named, importer.types, importer.in_loops = {}, types, in_loops
    importer.writes = writes
    try:
        graph = with_random_state(model.graph) if draws_numbers(model.graph) else model.graph
        with ending_blocks(importer.bb):
            mod = importer.from_onnx(graph, opset_version(model))
    except Exception as error:  # whatever comes up between the operators
        raise _Rejected(importer.last_operator, "", error) from error
    importer.require_shapes(model)
    return named(mod, importer.named)


class _Rejected(BaseException):
    """A converter raised ``error`` for a node.

    No ``Exception``, for TVM's importer prints those on the way; all are caught in this file.
    """

    def __init__(self, op_type: str, node: str, error: Exception) -> None:
        super().__init__(op_type, node, error)
        self.op_type = op_type
        self._node = node
        self.error = error

    def explain(self) -> TileError:
        if isinstance(self.error, TileError):
            return self.error
        return UnsupportedOperatorError(
            f"operator {self.op_type} must be in a form that TVM's ONNX importer knows",
            f"at node {self._node!r}: {type(self.error).__name__}: {_first_line(self.error)}",
            "give the sizes of all inputs, or export this operator in another form",
        )


class _Importer(onnx_frontend.ONNXGraphImporter):
    """TVM's importer with more operators, saying which node it could not convert.

    Attributes:
        last_operator: type of the operator that was converted last.
        named: values -> the names of their nodes.
        types: as ONNX infers them, of tensors by their names.
        in_loops, writes: as of :func:`import_onnx`.
        draws: what random numbers are drawn by; ``None`` where none can be drawn.
    """

    last_operator = ""
    named: dict[Any, Names]
    types: Mapping[str, onnx.TypeProto.Tensor]
    in_loops: bool
    writes: bool
    draws: Draws | None = None
    _nodes: dict[str, Any]  # of TVM's: the values of names

    def require_shapes(self, model: onnx.ModelProto) -> None:
        """Compare the shapes of what was imported with those that ONNX infers.

        What is computed from a shape was folded to constants before (see
        :mod:`tvm_tile.frontend.onnx.fold`): where the two differ, one of them is wrong.

        Raises:
            _Rejected: they differ.
        """
        for name, tensor in self.types.items():
            inferred = static_extents(tensor)
            value = self._nodes.get(name)
            known = value.ty.shape if value is not None and _is_tensor(value) else None
            if inferred is None or not isinstance(known, relax.ShapeExpr):
                continue
            if not all(isinstance(extent, tirx.IntImm) for extent in known):
                continue
            found = tuple(int(extent) for extent in known)
            if found != inferred:
                makers = [node.op_type for node in model.graph.node if name in node.output]
                error = ValueError(f"{name!r} of shape {inferred} became one of shape {found}")
                raise _Rejected(makers[0] if makers else "", name, error)

    def _check_for_unsupported_ops(self, graph: onnx.GraphProto) -> None:
        """Done before, for the graphs inside nodes as well."""

    def _parse_graph_input(self, graph: onnx.GraphProto) -> None:
        """The state of random numbers, if there is one, is an input that is named as it is."""
        super()._parse_graph_input(graph)
        self.draws = Draws(self._nodes[RANDOM]) if RANDOM in self._nodes else None

    def _construct_nodes(self, graph: onnx.GraphProto) -> None:
        """Results of branches of several shapes have extents that are known at run time: whoever
        reads them has names for these."""
        for node in graph.node:
            super()._construct_nodes(onnx.GraphProto(node=[node]))
            if node.op_type == "If":
                made = [(name, self._nodes[name]) for name in node.output if name]
                self._nodes |= {name: self._with_extents(name, value) for name, value in made}
        if self.draws is not None and any(value.name == NEXT_CALL for value in graph.output):
            self._nodes[NEXT_CALL] = self.draws.next_call(self.bb, writes=self.writes)
            self.named[self._nodes[NEXT_CALL]] = (RANDOM,)

    def _with_extents(self, name: str, value: relax.Expr) -> relax.Expr:
        """A tensor whose extents are known, or variables; those that branches have in common ONNX
        infers."""
        if not _is_tensor(value) or value.ty.shape is not None:
            return value
        if value.ty.ndim < 0:
            error = NotImplementedError("branches whose results differ in rank")
            raise _Rejected("If", name, error)
        dims = self.types[name].shape.dim if name in self.types else ()
        known = [int(dim.dim_value) if dim.HasField("dim_value") else None for dim in dims]
        extents = [
            tirx.Var(f"extent{number}", "int64") if extent is None else extent
            for number, extent in enumerate(known or [None] * value.ty.ndim)
        ]
        return self.bb.match_cast(value, relax.TensorType(extents, value.ty.dtype))

    def _sanitize_name(self, name: str) -> str:
        """Names become parameters in generated C, CUDA and OpenCL."""
        identifier = re.sub(r"\W", "_", name)
        prefix = "" if identifier[:1].isalpha() else "input_"
        return str(self._name_supply.fresh_name(prefix + identifier))

    def _convert_subgraph(self, bb: Any, graph: onnx.GraphProto) -> relax.Expr:
        """A branch of an If with what it computes, which TVM's own would compute before the If."""
        bb._begin_binding_block()
        try:
            result = bb.normalize(super()._convert_subgraph(bb, graph))
        finally:
            block = bb._end_block()
        return relax.SeqExpr([block], result) if block.bindings else result

    def _bound(self, value: relax.Expr) -> relax.Expr:
        """A tensor as a variable: computed once, where it is made, whoever reads it in the end."""
        value = self.bb.normalize(value)
        is_computed = isinstance(value, relax.Call | relax.TupleGetItem)
        is_bindable = _is_tensor(value) or isinstance(value.ty, relax.TupleType)
        return self.bb.emit(value) if is_computed and is_bindable else value

    def _named(self, value: relax.Expr, attrs: Mapping[str, Any]) -> relax.Expr:
        """A node's value, or several, whose name is noted."""
        for each in value.fields if isinstance(value, relax.Tuple) else (value,):
            if isinstance(each, relax.Var):
                self.named.setdefault(each, (attrs["tvm_custom"]["name"],))
        return value

    def _written(self, graph: onnx.GraphProto, names: Mapping[str, Any]) -> list[Any]:
        """The outputs of a graph in which other names have values, too."""
        outer = self._nodes, self.draws
        self._nodes, self.draws = {**outer[0], **names}, None
        try:
            result = super()._convert_subgraph(self.bb, graph)
        finally:
            self._nodes, self.draws = outer
        return [result] if len(graph.output) == 1 else list(result.fields)

    def _convert_operator(
        self, op_name: str, inputs: Any, attrs: dict[str, Any], opset: int
    ) -> relax.Expr:
        self.last_operator = op_name
        results = int(attrs["tvm_custom"]["num_outputs"])
        node = Node(op_name, self.bb, inputs, attrs, results, opset, self.in_loops, self.draws)
        loops = Loops(self.bb, self._nodes, self._written, opset)

        def stock(changed: Node) -> relax.Expr:
            settled = dict(changed.attrs)
            return super(_Importer, self)._convert_operator(
                op_name, onnx_frontend.onnx_input(changed.inputs), settled, opset
            )

        try:
            if op_name in _LOOPS:
                convert = loops.convert_loop if op_name == "Loop" else loops.convert_scan
                return self._named(self._bound(convert(node)), attrs)
            return self._named(self._bound(convert_operator(node, stock)), attrs)
        except _Rejected:  # within a loop
            raise
        except Exception as error:  # converters raise whatever comes up
            node = attrs.get("tvm_custom", {}).get("name", "")
            raise _Rejected(op_name, node, error) from error


def _is_tensor(value: relax.Expr) -> bool:
    return isinstance(value.ty, relax.TensorType)


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else "no message"
