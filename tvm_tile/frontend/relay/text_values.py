"""Types, numbers, attributes and references to the metadata in Relay's text."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tvm_tile.frontend.relay.arrays import element_type
from tvm_tile.frontend.relay.attributes import integer
from tvm_tile.frontend.relay.json_attributes import attribute, described
from tvm_tile.frontend.relay.program import (
    Attribute,
    OtherType,
    TensorType,
    TupleType,
    Type,
)
from tvm_tile.frontend.relay.tokens import TokenKind, Tokens

_NUMBER = re.compile(r"(-*)(inf|nan|\d+(?:\.\d*)?(?:e[+-]?\d+)?)(?:([fiu])(\d*))?", re.ASCII)
_WIDTHS = ("8", "16", "32", "64")
_TRUTH = {"True": True, "False": False}
_NOTHING = ("None", "nullptr", "?")


class Values:
    """Reads the parts of a text that hold no expressions.

    Args:
        tokens: the text; every method begins at its token and passes what it read.
        metadata: objects by class, which the text refers to by number; ``None`` if it was saved
            without.
    """

    def __init__(self, tokens: Tokens, metadata: Mapping[str, Sequence[Any]] | None) -> None:
        self._tokens = tokens
        self._metadata = metadata

    def type(self) -> Type | None:
        """A type; ``None`` where the text leaves it open (``_``)."""
        tokens = self._tokens
        if tokens.accept("("):
            fields = self.types(")")
            known = tuple(field for field in fields if field is not None)
            return TupleType(known) if len(known) == len(fields) else OtherType("a tuple")
        if tokens.at("meta"):
            return OtherType(described(self.meta()))
        start = tokens.start
        name = tokens.take(TokenKind.NAME, "a type")
        if name == "_":
            return None
        if name == "Tensor":
            return self._tensor_type()
        if name == "fn":
            self._function_type()
            return OtherType("a function")
        if name == "ref" and tokens.accept("("):
            self.types(")")
            return OtherType("a reference")
        if tokens.accept("["):
            self.types("]")
            return OtherType(name)
        try:
            return TensorType((), element_type(name))
        except ValueError:
            if name[:1].islower():
                tokens.fail(f"the type {name[:40]}, which no tensor here can have", start)
            return OtherType(name)

    def optional_type(self) -> Type | None:
        """A type after a colon, if there is one."""
        return self.type() if self._tokens.accept(":") else None

    def types(self, closing: str) -> list[Type | None]:
        """Types, with commas, up to a bracket, which is passed."""
        return [self.type() for _ in self._tokens.until(closing)]

    def _function_type(self) -> None:
        if self._tokens.accept("["):
            self.types("]")
        self._tokens.expect("(")
        self.types(")")
        self._tokens.expect("->")
        self.type()

    def _tensor_type(self) -> TensorType:
        tokens = self._tokens
        tokens.expect("[")
        tokens.expect("(")
        extents = tuple(self._extent() for _ in tokens.until(")"))
        tokens.expect(",")
        start = tokens.start
        name = tokens.take(TokenKind.NAME, "an element type")
        tokens.expect("]")
        try:
            return TensorType(extents, element_type(name))
        except ValueError as error:
            tokens.fail(str(error), start)

    def _extent(self) -> int | None:
        tokens = self._tokens
        if tokens.accept("?"):
            return None
        if tokens.at("meta"):
            self.meta()
            return None
        start = tokens.start
        value = self._number()
        if not isinstance(value, int) or value < 0:
            tokens.fail(f"the extent {value}", start)
        return value

    def _number(self) -> int | float:
        start = self._tokens.start
        text = self._tokens.take(TokenKind.NUMBER, "a number")
        try:
            return _parsed(text)[0]
        except ValueError as error:
            self._tokens.fail(str(error), start)

    def meta(self) -> Any:
        """An object of the metadata, such as ``meta[relay.Constant][3]``."""
        tokens, start = self._tokens, self._tokens.start
        tokens.expect("meta")
        tokens.expect("[")
        type_key = tokens.take(TokenKind.NAME, "a class of objects")
        tokens.expect("]")
        tokens.expect("[")
        index = self._number()
        tokens.expect("]")
        if self._metadata is None:
            raise MissingMetadata(f"{tokens.place(start)}: meta[{type_key}][{index}]")
        objects = self._metadata.get(type_key, ())
        if not isinstance(index, int) or not 0 <= index < len(objects):
            tokens.fail(f"the metadata has no {type_key} {index}", start)
        return objects[index]

    def attributes(
        self, of_objects: Callable[[Any], Attribute] = attribute
    ) -> dict[str, Attribute]:
        """Attributes, one after another.

        Args:
            of_objects: makes the value of an attribute that is an object of the metadata.
        """
        found: dict[str, Attribute] = {}
        while self._tokens.kind is TokenKind.NAME and self._tokens.names_a_value():
            start = self._tokens.start
            name = self._tokens.advance()
            self._tokens.expect("=")
            if name in found:
                self._tokens.fail(f"the attribute {name} occurs twice", start)
            found[name] = self._value(of_objects)
            if not self._tokens.accept(","):
                break
        return found

    def _value(self, of_objects: Callable[[Any], Attribute]) -> Attribute:
        tokens = self._tokens
        if tokens.kind is TokenKind.NUMBER:
            return self._number()
        if tokens.kind is TokenKind.STRING:
            return tokens.advance()[1:-1]
        if tokens.at(*_TRUTH):
            return _TRUTH[tokens.advance()]
        if tokens.at(*_NOTHING):
            tokens.advance()
            return None
        if tokens.at("meta"):
            return self._meta_value(of_objects)
        tokens.expect("[")
        return tuple([self._value(of_objects) for _ in tokens.until("]")])

    def _meta_value(self, of_objects: Callable[[Any], Attribute]) -> Attribute:
        start = self._tokens.start
        value = self.meta()
        try:
            return of_objects(value)
        except ValueError as error:
            self._tokens.fail(str(error), start)


class MissingMetadata(ValueError):
    """A text refers to its metadata, and was saved without."""


def scalar(text: str) -> np.ndarray:
    """The constant that a number is.

    Raises:
        ValueError: no type holds it.
    """
    value, dtype = _parsed(text)
    if isinstance(value, float):
        with np.errstate(over="ignore", under="ignore"):
            return np.array(value, dtype)
    if not np.iinfo(dtype).min <= value <= np.iinfo(dtype).max:
        raise ValueError(f"{value} is no {dtype}")
    return np.array(value, dtype)


def _parsed(text: str) -> tuple[int | float, str]:
    match = _NUMBER.fullmatch(text)
    if match is None:
        raise ValueError(f"the number {text[:40]!r}")
    sign, digits, letter, bits = match.groups()
    is_negative = len(sign) % 2 == 1
    if letter == "f" or (not letter and not digits.isdigit()):
        # Without a letter it is an attribute of C++'s type double.
        dtype = element_type(f"float{bits or (32 if letter else 64)}")
        return -float(digits) if is_negative else float(digits), dtype
    value = -integer(digits) if is_negative else integer(digits)
    if not letter:
        return value, "int32" if -(2**31) <= value < 2**31 else "int64"
    if bits not in _WIDTHS:
        raise ValueError(f"the number {text[:40]!r}")
    return value, f"{'int' if letter == 'i' else 'uint'}{bits}"
