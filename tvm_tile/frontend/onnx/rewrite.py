"""Rewrite ONNX graphs into operators that TVM's importer knows. Knows ONNX, not TVM.

* Operators that the ONNX specification itself defines through simpler ones (``Celu``,
  ``Attention``, ``SoftmaxCrossEntropyLoss``, ...) become those.
* An ``If`` whose condition is a constant becomes the branch that is taken.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np
import onnx
import onnx.inliner

from tvm_tile.errors import ModelFileError

STANDARD_DOMAINS = frozenset({"", "ai.onnx"})


def walk_nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """Every node of a graph and of the graphs inside its nodes, outer ones first."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for inner in graphs_of(attribute):
                yield from walk_nodes(inner)


def graphs_of(attribute: onnx.AttributeProto) -> list[onnx.GraphProto]:
    """The graphs that an attribute of a node is or lists."""
    single = attribute.type == onnx.AttributeProto.GRAPH
    return [*attribute.graphs, *([attribute.g] if single else [])]


def read_names(node: onnx.NodeProto) -> dict[str, None]:
    """Names of what a node and the graphs inside it read, in the order of their first use."""
    inside = [name for a in node.attribute for graph in graphs_of(a) for name in free_names(graph)]
    return dict.fromkeys(name for name in (*node.input, *inside) if name)


def free_names(graph: onnx.GraphProto) -> list[str]:
    """Names of what a graph reads from around it, in the order of their first use."""
    own = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
    free: dict[str, None] = {}
    for node in graph.node:
        free.update(dict.fromkeys(name for name in read_names(node) if name not in own))
        own.update(node.output)
    free.update(dict.fromkeys(v.name for v in graph.output if v.name not in own))
    return list(free)


def replace_nodes(graph: onnx.GraphProto, nodes: Sequence[onnx.NodeProto]) -> None:
    """Give a graph other nodes, some of which may be its own, in place."""
    copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del graph.node[:]
    graph.node.extend(copies)


def opset_version(model: onnx.ModelProto) -> int:
    """Version of the standard operator set that the model is written in."""
    versions = [o.version for o in model.opset_import if o.domain in STANDARD_DOMAINS]
    return int(versions[0]) if versions else 1


def expand_functions(model: onnx.ModelProto, known: Collection[str] | None) -> onnx.ModelProto:
    """Replace calls of model-local functions, and of standard operators outside ``known``.

    Args:
        model: the model; shapes of its inputs should be static.
        known: standard operators to keep; ``None`` for all of them.

    Returns:
        A new model. Operators that have no definition through others stay.

    Raises:
        ModelFileError: a function is called in a way that contradicts its definition.
    """
    try:
        return _expanded(model, known)
    except RuntimeError as error:  # the inliner's assertions
        raise ModelFileError(
            "calls of functions must agree with their definitions",
            str(error).strip().rpartition("\n")[2],
            "export the model again; onnx.checker.check_model says more",
        ) from error


def _expanded(model: onnx.ModelProto, known: Collection[str] | None) -> onnx.ModelProto:
    if model.functions:
        model = onnx.inliner.inline_local_functions(model)
    if known is None:
        return model
    versions = {o.domain: int(o.version) for o in model.opset_import}
    # A definition may use operators that again have one; three levels exist in ONNX 1.23.
    for _ in range(4):
        expandable = sorted(
            {
                (node.domain, node.op_type)
                for node in walk_nodes(model.graph)
                if not (node.domain in STANDARD_DOMAINS and node.op_type in known)
                and has_definition(node.op_type, node.domain, versions.get(node.domain, 1))
            }
        )
        if not expandable:
            break
        _write_defaults(model.graph, expandable, versions)
        model = onnx.inliner.inline_selected_functions(
            _with_types(model), expandable, exclude=False, inline_schema_functions=True
        )
        del model.graph.value_info[:]
    return model


