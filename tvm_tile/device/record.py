"""Device records as JSON files: what ``tvm-tile calibrate`` writes and ``device=`` reads.

The file mirrors :class:`Device`: an attribute a key, (key, value) pairs as an object. Reading
follows the dataclasses' own annotations, so that nothing can be missing, misspelt or of another
type, and then checks what makes the numbers usable.
"""

from __future__ import annotations

import functools
import json
import math
import types
import typing
from dataclasses import asdict, fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any, NoReturn

from tvm_tile.device.device import Device, MemoryLevel
from tvm_tile.errors import DeviceRecordError
from tvm_tile.files.whole_file import replacing

# Raised whenever an older reader could not make sense of a new file.
FORMAT_VERSION = 9

SUFFIX = ".json"
# The unit that must have times, by a matrix instruction's intrinsic; AMD's have several names.
_UNIT_OF = {"wgmma": "group_unit", "mma": "warp_unit"}
_LANGUAGES = ("cuda", "rocm", "opencl")
_MAY_BE_ZERO = ("reserved_shared_memory",)
_NOT_NEGATIVE = ("overlap_seconds", "wait_seconds", "slowed_share", "ahead_seconds")
_KINDS: dict[type, str] = {
    str: "a text",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
}
_REMEDY = "write the record anew with `tvm-tile calibrate -o FILE`"


def to_json(device: Device) -> str:
    """The text of a record's file; :func:`from_json` gives back an equal record."""
    content = {"format": FORMAT_VERSION, "device": _encode(device, Device)}
    return json.dumps(content, indent=1, allow_nan=False) + "\n"


def from_json(text: str) -> Device:
    """The record in the text of a file.

    Raises:
        DeviceRecordError: the text is no JSON, lacks something, has something that no record
            has, or holds numbers that no device can have.
    """
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DeviceRecordError("a device record must be JSON", str(error), _REMEDY) from error
    found = content.get("format") if isinstance(content, dict) else None
    if found != FORMAT_VERSION or "device" not in content:
        raise DeviceRecordError(
            f"a device record must be of format {FORMAT_VERSION} and hold a device",
            f"format {found}",
            _REMEDY + ", with this version of tvm_tile",
        )
    device: Device = _decode(content["device"], Device, "device")
    _check(device)
    return device


