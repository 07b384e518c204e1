"""What each class of nodes in TVM's JSON means: expressions, types and attributes of Relay."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, TypeVar

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
Made = TypeVar("Made")


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


def _checked(value: Any, kind: type[Made] | tuple[type[Made], ...], meaning: str) -> Made:
    if not isinstance(value, kind):
        raise ValueError(f"{meaning} is missing or something else")
    return value


def _expression(value: Any) -> Expr:
    if not isinstance(value, Expr):
        raise ValueError(f"{described(value)} stands where an expression should")
    return value


def _expressions(value: Any) -> tuple[Expr, ...]:
    return tuple(_expression(item) for item in _checked(value, tuple, "a list of expressions"))


def _pattern(value: Any) -> Pattern:
    if not isinstance(value, Pattern):
        raise ValueError(f"{described(value)} stands where a pattern should")
    return value


def _patterns(value: Any) -> tuple[Pattern, ...]:
    return tuple(_pattern(item) for item in _checked(value, tuple, "a list of patterns"))


def _call(graph: Graph, node: JsonNode, callee: Any, arguments: Any, attrs: Any, span: Any) -> Expr:
    target = _expression(callee)
    operands = _expressions(arguments)
    place = span if isinstance(span, str) else ""
    if isinstance(target, Constructor):
        if len(operands) != target.arity:
            raise ValueError(f"{target.name} takes {target.arity} values")
        return Call(target, operands, {}, place) if operands else target
    if not isinstance(target, Operator):
        return Call(target, operands, {}, place)
    return Call(target, operands, call_attributes(target.name, attrs), place)


def _function(graph: Graph, node: JsonNode, parameters: Any, body: Any, attrs: Any) -> Function:
    variables = _checked(parameters, tuple, "the parameters of a function")
    return Function(
        tuple(_checked(variable, Local, "a parameter") for variable in variables),
        _expression(body),
        function_attributes(attrs),
    )


def _local(graph: Graph, node: JsonNode, identity: Any, annotation: Any, inferred: Any) -> Local:
    known = [item for item in (annotation, inferred) if isinstance(item, _TYPES)]
    # TVM 0.6 has the name here as well as in a node of its own.
    name = identity if isinstance(identity, str) else graph.string(node.fields.get("name_hint", ""))
    return Local(name, known[0] if known else None)


def _tensor_type(graph: Graph, node: JsonNode, shape: Any) -> TensorType:
    extents = []
    for extent in _checked(shape, tuple, "a shape"):
        # What is neither a number nor `?` is an expression of open extents.
        if isinstance(extent, float) or (isinstance(extent, int) and extent < 0):
            raise ValueError(f"the extent {extent}")
        extents.append(extent if isinstance(extent, int) else None)
    return TensorType(tuple(extents), element_type(node.fields.get("dtype", "")))


def _tuple_type(graph: Graph, node: JsonNode, fields: Any) -> Type:
    inner = _checked(fields, tuple, "a list of types")
    if not all(isinstance(item, _TYPES) for item in inner):
        return OtherType("a tuple of unknown types")
    found = TupleType(inner)
    for _ in parts(found, TupleType, attrgetter("fields")):
        pass
    return found


def _let(graph: Graph, node: JsonNode, variable: Any, value: Any, body: Any) -> Let:
    return Let(_checked(variable, Local, "a variable"), _expression(value), _expression(body))


def _match(graph: Graph, node: JsonNode, value: Any, clauses: Any) -> Match:
    items = _checked(clauses, tuple, "a list of clauses")
    return Match(_expression(value), tuple(_checked(item, Clause, "a clause") for item in items))


def _constructor(graph: Graph, node: JsonNode, inputs: Any) -> Constructor:
    return Constructor(_named_by(graph, node), len(_checked(inputs, tuple, "a list of types")))


def _named_by(graph: Graph, node: JsonNode) -> str:
    return graph.string(node.fields.get("name_hint", ""))


def _place(graph: Graph, node: JsonNode, source: Any) -> str:
    line, column = node.fields.get("line", "0"), node.fields.get("column", "0")
    name = source if isinstance(source, str) else ""
    return name if line == "0" else f"{name}:{line}:{column}"


def _int(graph: Graph, node: JsonNode) -> int:
    number = integer(node.fields.get("value", ""))
    return number != 0 if node.fields.get("dtype") in ("bool", "uint1") else number


def _text(graph: Graph, node: JsonNode) -> str:
    return node.text


def _nothing(graph: Graph, node: JsonNode) -> None:
    return None


def _other_type(graph: Graph, node: JsonNode) -> OtherType:
    return OtherType(node.type_key)


_RULES: Mapping[str, _Rule] = {
    "IntImm": _Rule((), _int),
    "FloatImm": _Rule((), lambda graph, node: float(node.fields.get("value", ""))),
    "runtime.String": _Rule((), _text),
    "SourceName": _Rule((), _text),
    "Span": _Rule(("source_name",), _place),
    "DictAttrs": _Rule(("__dict__",), lambda graph, node, pairs: pairs or ()),
    "VirtualDevice": _Rule((), _nothing),
    "tir.Any": _Rule((), _nothing),
    "tir.StringImm": _Rule((), lambda graph, node: graph.string(node.fields.get("value", ""))),
    "relay.TensorType": _Rule(("shape",), _tensor_type),
    "TupleType": _Rule(("fields",), _tuple_type),
    "IncompleteType": _Rule((), _nothing),
    **{
        name: _Rule((), _other_type)
        for name in ("FuncType", "TypeCall", "GlobalTypeVar", "TypeVar", "relay.RefType")
    },
    "relay.Id": _Rule((), _named_by),
    "relay.Var": _Rule(("vid", "type_annotation", "_checked_type_"), _local),
    "GlobalVar": _Rule((), lambda graph, node: Global(_named_by(graph, node))),
    "Op": _Rule((), lambda graph, node: Operator(node.text)),
    "relay.Constant": _Rule(
        (), lambda graph, node: Constant(graph.array(integer(node.fields.get("data", ""))))
    ),
    "relay.Call": _Rule(("op", "args", "attrs", "span"), _call),
    "relay.Tuple": _Rule(("fields",), lambda graph, node, fields: Tuple(_expressions(fields))),
    "relay.TupleGetItem": _Rule(
        ("tuple_value",),
        lambda graph, node, value: Item(_expression(value), integer(node.fields.get("index", ""))),
    ),
    "relay.Function": _Rule(("params", "body", "attrs"), _function),
    "relay.Let": _Rule(("var", "value", "body"), _let),
    "relay.If": _Rule(
        ("cond", "true_branch", "false_branch"),
        lambda graph, node, *parts: If(*map(_expression, parts)),
    ),
    "relay.Match": _Rule(("data", "clauses"), _match),
    "relay.Clause": _Rule(
        ("lhs", "rhs"), lambda graph, node, lhs, rhs: Clause(_pattern(lhs), _expression(rhs))
    ),
    "relay.Constructor": _Rule(("inputs",), _constructor),
    "relay.PatternWildcard": _Rule((), lambda graph, node: AnyPattern()),
    "relay.PatternVar": _Rule(
        ("var",),
        lambda graph, node, variable: LocalPattern(_checked(variable, Local, "a variable")),
    ),
    "relay.PatternConstructor": _Rule(
        ("constructor", "patterns"),
        lambda graph, node, constructor, patterns: ConstructorPattern(
            _checked(constructor, Constructor, "a constructor"), _patterns(patterns)
        ),
    ),
    "relay.PatternTuple": _Rule(
        ("patterns",), lambda graph, node, patterns: TuplePattern(_patterns(patterns))
    ),
    "relay.RefCreate": _Rule(
        ("value",), lambda graph, node, value: NewReference(_expression(value))
    ),
    "relay.RefRead": _Rule(("ref",), lambda graph, node, cell: ReadReference(_expression(cell))),
    "relay.RefWrite": _Rule(
        ("ref", "value"),
        lambda graph, node, cell, value: WriteReference(_expression(cell), _expression(value)),
    ),
    "IRModule": _Rule(
        ("functions",),
        lambda graph, node, functions: Module(entries(functions)),
    ),
}
