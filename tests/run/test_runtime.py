"""Compiled models: calls, their errors, time, and the emulated kernels below them."""

from __future__ import annotations

import ctypes
import gc
import threading
from typing import Any

import numpy as np
import pytest
import torch
import tvm
from scheduled import build, compile_model, relax_module
from tvm import relax
from tvm.relax import op

from tvm_tile.build import Kernel
from tvm_tile.errors import BuildError, DeviceAbsentError, DeviceError, InputError
from tvm_tile.graph.signature import Signature
from tvm_tile.report.shown import Report
from tvm_tile.runtime import CompiledModel, Timing
from tvm_tile.runtime.drivers.emulate import attach_emulated
from tvm_tile.runtime.drivers.timing import summarize
from tvm_tile.runtime.launch import _check_architecture

GPU = tvm.cuda(0).exist
cuda = [pytest.mark.cuda, pytest.mark.skipif(not GPU, reason="needs an NVIDIA GPU")]
DEVICES = ["emulated", pytest.param("auto", marks=cuda)]
X = np.linspace(-2, 2, 6 * 16, dtype="float32").reshape(6, 16)
W = np.linspace(-1, 1, 16 * 8, dtype="float32").reshape(16, 8)
Y = np.maximum(X @ W, 0)


def layer(x: Any, weights: Any) -> Any:
    return op.nn.relu(op.matmul(x, weights))


@pytest.fixture(scope="module", params=DEVICES)
def model(request: pytest.FixtureRequest) -> CompiledModel:
    return compile_model(layer, (X.shape, W.shape), device_name=request.param)


@pytest.fixture(scope="module")
def emulated() -> CompiledModel:
    return compile_model(layer, (X.shape, W.shape))


class TestKinds:
    """What goes in as one kind of array comes out as the same kind."""

    def test_numpy(self, model: CompiledModel) -> None:
        y = model(X, W)
        assert isinstance(y, np.ndarray)
        assert (y.dtype, y.flags.writeable) == (np.float32, True)
        np.testing.assert_allclose(y, Y, rtol=1e-5, atol=1e-6)

    def test_torch(self, model: CompiledModel) -> None:
        y = model(torch.from_numpy(X), torch.from_numpy(W).requires_grad_())
        assert isinstance(y, torch.Tensor)
        assert (y.device.type, y.requires_grad) == ("cpu", False)
        np.testing.assert_allclose(y.numpy(), Y, rtol=1e-5, atol=1e-6)

    def test_dlpack(self, model: CompiledModel) -> None:
        y = model(tvm.runtime.tensor(X), tvm.runtime.tensor(W))
        np.testing.assert_allclose(np.from_dlpack(y), Y, rtol=1e-5, atol=1e-6)

    def test_kinds_may_mix_and_the_first_decides(self, model: CompiledModel) -> None:
        assert isinstance(model(X, torch.from_numpy(W)), np.ndarray)
        assert isinstance(model(torch.from_numpy(X), W), torch.Tensor)

    def test_inputs_by_name(self, model: CompiledModel) -> None:
        np.testing.assert_array_equal(model(X, x1=W), model(X, W))
        np.testing.assert_array_equal(model(x1=W, x0=X), model(X, W))

    @pytest.mark.parametrize("strange", ["strided", "fortran", "read-only", "misaligned"])
    def test_memory_of_any_layout(self, model: CompiledModel, strange: str) -> None:
        if strange == "strided":
            x = np.repeat(X, 2, axis=1)[:, ::2]
        elif strange == "fortran":
            x = np.asfortranarray(X)
        elif strange == "read-only":
            x = X.copy()
            x.flags.writeable = False
        else:
            x = np.concatenate([X.ravel()[:1], X.ravel()])[1:].reshape(X.shape)
            assert x.ctypes.data % 16
        np.testing.assert_allclose(model(x, W), Y, rtol=1e-5, atol=1e-6)
        if strange != "read-only":  # torch warns about these before the model sees them
            y = model(torch.from_numpy(x), torch.from_numpy(W))
            np.testing.assert_allclose(y.numpy(), Y, rtol=1e-5, atol=1e-6)

    def test_inputs_are_left_as_they_were(self, model: CompiledModel) -> None:
        x, w = X.copy(), W.copy()
        model(x, w)
        np.testing.assert_array_equal(x, X)
        np.testing.assert_array_equal(w, W)

    @pytest.mark.cuda
    @pytest.mark.skipif(not (GPU and torch.cuda.is_available()), reason="needs a GPU and torch's")
    def test_torch_on_the_gpu_stays_there(self) -> None:
        model = compile_model(layer, (X.shape, W.shape), device_name="auto")
        x, w = torch.from_numpy(X).cuda(), torch.from_numpy(W).cuda()
        torch.cuda.synchronize()
        with torch.cuda.stream(torch.cuda.Stream()):
            y = model(x, w)
        torch.cuda.synchronize()
        assert y.device == x.device
        np.testing.assert_allclose(y.cpu().numpy(), Y, rtol=1e-5, atol=1e-6)


