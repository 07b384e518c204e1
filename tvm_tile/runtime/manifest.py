"""The table of contents of a saved model, and whether it makes sense."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tvm_tile import compat
from tvm_tile._version import __version__
from tvm_tile.build.program import Constant, Kernel, Program
from tvm_tile.files.json_data import revived
from tvm_tile.graph.signature import NO_EFFECTS, Effects, Signature, State
from tvm_tile.report.shown import Report
from tvm_tile.runtime import extents
from tvm_tile.runtime.arrays import numpy_dtype

# Raised whenever an older reader could not make sense of a new file.
FORMAT_VERSION = 10

WHOLE = ""
"""The name of the entry of a model that has one."""

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
class ConstantEntry:
    """A constant without its elements, which are a member."""

    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True, slots=True)
class RawEntry:
    """An entry of the model; the report is JSON within JSON.

    Its constants are positions among those of the whole model.
    """

    name: str
    inputs: tuple[Signature, ...]
    outputs: tuple[Signature, ...]
    copied_outputs: tuple[int, ...]
    weights: int
    constants: tuple[int, ...]
    returned_state: tuple[int, ...]
    kernels: tuple[KernelEntry, ...]
    report: str
    written_inputs: tuple[int, ...]
    state: tuple[StateEntry, ...]


@dataclass(frozen=True, slots=True)
class Manifest:
    """All of a saved model but the members' contents."""

    format: int
    tvm: str
    tvm_ffi: str
    device: str
    language: str
    arch: str
    constants: tuple[ConstantEntry, ...]
    entries: tuple[RawEntry, ...]
    members: Mapping[str, Member]
    tvm_tile: str = ""


@dataclass(frozen=True, slots=True)
class SavedEntry:
    """The parts of a compiled model, or of one of its entries."""

    program: Program
    inputs: tuple[Signature, ...]
    outputs: tuple[Signature, ...]
    report: Report
    effects: Effects = NO_EFFECTS


@dataclass(frozen=True, slots=True)
class SavedModel:
    """Content of a saved file.

    Attributes:
        device_name: name of the device that it was compiled for.
        entries: entries by name, one at least; :data:`WHOLE` where there is one.
    """

    device_name: str
    entries: Mapping[str, SavedEntry]

    @property
    def constants(self) -> tuple[Constant, ...]:
        """Constants of all entries, each once."""
        taken = (
            constant for entry in self.entries.values() for constant in entry.program.constants
        )
        return tuple(dict.fromkeys(taken))


def members_of(model: SavedModel) -> dict[str, bytes | memoryview]:
    """Files beside the manifest, by name.

    Raises:
        ModelError: the memory that a constant was compiled with has been written to since.
    """
    members: dict[str, bytes | memoryview] = {
        f"constants/{position}.bin": constant.checked()
        for position, constant in enumerate(model.constants)
    }
    for number, entry in enumerate(model.entries.values()):
        members |= {f"{number}/{name}": data for name, data in _members_of(entry)}
    return members


def _members_of(entry: SavedEntry) -> Iterator[tuple[str, bytes]]:
    """Files of an entry: bytecode, host code, state, and kernels."""
    program = entry.program
    yield VM, program.vm
    yield HOST, program.host
    for position, state in enumerate(entry.effects.state):
        if state.initial:
            yield f"state/{position}.bin", state.initial
    for position, kernel in enumerate(program.kernels):
        yield f"kernels/{position}.src", kernel.source.encode()
        if kernel.binary:
            yield f"kernels/{position}{CODE[program.language]}", kernel.binary


def manifest_text(model: SavedModel, members: Mapping[str, bytes | memoryview]) -> bytes:
    """The manifest of a model, as JSON."""
    tvm, ffi = compat.installed_versions()
    any_program = next(iter(model.entries.values())).program
    places = {constant: position for position, constant in enumerate(model.constants)}
    manifest = Manifest(
        format=FORMAT_VERSION,
        tvm_tile=__version__,
        tvm=tvm,
        tvm_ffi=ffi,
        device=model.device_name,
        language=any_program.language,
        arch=any_program.arch,
        constants=tuple(ConstantEntry(c.shape, c.dtype) for c in model.constants),
        entries=tuple(_entry(n, one, places) for n, one in model.entries.items()),
        members={
            name: Member(len(data), hashlib.sha256(data).hexdigest())
            for name, data in members.items()
        },
    )
    return json.dumps(asdict(manifest), indent=1).encode()


