"""Models as users give them, read once, for all that is then asked of them."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tvm

from tvm_tile.errors import ModelError
from tvm_tile.frontend.relay.given import is_relay
from tvm_tile.frontend.relay.importing import Params, RelayProgram
from tvm_tile.frontend.several_models import Together


def read_model(
    model: Any,
    example_inputs: Sequence[Any] | Mapping[str, Any] | None = None,
    params: Params | None = None,
) -> Any:
    """What a user gives as a model, in memory and checked; what was read already, itself.

    Args:
        model: path of an ONNX file, of a ``.pt2`` file or of a saved Relay program,
            ``onnx.ModelProto``, ``torch.export.ExportedProgram``, ``torch.nn.Module``,
            :class:`RelayText`, a Relax ``IRModule`` with a function ``main``, or several of these
            as :func:`~tvm_tile.frontend.several_models.together` gives them.
        example_inputs: arguments of a module's ``forward``; needed for ``torch.nn.Module`` only.
        params: values of a Relay program's parameters, which no other model has.

    Returns:
        A ``ValidModel`` of ONNX, an ``ExportedProgram``, a :class:`RelayProgram`, an ``IRModule``,
        or several of these.

    Raises:
        ModelFileError: the file is missing, or no valid model.
        ModelError: ``model`` is of no supported kind, or has no ``params``; or a module has no
            ``example_inputs``, or cannot be exported.
    """
    if isinstance(model, Together):
        return model.each(lambda own: read_model(own, example_inputs))
    if isinstance(model, RelayProgram):
        return model
    if is_relay(model):
        return RelayProgram.of(model)
    if params is not None:
        raise ModelError(
            "params= has the parameters of a saved Relay program",
            f"it was given for {_described(model)}",
            "leave params= out: other models hold their weights",
        )
    kinds = ("tvm_tile.frontend.onnx.model", "ValidModel"), ("torch.export", "ExportedProgram")
    if isinstance(model, tvm.IRModule) or any(is_instance(model, *kind) for kind in kinds):
        return model
    if isinstance(model, str | Path) and Path(model).suffix == ".pt2":
        from tvm_tile.frontend.exported_file import read_exported

        return read_exported(Path(model))
    if isinstance(model, str | Path) or is_instance(model, "onnx", "ModelProto"):
        from tvm_tile.frontend.onnx.model import ValidModel

        return ValidModel.of(model)
    if is_instance(model, "torch.nn", "Module"):
        return _exported(model, example_inputs)
    raise ModelError(
        "a model is the path of an ONNX or Relay file, an onnx.ModelProto, a torch "
        "ExportedProgram, a torch.nn.Module, a RelayText or a Relax IRModule",
        _described(model),
        "export the model to one of these",
    )


def _exported(module: Any, example_inputs: Sequence[Any] | Mapping[str, Any] | None) -> Any:
    if example_inputs is None:
        raise ModelError(
            "a torch.nn.Module is compiled together with example inputs",
            f"{type(module).__name__} without example_inputs",
            "pass example_inputs=(tensor, ...), or what torch.export.export returns",
        )
    from tvm_tile.frontend.torch import exported

    return exported(module, example_inputs)


def _described(model: Any) -> str:
    """Words for a model: its path, or its type."""
    if isinstance(model, str | Path):
        return str(model)
    return f"{type(model).__module__}.{type(model).__qualname__}"


def is_instance(model: Any, module: str, class_name: str) -> bool:
    """Like ``isinstance``, without importing ``module``: if it is not loaded, the answer is no."""
    loaded = sys.modules.get(module)
    return loaded is not None and isinstance(model, getattr(loaded, class_name))