def _with_types(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with a type for every name, which definitions may depend on."""
    typed: onnx.ModelProto = onnx.shape_inference.infer_shapes(model)
    listed = {value.name for value in (*typed.graph.input, *typed.graph.value_info)}
    typed.graph.value_info.extend(
        onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
        for tensor in typed.graph.initializer
        if tensor.name not in listed
    )
    # The inliner looks up even inputs that are left out, whose name is empty.
    nothing = onnx.helper.make_tensor_value_info("", onnx.TensorProto.FLOAT, None)
    typed.graph.value_info.append(nothing)
    return typed


def _write_defaults(
    graph: onnx.GraphProto,
    operators: Collection[tuple[str, str]],
    versions: Mapping[str, int],
) -> None:
    """Give nodes their attributes' default values, in place: the inliner loses those."""
    for node in walk_nodes(graph):
        if (node.domain, node.op_type) not in operators:
            continue
        given = {attribute.name for attribute in node.attribute}
        schema = onnx.defs.get_schema(node.op_type, versions.get(node.domain, 1), node.domain)
        for name, attribute in schema.attributes.items():
            default = attribute.default_value
            if name not in given and default.type != onnx.AttributeProto.UNDEFINED:
                node.attribute.append(default)


def has_definition(op_type: str, domain: str, version: int) -> bool:
    """Whether ONNX defines an operator through simpler ones."""
    if not onnx.defs.has(op_type, max_inclusive_version=version, domain=domain):
        return False
    schema = onnx.defs.get_schema(op_type, version, domain)
    return bool(schema.has_function or schema.has_context_dependent_function)


def take_constant_branches(graph: onnx.GraphProto) -> bool:
    """Replace each ``If`` with a constant condition by the branch taken, in place.

    Returns:
        Whether anything changed.
    """
    constants = {tensor.name: tensor for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant" and node.attribute[0].name == "value":
            constants[node.output[0]] = node.attribute[0].t
    nodes: list[onnx.NodeProto] = []
    changed = False
    for node in graph.node:
        if node.op_type != "If" or node.input[0] not in constants:
            nodes.append(node)
            continue
        taken = bool(np.all(onnx.numpy_helper.to_array(constants[node.input[0]])))
        wanted = "then_branch" if taken else "else_branch"
        branch = next(a.g for a in node.attribute if a.name == wanted)
        graph.initializer.extend(branch.initializer)
        nodes.extend(branch.node)
        # The branch's results take the names of the If's own.
        nodes.extend(
            onnx.helper.make_node("Identity", [inner.name], [outer])
            for inner, outer in zip(branch.output, node.output, strict=True)
        )
        changed = True
    if changed:
        replace_nodes(graph, nodes)
    return changed


def drop_identities(graph: onnx.GraphProto) -> None:
    """Let what an ``Identity`` makes be called as what it is given, in place.

    TVM's importer takes the identity of a sequence for its first tensor.
    """
    outputs = {value.name for value in graph.output}
    names: dict[str, str] = {}
    nodes = []
    for node in graph.node:
        is_identity = node.op_type == "Identity" and node.domain in STANDARD_DOMAINS
        if is_identity and node.output[0] not in outputs:
            names[node.output[0]] = names.get(node.input[0], node.input[0])
        else:
            nodes.append(renamed(node, names) if names else node)
    if names:
        replace_nodes(graph, nodes)


def renamed(node: onnx.NodeProto, names: Mapping[str, str]) -> onnx.NodeProto:
    """A copy of a node that reads and makes values of other names, in the graphs inside it too."""
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    for listed in (copy.input, copy.output):
        listed[:] = [names.get(name, name) for name in listed]
    for attribute in copy.attribute:
        for graph in graphs_of(attribute):
            _rename_within(graph, names)
    return copy


def _rename_within(graph: onnx.GraphProto, names: Mapping[str, str]) -> None:
    # What a graph names itself is its own.
    own = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
    own |= {name for node in graph.node for name in node.output}
    outer = {name: new for name, new in names.items() if name not in own}
    nodes = [renamed(node, outer) for node in graph.node]
    replace_nodes(graph, nodes)
    for value in graph.output:
        value.name = outer.get(value.name, value.name)