def _entry(name: str, saved: SavedEntry, places: Mapping[Constant, int]) -> RawEntry:
    """The manifest's data of an entry."""
    program, effects = saved.program, saved.effects
    return RawEntry(
        name=name,
        inputs=saved.inputs,
        outputs=saved.outputs,
        copied_outputs=program.copied_outputs,
        weights=program.weights,
        constants=tuple(places[constant] for constant in program.constants),
        returned_state=program.returned_state,
        kernels=tuple(KernelEntry(k.name, k.arg_types, k.launch_params) for k in program.kernels),
        report=saved.report.to_json(),
        written_inputs=effects.written_inputs,
        state=tuple(StateEntry(s.signature, not s.initial, s.is_in_place) for s in effects.state),
    )


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
    """Everything that does not make sense in a manifest, in words."""
    if manifest.language not in CODE:
        yield f"{manifest.language!r} is no language of kernels"
    if not _ARCHITECTURE.fullmatch(manifest.arch):
        yield f"{manifest.arch!r} is no architecture"
    names = [entry.name for entry in manifest.entries]
    if not names or len(set(names)) < len(names) or (WHOLE in names and len(names) > 1):
        yield f"{names} are no entries"
    for constant in manifest.constants:
        if not _is_tensor(constant.shape, constant.dtype) or numpy_dtype(constant.dtype) is None:
            yield f"{constant} is no tensor"
    for number, entry in enumerate(manifest.entries):
        yield from _problems_of(entry)
        if not all(place in range(len(manifest.constants)) for place in entry.constants):
            yield f"of {len(manifest.constants)} constants it takes {entry.constants}"
        state = [(f"{number}/state/{i}.bin", e.signature) for i, e in enumerate(entry.state)]
        yield from _wrong_sizes(manifest, state)
    constants = [
        (f"constants/{position}.bin", Signature("constant", constant.shape, constant.dtype))
        for position, constant in enumerate(manifest.constants)
    ]
    yield from _wrong_sizes(manifest, constants)
    expected = set(_expected_members(manifest))
    if wrong := sorted(expected ^ manifest.members.keys()):
        yield f"members are missing, or more than there should be: {', '.join(wrong[:5])}"


def _wrong_sizes(manifest: Manifest, tensors: Sequence[tuple[str, Signature]]) -> Iterator[str]:
    """Tensors whose file has another size than their signature says, in words."""
    for name, signature in tensors:
        found, size = manifest.members.get(name), _size(signature)
        if found is not None and size is not None and found.size != size:
            yield f"{signature} has {found.size} bytes"


def _is_tensor(shape: tuple[int, ...], dtype: str) -> bool:
    """Whether a shape and a type are those of a tensor."""
    is_shape = len(shape) <= _MOST_RANK and min(shape, default=0) >= 0
    return is_shape and _DTYPE.fullmatch(dtype) is not None


