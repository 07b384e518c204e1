"""A program that calls this package, whose types `mypy --strict` checks; also against the wheel."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tvm_tile


def compiled(path: Path, device: str | tvm_tile.Device = "emulated") -> tvm_tile.CompiledModel:
    """A model for a device, its options in all three ways."""
    sizes: Mapping[str, tuple[int | tvm_tile.Open, ...]] = {"x": (tvm_tile.Open(1, 8), 4)}
    tvm_tile.compile(path, device, options={"tf32": True})
    tvm_tile.compile(path, device, inputs=sizes, options=tvm_tile.Options(tf32=True))
    model: tvm_tile.CompiledModel = tvm_tile.compile(path, device, tf32=True)
    return model


def entries(models: Mapping[str, Any]) -> tvm_tile.CompiledEntries:
    """Several entries of one model."""
    found: tvm_tile.CompiledEntries = tvm_tile.compile(models, "emulated")
    return found


def told(path: Path) -> list[str]:
    """What the compilation of a model notes, or why there is none."""
    try:
        model = compiled(path)
    except tvm_tile.TileError as error:
        return [error.requirement, error.current, error.remedy]
    shapes: list[tuple[int, ...]] = [one.shape for one in model.inputs]
    return [*model.report.notes, *map(str, shapes)]


def names() -> list[str]:
    """The names of all devices, and how large their memories are."""
    return [
        f"{device.name}: {memory.capacity} bytes"
        for device in tvm_tile.devices()
        for memory in device.memories
    ]
