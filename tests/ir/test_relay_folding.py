"""The arithmetic of shapes in Relay is computed while a model is compiled."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from relay_operators import Known, equal, run
from relay_operators import folded as folded_arrays
from tvm import relax

from tvm_tile.frontend.relay.call import OperatorCall
from tvm_tile.frontend.relay.operators.folding import folded

_X = np.array([[7, -7, 2], [0, 5, -3]], "int32")
_Y = np.array([2, -2, 3], "int32")
_REDUCTION = {"axis": (1,), "keepdims": False, "exclude": False}


@pytest.mark.parametrize(
    ("name", "arguments", "attributes"),
    [
        *((name, (_X, _Y), {}) for name in ("add", "subtract", "multiply", "maximum", "minimum")),
        *((name, (_X, _Y), {}) for name in ("divide", "floor_divide", "floor_mod", "mod")),
        *((name, (_X, _Y), {}) for name in ("trunc_divide", "trunc_mod", "less", "not_equal")),
        *((name, (_X > 0, _Y > 0), {}) for name in ("logical_and", "logical_or", "equal")),
        *((name, (_X,), {}) for name in ("negative", "abs", "zeros_like", "ones_like", "copy")),
        *((name, (_X,), _REDUCTION) for name in ("sum", "prod", "max", "min")),
        *((name, (_X > 0,), _REDUCTION) for name in ("all", "any")),
        ("sum", (_X,), {**_REDUCTION, "exclude": True, "keepdims": True}),
        ("cast", (_X,), {"dtype": "bool"}),
        ("cast", (_X,), {"dtype": "int64"}),
        ("cast", (_X,), {"dtype": "float32"}),
        ("cast", (np.array([2.9, -2.9], "float32"),), {"dtype": "int8"}),
        ("cast_like", (_X, np.int8(0)), {}),
        ("multiply", (np.float32(0.1), np.array([3, 7], "float32")), {}),
        ("divide", (np.array([3, 7], "float32"), np.float32(0.3)), {}),
        ("floor", (np.array([2.5, -2.5], "float32"),), {}),
        ("clip", (_X,), {"a_min": -1.5, "a_max": 1e12}),
        ("where", (_X, _X, _Y), {}),
        ("take", (_X, np.array([-1, 1, 9])), {"axis": 1, "mode": "clip", "batch_dims": 0}),
        ("take", (_X, np.int64(4)), {"axis": None, "mode": "wrap", "batch_dims": 0}),
        ("concatenate", ([_X, _X],), {"axis": -1}),
        ("stack", ([_X, _X],), {"axis": -1}),
        ("split", (_X,), {"axis": 1, "indices_or_sections": 3}),
        ("split", (_X,), {"axis": 1, "indices_or_sections": (1,)}),
        ("reshape", (_X,), {"newshape": (-1, 2), "allowzero": False}),
        ("dyn.reshape", (_X, np.array([3, -1])), {"newshape": (), "allowzero": False}),
        ("squeeze", (_X[:1],), {"axis": (0,)}),
        ("expand_dims", (_X,), {"axis": -1, "num_newaxis": 2}),
        ("transpose", (_X,), {"axes": None}),
        ("reverse", (_X,), {"axis": 1}),
        ("tile", (_X,), {"reps": (2, 1, 2)}),
        (
            "strided_slice",
            (_X,),
            {"begin": (0, -1), "end": (1, -9), "strides": (1, -2), "axes": None},
        ),
        ("zeros", (), {"shape": (2,), "dtype": "int64"}),
        ("dyn.ones", (np.array([2, 1]),), {"dtype": "int8"}),
        ("full", (np.float32(2.5),), {"shape": (2,), "dtype": "int32"}),
        ("broadcast_to", (_Y,), {"shape": (2, 3)}),
        ("arange", (np.int32(9), np.int32(1), np.int32(-3)), {"dtype": "int32"}),
    ],
)
def test_folding_does_what_the_operator_does(
    name: str, arguments: tuple[Any, ...], attributes: dict[str, Any]
) -> None:
    found = folded_arrays(name, *arguments, **attributes)
    assert found is not None
    of_shapes = name.startswith("dyn.") or name == "arange"
    given = [Known(a) for a in arguments] if of_shapes else list(arguments)
    expected = run(name, *given, **attributes)
    assert isinstance(found, tuple) == isinstance(expected, tuple)
    pairs = zip(found, expected, strict=True) if isinstance(found, tuple) else [(found, expected)]
    for mine, wanted in pairs:
        equal(mine, wanted)


@pytest.mark.parametrize(
    ("name", "arguments", "attributes"),
    [
        ("erf", (np.float32(1),), {}),
        ("add", (np.zeros(2000, "int32"), np.int32(1)), {}),
        ("zeros", (), {"shape": (2000,), "dtype": "int32"}),
        ("cast", (np.array([300.0, np.nan], "float32"),), {"dtype": "int8"}),
        ("strided_slice", (_X,), {"begin": (1,), "end": (1,), "strides": (), "axes": None}),
    ],
)
def test_what_is_left_to_operators(
    name: str, arguments: tuple[Any, ...], attributes: dict[str, Any]
) -> None:
    assert folded_arrays(name, *arguments, **attributes) is None


def test_what_is_known_only_at_run_time() -> None:
    variable = relax.Var("x", relax.TensorType((3,), "int32"))
    known = relax.const(_Y, "int32")
    builder = relax.BlockBuilder()
    for arguments in ((known, variable), ((known, variable),)):
        assert folded(OperatorCall("add", arguments, {}, builder), known) is known
