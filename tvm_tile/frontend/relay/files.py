"""What a file is that somebody saved with Relay, by what is in it, and the program it holds."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path, PurePosixPath

import numpy as np

from tvm_tile.errors import ModelFileError
from tvm_tile.frontend.relay.arrays import is_params, read_params
from tvm_tile.frontend.relay.json_file import read_json
from tvm_tile.frontend.relay.program import Program
from tvm_tile.frontend.relay.text import read_text

_SPACE = b" \t\r\n"
_TAR_MAGIC_AT, _TAR_MAGIC = 257, b"ustar"
_START = 4096
_MOST_MEMBERS = 10_000


class Format(Enum):
    """Ways in which Relay programs are kept."""

    TEXT = "text"
    JSON = "JSON"
    LIBRARY = "Model Library Format"


def format_of(data: bytes) -> Format | None:
    """What bytes seem to be, by how they begin; ``None`` for something else."""
    start = data[:_START].lstrip(_SPACE)
    if start.startswith(b"#[version"):
        return Format.TEXT
    if start.startswith(b"{"):
        return Format.JSON
    if data[_TAR_MAGIC_AT:].startswith(_TAR_MAGIC):
        return Format.LIBRARY
    return None


def read_program(
    model: Path | bytes | str, source: str
) -> tuple[Program, dict[str, np.ndarray] | None]:
    """A program, and the weights that are kept with it.

    Args:
        model: a file's path, or what is in it.
        source: names it in messages.

    Raises:
        ModelFileError: it is missing, something else than a saved program of Relay's, or damaged.
        UnsupportedOperatorError: it is from before or after what can be read of an operator.
    """
    data = _content(model)
    match format_of(data):
        case Format.TEXT:
            return read_text(_decoded(data, source), source), None
        case Format.JSON:
            return read_json(data, source), None
        case Format.LIBRARY:
            return _library(data, source)
    if is_params(data):
        raise ModelFileError(
            "a model must be a program; weights alone are none",
            f"{source} holds weights that Relay saved",
            "give the program, and these as its parameters",
        )
    raise ModelFileError(
        'a saved program of Relay must be text that begins with #[version = "0.0.5"], JSON of '
        "tvm.ir.save_json, or a .tar of Model Library Format",
        f"{source} begins with {data[:20]!r}",
        "save it with mod.astext(show_meta_data=True) or tvm.ir.save_json(mod)",
    )


def renamed(params: Mapping[str, np.ndarray], program: Program) -> dict[str, np.ndarray]:
    """Weights by the names that a text has for the parameters of its program.

    TVM prints a ``v`` before names that do not begin with a letter, and keeps the names of the
    weights as they were.
    """
    names = {parameter.name for parameter in program.functions["main"].parameters}
    return {
        f"v{name}" if name not in names and f"v{name}" in names else name: array
        for name, array in params.items()
    }


def _content(model: Path | bytes | str) -> bytes:
    if isinstance(model, str):
        return model.encode("utf-8", "surrogatepass")
    if isinstance(model, bytes):
        return model
    if not model.is_file():
        raise ModelFileError(
            "the model must be an existing file",
            f"{model} is {'a folder' if model.is_dir() else 'missing'}",
            "check the path",
        )
    try:
        with model.open("rb") as file:
            start = file.read(_START)
            # Something else may be of any size.
            return start if format_of(start) is None else start + file.read()
    except OSError as error:
        raise ModelFileError(
            "the model must be a file that can be read", str(error), "check its permissions"
        ) from error


def _decoded(data: bytes, source: str) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ModelFileError(
            "the text of a program must be UTF-8",
            f"{source}: {error}",
            "save it again with mod.astext(show_meta_data=True), in UTF-8",
        ) from error


def _library(data: bytes, source: str) -> tuple[Program, dict[str, np.ndarray] | None]:
    members = dict(_members(data, source))
    texts = [path for path in members if path.name == "relay.txt"]
    if len(texts) != 1:
        raise _unreadable(source, f"{len(texts)} programs, files called relay.txt")
    text = _decoded(members[texts[0]], source)
    program = read_text(text, f"{source}: {texts[0]}")
    params: dict[str, np.ndarray] = {}
    for path in members:
        if path.suffix == ".params":
            more = read_params(members[path], f"{source}: {path}")
            if params.keys() & more.keys():
                raise _unreadable(source, f"{path} names tensors that another file names")
            params |= more
    return program, renamed(params, program) or None


def _members(data: bytes, source: str) -> Iterator[tuple[PurePosixPath, bytes]]:
    """The files in a library that matter, from memory: nothing is ever unpacked."""
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as library:
            for count, member in enumerate(library):
                path = PurePosixPath(member.name)
                if count == _MOST_MEMBERS:
                    raise _unreadable(source, f"more than {_MOST_MEMBERS} files")
                if path.name != "relay.txt" and path.suffix != ".params":
                    continue
                if not member.isreg() or member.issparse() or member.size > len(data):
                    raise _unreadable(source, f"{path} is no ordinary file")
                file = library.extractfile(member)
                yield path, b"" if file is None else file.read()
    except (tarfile.TarError, EOFError, OSError, ValueError, OverflowError) as error:
        raise _unreadable(source, str(error)) from error
    except RecursionError as error:
        raise _unreadable(source, "headers upon headers") from error


def _unreadable(source: str, reason: str) -> ModelFileError:
    return ModelFileError(
        "a .tar must be a library of Model Library Format, whole, with one program in it",
        f"{source}: {reason}",
        "export it again with tvm.micro.export_model_library_format, or give the program as text",
    )
