"""Operators whose attributes are arguments (``dyn.``), where these are known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from tvm_tile.frontend.relay.call import Converter, OperatorCall, Value
from tvm_tile.frontend.relay.operators import indices, padding, reshapes, resizing, scatters, shapes

_STATIC: dict[str, Converter] = {
    **indices.CONVERTERS,
    **padding.CONVERTERS,
    **reshapes.CONVERTERS,
    **resizing.CONVERTERS,
    **scatters.CONVERTERS,
    **shapes.CONVERTERS,
}


def _number(array: np.ndarray) -> Any:
    return array.item()


def _numbers(array: np.ndarray) -> Any:
    return tuple(array.ravel().tolist())


def _pairs(array: np.ndarray) -> Any:
    return tuple(map(tuple, array.reshape(-1, 2).tolist()))


Attributes = dict[str, tuple[int, Callable[[np.ndarray], Any]]]
"""Attribute of the operator without ``dyn.`` -> which argument has its value, and read how."""

_ATTRIBUTES: dict[str, Attributes] = {
    "expand_dims": {"axis": (1, _number)},
    "nn.pad": {"pad_width": (1, _pairs)},
    "nn.upsampling": {"scale_h": (1, _number), "scale_w": (2, _number)},
    "nn.upsampling3d": {
        "scale_d": (1, _number),
        "scale_h": (2, _number),
        "scale_w": (3, _number),
    },
    "one_hot": {"depth": (3, _number)},
    "sparse_to_dense": {"output_shape": (1, _numbers)},
    "squeeze": {"axis": (1, _numbers)},
    "tile": {"reps": (1, _numbers)},
}


def _convert(name: str, call: OperatorCall) -> Value:
    """The operator without ``dyn.``, with the values of arguments as attributes."""
    attributes = dict(call.attributes)
    moved = _ATTRIBUTES[name]
    for attribute, (position, read) in moved.items():
        attributes[attribute] = read(call.parameter(position, f"the argument {attribute}"))
    taken = {position for position, _ in moved.values()}
    rest = tuple(v for number, v in enumerate(call.arguments) if number not in taken)
    return _STATIC[name](replace(call, name=name, arguments=rest, attributes=attributes))


CONVERTERS: dict[str, Converter] = {f"dyn.{name}": partial(_convert, name) for name in _ATTRIBUTES}
