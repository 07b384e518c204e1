"""Words and signs of Relay's text, with their places."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from enum import Enum, auto
from typing import NoReturn


class TokenKind(Enum):
    """What a token is."""

    GRAPH = auto()  # %12
    LOCAL = auto()  # %name
    GLOBAL = auto()  # @name
    NUMBER = auto()
    STRING = auto()
    NAME = auto()  # a keyword, an operator, a type
    ITEM = auto()  # .1
    SIGN = auto()
    END = auto()


# Importers' names have more in them than TVM's parser takes: `%layer1.0.conv.weight`,
# `%onnx::Gemm_7`, `%input:0`. What belongs to a name is decided where the name is used.
_PART = r"(?:\w|/(?![*/]))"
_TOKEN = re.compile(
    rf"""
      (?P<GRAPH>%\d+)
    | (?P<LOCAL>%[^\W\d]{_PART}*(?:(?:\.|::|-|:(?=\d)){_PART}+)*)
    | (?P<GLOBAL>@[^\W\d]\w*(?:\.\w+)*)
    | (?P<NUMBER>-*(?:\d+(?:\.\d*)?(?:e[+-]?\d+)?|(?:inf|nan)(?=f\b|f\d))(?:[fiu]\d*)?)
    | (?P<STRING>"[^"]*")
    | (?P<NAME>[^\W\d]\w*(?:\.[^\W\d]\w*)*)
    | (?P<ITEM>\.\d+)
    | (?P<SIGN>->|=>|==|!=|<=|>=|[][(){{}},;:=<>+*/?-])
    """,
    re.VERBOSE,
)
_KINDS = {kind.name: kind for kind in TokenKind}
_SPACE = re.compile(r"(?:\s+|//[^\n]*|/\*(?:[^*/]|\*(?!/)|/(?!\*))*\*/)*")
_COMMENT_MARK = re.compile(r"/\*|\*/")
_EQUALS = re.compile(r"\s*=(?![=>])")


class Tokens:
    """A place in a text: the token there, and ways to move on.

    Args:
        text: all of it.
        end: where the program in it ends.

    Attributes:
        kind: kind of the token.
        text: whole text of the token.
        start: where it begins.
    """

    def __init__(self, text: str, end: int) -> None:
        self._text, self._end = text, end
        self._lines = [0, *(match.end() for match in re.finditer("\n", text))]
        self.kind, self.text, self.start, self._stop = TokenKind.END, "", 0, 0
        self.advance()

    def advance(self) -> str:
        """Go to the next token; returns the text of this one."""
        text = self.text
        self._move(self._stop)
        return text

    def shorten(self, length: int) -> None:
        """Let the token end after that many characters, the others of which are more tokens."""
        self._stop = self.start + length
        self.text = self.text[:length]

    def at(self, *texts: str) -> bool:
        """Whether the token is one of these names or signs."""
        return self.text in texts and self.kind in (TokenKind.NAME, TokenKind.SIGN)

    def accept(self, text: str) -> bool:
        """Pass a name or sign if it is there."""
        found = self.at(text)
        if found:
            self.advance()
        return found

    def expect(self, text: str) -> None:
        """Pass a name or sign that must be there."""
        if not self.accept(text):
            self.fail(f"{text!r} is expected, and {self.described()} is there")

    def take(self, kind: TokenKind, meaning: str) -> str:
        """Pass a token that must be of a kind; returns its text."""
        if self.kind is not kind:
            self.fail(f"{meaning} is expected, and {self.described()} is there")
        return self.advance()

    def until(self, closing: str) -> Iterator[None]:
        """Come back for each of several things with commas between them, up to a bracket, which is
        passed."""
        while not self.accept(closing):
            yield
            if not self.at(closing):
                self.expect(",")

    def names_a_value(self) -> bool:
        """Whether this is the name, or the number of a binding, in ``name=value``."""
        is_name = self.kind in (TokenKind.NAME, TokenKind.GRAPH)
        return is_name and _EQUALS.match(self._text, self._stop) is not None

    def begins(self, text: str) -> bool:
        """Whether the text goes on so from here, whatever its tokens."""
        return self._text.startswith(text, self.start)

    def described(self) -> str:
        """The token, for messages."""
        return repr(self.text[:40]) if self.kind is not TokenKind.END else "the end"

    def place(self, start: int) -> str:
        """The line and the column of a character, for messages."""
        line = bisect_right(self._lines, start)
        return f"line {line}, column {start - self._lines[line - 1] + 1}"

    def fail(self, reason: str, start: int | None = None) -> NoReturn:
        """Say what is wrong, and where: here, or where another token started."""
        raise ValueError(f"{self.place(self.start if start is None else start)}: {reason}")

    def _move(self, start: int) -> None:
        start = self._after_space(start)
        self.start = self._stop = start
        self.kind, self.text = TokenKind.END, ""
        if start >= self._end:
            return
        match = _TOKEN.match(self._text, start, self._end)
        if match is None:
            self.fail(f"{self._text[start : start + 1]!r}, which means nothing here")
        self.kind, self.text = _KINDS[match.lastgroup or ""], match.group()
        self._stop = match.end()

    def _after_space(self, start: int) -> int:
        while True:
            match = _SPACE.match(self._text, start, self._end)
            start = match.end() if match else start
            if not self._text.startswith("/*", start) or start >= self._end:
                return start
            start = self._after_nested_comment(start)

    def _after_nested_comment(self, start: int) -> int:
        depth = 0
        for mark in _COMMENT_MARK.finditer(self._text, start, self._end):
            depth += 1 if mark.group() == "/*" else -1
            if depth == 0:
                return mark.end()
        self.start = start
        self.fail("a comment that does not end")
