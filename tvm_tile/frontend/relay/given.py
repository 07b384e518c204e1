"""What a user gives as a Relay program."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tvm_tile.frontend.relay.files import format_of

_START = 4096


@dataclass(frozen=True, slots=True)
class RelayText:
    """A Relay program as text (``#[version = "0.0.5"]``) or as JSON (``tvm.ir.save_json``).

    Example:
        ``tvm_tile.compile(tvm_tile.RelayText(text), params=weights)``
    """

    text: str


def is_relay(model: Any) -> bool:
    """Whether a model is a Relay program: a :class:`RelayText`, or the path of a file with one.

    A file is told by what it begins with, as no file of ONNX or of PyTorch begins; what is
    something else, or missing, by its name, so that the error says what is missing of a program.
    """
    if isinstance(model, RelayText):
        return True
    if not isinstance(model, str | Path):
        return False
    try:
        with Path(model).open("rb") as file:
            start = file.read(_START)
    except OSError:
        start = b""
    return format_of(start) is not None or Path(model).suffix == ".relay"
