"""The JSON that TVM kept graphs of objects in until 0.19: numbered nodes, whatever they mean."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tvm_tile.frontend.relay.arrays import read_array
from tvm_tile.frontend.relay.attributes import integer

# What classes of TVM 0.6 have been called since.
_RENAMED = {
    **{
        f"relay.{name}": name
        for name in (
            "FuncType",
            "GlobalTypeVar",
            "GlobalVar",
            "IncompleteType",
            "Op",
            "SourceName",
            "Span",
            "TupleType",
            "TypeCall",
            "TypeVar",
        )
    },
    "relay.Module": "IRModule",
    "Any": "tir.Any",
    "StringImm": "tir.StringImm",
    "StrMap": "Map",
}


@dataclass(frozen=True, slots=True)
class JsonNode:
    """One object.

    Attributes:
        index: its number.
        type_key: its C++ class, such as ``relay.Call``; empty for the null pointer.
        fields: text of each; the class decides whether that is a value or the number of a node.
        data: numbers of an array's or a map's nodes.
        keys: of a map whose keys are strings.
        text: of a string, or the name of an operator.
    """

    index: int
    type_key: str
    fields: Mapping[str, str]
    data: Sequence[int]
    keys: Sequence[str]
    text: str

    def reference(self, field: str) -> int:
        """The number of the node that a field means; that of null if the field is left out."""
        return integer(self.fields.get(field, "0"))


class Graph:
    """The nodes of one file.

    Args:
        data: the file.

    Raises:
        ValueError: it is no such file.
    """

    def __init__(self, data: str | bytes) -> None:
        try:
            content = json.loads(data)
        except RecursionError as error:
            raise ValueError("its brackets are nested too deeply") from error
        if not isinstance(content, dict):
            raise ValueError("it holds no nodes")
        if "root_index" in content:
            raise ValueError("it was saved by a TVM without Relay, 0.20 or newer")
        self._nodes = _list_of(content, "nodes", dict)
        self._encoded_arrays = _list_of(content, "b64ndarrays", str)
        self._arrays: dict[int, np.ndarray] = {}
        root = content.get("root")
        if type(root) is not int:
            raise ValueError("it does not say which node is the root")
        self._root: int = root
        attributes = content.get("attrs")
        version = attributes.get("tvm_version") if isinstance(attributes, dict) else None
        self.version = version if isinstance(version, str) else ""

    def node(self, index: int) -> JsonNode:
        """The node with a number.

        Raises:
            ValueError: there is none, or it is not formed as nodes are.
        """
        if not 0 <= index < len(self._nodes):
            raise ValueError(f"node {index} of {len(self._nodes)}")
        raw = self._nodes[index]
        fields, data, keys = raw.get("attrs", {}), raw.get("data", []), raw.get("keys", [])
        well_formed = (
            isinstance(raw.get("type_key"), str)
            and isinstance(fields, dict)
            and all(isinstance(text, str) for text in fields.values())
            and isinstance(data, list)
            and all(type(item) is int for item in data)
            and isinstance(keys, list)
            and all(isinstance(key, str) for key in keys)
        )
        if not well_formed:
            raise ValueError(f"node {index} is not formed as nodes are")
        type_key = _RENAMED.get(raw["type_key"], raw["type_key"])
        return JsonNode(index, type_key, fields, data, keys, _text(raw))

    def string(self, text: str) -> str:
        """What a field means that is a string: before TVM 0.8 often itself, later a node."""
        is_number = text.isascii() and text.isdigit() and len(text) < 20
        if is_number and not self.version.startswith("0.6"):
            index = int(text)
            if index == 0:
                return ""
            if index < len(self._nodes) and self._nodes[index].get("type_key") == "runtime.String":
                return self.node(index).text
        return text

    def array(self, index: int) -> np.ndarray:
        """A tensor by number; a number that occurs twice is one tensor.

        Raises:
            ValueError: there is none, or it is damaged.
        """
        if not 0 <= index < len(self._encoded_arrays):
            raise ValueError(f"tensor {index} of {len(self._encoded_arrays)}")
        if index not in self._arrays:
            self._arrays[index] = read_array(
                base64.b64decode(self._encoded_arrays[index], validate=True)
            )
        return self._arrays[index]

    def evaluated(
        self,
        references: Callable[[JsonNode], Sequence[int]],
        make: Callable[[JsonNode, Sequence[Any]], Any],
    ) -> Any:
        """What ``make`` makes of the root, given what it made of the nodes that a node refers to.

        Each node is made once; chains may be of any length.

        Raises:
            ValueError: a node refers to itself, however indirectly.
        """
        made: dict[int, Any] = {}
        opened: dict[int, tuple[JsonNode, Sequence[int]]] = {}
        pending = [self._root]
        while pending:
            index = pending[-1]
            if index in made:
                pending.pop()
                continue
            if index not in opened:
                node = self.node(index)
                needed = references(node)
                opened[index] = node, needed
                missing = [other for other in needed if other not in made]
                if any(other in opened for other in missing):
                    raise ValueError(f"node {index} ({node.type_key}) contains itself")
                if missing:
                    pending.extend(reversed(missing))
                    continue
            node, needed = opened.pop(index)
            try:
                made[index] = make(node, [made[other] for other in needed])
            except ValueError as error:
                raise ValueError(f"node {index} ({node.type_key[:40]}): {error}") from error
            pending.pop()
        return made[self._root]


def _list_of(content: dict[str, Any], name: str, kind: type) -> list[Any]:
    items = content.get(name)
    if not isinstance(items, list) or not all(isinstance(item, kind) for item in items):
        raise ValueError(f"it has no list of {name}")
    return items


def _text(raw: dict[str, Any]) -> str:
    # Operators have `global_key` in files of TVM 0.6.
    text = raw.get("repr_b64", raw.get("repr_str", raw.get("global_key", "")))
    if not isinstance(text, str):
        raise ValueError("a string that is none")
    if "repr_b64" not in raw:
        return text
    # Bytes that cannot be printed are preceded by their number.
    return base64.b64decode(text, validate=True)[8:].decode("utf-8", "replace")
