"""What fails on an AMD GPU, or before one is found: typed errors, and everything given back."""

from __future__ import annotations

import ctypes
import functools
import gc
import logging
import struct
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tvm
from fake_hip import ARCH, COMPILER, DEVICE, FakeHip, arguments_of, code_object, fake_hip
from scheduled import relax_module
from tvm import relax
from tvm.relax import op

import tvm_tile
from tvm_tile.build.program import Kernel
from tvm_tile.errors import (
    BuildError,
    DeviceAbsentError,
    DeviceError,
    DeviceMemoryError,
    DriverError,
    InstallationError,
)
from tvm_tile.runtime import CompiledModel
from tvm_tile.runtime.drivers import device_api, hip, hip_device
from tvm_tile.runtime.drivers.hip import Hip
from tvm_tile.runtime.launch import find_runtime_device

pytestmark = pytest.mark.skipif(COMPILER is None, reason="gcc compiles the fake driver")

RNG = np.random.default_rng(0)
X = RNG.standard_normal((6, 16), "float32")
W = RNG.standard_normal((16, 8), "float32")
Y = np.maximum(X.astype("float64") @ W, 0)


@pytest.fixture
def fake() -> Iterator[FakeHip]:
    with fake_hip().present() as fake:
        yield fake


@pytest.fixture(scope="module")
def made() -> CompiledModel:
    def layer(x: Any) -> Any:
        return op.nn.softmax(op.nn.relu(op.matmul(x, relax.const(W))))

    return tvm_tile.compile(relax_module(layer, (X.shape,)), device=DEVICE)


def twice_softmax(x: Any) -> Any:
    return op.nn.softmax(op.nn.softmax(x))