class TestOutputs:
    def test_several_outputs_are_a_tuple(self) -> None:
        model = compile_model(lambda x: (op.nn.relu(x), op.negative(x)), (X.shape,))
        relu, negative = model(X)
        np.testing.assert_array_equal(relu, np.maximum(X, 0))
        np.testing.assert_array_equal(negative, -X)

    @pytest.mark.parametrize("convert", [np.array, torch.tensor, tvm.runtime.tensor])
    def test_writing_into_outputs_changes_nothing_else(self, convert: Any) -> None:
        constant = relax.const(np.arange(4, dtype="float32"))
        model = compile_model(lambda x: (x, constant, op.nn.relu(x)), ((4,),))
        x = convert(np.array([1, -1, 2, -2], "float32"))
        for _ in range(2):
            outputs = [np.from_dlpack(output) for output in model(x)]
            assert outputs[0].tolist() == [1, -1, 2, -2]
            assert outputs[1].tolist() == [0, 1, 2, 3]
            assert outputs[2].tolist() == [1, 0, 2, 0]
            for output in outputs:
                output[...] = 9
        assert np.from_dlpack(x).tolist() == [1, -1, 2, -2]

    def test_outputs_outlive_the_model_and_later_calls(self) -> None:
        model = compile_model(op.nn.relu, (X.shape,))
        first = model(X)
        model(-X)
        del model
        gc.collect()
        np.testing.assert_array_equal(first, np.maximum(X, 0))

    def test_a_model_without_inputs_gives_numpy(self) -> None:
        model = compile_model(lambda: relax.const(np.float32(3)), ())
        assert model() == np.float32(3)

    @pytest.mark.parametrize("dtype", ["int64", "bool", "uint8", "float64"])
    def test_other_dtypes(self, dtype: str) -> None:
        model = compile_model(lambda x: op.maximum(x, op.flip(x, 0)), ((5,),), dtype=dtype)
        x = np.array([1, 0, 0, 1, 0]).astype(dtype)
        assert model(x).dtype == np.dtype(dtype)
        np.testing.assert_array_equal(model(x), np.maximum(x, x[::-1]))
        y = model(torch.from_numpy(x))
        np.testing.assert_array_equal(y.numpy(), np.maximum(x, x[::-1]))

    def test_bfloat16_passes_through_numpy(self) -> None:
        ml_dtypes = pytest.importorskip("ml_dtypes")
        model = compile_model(lambda x: x, ((3,),), dtype="bfloat16")
        x = np.array([1.5, -2, 3], ml_dtypes.bfloat16)
        y = model(x)
        assert y.dtype == ml_dtypes.bfloat16
        np.testing.assert_array_equal(y.astype("float32"), x.astype("float32"))

    def test_scalars(self) -> None:
        model = compile_model(lambda x: op.add(x, relax.const(1.0)), ((),))
        assert model(np.float32(2)) == 3
        assert model(np.array(2, "float32")).shape == ()


class TestInputErrors:
    @pytest.mark.parametrize(
        ("args", "by_name", "message"),
        [
            ((X,), {}, "takes 2 inputs"),
            ((X, W, W), {}, "found:  3 by position"),
            ((X,), {"weights": W}, "by position, weights"),
            ((X, W), {"x1": W}, "takes 2 inputs"),
            ((X.tolist(), W), {}, "found:  a list"),
            ((X.astype("float64"), W), {}, "dtype float32\n  found:  float64"),
            ((torch.from_numpy(X).half(), W), {}, "found:  float16"),
            ((X[0], W), {}, "rank 2\n  found:  rank 1"),
            ((X, W.T), {}, r"shape \(16, 8\)\n  found:  \(8, 16\)"),
            ((torch.from_numpy(X[:5]), W), {}, r"found:  \(5, 16\)"),
            ((tvm.runtime.tensor(X[:5]), W), {}, r"found:  \(5, 16\)"),
        ],
    )
    def test_each_is_told_apart(
        self, emulated: CompiledModel, args: Any, by_name: Any, message: str
    ) -> None:
        with pytest.raises(InputError, match=message):
            emulated(*args, **by_name)
        with pytest.raises(InputError, match=message):
            emulated.time(*args, **by_name)

    def test_nothing_runs_before_all_inputs_are_checked(self) -> None:
        model = compile_model(layer, (X.shape, W.shape), device_name="nvidia/h200")
        with pytest.raises(InputError):  # and not: no GPU
            model(X, X)

    @pytest.mark.skipif(GPU, reason="needs a machine without a GPU")
    def test_without_the_device_the_remedy_is_elsewhere(self) -> None:
        model = compile_model(layer, (X.shape, W.shape), device_name="nvidia/h200")
        with pytest.raises(DeviceAbsentError, match="emulated"):
            model(X, W)


