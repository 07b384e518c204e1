"""Inputs of all kinds, and arguments of all types: right, or refused by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from scheduled import compile_model
from torch._subclasses import FakeTensorMode
from tvm.relax import op

import tvm_tile
from tvm_tile.errors import (
    BuildError,
    DeviceAbsentError,
    InputError,
    ModelError,
    OptionError,
    UnknownDeviceError,
)
from tvm_tile.runtime import CompiledModel

X = np.arange(6, dtype="float32").reshape(2, 3)
T = torch.from_numpy(X)


@pytest.fixture(scope="module")
def twice() -> CompiledModel:
    return compile_model(lambda x: op.add(x, x), (X.shape,))


def freed() -> torch.Tensor:
    tensor = T.clone()
    tensor.untyped_storage().resize_(0)
    return tensor


def read_only() -> np.ndarray:
    array = X.copy()
    array.flags.writeable = False
    return array


class Subclass(torch.Tensor):
    pass


class Broken:
    def __dlpack__(self, **_: Any) -> Any:
        raise KeyError("no memory")


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: torch.complex(T, -T).conj().imag, X),  # lazily negated
        (lambda: torch._efficientzerotensor((2, 3)), 0 * X),
        (lambda: T.clone().requires_grad_(), X),
        (lambda: torch.nn.Parameter(T.clone()), X),
        (lambda: T.as_subclass(Subclass), X),
        (lambda: torch.arange(3.0).expand(2, 3), X[[0, 0]]),
        (lambda: T.t().contiguous().t(), X),
        (lambda: X[::-1, ::-1], X[::-1, ::-1]),
        (lambda: np.broadcast_to(X[:1], (2, 3)), X[[0, 0]]),
        (read_only, X),
        (lambda: X.view(np.recarray), X),
    ],
)
def test_right(twice: CompiledModel, make: Callable[[], Any], expected: np.ndarray) -> None:
    np.testing.assert_array_equal(np.asarray(twice(make())), 2 * expected)


@pytest.mark.filterwarnings("ignore")  # torch's, of prototypes
@pytest.mark.parametrize(
    ("make", "found"),
    [
        (lambda: FakeTensorMode().from_tensor(T), "FakeTensor"),  # was a segmentation fault
        (freed, "without memory"),
        (lambda: T.to("meta"), "without memory"),
        (T.to_sparse, "sparse_coo"),
        (T.to_sparse_csr, "sparse_csr"),
        (lambda: T.to_sparse_bsr((1, 3)), "sparse_bsr"),
        (T.to_mkldnn, "mkldnn"),
        (lambda: torch.nested.nested_tensor([T[0], T[1, :2]]), "nested"),
        (lambda: torch.quantize_per_tensor(T, 0.1, 0, torch.qint8), "quantized"),
        (lambda: torch.tensor(1.0), "rank 0"),
        (lambda: torch.complex(T, T), "complex64"),
        (lambda: X.astype(">f4"), ">f4"),
        (lambda: X.astype(object), "object"),
        (lambda: np.zeros((2, 3), [("a", "f4")]), "<f4"),
        (lambda: np.ma.masked_array(X, X > 3), "masked"),
        (lambda: X.astype("M8[s]"), "datetime64"),
        (lambda: None, "NoneType"),
        (lambda: 1.0, "float"),
        (lambda: torch.Tensor, "TensorMeta"),
        (Broken, "no memory"),
    ],
)
def test_refused(twice: CompiledModel, make: Callable[[], Any], found: str) -> None:
    with pytest.raises(InputError, match=found):
        twice(make())


def test_functions_of_functions_are_refused(twice: CompiledModel) -> None:
    with pytest.raises(InputError, match="vmap"):
        torch.vmap(twice)(torch.stack([T, T]))
    with pytest.raises(InputError, match=r"torch\.func"):
        torch.func.grad(lambda x: twice(x).sum())(T)


def test_arrays_without_elements() -> None:
    model = compile_model(lambda x: op.add(x, x), ((0, 3),))  # wrote out of bounds
    assert model(X[:0]).shape == model(T[:0]).shape == (0, 3)


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2"])
def test_8_bit_floats_are_not_emulated(dtype: str) -> None:
    with pytest.raises(BuildError, match="8-bit floats"):
        compile_model(lambda x: op.astype(x, "float32"), ((256,),), dtype=dtype)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"device": None}, UnknownDeviceError),
        ({"device": 3}, UnknownDeviceError),
        ({"inputs": {"x": "8x32"}}, ModelError),
        ({"inputs": {"x": (1.5,)}}, ModelError),
        ({"inputs": {"x": (-1, 3)}}, ModelError),
        ({"inputs": {"x": 3}}, ModelError),
        ({"inputs": {3: (1,)}}, ModelError),
        ({"inputs": [(2, 3)]}, ModelError),
        ({"example_inputs": T}, ModelError),
        ({"options": {"tpok": 1}}, OptionError),
        ({"tpok": 1}, OptionError),
        ({"options": tvm_tile.Options(topk=2)}, DeviceAbsentError),
    ],
)
def test_arguments_of_compile(arguments: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        tvm_tile.compile(torch.nn.ReLU(), **{"device": "emulated", **arguments})


@pytest.mark.parametrize(
    "option",
    [
        {"topk": 1.5},
        {"topk": True},
        {"tf32": "no"},  # turned it on
        {"cuda_graph": "yes"},
        {"cache": ""},
        {"cache": None},
        {"cache": b"folder"},
        {"cache_bytes": -1},
        {"bounds": 3},
    ],
)
def test_options_of_other_types(option: dict[str, Any]) -> None:
    with pytest.raises(OptionError, match=next(iter(option))):
        tvm_tile.Options(**option)
