"""Operators whose attributes are arguments (``dyn.``), where these are known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import numpy as np

from tvm_tile.frontend.relay.call import Converter, OperatorCall, Value, converted

# Attributes of the operators without ``dyn.`` -> which arguments have their values: numbers, lists.
_NUMBERS: Mapping[str, Mapping[str, int]] = {
    "expand_dims": {"axis": 1},
    "nn.upsampling": {"scale_h": 1, "scale_w": 2},
    "nn.upsampling3d": {"scale_d": 1, "scale_h": 2, "scale_w": 3},
    "one_hot": {"depth": 3},
}
_LISTS: Mapping[str, Mapping[str, int]] = {
    "nn.pad": {"pad_width": 1},
    "sparse_to_dense": {"output_shape": 1},
    "squeeze": {"axis": 1},
    "tile": {"reps": 1},
}


def dynamic(static: Mapping[str, Converter]) -> dict[str, Converter]:
    """Converters of operators that read the values of arguments as attributes.

    Args:
        static: the converters of those that have attributes.
    """
    return {f"dyn.{name}": partial(_convert, name, static[name]) for name in (*_NUMBERS, *_LISTS)}


def _convert(name: str, static: Converter, call: OperatorCall, *_: Value) -> Value:
    attributes = dict(call.attributes)
    moved = _NUMBERS.get(name) or _LISTS[name]
    for attribute, position in moved.items():
        array = call.parameter(position, f"the argument {attribute}")
        attributes[attribute] = array.item() if name in _NUMBERS else np.atleast_1d(array).tolist()
    rest = tuple(v for n, v in enumerate(call.arguments) if n not in moved.values())
    return converted(static, replace(call, name=name, arguments=rest, attributes=attributes))
