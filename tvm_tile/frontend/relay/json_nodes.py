"""What each class of nodes in TVM's JSON means: expressions, types and attributes of Relay."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from tvm_tile.frontend.relay.arrays import element_type
from tvm_tile.frontend.relay.attributes import integer
from tvm_tile.frontend.relay.json_attributes import (
    attributes_of,
    call_attributes,
    described,
    entries,
    function_attributes,
    parts,
    referring_fields,
)
from tvm_tile.frontend.relay.json_graph import Graph, JsonNode
from tvm_tile.frontend.relay.program import (
    AnyPattern,
    Call,
    Clause,
    Constant,
    Constructor,
    ConstructorPattern,
    Expr,
    Function,
    Global,
    If,
    Item,
    Let,
    Local,
    LocalPattern,
    Match,
    NewReference,
    Operator,
    OtherType,
    Pattern,
    ReadReference,
    TensorType,
    Tuple,
    TuplePattern,
    TupleType,
    Type,
    WriteReference,
)

_TYPES = (TensorType, TupleType, OtherType)


@dataclass(frozen=True, slots=True)
class Module:
    """Functions by what names them, among them others than Relay's."""

    functions: Sequence[tuple[Any, Any]]


@dataclass(frozen=True, slots=True)
class _Rule:
    """How nodes of a class are read.

    Attributes:
        references: fields that have numbers of nodes that are needed.
        make: what the node is, given what these are.
    """

    references: tuple[str, ...]
    make: Callable[..., Any]


class Nodes:
    """The meaning of a file's nodes.

    Args:
        graph: the file.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph

    def references(self, node: JsonNode) -> Sequence[int]:
        """Numbers of the nodes that one's meaning depends on."""
        if node.type_key in ("Array", "Map"):
            return node.data
        rule = _RULES.get(node.type_key)
        if rule is not None:
            return [node.reference(field) for field in rule.references]
        return [node.reference(field) for field in referring_fields(self._graph, node)]

    def make(self, node: JsonNode, values: Sequence[Any]) -> Any:
        """What a node means, given what the nodes mean that it depends on.

        Raises:
            ValueError: it means nothing.
        """
        if node.type_key == "":
            return None
        if node.type_key == "Array":
            return tuple(values)
        if node.type_key == "Map":
            return _pairs(node, values)
        rule = _RULES.get(node.type_key)
        if rule is not None:
            return rule.make(self._graph, node, *values)
        return attributes_of(self._graph, node, values)


def _pairs(node: JsonNode, values: Sequence[Any]) -> tuple[tuple[Any, Any], ...]:
    if node.keys or not values:
        return tuple(zip(node.keys, values, strict=True))
    return tuple(zip(values[::2], values[1::2], strict=True))


_MEANINGS: Mapping[Any, str] = {
    Expr: "an expression",
    Pattern: "a pattern",
    Local: "a variable",
    Clause: "a clause",
    Constructor: "a constructor",
    object: "a type or an extent",
}


def _one(value: Any, kind: Any) -> Any:
    """A value that must be of a kind."""
    if not isinstance(value, kind):
        raise ValueError(f"{described(value)} stands where {_MEANINGS[kind]} should")
    return value


def _several(value: Any, kind: Any) -> tuple[Any, ...]:
    """Values that must be of a kind."""
    if not isinstance(value, tuple):
        raise ValueError(f"{described(value)} stands where a list should, each {_MEANINGS[kind]}")
    return tuple(_one(item, kind) for item in value)


def _of_parts(made: Callable[..., Any], **kinds: Any) -> _Rule:
    """The rule of a class whose fields become what ``made`` takes, in order.

    Args:
        made: a class of nodes.
        kinds: of each field the kind of its value; in a list if it has several.
    """

    def make(graph: Graph, node: JsonNode, *values: Any) -> Any:
        pairs = zip(values, kinds.values(), strict=True)
        return made(*(_several(v, k[0]) if isinstance(k, list) else _one(v, k) for v, k in pairs))

    return _Rule(tuple(kinds), make)


def _call(graph: Graph, node: JsonNode, callee: Any, arguments: Any, attrs: Any, span: Any) -> Expr:
    target, operands = _one(callee, Expr), _several(arguments, Expr)
    place = span if isinstance(span, str) else ""
    if isinstance(target, Constructor):
        if len(operands) != target.arity:
            raise ValueError(f"{target.name} takes {target.arity} values")
        return Call(target, operands, {}, place) if operands else target
    if not isinstance(target, Operator):
        return Call(target, operands, {}, place)
    return Call(target, operands, call_attributes(target.name, attrs), place)


def _function(graph: Graph, node: JsonNode, parameters: Any, body: Any, attrs: Any) -> Function:
    return Function(_several(parameters, Local), _one(body, Expr), function_attributes(attrs))


