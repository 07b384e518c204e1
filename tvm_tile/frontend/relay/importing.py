"""The front door for Relay programs."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tvm

from tvm_tile.errors import ModelError, ModelFileError
from tvm_tile.frontend.declared import Shapes
from tvm_tile.frontend.imported import Imported
from tvm_tile.frontend.prepare import prepared
from tvm_tile.frontend.relay.arrays import read_params
from tvm_tile.frontend.relay.convert import convert, shapes_of
from tvm_tile.frontend.relay.files import read_program, renamed
from tvm_tile.frontend.relay.given import RelayText
from tvm_tile.frontend.relay.program import Program

Params = str | Path | bytes | Mapping[str, Any]
"""Values of parameters: a file, its content, or a mapping from names to arrays."""


@dataclass(frozen=True, slots=True)
class RelayProgram:
    """A saved program that was read, once for all who import it.

    Attributes:
        program: the program.
        params: values of parameters that are saved with it; ``None`` where none are.
    """

    program: Program
    params: Mapping[str, np.ndarray] | None

    @classmethod
    def of(cls, model: str | Path | RelayText | RelayProgram) -> RelayProgram:
        """Read a file or a text.

        Raises:
            ModelFileError: as of :func:`import_relay`.
        """
        if isinstance(model, RelayProgram):
            return model
        if isinstance(model, RelayText):
            return cls(*read_program(model.text, "the text"))
        return cls(*read_program(Path(model), str(model)))


def import_relay(
    model: str | Path | RelayText | RelayProgram,
    *,
    params: Params | None = None,
    inputs: Mapping[str, Sequence[int]] | None = None,
    matrix_dtypes: frozenset[str] = frozenset(),
) -> Imported:
    """Import a saved Relay program.

    Args:
        model: a file, or the program at hand: text or JSON of TVM 0.6 to 0.19, or an archive in
            the Model Library Format, which holds its parameters.
        params: values of parameters of ``@main``, which then are constants. The others are the
            model's inputs; if ``inputs`` is given, too, it must name all of these.
        inputs: input name -> extents, for inputs whose shape the program leaves open.
        matrix_dtypes: as of :func:`tvm_tile.frontend.import_model`.

    Returns:
        The model as Relax operators, with its weights as constants.

    Raises:
        ModelFileError: a file is missing, damaged or of another kind; of text with the line.
        ModelError: ``params`` or ``inputs`` contradict the program.
        DynamicShapeError: an input's extent is neither in the program nor in ``inputs``.
        UnsupportedOperatorError: operators that cannot be imported, all of them by name.
    """
    mod, names = _converted(model, params, inputs)
    return prepared(mod, names, matrix_dtypes=matrix_dtypes)


def from_relay(
    model: str | Path | RelayText | RelayProgram,
    *,
    params: Params | None = None,
    inputs: Mapping[str, Sequence[int]] | None = None,
) -> tvm.IRModule:
    """A saved Relay program as plain Relax, for a pipeline of one's own.

    Arguments and errors are those of :func:`import_relay`.

    Returns:
        A module whose ``main`` takes the inputs in their order; TVM's own ``relax`` operators, and
        kernels where there is none.
    """
    mod, _ = _converted(model, params, inputs)
    return mod


def declared(model: RelayProgram) -> Shapes:
    """The shapes of the parameters of ``@main``; open extents have no bounds, and each its own
    name."""
    main = model.program.functions.get("main")
    return {} if main is None else shapes_of(main)


def _converted(
    model: str | Path | RelayText | RelayProgram,
    params: Params | None,
    inputs: Mapping[str, Sequence[int]] | None,
) -> tuple[tvm.IRModule, tuple[str, ...]]:
    read = RelayProgram.of(model)
    given = read.params or {} if params is None else renamed(arrays_of(params), read.program)
    return convert(read.program, given, inputs or {})


def arrays_of(params: Any) -> dict[str, np.ndarray]:
    """The values of ``params``, whatever they came in.

    Raises:
        ModelFileError: it is a file that is missing or damaged.
        ModelError: it is nothing that holds arrays by their names.
    """
    if isinstance(params, str | os.PathLike):
        try:
            content = Path(params).read_bytes()
        except OSError as error:
            raise ModelFileError(
                "params= must name a file of relay.save_param_dict",
                f"{params}: {error.strerror}",
                "check the path",
            ) from error
        return read_params(content, str(params))
    if isinstance(params, bytes | bytearray | memoryview):
        return read_params(bytes(params), "params=")
    if not isinstance(params, Mapping) or not all(isinstance(name, str) for name in params):
        raise ModelError(
            "params= must be a file, its bytes, or a mapping from names to arrays",
            f"a {type(params).__name__}",
            "pass what relay.save_param_dict wrote, or {name: array}",
        )
    return {name: _array(name, value) for name, value in params.items()}


def _array(name: str, value: Any) -> np.ndarray:
    array = value.numpy() if hasattr(value, "numpy") else np.asarray(value)
    if array.dtype.kind not in "biufV" or array.dtype.hasobject:
        raise ModelError(
            "params= must map names to arrays of numbers",
            f"{name!r} is of type {array.dtype}",
            "pass NumPy arrays, or what relay.save_param_dict wrote",
        )
    return np.ascontiguousarray(array).reshape(array.shape)
