"""Whole models that were compiled before, which need no import and no compiler."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO

from tvm_tile.build import compiler_of
from tvm_tile.device.device import Device
from tvm_tile.device.record import to_json
from tvm_tile.errors import TileError
from tvm_tile.files.store import Store
from tvm_tile.frontend.asked import Asked
from tvm_tile.options import Options
from tvm_tile.runtime import artifact
from tvm_tile.runtime.manifest import SavedModel
from tvm_tile.stages.opened_store import open_model_store

# What models are read, broken down and folded with, beside TVM.
_LIBRARIES = "onnx", "torch", "numpy", "ml_dtypes"


@dataclass(frozen=True, slots=True)
class KnownModels:
    """Compiled models in the cache, by all that they depend on.

    That is each byte of the model and of its weights, what was said of its inputs, each number of
    the device's record, the options, the compiler of its kernels, the libraries that read it, and
    the code of this package. An entry is its key and the file that ``save()`` writes, whose sums
    are checked.
    What is measured, or checked while it is compiled, is compiled each time.

    Attributes:
        store: the files; ``None`` where nothing is kept.
        given: a JSON text of the device, the options and the versions that all models depend on.
    """

    store: Store | None
    given: bytes

    @classmethod
    def of(cls, device: Device, options: Options) -> KnownModels:
        """The models that were compiled for a device in this way."""
        is_kept = options.topk <= 1 and not options.verify
        store = open_model_store(options) if is_kept else None
        if store is None:
            return cls(None, b"")
        versions = [(name, _version(name)) for name in _LIBRARIES]
        told = device.name, to_json(device), options.told(), compiler_of(device), versions
        return cls(store, json.dumps(told).encode())

    def key(self, asked: Mapping[str, Asked]) -> bytes | None:
        """The key of a model, of one entry or several; ``None`` where it is not kept."""
        total = hashlib.sha256(self.given)
        for name, one in asked.items():
            digest = None if self.store is None else one.digest()
            if digest is None:
                return None
            for part in (name.encode(), digest):
                total.update(len(part).to_bytes(8, "big") + part)
        return total.digest()

    def find(self, key: bytes | None) -> SavedModel | None:
        """The model that is kept under a key, if there is one."""
        if self.store is None or key is None or (file := self.store.open(key)) is None:
            return None
        try:
            with file:
                if file.read(len(key)) == key:
                    return artifact.read_from(file, Path("an entry of the cache"))
        except (TileError, OSError):  # damaged
            pass
        self.store.forget(key)
        return None

    def keep(self, key: bytes | None, asked: Mapping[str, Asked], model: SavedModel) -> None:
        """Keep a model, unless it would take half of the cache, or what it was compiled from has
        changed meanwhile."""
        if self.store is None or key is None:
            return
        size = sum(len(constant.data) for constant in model.constants)
        if size <= self.store.most_bytes // 2 and self.key(asked) == key:
            with suppress(TileError):  # weights that are written to by another thread
                self.store.write(key, partial(_fill, key, model))


def _fill(key: bytes, model: SavedModel, file: BinaryIO) -> None:
    file.write(key)
    artifact.write_into(file, model)


def _version(library: str) -> str:
    with suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version(library)
    return ""
