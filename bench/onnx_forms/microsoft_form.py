"""What forms of ONNX Runtime's own operators have in common."""

from __future__ import annotations

from typing import Any

import numpy as np

from bench.onnx_forms.form import Draw, Form, form

DOMAIN = "com.microsoft"
Array = np.ndarray | None
# Opsets that optimizers are given, older and newer than the operators that definitions are made of.
_OPSETS = (11, 13, 17, 18, 21, 23)


def own_form(d: Draw, op_type: str, *inputs: Array, **kept: Any) -> Form:
    kept.setdefault("opset", d.choose(*_OPSETS))
    arrays = (None if array is None else np.asarray(array) for array in inputs)
    return form(op_type, *arrays, domain=DOMAIN, **kept)


def some(d: Draw, array: np.ndarray, chance: float = 0.5) -> Array:
    return array if d.maybe(chance) else None


def codes(d: Draw, kind: str, shape: tuple[int, ...]) -> np.ndarray:
    bounds = np.iinfo(kind)
    return np.asarray(d.rng.integers(bounds.min, bounds.max + 1, shape)).astype(kind)
