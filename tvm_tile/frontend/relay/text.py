"""Relay programs as text, version 0.0.5: what TVM 0.7 to 0.19 print."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from tvm_tile.errors import ModelFileError
from tvm_tile.frontend.relay.json_attributes import named
from tvm_tile.frontend.relay.json_graph import Graph
from tvm_tile.frontend.relay.json_nodes import Nodes
from tvm_tile.frontend.relay.program import Constructor, Function, Program
from tvm_tile.frontend.relay.text_expressions import Expressions
from tvm_tile.frontend.relay.text_values import MissingMetadata, Values
from tvm_tile.frontend.relay.tokens import TokenKind, Tokens

_VERSION = re.compile(r'\s*#\[version\s*=\s*"([^"]*)"\]')
_METADATA = re.compile(r"^#\[metadata\]", re.MULTILINE)
_READ = "0.0.5"


def read_text(text: str, source: str) -> Program:
    """A program that was saved as text.

    Args:
        text: the whole file.
        source: names it in messages.

    Raises:
        ModelFileError: it is something else than a program of Relay's, damaged, or saved without
            the tensors that it refers to.
    """
    try:
        return _read(text)
    except MissingMetadata as error:
        raise ModelFileError(
            "the text of a program must have its tensors with it",
            f"{source}: {error} is referred to, and there is no #[metadata]",
            "save it with show_meta_data=True, or as JSON with tvm.ir.save_json",
        ) from error
    except ValueError as error:
        raise _wrong(source, str(error)) from error
    except RecursionError as error:
        raise _wrong(source, "its brackets are nested too deeply") from error


def _wrong(source: str, reason: str) -> ModelFileError:
    return ModelFileError(
        f"a program must be what TVM 0.7 to 0.19 print of Relay, text version {_READ}, whole",
        f"{source}: {reason}",
        "save it again with mod.astext(show_meta_data=True), or as JSON with tvm.ir.save_json",
    )


def _read(text: str) -> Program:
    version = _VERSION.match(text)
    if version is None:
        raise ValueError(f'line 1: it does not begin with #[version = "{_READ}"]')
    if version[1] != _READ:
        raise ValueError(f"line 1: text version {version[1][:40]!r}")
    section = _METADATA.search(text)
    metadata = None if section is None else _metadata(text[section.end() :])
    blank = " " * version.end()
    tokens = Tokens(
        blank + text[version.end() :], len(text) if section is None else section.start()
    )
    return _Module(tokens, metadata).program()


def _metadata(text: str) -> Mapping[str, Sequence[Any]]:
    try:
        graph = Graph(text)
        nodes = Nodes(graph)
        objects = dict(named(graph.evaluated(nodes.references, nodes.make)))
    except ValueError as error:
        raise ValueError(f"its metadata: {error}") from error
    if not all(isinstance(listed, tuple) for listed in objects.values()):
        raise ValueError("its metadata is something else than lists of objects by class")
    return objects


class _Module:
    """Reads definitions, or the one expression that a text is."""

    def __init__(self, tokens: Tokens, metadata: Mapping[str, Sequence[Any]] | None) -> None:
        self._tokens = tokens
        self._values = Values(tokens, metadata)
        self._constructors: dict[str, Constructor] = {}
        self._expressions = Expressions(tokens, self._values, self._constructors)

    def program(self) -> Program:
        tokens, functions = self._tokens, dict[str, Function]()
        if not tokens.at("def", "type", "extern"):
            return Program({"main": self._alone()})
        while tokens.kind is not TokenKind.END:
            if tokens.accept("def"):
                start = tokens.start
                name = tokens.take(TokenKind.GLOBAL, "the name of a function")[1:]
                if name in functions:
                    tokens.fail(f"@{name} is defined twice", start)
                functions[name] = self._definition()
            elif tokens.accept("extern"):
                tokens.expect("type")
                self._values.type()
            else:
                tokens.expect("type")
                self._data_type()
        for name, start in self._expressions.called.items():
            if name not in functions:
                tokens.fail(f"@{name} is defined nowhere", start)
        if "main" not in functions:
            raise ValueError("it has no Relay function main")
        return Program(functions)

    def _definition(self) -> Function:
        if self._tokens.at("="):
            self._tokens.fail("a function whose code is elsewhere")
        return self._expressions.definition()

    def _alone(self) -> Function:
        body = self._expressions.definition_body()
        if self._tokens.kind is not TokenKind.END:
            self._tokens.fail(f"{self._tokens.described()} after the end of the expression")
        if isinstance(body, Function):
            return body
        return Function(self._expressions.free(), body)

    def _data_type(self) -> None:
        tokens = self._tokens
        self._values.type()
        if not tokens.accept("{"):
            return
        for _ in tokens.until("}"):
            start = tokens.start
            name = tokens.take(TokenKind.NAME, "a constructor")
            if name in self._constructors:
                tokens.fail(f"the constructor {name} is defined twice", start)
            arity = len(self._values.types(")")) if tokens.accept("(") else 0
            self._constructors[name] = Constructor(name, arity)