def _problems_of(entry: RawEntry) -> Iterator[str]:
    """Everything that does not make sense in an entry, in words."""
    state = [one.signature for one in entry.state]
    for signature in (*entry.inputs, *entry.outputs, *state):
        if not _is_tensor(signature.shape, signature.dtype):
            yield f"{signature} is no tensor"
    yield from extents.problems(entry.inputs, (*entry.outputs, *state))
    written = entry.written_inputs
    inputs = range(len(entry.inputs))
    if len(set(written)) < len(written) or not all(position in inputs for position in written):
        yield f"of {len(inputs)} inputs {written} are written to"
    if len({signature.name for signature in state}) < len(state):
        yield "two tensors of the state have one name"
    returned = entry.returned_state
    if len(set(returned)) < len(returned) or not all(n in range(len(state)) for n in returned):
        yield f"of {len(state)} tensors of the state {returned} are returned"
    positions = range(len(entry.outputs) + len(written) + len(returned))
    if not all(position in positions for position in entry.copied_outputs):
        yield f"of {len(positions)} results {entry.copied_outputs} are copied"
    if not 0 <= entry.weights <= len(inputs):
        yield f"of {len(inputs)} inputs {entry.weights} are weights"
    names = [kernel.name for kernel in entry.kernels]
    if len(set(names)) < len(names) or not all(map(_SYMBOL.fullmatch, names)):
        yield "the kernels' names are not different symbols"
    for kernel in entry.kernels:
        if not all(a in ("handle", "tensormap") or _DTYPE.fullmatch(a) for a in kernel.arg_types):
            yield f"{kernel.name} takes {', '.join(kernel.arg_types)}"
        if not all(map(_LAUNCH.fullmatch, kernel.launch_params)):
            yield f"{kernel.name} is launched with {', '.join(kernel.launch_params)}"


def _size(signature: Signature) -> int | None:
    """Bytes of a tensor; None for an element type that NumPy does not know."""
    dtype = numpy_dtype(signature.dtype)
    return None if dtype is None else math.prod(signature.shape) * dtype.itemsize


def _expected_members(manifest: Manifest) -> Iterator[str]:
    """Names of the files that a manifest implies."""
    for position in range(len(manifest.constants)):
        yield f"constants/{position}.bin"
    code = CODE[manifest.language]
    for number, entry in enumerate(manifest.entries):
        yield from (f"{number}/{VM}", f"{number}/{HOST}")
        for position, state in enumerate(entry.state):
            if not state.is_zero:
                yield f"{number}/state/{position}.bin"
        for position in range(len(entry.kernels)):
            yield f"{number}/kernels/{position}.src"
            if code:
                yield f"{number}/kernels/{position}{code}"


def assemble(manifest: Manifest, members: Mapping[str, bytes]) -> SavedModel:
    """The model that a manifest and its members are of.

    Raises:
        Exception: a text is no UTF-8, or a report none.
    """
    constants = [
        Constant(one.shape, one.dtype, memoryview(members[f"constants/{position}.bin"]), None)
        for position, one in enumerate(manifest.constants)
    ]
    entries = {
        entry.name: _assembled(manifest, entry, _within(members, f"{number}/"), constants)
        for number, entry in enumerate(manifest.entries)
    }
    return SavedModel(manifest.device, entries)


def _within(members: Mapping[str, bytes], folder: str) -> dict[str, bytes]:
    """The members of a folder, by their names in it."""
    return {n.removeprefix(folder): data for n, data in members.items() if n.startswith(folder)}


def _assembled(
    manifest: Manifest, entry: RawEntry, members: Mapping[str, bytes], constants: Sequence[Constant]
) -> SavedEntry:
    """The entry of a manifest's data and files."""
    code = CODE[manifest.language]
    kernels = tuple(
        Kernel(
            name=kernel.name,
            source=members[f"kernels/{position}.src"].decode(),
            arg_types=kernel.arg_types,
            launch_params=kernel.launch_params,
            binary=members[f"kernels/{position}{code}"] if code else b"",
        )
        for position, kernel in enumerate(entry.kernels)
    )
    program = Program(
        language=manifest.language,
        arch=manifest.arch,
        vm=members[VM],
        host=members[HOST],
        kernels=kernels,
        copied_outputs=entry.copied_outputs,
        weights=entry.weights,
        constants=tuple(constants[place] for place in entry.constants),
        returned_state=entry.returned_state,
    )
    report = Report.from_json(entry.report)
    # One that cannot be shown is none.
    report.render()
    report.draw()
    state = tuple(
        State(one.signature, members.get(f"state/{position}.bin", b""), one.is_in_place)
        for position, one in enumerate(entry.state)
    )
    effects = Effects(entry.written_inputs, state)
    return SavedEntry(program, entry.inputs, entry.outputs, report, effects)