def _local(graph: Graph, node: JsonNode, identity: Any, annotation: Any, inferred: Any) -> Local:
    known = [item for item in (annotation, inferred) if isinstance(item, _TYPES)]
    # TVM 0.6 has the name here as well as in a node of its own.
    name = identity if isinstance(identity, str) else graph.string(node.fields.get("name_hint", ""))
    return Local(name, known[0] if known else None)


def _tensor_type(graph: Graph, node: JsonNode, shape: Any) -> TensorType:
    extents = []
    for extent in _several(shape, object):
        # What is neither a number nor `?` is an expression of open extents.
        if isinstance(extent, float) or (isinstance(extent, int) and extent < 0):
            raise ValueError(f"the extent {extent}")
        extents.append(extent if isinstance(extent, int) else None)
    return TensorType(tuple(extents), element_type(node.fields.get("dtype", "")))


def _tuple_type(graph: Graph, node: JsonNode, fields: Any) -> Type:
    inner = _several(fields, object)
    if not all(isinstance(item, _TYPES) for item in inner):
        return OtherType("a tuple of unknown types")
    found = TupleType(inner)
    for _ in parts(found, TupleType, attrgetter("fields")):
        pass
    return found


def _constructor(graph: Graph, node: JsonNode, inputs: Any) -> Constructor:
    return Constructor(_named_by(graph, node), len(_several(inputs, object)))


def _named_by(graph: Graph, node: JsonNode) -> str:
    return graph.string(node.fields.get("name_hint", ""))


def _place(graph: Graph, node: JsonNode, source: Any) -> str:
    line, column = node.fields.get("line", "0"), node.fields.get("column", "0")
    name = source if isinstance(source, str) else ""
    return name if line == "0" else f"{name}:{line}:{column}"


def _int(graph: Graph, node: JsonNode) -> int:
    number = integer(node.fields.get("value", ""))
    return number != 0 if node.fields.get("dtype") in ("bool", "uint1") else number


_NOTHING = _Rule((), lambda graph, node: None)
_OTHER_TYPES = ("FuncType", "TypeCall", "GlobalTypeVar", "TypeVar", "relay.RefType")
_RULES: Mapping[str, _Rule] = {
    "IntImm": _Rule((), _int),
    "FloatImm": _Rule((), lambda graph, node: float(node.fields.get("value", ""))),
    "runtime.String": _Rule((), lambda graph, node: node.text),
    "SourceName": _Rule((), lambda graph, node: node.text),
    "Span": _Rule(("source_name",), _place),
    "DictAttrs": _Rule(("__dict__",), lambda graph, node, pairs: pairs or ()),
    **dict.fromkeys(("VirtualDevice", "tir.Any", "IncompleteType"), _NOTHING),
    "tir.StringImm": _Rule((), lambda graph, node: graph.string(node.fields.get("value", ""))),
    "relay.TensorType": _Rule(("shape",), _tensor_type),
    "TupleType": _Rule(("fields",), _tuple_type),
    **dict.fromkeys(_OTHER_TYPES, _Rule((), lambda graph, node: OtherType(node.type_key))),
    "relay.Id": _Rule((), _named_by),
    "relay.Var": _Rule(("vid", "type_annotation", "_checked_type_"), _local),
    "GlobalVar": _Rule((), lambda graph, node: Global(_named_by(graph, node))),
    "Op": _Rule((), lambda graph, node: Operator(node.text)),
    "relay.Constant": _Rule(
        (), lambda graph, node: Constant(graph.array(integer(node.fields.get("data", ""))))
    ),
    "relay.Call": _Rule(("op", "args", "attrs", "span"), _call),
    "relay.Tuple": _of_parts(Tuple, fields=[Expr]),
    "relay.TupleGetItem": _Rule(
        ("tuple_value",),
        lambda graph, node, value: Item(_one(value, Expr), integer(node.fields.get("index", ""))),
    ),
    "relay.Function": _Rule(("params", "body", "attrs"), _function),
    "relay.Let": _of_parts(Let, var=Local, value=Expr, body=Expr),
    "relay.If": _of_parts(If, cond=Expr, true_branch=Expr, false_branch=Expr),
    "relay.Match": _of_parts(Match, data=Expr, clauses=[Clause]),
    "relay.Clause": _of_parts(Clause, lhs=Pattern, rhs=Expr),
    "relay.Constructor": _Rule(("inputs",), _constructor),
    "relay.PatternWildcard": _of_parts(AnyPattern),
    "relay.PatternVar": _of_parts(LocalPattern, var=Local),
    "relay.PatternConstructor": _of_parts(
        ConstructorPattern, constructor=Constructor, patterns=[Pattern]
    ),
    "relay.PatternTuple": _of_parts(TuplePattern, patterns=[Pattern]),
    "relay.RefCreate": _of_parts(NewReference, value=Expr),
    "relay.RefRead": _of_parts(ReadReference, ref=Expr),
    "relay.RefWrite": _of_parts(WriteReference, ref=Expr, value=Expr),
    "IRModule": _Rule(("functions",), lambda graph, node, functions: Module(entries(functions))),
}
