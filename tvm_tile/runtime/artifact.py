"""Saved models: one zip file, complete, checked, and written all or nothing.

``manifest.json`` holds versions, signatures, the report, and name, size and SHA-256 of every
other member; the zip's comment holds the manifest's own SHA-256. The sums find damage and
careless edits. They are no signature: whoever can write the file can make new sums, and a
model is machine code, so load only files from people you trust.
"""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tvm_tile import compat
from tvm_tile._version import __version__
from tvm_tile.build.program import Kernel, Program
from tvm_tile.errors import SavedModelError
from tvm_tile.graph.signature import Signature
from tvm_tile.plan.report import Report

# Raised whenever an older reader could not make sense of a new file.
FORMAT_VERSION = 2

_MANIFEST = "manifest.json"
# What kernels' machine code is called, by the language that they are written in.
_CODE = {"cuda": ".cubin", "rocm": ".hsaco"}
# Zip members carry a date; a fixed one makes equal models equal files.
_DATE = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class SavedModel:
    """What a file holds: the parts of a compiled model."""

    program: Program
    device_name: str
    inputs: tuple[Signature, ...]
    outputs: tuple[Signature, ...]
    report: Report


def write(model: SavedModel, path: Path) -> None:
    """Write a model; ``path`` holds either its old content or all of the new one.

    Raises:
        OSError: the folder cannot be written.
    """
    members = _members(model.program)
    manifest = json.dumps(_manifest(model, members), indent=1).encode()
    path = path.absolute()
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            with zipfile.ZipFile(file, "w") as archive:
                for name, data in {_MANIFEST: manifest, **members}.items():
                    info = zipfile.ZipInfo(name, _DATE)
                    # Weights and machine code hardly shrink; text does.
                    binary = name.endswith((".bin", ".bc", *_CODE.values()))
                    info.compress_type = zipfile.ZIP_STORED if binary else zipfile.ZIP_DEFLATED
                    archive.writestr(info, data)
                archive.comment = hashlib.sha256(manifest).hexdigest().encode()
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _members(program: Program) -> dict[str, bytes]:
    members = {"vm.bin": program.vm, "host.bc": program.host}
    for position, kernel in enumerate(program.kernels):
        members[f"kernels/{position}.src"] = kernel.source.encode()
        if kernel.binary:
            members[f"kernels/{position}{_CODE[program.language]}"] = kernel.binary
    return members


def _manifest(model: SavedModel, members: Mapping[str, bytes]) -> dict[str, Any]:
    tvm, ffi = compat.installed_versions()
    return {
        "format": FORMAT_VERSION,
        "tvm_tile": __version__,
        "tvm": tvm,
        "tvm_ffi": ffi,
        "device": model.device_name,
        "language": model.program.language,
        "arch": model.program.arch,
        "inputs": [asdict(signature) for signature in model.inputs],
        "outputs": [asdict(signature) for signature in model.outputs],
        "copied_outputs": list(model.program.copied_outputs),
        "kernels": [
            {
                "name": kernel.name,
                "arg_types": kernel.arg_types,
                "launch_params": kernel.launch_params,
            }
            for kernel in model.program.kernels
        ],
        "report": model.report.to_json(),
        "members": {
            name: {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
            for name, data in members.items()
        },
    }


def read(path: Path) -> SavedModel:
    """Read a model and check every byte of it; nothing in it is run.

    Raises:
        SavedModelError: the file is missing, truncated, changed, or from versions that do
            not go with the installed ones.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            manifest = _checked_manifest(archive, path)
            members = {
                name: _checked_member(archive, path, name, entry)
                for name, entry in manifest["members"].items()
            }
            return _assemble(manifest, members)
    except FileNotFoundError as error:
        raise SavedModelError("a saved model", f"no file {path}", "check the path") from error
    except SavedModelError:
        raise
    except Exception as error:  # zipfile, zlib, json and the lookups raise ten kinds and more
        raise _damaged(path, f"{type(error).__name__}: {error}") from error


def _damaged(path: Path, what: str) -> SavedModelError:
    return SavedModelError(
        "a saved model must be exactly as it was written",
        f"{path}: {what}",
        "copy the file again, or compile and save the model again",
    )


def _checked_manifest(archive: zipfile.ZipFile, path: Path) -> dict[str, Any]:
    text = archive.read(_MANIFEST)
    manifest: dict[str, Any] = json.loads(text)
    # Versions first: a newer format may well keep its sums elsewhere.
    tvm, ffi = compat.installed_versions()
    expected = {
        "format": FORMAT_VERSION,
        "tvm": tvm,
        # Bytecode and calling convention belong to the series, patches keep them.
        "tvm_ffi": ffi.split(".post")[0],
    }
    saved = {
        "format": manifest["format"],
        "tvm": manifest["tvm"],
        "tvm_ffi": str(manifest["tvm_ffi"]).split(".post")[0],
    }
    if saved != expected:
        raise SavedModelError(
            f"a saved model that goes with {_render(expected)}",
            f"{path} was saved with {_render(saved)}",
            "install these versions, or compile and save the model again",
        )
    if hashlib.sha256(text).hexdigest().encode() != archive.comment:
        raise _damaged(path, f"{_MANIFEST} has been changed")
    return manifest


def _render(versions: Mapping[str, object]) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions.items())


def _checked_member(
    archive: zipfile.ZipFile, path: Path, name: str, entry: Mapping[str, Any]
) -> bytes:
    data = archive.read(name)
    if len(data) != entry["size"] or hashlib.sha256(data).hexdigest() != entry["sha256"]:
        raise _damaged(path, f"{name} has been changed")
    return data


def _assemble(manifest: Mapping[str, Any], members: Mapping[str, bytes]) -> SavedModel:
    ending = _CODE.get(manifest["language"], "")
    kernels = tuple(
        Kernel(
            name=kernel["name"],
            source=members[f"kernels/{position}.src"].decode(),
            arg_types=tuple(kernel["arg_types"]),
            launch_params=tuple(kernel["launch_params"]),
            binary=members.get(f"kernels/{position}{ending}", b""),
        )
        for position, kernel in enumerate(manifest["kernels"])
    )
    program = Program(
        language=manifest["language"],
        arch=manifest["arch"],
        vm=members["vm.bin"],
        host=members["host.bc"],
        kernels=kernels,
        copied_outputs=tuple(manifest["copied_outputs"]),
    )
    return SavedModel(
        program=program,
        device_name=manifest["device"],
        inputs=_signatures(manifest["inputs"]),
        outputs=_signatures(manifest["outputs"]),
        report=Report.from_json(manifest["report"]),
    )


def _signatures(entries: list[dict[str, Any]]) -> tuple[Signature, ...]:
    return tuple(
        Signature(entry["name"], tuple(entry["shape"]), entry["dtype"]) for entry in entries
    )