def expected() -> np.ndarray:
    powers = np.exp(Y - Y.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


class TestAnyCallMayFail:
    def test_in_a_first_call(self, fake: FakeHip, made: CompiledModel) -> None:
        live = fake.live
        fake.model(made)(X)  # from now on, all memory is there
        gc.collect()
        fake.reset()
        model = fake.model(made)
        model(X)
        # HIP's functions that a call needs, and how often: each of these calls fails in turn.
        counts = Counter(call.split()[0] for call in fake.calls)
        del model
        assert len(counts) >= 8
        for name, count in counts.items():
            for nth in range(1, count + 1):
                gc.collect()
                assert fake.live == live
                self.check_failure(fake, fake.model(made), name, nth)

    def check_failure(self, fake: FakeHip, model: CompiledModel, name: str, nth: int) -> None:
        fake.reset()
        fake.fail(name, 719, nth=nth)
        with pytest.raises(DriverError, match=rf"{name}[^§]*719[^§]*restart"):
            model(X)
        fake.reset()
        np.testing.assert_allclose(model(X), expected(), rtol=1e-5)
        assert not fake.violations

    @pytest.mark.parametrize("name", ["hipEventCreate", "hipEventRecord", "hipEventElapsedTime"])
    @pytest.mark.parametrize("nth", [1, 2])
    def test_while_timing(self, fake: FakeHip, made: CompiledModel, name: str, nth: int) -> None:
        model = fake.model(made)
        fake.fail(name, 999, nth=nth)
        with pytest.raises(DriverError, match=f"{name}.*\n.*999"):
            model.time(X)
        assert fake.live[1] == 0
        assert model.time(X).median_s > 0

    def test_when_it_starts(self, fake: FakeHip) -> None:
        fake.fail("hipInit", 35)
        with pytest.raises(DriverError, match="hipInit must succeed"):
            Hip(fake.library)


class TestMemory:
    def test_too_little_at_any_point(self, fake: FakeHip) -> None:
        # Larger than what other tests have left for reuse: each call needs three times this.
        x = RNG.standard_normal((300, 1000), "float32")
        made = tvm_tile.compile(relax_module(twice_softmax, (x.shape,)), device=DEVICE)
        model, failures = fake.model(made), 0
        while True:
            fake.reset(capacity=0)
            with pytest.raises(DeviceMemoryError, match=r"hipMalloc of \d+ bytes.*\n.*of memory"):
                model(x)
            # All that nobody uses has been freed, so what follows is what is there to use.
            fake.reset(capacity=fake.in_use + failures * x.nbytes * 11 // 10)
            try:
                y = model(x)
                break
            except DeviceMemoryError:
                failures += 1
        assert failures == 2
        e = np.exp(x.astype("float64"))
        e = np.exp(e / e.sum(-1, keepdims=True))
        np.testing.assert_allclose(y, e / e.sum(-1, keepdims=True), rtol=1e-5)

    def test_a_call_that_failed_holds_none(self, fake: FakeHip, made: CompiledModel) -> None:
        model = fake.model(made)
        for _ in range(2):  # the machine keeps the last result
            model(X)
        fake.reset()
        gc.collect()
        gc.disable()
        try:
            for name in ("hipModuleLaunchKernel", "hipMemcpyAsync", "hipStreamSynchronize") * 2:
                fake.fail(name, 719)
                with pytest.raises(DriverError):
                    model(X)
            model(X)
        finally:
            gc.enable()
        assert fake.count("hipMalloc") == 0

    def test_outside_of_a_model_it_is_logged_and_stops_the_next_launch(
        self, fake: FakeHip, made: CompiledModel, caplog: pytest.LogCaptureFixture
    ) -> None:
        model = fake.model(made)
        x = tvm.runtime.tensor(X, tvm.rocm(0))
        model(x)
        fake.reset(capacity=0)
        with caplog.at_level(logging.ERROR):
            tvm.runtime.tensor(np.zeros(10**6, "float32"), tvm.rocm(0))
        assert "hipMalloc of 4001792 bytes" in caplog.text
        fake.reset()
        launch = tvm.get_global_func(made.program.kernels[0].name)
        with pytest.raises(Exception, match="hipMalloc"):
            launch()
        assert fake.count("hipModuleLaunchKernel") == 0


class TestFindingTheGpu:
    @pytest.mark.parametrize("arch", [ARCH, "gfx942:sramecc+:xnack-", "gfx942:xnack-"])
    def test_of_the_architecture(self, fake: FakeHip, arch: str) -> None:
        fake.reset(arch="gfx942:sramecc+:xnack-")
        assert find_runtime_device("rocm", arch, "amd/mi300x") == tvm.rocm(0)

    @pytest.mark.parametrize("arch", ["gfx90a", "gfx94", "gfx942:xnack+", ""])
    def test_of_another_architecture(self, fake: FakeHip, arch: str) -> None:
        fake.reset(arch="gfx942:sramecc+:xnack-")
        with pytest.raises(DeviceError, match=r"AMD Fake MI300X, gfx942:sramecc\+:xnack-"):
            find_runtime_device("rocm", arch, "amd/mi250")

    def test_none_there(self, fake: FakeHip, made: CompiledModel) -> None:
        fake.reset(devices=0)
        with pytest.raises(DeviceAbsentError, match=r"amd/fake and its driver.*\n.*no GPU"):
            fake.model(made)(X)

    def test_no_library(
        self, fake: FakeHip, made: CompiledModel, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(hip, "_LIBRARIES", ("libamdhip64.so.0",))
        monkeypatch.setattr(hip, "_loaded", functools.cache(hip._loaded.__wrapped__))
        with pytest.raises(DeviceAbsentError, match=r"libamdhip64[^§]*install ROCm"):
            fake.model(made)(X)
        monkeypatch.undo()
        assert fake.model(made)(X).any()  # that there was none is not kept

    def test_a_library_that_is_too_old(self) -> None:
        with pytest.raises(DeviceAbsentError, match=r"ROCm 6[^§]*has no hipInit"):
            Hip(ctypes.CDLL(None))

    def test_a_library_that_is_loaded_already_is_taken(self, fake: FakeHip) -> None:
        found = hip.load_hip()
        assert found is not None
        assert found.properties(0).name == "AMD Fake MI300X"

    def test_a_tvm_of_another_layout(self, fake: FakeHip, monkeypatch: pytest.MonkeyPatch) -> None:
        shifted = (*device_api._FUNCTIONS[1:], device_api._FUNCTIONS[0])
        monkeypatch.setattr(device_api, "_FUNCTIONS", shifted)
        with pytest.raises(InstallationError, match="GetDataSize is not where"):
            device_api.install_device_api("rocm", None)  # type: ignore[arg-type]
        monkeypatch.setattr(device_api, "_TABLE", "_ZTVN3tvm7runtime9NoClassE")
        with pytest.raises(InstallationError, match="NoClass"):
            device_api.install_device_api("rocm", None)  # type: ignore[arg-type]


TYPES = ("int8", "handle", "float16", "int32", "float64", "bool", "int64", "uint8", "float32")


def kernel(name: str, *arg_types: str, launch: str = "threadIdx.x") -> Kernel:
    made = Kernel(name, "", arg_types, tuple(launch.split()), b"")
    return replace(made, binary=code_object(made, max_threads=256))


def attach(made: Kernel) -> Any:
    return hip_device.find_hip_device(ARCH, "amd/fake").attach(made)


class TestKernels:
    def test_arguments_lie_where_a_c_compiler_puts_them(self, fake: FakeHip) -> None:
        made = kernel("hip_arguments", *TYPES, launch="blockIdx.y tirx.use_dyn_shared_memory")
        launcher, seen = attach(made), []

        def run(_name: bytes, extents: Any, shared: int, _stream: int, arguments: int) -> None:
            got = arguments_of(made).from_address(arguments)
            values = [getattr(got, f"a{i}") for i in range(len(TYPES))]
            seen.append((values, extents[:6], shared))

        fake.reset(kernel=run)
        values = (-3, ctypes.c_void_p(1 << 40), 0.5, -(1 << 31), 1e-300, True, 1 << 62, 200, 0.25)
        tvm.get_global_func(made.name)(*values, 7, 4096)
        launcher._hip.synchronize()
        half = struct.unpack("<H", struct.pack("<e", 0.5))[0]
        wanted = [-3, 1 << 40, half, -(1 << 31), 1e-300, True, 1 << 62, 200, 0.25]
        assert seen == [(wanted, [1, 7, 1, 1, 1, 1], 4096)]

    def test_no_memory_is_a_null_pointer(self, fake: FakeHip) -> None:
        made = kernel("hip_null", "handle")
        launcher, seen = attach(made), []

        def run(_name: bytes, _extents: Any, _shared: int, _stream: int, arguments: int) -> None:
            seen.append(arguments_of(made).from_address(arguments).a0)

        fake.reset(kernel=run)
        for nothing in (None, ctypes.c_void_p()):
            tvm.get_global_func(made.name)(nothing, 1)
        launcher._hip.synchronize()
        assert seen == [None, None]

    def test_too_many_threads(self, fake: FakeHip) -> None:
        made = kernel("hip_threads")
        keep = attach(made)
        with pytest.raises(Exception, match="hipModuleLaunchKernel must succeed"):
            tvm.get_global_func(made.name)(257)
        assert keep

    @pytest.mark.parametrize("arg_type", ["tensormap", "bfloat16"])
    def test_arguments_that_hip_does_not_take(self, fake: FakeHip, arg_type: str) -> None:
        with pytest.raises(BuildError, match=f"hip_strange takes {arg_type}"):
            attach(Kernel("hip_strange", "", (arg_type,), (), b""))

    def test_launches_that_hip_does_not_take(self, fake: FakeHip) -> None:
        with pytest.raises(BuildError, match=r"also wants tirx\.use_coop"):
            attach(Kernel("hip_grid", "", (), ("tirx.use_cooperative_launch",), b""))

    def test_what_is_no_code_object(self, fake: FakeHip) -> None:
        live = fake.live
        made = replace(kernel("hip_elf"), binary=b"not machine code")
        with pytest.raises(DriverError, match=r"hipModuleLoadData[^§]*200[^§]*compile the model"):
            attach(made)
        with pytest.raises(DriverError, match=r"hipModuleGetFunction[^§]*500"):
            attach(replace(kernel("hip_other"), name="hip_missing"))
        gc.collect()
        assert fake.live == live
        assert tvm.get_global_func("hip_missing", allow_missing=True) is None


class TestTheFakeItself:
    """It would find what it is there to find."""

    def test_copies_beyond_an_allocation_and_to_the_wrong_side(self, fake: FakeHip) -> None:
        gpu, data = Hip(fake.library), (ctypes.c_char * 8192)()
        address, host = gpu.allocate(4096), ctypes.addressof(data)
        gpu.copy(address, host, 4096, hip.HOST_TO_DEVICE, 0)
        gpu.synchronize()
        assert not fake.violations
        gpu.copy(address + 1, host, 4096, hip.HOST_TO_DEVICE, 0)
        assert "not allocated" in fake.violations
        fake.reset()
        gpu.copy(host, host + 16, 16, hip.DEVICE_TO_HOST, 0)
        assert "wrong side" in fake.violations
        gpu.free(address)
        fake.reset()
        with pytest.raises(DriverError):
            gpu.free(address)
        assert "not allocated" in fake.violations
        fake.reset()

    def test_arguments_of_the_wrong_size_and_unloaded_modules(self, fake: FakeHip) -> None:
        gpu = Hip(fake.library)
        module = gpu.load_module(kernel("hip_size", "int32").binary)
        function = gpu.function(module, "hip_size")
        gpu.launch(function, (1, 1, 1, 1, 1, 1, 0), 0, hip.ArgumentBuffer(8))
        assert "takes 4 bytes of arguments, got 8" in fake.violations
        fake.reset()
        gpu.unload_module(module)
        gpu.synchronize()
        assert "after its module is gone" in fake.violations
        fake.reset()
