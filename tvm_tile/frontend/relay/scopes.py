"""Which variables a place in Relay's text may use."""

from __future__ import annotations

import re

from tvm_tile.frontend.relay.program import Expr, Local

_SEPARATOR = re.compile(r"[./:-]")
_LONGEST = 1000


class Scopes:
    """Variables by name, inner ones before outer ones, and bindings by number.

    Bindings are not scoped: TVM prints one that both branches of an ``if`` use in the first of
    them only.
    """

    def __init__(self) -> None:
        self._variables: dict[str, Local] = {}
        self._hidden: list[tuple[str, Local | None]] = []
        self._numbered: dict[str, Expr] = {}

    def bind(self, variable: Local) -> None:
        """Let a variable be known, in place of any of the same name."""
        self._hidden.append((variable.name, self._variables.get(variable.name)))
        self._variables[variable.name] = variable

    def mark(self) -> int:
        """What :meth:`restore` needs to come back to what is known now."""
        return len(self._hidden)

    def restore(self, mark: int) -> None:
        """Forget the variables that were bound since."""
        while len(self._hidden) > mark:
            name, before = self._hidden.pop()
            if before is None:
                del self._variables[name]
            else:
                self._variables[name] = before

    def variable(self, text: str) -> Local | None:
        """The variable with the longest name that a text begins with, up to a separator."""
        if len(text) > _LONGEST:
            return None
        ends = [len(text), *(match.start() for match in _SEPARATOR.finditer(text))]
        for end in sorted(ends, reverse=True):
            if text[:end] in self._variables:
                return self._variables[text[:end]]
        return None

    def number(self, name: str, value: Expr) -> None:
        """Bind a number."""
        self._numbered[name] = value

    def numbered(self, name: str) -> Expr | None:
        """What is bound to a number."""
        return self._numbered.get(name)
