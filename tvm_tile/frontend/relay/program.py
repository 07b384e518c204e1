"""A Relay program as data: what the readers of text and of JSON make. Knows no TVM.

Nodes are compared by identity, as Relay's are: a node that several others hold is one value, which
is computed once. A program may hold chains of many thousand nodes: no walk over it may recurse
along them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass(frozen=True, slots=True)
class TensorType:
    """Extents, ``None`` where the program leaves one open (``?``), and NumPy's name of the type.

    Types that NumPy lacks have the names of ``ml_dtypes``, such as ``bfloat16``.
    """

    shape: tuple[int | None, ...]
    dtype: str


@dataclass(frozen=True, slots=True)
class TupleType:
    """A type for each field."""

    fields: tuple[Type, ...]


@dataclass(frozen=True, slots=True)
class OtherType:
    """A type that the conversion never asks about: a function's, a reference's, a data type's."""

    text: str


Type = TensorType | TupleType | OtherType

Attribute = Any
"""int, float, bool, str, ``None``, an array (a constant), or a tuple of attributes."""


@dataclass(frozen=True, slots=True, eq=False)
class Constant:
    """A tensor that the program holds."""

    value: np.ndarray


@dataclass(frozen=True, slots=True, eq=False)
class Local:
    """A variable of a function, a ``let`` or a pattern.

    Attributes:
        name: as the importer that made the program wrote it.
        type: ``None`` where the program does not say.
    """

    name: str
    type: Type | None = None


@dataclass(frozen=True, slots=True)
class Global:
    """A function of the program, by name."""

    name: str


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator of Relay's, by name; its ``attrs`` are in the calls."""

    name: str


@dataclass(frozen=True, slots=True)
class Constructor:
    """Makes a value of an algebraic data type.

    Attributes:
        name: unique in the program.
        arity: how many values it takes; without any it is a value itself.
    """

    name: str
    arity: int


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """A call of an operator, a function or a constructor.

    Attributes:
        callee: an :class:`Operator`, a :class:`Global`, a :class:`Constructor`, or an expression
            whose value is a function.
        arguments: in order.
        attributes: of an operator: all that it has, defaults filled in.
        place: where it stands in the source, for messages; empty if unknown.
    """

    callee: Expr
    arguments: tuple[Expr, ...]
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    place: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Tuple:
    """Several values as one."""

    fields: tuple[Expr, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Item:
    """One field of a tuple."""

    value: Expr
    index: int


@dataclass(frozen=True, slots=True, eq=False)
class Function:
    """A function, which may use variables from around it.

    Attributes:
        parameters: in order.
        body: what it returns.
        attributes: such as ``Primitive`` or ``Compiler``; ``PartitionedFromPattern`` as well.
    """

    parameters: tuple[Local, ...]
    body: Expr
    attributes: Mapping[str, Attribute] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class Let:
    """``variable`` stands for ``value`` in ``body``; in ``value``, too, if that is a function."""

    variable: Local
    value: Expr
    body: Expr


@dataclass(frozen=True, slots=True, eq=False)
class If:
    """One of two values; only the one that is chosen is computed."""

    condition: Expr
    then: Expr
    otherwise: Expr


@dataclass(frozen=True, slots=True)
class AnyPattern:
    """Matches everything."""


@dataclass(frozen=True, slots=True)
class LocalPattern:
    """Matches everything, which the variable then stands for."""

    variable: Local


@dataclass(frozen=True, slots=True)
class ConstructorPattern:
    """Matches what a constructor made of values that match ``fields``."""

    constructor: Constructor
    fields: tuple[Pattern, ...]


@dataclass(frozen=True, slots=True)
class TuplePattern:
    """Matches a tuple whose fields match."""

    fields: tuple[Pattern, ...]


Pattern = AnyPattern | LocalPattern | ConstructorPattern | TuplePattern


@dataclass(frozen=True, slots=True)
class Clause:
    """What a match returns for values of a form."""

    pattern: Pattern
    body: Expr


@dataclass(frozen=True, slots=True, eq=False)
class Match:
    """The body of the first clause whose pattern matches."""

    value: Expr
    clauses: tuple[Clause, ...]


@dataclass(frozen=True, slots=True, eq=False)
class NewReference:
    """A new cell that holds a value."""

    value: Expr


@dataclass(frozen=True, slots=True, eq=False)
class ReadReference:
    """What a cell holds now."""

    reference: Expr


@dataclass(frozen=True, slots=True, eq=False)
class WriteReference:
    """Puts a value into a cell; is the empty tuple itself."""

    reference: Expr
    value: Expr


Expr = (
    Constant
    | Local
    | Global
    | Operator
    | Constructor
    | Call
    | Tuple
    | Item
    | Function
    | Let
    | If
    | Match
    | NewReference
    | ReadReference
    | WriteReference
)


@dataclass(frozen=True, slots=True)
class Program:
    """A module of Relay.

    Attributes:
        functions: by name, ``main`` among them.
    """

    functions: Mapping[str, Function]