class TestTime:
    def test_samples_median_and_spread(self, model: CompiledModel) -> None:
        timing = model.time(X, W, repeats=7)
        assert len(timing.samples) == 7
        assert min(timing.samples) <= timing.median_s <= max(timing.samples)
        assert 0 < timing.median_s < 1

    def test_statistics(self) -> None:
        assert summarize([3.0, 1.0, 2.0, 4.0, 5.0]) == Timing(3, 2, (3, 1, 2, 4, 5))
        assert summarize([0.25]) == Timing(0.25, 0, (0.25,))
        assert str(summarize([0.25])).startswith("250 ms median of 1")

    def test_repeats_must_be_positive(self, emulated: CompiledModel) -> None:
        with pytest.raises(InputError, match="at least 1"):
            emulated.time(X, W, repeats=0)


class TestArchitecture:
    @pytest.mark.parametrize(
        ("arch", "version"),
        [("sm_90a", "9.0"), ("sm_80", "8.0"), ("sm_80", "8.9"), ("sm_120", "12.1")],
    )
    def test_machine_code_that_runs(self, arch: str, version: str) -> None:
        _check_architecture(arch, version, "a GPU")

    @pytest.mark.parametrize(
        ("arch", "version"),
        [("sm_90a", "10.0"), ("sm_80", "9.0"), ("sm_89", "8.6"), ("sm_120", "10.0")],
    )
    def test_machine_code_that_does_not(self, arch: str, version: str) -> None:
        with pytest.raises(DeviceError, match=f"compiled for {arch}"):
            _check_architecture(arch, version, "a GPU")


def kernel(name: str, body: str, *arg_types: str, launch: str = "blockIdx.x threadIdx.x") -> Kernel:
    types = {"handle": "__global float*", "int32": "int", "int64": "long", "float32": "float"}
    arguments = ", ".join(f"{types[arg]} a{i}" for i, arg in enumerate(arg_types))
    source = f"__kernel void {name}({arguments}) {{ {body} }}"
    return Kernel(name, source, arg_types, tuple(launch.split()), b"")


@pytest.fixture
def floats() -> Any:
    return tvm.runtime.tensor(np.zeros(8, "float32"))


class TestEmulatedKernels:
    def call(self, name: str, *arguments: Any) -> None:
        tvm.get_global_func(name)(*arguments)

    def test_scalars_pointers_and_extents(self, floats: Any) -> None:
        body = "a0[get_global_id(0)] = a1 + a2 * a3 + get_group_id(0);"
        made = kernel("emulated_scalars", body, "handle", "int32", "float32", "int64")
        launcher = attach_emulated(made)
        self.call(made.name, ctypes.c_void_p(floats.data_ptr()), 1, 0.5, 4, 2, 4)
        assert floats.numpy().tolist() == [3.0] * 4 + [4.0] * 4
        assert launcher.kernel == made

    def test_equal_kernels_are_shared_and_forgotten_with_their_last_owner(self) -> None:
        made = kernel("emulated_shared", "a0[0] = 1;", "handle")
        one, two = attach_emulated(made), attach_emulated(made)
        assert one is two
        del one
        gc.collect()
        assert tvm.get_global_func(made.name, allow_missing=True) is not None
        del two
        gc.collect()
        assert tvm.get_global_func(made.name, allow_missing=True) is None

    def test_different_kernels_of_one_name_are_refused(self) -> None:
        keep = attach_emulated(kernel("emulated_clash", "a0[0] = 1;", "handle"))
        with pytest.raises(BuildError, match="rename_by_content"):
            attach_emulated(kernel("emulated_clash", "a0[0] = 2;", "handle"))
        assert keep.kernel

    def test_what_opencl_cannot_launch_is_refused(self) -> None:
        launch = "blockIdx.x tirx.use_dyn_shared_memory"
        with pytest.raises(BuildError, match="use_dyn_shared_memory"):
            attach_emulated(kernel("emulated_dynamic", "a0[0] = 1;", "handle", launch=launch))

    def test_models_share_kernels_and_survive_one_another(self) -> None:
        one, two = (compile_model(layer, (X.shape, W.shape)) for _ in range(2))
        np.testing.assert_array_equal(one(X, W), two(X, W))
        del one
        gc.collect()
        np.testing.assert_allclose(two(X, W), Y, rtol=1e-5, atol=1e-6)


def test_threads_may_share_a_model(emulated: CompiledModel) -> None:
    results: list[Any] = []
    threads = [threading.Thread(target=lambda: results.append(emulated(X, W))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 4
    for result in results:
        np.testing.assert_allclose(result, Y, rtol=1e-5, atol=1e-6)


def test_explain_and_repr() -> None:
    report = Report("emulated", (), ("a note",))
    signature = Signature("x", X.shape, "float32")
    program = build(relax_module(op.nn.relu, (X.shape,)))
    model = CompiledModel(program, "emulated", (signature,), (signature,), report)
    assert model.explain("all") == report.render()
    assert repr(model) == "CompiledModel(emulated: (x: float32[6, 16]) -> (x: float32[6, 16]))"
