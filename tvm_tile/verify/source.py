"""Results of the model that was compiled, by itself: in ONNX Runtime, or in PyTorch."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tvm_tile.frontend.exported_file import read_exported
from tvm_tile.frontend.relay.given import is_relay
from tvm_tile.graph.signature import RANDOM
from tvm_tile.verify.compare import Array


@dataclass(frozen=True, slots=True)
class Reference:
    """Origin of a model, as something to call.

    Attributes:
        name: name of the computing library, or the reason why nothing can compute it.
        run: function from the inputs by name to the outputs in order; None where nothing can.
    """

    name: str
    run: Callable[[Mapping[str, Array]], list[Array]] | None = None


def source_of(model: Any, state: Mapping[str, Array]) -> Reference:
    """The source of anything that can be compiled.

    Args:
        model: model as in :func:`tvm_tile.compile`; a path is opened again.
        state: state at the start of a run; a module's own buffers stay as they are.
    """
    torch = sys.modules.get("torch")  # whoever has a module of torch's has imported it
    if model is None:
        return Reference("not compared: what was compiled is gone; keep it for as long")
    if RANDOM in state:
        return Reference("not compared: it draws random numbers, others than its source")
    if isinstance(model, str | Path) and Path(model).suffix == ".pt2":
        model = read_exported(Path(model))
        torch = sys.modules["torch"]
    if torch is not None and isinstance(model, torch.export.ExportedProgram):
        return Reference("against PyTorch", lambda inputs: _in_torch(model.module(), inputs, state))
    if torch is not None and isinstance(model, torch.nn.Module):
        return Reference("against PyTorch", lambda inputs: _evaluated(model, inputs, state))
    if is_relay(model):
        return Reference("not compared: nothing that runs Relay is left")
    if isinstance(model, str | Path) or type(model).__name__ == "ModelProto":
        if importlib.util.find_spec("onnxruntime") is None:
            return Reference("not compared: ONNX Runtime is not installed")
        return Reference("against ONNX Runtime", lambda inputs: _in_onnxruntime(model, inputs))
    return Reference("not compared: a Relax module has no other source")


def _evaluated(module: Any, inputs: Mapping[str, Array], state: Mapping[str, Array]) -> list[Array]:
    """A module's outputs in evaluation mode; an exported program's has no mode to set."""
    was_training = {child: child.training for child in module.modules()}
    module.eval()
    try:
        return _in_torch(module, inputs, state)
    finally:
        for child, training in was_training.items():
            child.training = training


def _in_torch(module: Any, inputs: Mapping[str, Array], state: Mapping[str, Array]) -> list[Array]:
    """Results of a PyTorch module, with a state if it has one."""
    import torch

    with torch.no_grad():
        given = tuple(map(_as_torch, inputs.values()))
        kept = {name: _as_torch(array) for name, array in state.items()}
        result = torch.func.functional_call(module, kept, given) if kept else module(*given)
    leaves = torch.utils._pytree.tree_leaves(result)
    return [_as_numpy(leaf) for leaf in leaves if isinstance(leaf, torch.Tensor)]


def _as_torch(array: Array) -> Any:
    """A NumPy array as a tensor of PyTorch."""
    import torch

    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.uint16).copy()).view(torch.bfloat16)
    return torch.from_numpy(array.copy())


def _as_numpy(tensor: Any) -> Array:
    """A tensor of PyTorch as a NumPy array."""
    array: Array
    if str(tensor.dtype) in ("torch.bfloat16", "torch.float8_e4m3fn", "torch.float8_e5m2"):
        tensor = tensor.float()
    array = tensor.detach().cpu().numpy()
    return array


def _in_onnxruntime(model: Any, inputs: Mapping[str, Array]) -> list[Array]:
    """Results of an ONNX model in ONNX Runtime, on the CPU."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    opened = str(model) if isinstance(model, str | Path) else model.SerializeToString()
    session = onnxruntime.InferenceSession(opened, options, providers=["CPUExecutionProvider"])
    taken = {argument.name for argument in session.get_inputs()}
    given = {name: array for name, array in inputs.items() if name in taken}
    outputs: Sequence[Any] = session.run(None, given)
    return [np.asarray(output) for output in outputs]
