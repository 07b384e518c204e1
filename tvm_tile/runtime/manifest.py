"""The table of contents of a saved model, and whether it makes sense."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from tvm_tile import compat
from tvm_tile._version import __version__
from tvm_tile.build.program import Kernel, Program
from tvm_tile.graph.signature import NO_EFFECTS, Effects, Signature, State
from tvm_tile.plan.json_data import revived
from tvm_tile.plan.report import Report
from tvm_tile.runtime.arrays import numpy_dtype

# Raised whenever an older reader could not make sense of a new file.
FORMAT_VERSION = 3

VM, HOST = "vm.bin", "host.bc"
# What kernels' machine code is called, by the language that they are written in; the emulated
# device compiles the text when it runs.
CODE = {"cuda": ".cubin", "rocm": ".hsaco", "opencl": ""}
_SYMBOL = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ARCHITECTURE = re.compile(r"[a-z0-9_]*")
_DTYPE = re.compile(r"bool|(int|uint|float|bfloat)\d+\w*")
_LAUNCH = re.compile(r"(block|thread|cluster)(Idx|CtaIdx)\.[xyz]|tirx\.\w+")
_MOST_RANK = 64


@dataclass(frozen=True, slots=True)
class Member:
    """Another file in the archive: its bytes and their SHA-256 in hexadecimal."""

    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class KernelEntry:
    """A kernel without its text and machine code, which are members."""

    name: str
    arg_types: tuple[str, ...]
    launch_params: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StateEntry:
    """A tensor of the state without its first elements, which are a member unless all are zero."""

    signature: Signature
    is_zero: bool
    is_in_place: bool


@dataclass(frozen=True, slots=True)
class Manifest:
    """All of a saved model but the members' contents; the report is JSON within JSON."""

    format: int
    tvm: str
    tvm_ffi: str
    device: str
    language: str
    arch: str
    inputs: tuple[Signature, ...]
    outputs: tuple[Signature, ...]
    copied_outputs: tuple[int, ...]
    weights: int
    kernels: tuple[KernelEntry, ...]
    report: str
    members: Mapping[str, Member]
    written_inputs: tuple[int, ...]
    state: tuple[StateEntry, ...]
    tvm_tile: str = ""


@dataclass(frozen=True, slots=True)
class SavedModel:
    """What a file holds: the parts of a compiled model."""

    program: Program
    device_name: str
    inputs: tuple[Signature, ...]
    outputs: tuple[Signature, ...]
    report: Report
    effects: Effects = NO_EFFECTS


def members_of(model: SavedModel) -> dict[str, bytes]:
    """What is kept beside the manifest, by name."""
    program = model.program
    members = {VM: program.vm, HOST: program.host}
    for position, state in enumerate(model.effects.state):
        if state.initial:
            members[f"state/{position}.bin"] = state.initial
    for position, kernel in enumerate(program.kernels):
        members[f"kernels/{position}.src"] = kernel.source.encode()
        if kernel.binary:
            members[f"kernels/{position}{CODE[program.language]}"] = kernel.binary
    return members


def manifest_text(model: SavedModel, members: Mapping[str, bytes]) -> bytes:
    """The manifest of a model, as JSON."""
    tvm, ffi = compat.installed_versions()
    manifest = Manifest(
        format=FORMAT_VERSION,
        tvm_tile=__version__,
        tvm=tvm,
        tvm_ffi=ffi,
        device=model.device_name,
        language=model.program.language,
        arch=model.program.arch,
        inputs=model.inputs,
        outputs=model.outputs,
        copied_outputs=model.program.copied_outputs,
        weights=model.program.weights,
        kernels=tuple(
            KernelEntry(kernel.name, kernel.arg_types, kernel.launch_params)
            for kernel in model.program.kernels
        ),
        report=model.report.to_json(),
        members={
            name: Member(len(data), hashlib.sha256(data).hexdigest())
            for name, data in members.items()
        },
        written_inputs=model.effects.written_inputs,
        state=tuple(
            StateEntry(s.signature, not s.initial, s.is_in_place) for s in model.effects.state
        ),
    )
    return json.dumps(asdict(manifest), indent=1).encode()


def parse_manifest(content: Any) -> Manifest:
    """The manifest in what ``json.loads`` gave.

    Raises:
        TypeError, ValueError: it lacks something, or has what no model has.
    """
    manifest: Manifest = revived(Manifest, content)
    for problem in _problems(manifest):
        raise ValueError(problem)
    return manifest


