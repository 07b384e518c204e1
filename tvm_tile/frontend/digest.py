"""What a model is, as a sum: models of equal sums compile to the same, and need it but once."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tvm

from tvm_tile.files.whole_file import file_digest
from tvm_tile.frontend.read import is_instance
from tvm_tile.frontend.relay.given import RelayText, is_relay
from tvm_tile.frontend.relay.importing import Params, arrays_of
from tvm_tile.frontend.several_models import Together


def digest_of(model: Any, params: Params | None = None) -> bytes | None:
    """A sum of all bytes of a model: of its file and those beside it, or of what is in memory.

    Args:
        model: as of :func:`tvm_tile.frontend.read_model`, but no module of PyTorch's.
        params: values of a Relay program's parameters.

    Returns:
        The sum; ``None`` where there is none, as of a file that is missing, or a model in memory
        that its library cannot write down.
    """
    if isinstance(model, Together):
        each = {name: digest_of(own, params) for name, own in model.models.items()}
        return None if None in each.values() else hashlib.sha256(repr(each).encode()).digest()
    try:
        kind = Path(model).suffix if isinstance(model, str | Path) else type(model).__name__
        parts = kind.encode(), _digest(model), _digest_of_params(params)
    except Exception:  # what is wrong with a model, its import says
        return None
    return None if parts[1] is None else hashlib.sha256(b"\0".join(map(_framed, parts))).digest()


def _framed(part: bytes | None) -> bytes:
    return b"" if part is None else len(part).to_bytes(8, "big") + part


def _digest(model: Any) -> bytes | None:
    if isinstance(model, RelayText):
        return hashlib.sha256(model.text.encode("utf-8", "surrogatepass")).digest()
    if isinstance(model, tvm.IRModule):
        return hashlib.sha256(str(tvm.ir.save_json(model)).encode()).digest()
    if is_instance(model, "torch.export", "ExportedProgram"):
        from tvm_tile.frontend.torch.digest import digest_of_program

        return digest_of_program(model)
    if is_instance(model, "onnx", "ModelProto"):
        return hashlib.sha256(model.SerializeToString(deterministic=True)).digest()
    if not isinstance(model, str | Path):
        return None
    if Path(model).suffix == ".pt2" or is_relay(model):
        return file_digest(Path(model))
    from tvm_tile.frontend.onnx.kept import files_of

    return b"".join(map(file_digest, files_of(Path(model))))


def _digest_of_params(params: Params | None) -> bytes | None:
    if params is None or isinstance(params, bytes):
        return params if params is None else hashlib.sha256(params).digest()
    if isinstance(params, str | os.PathLike):
        return file_digest(Path(params))
    total = hashlib.sha256()
    values: Mapping[str, Any] = arrays_of(params)
    for name, array in sorted(values.items()):
        total.update(f"{name} {array.dtype} {array.shape}\0".encode())
        total.update(array.tobytes())
    return total.digest()