def read_record(path: Path) -> Device:
    """The record in a file.

    Raises:
        DeviceRecordError: the file cannot be read, or see :func:`from_json`.
    """
    try:
        return from_json(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise DeviceRecordError(
            "the file of the device record must be readable", f"{path}: {error}", _REMEDY
        ) from error
    except DeviceRecordError as error:
        raise DeviceRecordError(
            error.requirement, f"{error.current}, in {path}", error.remedy
        ) from error


def write_record(device: Device, path: Path) -> None:
    """Write a record; ``path`` holds either its old content or all of the new one.

    Raises:
        OSError: the folder cannot be written.
    """
    with replacing(path) as file:
        file.write(to_json(device).encode())


@functools.cache
def _hints(cls: type) -> dict[str, Any]:
    """Types of a dataclass's fields, in their order."""
    hints = typing.get_type_hints(cls)
    return {field.name: hints[field.name] for field in fields(cls)}


def _is_pairs(hint: Any) -> bool:
    """Whether the annotation is ``tuple[tuple[str, X], ...]``, which becomes an object."""
    item, *rest = typing.get_args(hint) or (None,)
    return rest == [Ellipsis] and typing.get_args(item)[:1] == (str,)


def _encode(value: Any, hint: Any) -> Any:
    """A field's value as JSON has it."""
    if isinstance(hint, type) and is_dataclass(hint):
        return {name: _encode(getattr(value, name), inner) for name, inner in _hints(hint).items()}
    if value is not None and typing.get_origin(hint) in (typing.Union, types.UnionType):
        # The only union of this kind is "a dataclass, or None"; scalars are as they are.
        return _encode(value, typing.get_args(hint)[0])
    if isinstance(value, Enum):
        return value.value
    if not isinstance(value, tuple):
        return value
    if _is_pairs(hint):
        return dict(value)
    item = typing.get_args(hint)[0]
    return [_encode(element, item) for element in value]


def _decode(value: Any, hint: Any, where: str) -> Any:
    """``value`` as ``hint`` wants it; ``where`` names its place in messages."""
    if is_dataclass(hint):
        return _decode_dataclass(value, typing.cast(type, hint), where)
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return _decode_union(value, typing.get_args(hint), where)
    if typing.get_origin(hint) is tuple:
        return _decode_tuple(value, hint, where)
    if issubclass(hint, Enum):
        if value not in [member.value for member in hint]:
            _refuse(where, f"one of {', '.join(member.value for member in hint)}", value)
        return hint(value)
    if hint is float and type(value) is int:
        value = float(value)
    # Not isinstance: true is no number.
    if type(value) is not hint or (hint is float and not math.isfinite(value)):
        _refuse(where, _KINDS[hint], value)
    return value


def _decode_dataclass(value: Any, cls: type, where: str) -> Any:
    """An object of a record's file as a dataclass; it must be complete."""
    hints = _hints(cls)
    if not isinstance(value, dict):
        _refuse(where, "an object", value)
    if missing := [name for name in hints if name not in value]:
        raise DeviceRecordError(f"{where} must be complete", f"no {', '.join(missing)}", _REMEDY)
    if unknown := [name for name in value if name not in hints]:
        raise DeviceRecordError(
            f"{where} must have known entries only", ", ".join(unknown), "take these out"
        )
    return cls(
        **{name: _decode(value[name], hint, f"{where}.{name}") for name, hint in hints.items()}
    )


def _decode_union(value: Any, hints: tuple[Any, ...], where: str) -> Any:
    """An entry of a record's file as one of several types."""
    if value is None and type(None) in hints:
        return None
    *others, last = [hint for hint in hints if hint is not type(None)]
    for hint in others:
        if type(value) is hint:
            return value
    return _decode(value, last, where)


def _decode_tuple(value: Any, hint: Any, where: str) -> tuple[Any, ...]:
    """A list or an object of a record's file as a tuple."""
    items = typing.get_args(hint)
    if _is_pairs(hint):
        if not isinstance(value, dict):
            _refuse(where, "an object", value)
        inner = typing.get_args(items[0])[1]
        return tuple((key, _decode(of, inner, f"{where}.{key}")) for key, of in value.items())
    if not isinstance(value, list):
        _refuse(where, "a list", value)
    if items[-1] is not Ellipsis and len(value) != len(items):
        _refuse(where, f"a list of {len(items)}", value)
    return tuple(_decode(of, items[0], f"{where}[{i}]") for i, of in enumerate(value))


def _refuse(where: str, wanted: str, value: Any) -> NoReturn:
    """Refuse an entry of a record's file, by its place."""
    raise DeviceRecordError(f"{where} must be {wanted}", repr(value)[:80], _REMEDY)


def _check(device: Device) -> None:
    """Refuse what would only fail, or mislead, much later.

    Raises:
        DeviceRecordError: a number is not positive, or two entries contradict each other.
    """
    target = dict(device.target)
    levels = [memory.level for memory in device.memories]
    if levels != list(MemoryLevel):
        _refuse("device.memories", "register, shared and global, in this order", levels)
    if device.kernel_language not in _LANGUAGES:
        _refuse("device.kernel_language", f"one of {', '.join(_LANGUAGES)}", device.kernel_language)
    if "kind" not in target or (target["kind"] == "cuda" and "arch" not in target):
        _refuse("device.target", "a target with its kind and, for cuda, its arch", target)
    if list(target) != sorted(target):
        _refuse("device.target", "sorted by key", list(target))
    shared = device.memory(MemoryLevel.SHARED).capacity
    if target.get("max_shared_memory_per_block") != shared:
        _refuse(
            "device.target.max_shared_memory_per_block",
            f"the capacity of shared memory, {shared}",
            target.get("max_shared_memory_per_block"),
        )
    if "float32" not in dict(device.peak_flops):
        _refuse("device.peak_flops", "rates that include float32's", dict(device.peak_flops))
    if (device.grid_barrier_latency is not None) != device.supports_grid_barrier:
        _refuse(
            "device.grid_barrier_latency",
            "a number just where supports_grid_barrier is true",
            device.grid_barrier_latency,
        )
    for where, number in _numbers(device):
        if number <= 0:
            _refuse(where, "positive", number)
    _check_dependent_launches(device)
    _check_times(device)
    for name in _MAY_BE_ZERO:
        if getattr(device, name) < 0:
            _refuse(f"device.{name}", "zero or more", getattr(device, name))


def _check_dependent_launches(device: Device) -> None:
    """Refuse negative times of dependent launches."""
    times = device.dependent_launches
    for name in _NOT_NEGATIVE if times is not None else ():
        if getattr(times, name) < 0:
            _refuse(f"device.dependent_launches.{name}", "zero or more", getattr(times, name))


def _check_times(device: Device) -> None:
    """Refuse times that are not positive, or that lack those of a unit that the device has."""
    for where, number in _floats(asdict(device.times), "device.times"):
        if number <= 0:
            _refuse(where, "positive", number)
    for instruction in device.matrix_instructions:
        unit = _UNIT_OF.get(instruction.intrinsic, "wave_unit")
        if getattr(device.times.chip, unit) is None:
            wanted = f"given, as there is {instruction.intrinsic}"
            _refuse(f"device.times.chip.{unit}", wanted, None)


def _floats(content: dict[str, Any], where: str) -> typing.Iterator[tuple[str, float]]:
    """Every floating-point number of an object and of those in it, with its place."""
    for name, value in content.items():
        if isinstance(value, dict):
            yield from _floats(value, f"{where}.{name}")
        elif isinstance(value, float):
            yield f"{where}.{name}", value


def _numbers(device: Device) -> typing.Iterator[tuple[str, float]]:
    """Every number of a record that cannot be zero, with its place."""
    for name in _hints(Device):
        value = getattr(device, name)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if is_number and name not in _MAY_BE_ZERO:
            yield f"device.{name}", value
    for name in ("peak_flops", "matrix_flops"):
        for dtype, rate in getattr(device, name):
            yield f"device.{name}.{dtype}", rate
    for memory in device.memories:
        for name in ("capacity", "bandwidth"):
            yield f"device.memories.{memory.level.value}.{name}", getattr(memory, name)