def _problems(manifest: Manifest) -> Iterator[str]:
    if manifest.language not in CODE:
        yield f"{manifest.language!r} is no language of kernels"
    if not _ARCHITECTURE.fullmatch(manifest.arch):
        yield f"{manifest.arch!r} is no architecture"
    state = [entry.signature for entry in manifest.state]
    for signature in (*manifest.inputs, *manifest.outputs, *state):
        is_shape = len(signature.shape) <= _MOST_RANK and min(signature.shape, default=0) >= 0
        if not is_shape or not _DTYPE.fullmatch(signature.dtype):
            yield f"{signature} is no tensor"
    written = manifest.written_inputs
    inputs = range(len(manifest.inputs))
    if len(set(written)) < len(written) or not all(position in inputs for position in written):
        yield f"of {len(inputs)} inputs {written} are written to"
    if len({signature.name for signature in state}) < len(state):
        yield "two tensors of the state have one name"
    positions = range(len(manifest.outputs) + len(written) + len(state))
    if not all(position in positions for position in manifest.copied_outputs):
        yield f"of {len(positions)} results {manifest.copied_outputs} are copied"
    if not 0 <= manifest.weights <= len(inputs):
        yield f"of {len(inputs)} inputs {manifest.weights} are weights"
    names = [kernel.name for kernel in manifest.kernels]
    if len(set(names)) < len(names) or not all(map(_SYMBOL.fullmatch, names)):
        yield "the kernels' names are not different symbols"
    for kernel in manifest.kernels:
        if not all(a in ("handle", "tensormap") or _DTYPE.fullmatch(a) for a in kernel.arg_types):
            yield f"{kernel.name} takes {', '.join(kernel.arg_types)}"
        if not all(map(_LAUNCH.fullmatch, kernel.launch_params)):
            yield f"{kernel.name} is launched with {', '.join(kernel.launch_params)}"
    for position, entry in enumerate(manifest.state):
        if not entry.is_zero and (size := _size(entry.signature)) is not None:
            found = manifest.members.get(f"state/{position}.bin")
            if found is not None and found.size != size:
                yield f"{entry.signature} has {found.size} bytes"
    expected = set(_expected_members(manifest))
    if wrong := sorted(expected ^ manifest.members.keys()):
        yield f"members are missing, or more than there should be: {', '.join(wrong[:5])}"


def _size(signature: Signature) -> int | None:
    """Bytes of a tensor; None for an element type that NumPy does not know."""
    dtype = numpy_dtype(signature.dtype)
    return None if dtype is None else math.prod(signature.shape) * dtype.itemsize


def _expected_members(manifest: Manifest) -> Iterator[str]:
    yield from (VM, HOST)
    for position, entry in enumerate(manifest.state):
        if not entry.is_zero:
            yield f"state/{position}.bin"
    code = CODE[manifest.language]
    for position in range(len(manifest.kernels)):
        yield f"kernels/{position}.src"
        if code:
            yield f"kernels/{position}{code}"


def assemble(manifest: Manifest, members: Mapping[str, bytes]) -> SavedModel:
    """The model that a manifest and its members are of.

    Raises:
        Exception: a text is no UTF-8, or the report none.
    """
    code = CODE[manifest.language]
    program = Program(
        language=manifest.language,
        arch=manifest.arch,
        vm=members[VM],
        host=members[HOST],
        kernels=tuple(
            Kernel(
                name=entry.name,
                source=members[f"kernels/{position}.src"].decode(),
                arg_types=entry.arg_types,
                launch_params=entry.launch_params,
                binary=members[f"kernels/{position}{code}"] if code else b"",
            )
            for position, entry in enumerate(manifest.kernels)
        ),
        copied_outputs=manifest.copied_outputs,
        weights=manifest.weights,
    )
    report = Report.from_json(manifest.report)
    # One that cannot be shown is none.
    report.render()
    report.draw()
    state = tuple(
        State(entry.signature, members.get(f"state/{position}.bin", b""), entry.is_in_place)
        for position, entry in enumerate(manifest.state)
    )
    effects = Effects(manifest.written_inputs, state)
    return SavedModel(program, manifest.device, manifest.inputs, manifest.outputs, report, effects)
