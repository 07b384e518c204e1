"""Loops that decode codes of a few bits give the very bits that NumPy does."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from coded import CODES, formats, random_coded
from cpu_build import CPU
from tvm import relax, tirx

import tvm_tile
from tvm_tile import Options
from tvm_tile.graph.codes import Coded
from tvm_tile.graph.tensor_format import E8M0, Floats, Integers, Shared, TensorFormat
from tvm_tile.loops.decoding import decoding_loops, format_of

pytestmark = pytest.mark.bank(4)

SHAPES = ((5, 67), (16, 64))
OPTIONS = Options(cache=False)


def _bits(array: np.ndarray) -> np.ndarray:
    """NaN is NaN, whatever its bits are."""
    whole = array.view(f"uint{array.itemsize * 8}")
    return np.where(np.isnan(array.astype(np.float32)), 0, whole)


def _of_inputs(forms: list[TensorFormat], shape: tuple[int, int]) -> tvm.IRModule:
    """A function of all that is kept of tensors of these formats; their values."""
    builder = relax.BlockBuilder()
    coded = [random_coded(form, shape) for form in forms]
    params = [
        [
            relax.Var(f"x{number}_{place}", relax.TensorType(array.shape, str(array.dtype)))
            for place, array in enumerate(one.arrays)
        ]
        for number, one in enumerate(coded)
    ]
    with builder.function("main", [var for own in params for var in own]):
        with builder.dataflow():
            results = []
            for form, own in zip(forms, params, strict=True):
                var = builder.add_func(decoding_loops(form, shape), "decode")
                out = relax.TensorType(shape, form.dtype)
                results.append(builder.emit_output(relax.call_tir(var, own, out)))
        builder.emit_func_output(relax.Tuple(results))
    return builder.get()


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_kernels_decode_what_numpy_does(shape: tuple[int, int]) -> None:
    forms = formats("float32")[:-1]
    model = tvm_tile.compile(_of_inputs(forms, shape), "emulated", options=OPTIONS)
    coded = [random_coded(form, shape, seed=7) for form in forms]
    results = model(*(array for one in coded for array in one.arrays))
    for one, result in zip(coded, results, strict=True):
        expected = one.values()
        np.testing.assert_array_equal(_bits(np.asarray(result)), _bits(expected), str(one.format))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_loops_decode_what_numpy_does(dtype: str) -> None:
    """In TVM's CPU build, which half precision runs in, too."""
    for form in formats(dtype):
        coded = random_coded(form, (5, 67), seed=3)
        func = decoding_loops(form, coded.shape)
        assert format_of(func) == form
        np.testing.assert_array_equal(_bits(_on_cpu(func, coded)), _bits(coded.values()), str(form))


def _random_format(rng: np.random.Generator, shape: tuple[int, int]) -> TensorFormat:
    """Of any code, and of any steps; boxes are such as are found in values."""
    dtypes = "float16", "bfloat16", "float32"

    def shared(*stored: str | Floats | None) -> Shared:
        sides = ([1, 2, 4, 16, extent] for extent in shape)
        dtype = dtypes[rng.integers(3)]
        own = stored[rng.integers(len(stored))] or dtype
        return Shared(tuple(int(rng.choice(own)) for own in sides), own, dtype)

    code = CODES[rng.integers(len(CODES))]
    entry = "int32" if isinstance(code, Integers) else "float32"
    zero = shared("uint8", "int8") if rng.random() < 0.5 else None
    scales = tuple(shared(E8M0, "float32", None) for _ in range(rng.integers(3)))
    # A sum with a product of float32 is no format: compilers may fuse the two.
    is_fused = bool(scales) and scales[-1].dtype == "float32"
    offset = shared(None) if not is_fused and rng.random() < 0.5 else None
    return TensorFormat(code, entry, dtypes[rng.integers(3)], zero, scales, offset)


@pytest.mark.parametrize("seed", range(12))
def test_random_formats(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape = int(rng.integers(1, 8)), int(rng.integers(1, 70))
    form = _random_format(rng, shape)
    coded = random_coded(form, shape, seed)
    found = _on_cpu(decoding_loops(form, shape), coded)
    np.testing.assert_array_equal(_bits(found), _bits(coded.values()), str(form))


def _on_cpu(func: tirx.PrimFunc, coded: Coded) -> np.ndarray:
    built = tvm.compile(func.with_attr("global_symbol", "decode"), CPU)
    arguments = [tvm.runtime.tensor(array) for array in coded.arrays]
    out = tvm.runtime.tensor(np.zeros(coded.shape, coded.values().dtype))
    built["decode"](*arguments, out)
    return out.numpy()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_kernels_build_for_nvidia(dtype: str) -> None:
    model = tvm_tile.compile(_of_inputs(formats(dtype), (16, 64)), "nvidia/h100", options=OPTIONS)
    assert "0 fell back" in model.explain("all")


def test_other_functions_have_no_format() -> None:
    func = decoding_loops(formats("float32")[0], (4, 32))
    assert format_of(func.without_attr("tvm_tile.tensor_format")) is None
