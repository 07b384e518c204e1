"""Where in a caller's arguments the inputs of an exported program are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch.export import ExportedProgram

Path = tuple[str, ...]


def paths_of(program: ExportedProgram) -> dict[str, Path]:
    """The path of each input that is within an argument: its name, then keys, attributes or places.

    ``forward(self, batch, scale)`` with ``batch = {"ids": ..., "masks": [..., ...]}`` has
    ``("batch", "ids")``, ``("batch", "masks", "0")`` and ``("batch", "masks", "1")``; ``scale``
    is an argument itself. Of containers that PyTorch does not tell the keys of there are no paths.
    """
    signature = program.module_call_graph[0].signature if program.module_call_graph else None
    names = None if signature is None else signature.forward_arg_names
    if signature is None or names is None:
        return {}
    parts = [part for half in signature.in_spec.children() for part in half.children()]
    if len(parts) != len(names):
        return {}
    try:
        paths = [
            path for name, part in zip(names, parts, strict=True) for path in _in(part, (name,))
        ]
    except _UnknownKeysError:
        return {}
    inputs = program.graph_signature.user_inputs
    named = zip(map(str, inputs), paths, strict=False)
    return {name: path for name, path in named if path != (name,)}


class _UnknownKeysError(Exception):
    """A container is of a kind whose keys are not known."""


def _in(spec: Any, path: Path) -> Iterator[Path]:
    """The paths of all leaves of a container, in their order."""
    if spec.is_leaf():
        yield path
        return
    parts = spec.children()
    for key, part in zip(_keys(spec, len(parts)), parts, strict=True):
        yield from _in(part, (*path, key))


def _keys(spec: Any, count: int) -> list[str]:
    """The keys of a container's parts; of a dataclass its fields, of a sequence places."""
    keys = spec.context
    if not isinstance(keys, list):
        return [str(place) for place in range(count)]
    if keys and isinstance(keys[-1], list):  # of a dataclass, or behind what a dictionary adds
        keys = keys[0] if isinstance(keys[0], list) else keys[-1]
    if len(keys) != count or not all(isinstance(key, str) for key in keys):
        raise _UnknownKeysError
    return keys
