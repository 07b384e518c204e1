"""Models on an AMD GPU, with the driver that `fake_hip.c` is: calls, memory, streams, time."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import tvm
import tvm_ffi
from fake_hip import COMPILER, DEVICE, FakeHip, fake_hip
from scheduled import relax_module
from tvm import relax
from tvm.relax import op

import tvm_tile
from tvm_tile.runtime import CompiledModel
from tvm_tile.runtime.drivers.hip import Hip
from tvm_tile.runtime.drivers.hip_memory import current_stream

pytestmark = pytest.mark.skipif(COMPILER is None, reason="gcc compiles the fake driver")

RNG = np.random.default_rng(0)
IMAGE = RNG.standard_normal((1, 3, 12, 10), "float32")
FILTERS = RNG.standard_normal((8, 3, 3, 3), "float32")
WEIGHTS = RNG.standard_normal((8, 5), "float32")


def classifier(image: Any) -> Any:
    features = op.nn.relu(op.nn.conv2d(image, relax.const(FILTERS), padding=(1, 1)))
    return op.nn.softmax(op.matmul(op.mean(features, axis=[2, 3]), relax.const(WEIGHTS)))


def expected(image: np.ndarray) -> np.ndarray:
    image, filters, weights = (torch.from_numpy(a).double() for a in (image, FILTERS, WEIGHTS))
    features = torch.nn.functional.conv2d(image, filters, padding=1).relu()
    return torch.softmax(features.mean((2, 3)) @ weights, -1).numpy()


def compiled(body: Any, shapes: Any) -> CompiledModel:
    return tvm_tile.compile(relax_module(body, shapes), device=DEVICE)


@pytest.fixture
def fake() -> Iterator[FakeHip]:
    with fake_hip().present() as fake:
        yield fake


@pytest.fixture(scope="module")
def made() -> CompiledModel:
    return compiled(classifier, (IMAGE.shape,))


@pytest.fixture
def model(fake: FakeHip, made: CompiledModel) -> CompiledModel:
    return fake.model(made)


def launched(fake: FakeHip) -> set[str]:
    """The streams of launches."""
    return {c.split()[-1] for c in fake.calls if c.startswith("hipModuleLaunchKernel")}


class TestArrays:
    def test_numpy(self, model: CompiledModel) -> None:
        y = model(IMAGE)
        assert isinstance(y, np.ndarray)
        np.testing.assert_allclose(y, expected(IMAGE), rtol=1e-5)

    def test_torch_that_knows_no_amd_gpu(self, model: CompiledModel) -> None:
        y = model(torch.from_numpy(IMAGE).requires_grad_())
        assert isinstance(y, torch.Tensor)
        np.testing.assert_allclose(y.numpy(), expected(IMAGE), rtol=1e-5)

    def test_dlpack_on_the_gpu_is_not_copied(self, fake: FakeHip, model: CompiledModel) -> None:
        image = tvm.runtime.tensor(IMAGE, tvm.rocm(0))
        model(image)
        fake.reset()
        y = model(image)
        assert fake.count("hipMemcpyAsync") == 0
        assert (y.device.dlpack_device_type(), y.device.index) == (10, 0)
        np.testing.assert_allclose(y.numpy(), expected(IMAGE), rtol=1e-5)

    def test_dlpack_on_the_host(self, model: CompiledModel) -> None:
        y = model(tvm.runtime.tensor(IMAGE))
        np.testing.assert_allclose(np.from_dlpack(y), expected(IMAGE), rtol=1e-5)

    def test_half_precision_and_integers_cross_unchanged(self, fake: FakeHip) -> None:
        for dtype in ("float16", "int8", "bool", "int64"):
            array = (RNG.standard_normal((3, 5)) > 0).astype(dtype)
            tensor = tvm.runtime.tensor(array, tvm.rocm(0))
            np.testing.assert_array_equal(tensor.copyto(tvm.rocm(0)).numpy(), array)

    def test_several_outputs_one_of_them_a_constant(self, fake: FakeHip) -> None:
        made = compiled(lambda x: (op.nn.relu(x), relax.const(WEIGHTS), x), (IMAGE.shape,))
        model = fake.model(made)
        for _ in range(2):
            relu, weights, same = model(IMAGE)
            np.testing.assert_array_equal(relu, np.maximum(IMAGE, 0))
            np.testing.assert_array_equal(weights, WEIGHTS)
            np.testing.assert_array_equal(same, IMAGE)
            weights[:] = same[:] = np.nan


class TestPrograms:
    def test_saved_and_loaded(self, model: CompiledModel, tmp_path: Path) -> None:
        model.save(tmp_path / "model.tvmtile")
        loaded = tvm_tile.load(tmp_path / "model.tvmtile")
        assert (loaded.program.language, loaded.program.arch) == ("rocm", "gfx942")
        np.testing.assert_allclose(loaded(IMAGE), expected(IMAGE), rtol=1e-5)

    @pytest.mark.parametrize("flag", [False, True])
    def test_a_branch_reads_its_condition_from_the_gpu(self, fake: FakeHip, flag: bool) -> None:
        builder = relax.BlockBuilder()
        x = relax.Var("x", relax.TensorType((4, 6), "float32"))
        condition = relax.Var("condition", relax.TensorType((), "bool"))
        with builder.function("main", [x, condition]):
            both = relax.If(condition, op.nn.relu(x), op.negative(x))
            builder.emit_func_output(builder.emit(both))
        model = fake.model(tvm_tile.compile(builder.get(), device=DEVICE))
        value = RNG.standard_normal((4, 6), "float32")
        wanted = np.maximum(value, 0) if flag else -value
        np.testing.assert_array_equal(model(value, np.array(flag)), wanted)

    def test_models_share_kernels_and_give_them_back(self, fake: FakeHip, made: Any) -> None:
        one, two = fake.model(made), fake.model(made)
        modules, _ = fake.live
        np.testing.assert_array_equal(one(IMAGE), two(IMAGE))
        assert fake.live == (modules + len(made.program.kernels), 0)
        del one
        gc.collect()
        np.testing.assert_allclose(two(IMAGE), expected(IMAGE), rtol=1e-5)
        y = two(tvm.runtime.tensor(IMAGE, tvm.rocm(0)))
        del two  # its last kernel may still be running
        gc.collect()
        assert fake.live == (modules, 0)
        np.testing.assert_allclose(y.numpy(), expected(IMAGE), rtol=1e-5)

    def test_threads_may_share_a_model(self, model: CompiledModel) -> None:
        results: list[Any] = []
        image = tvm.runtime.tensor(IMAGE, tvm.rocm(0))

        def run() -> None:
            # Each result is given back while other threads allocate.
            for _ in range(20):
                y = model(image).numpy()
            results.append(y)

        threads = [threading.Thread(target=run) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(results) == 4
        for y in results:
            np.testing.assert_allclose(y, expected(IMAGE), rtol=1e-5)

    def test_a_process_ends_with_models_and_tensors_alive(
        self, model: CompiledModel, tmp_path: Path
    ) -> None:
        model.save(tmp_path / "model.tvmtile")
        np.save(tmp_path / "image.npy", IMAGE)
        program = f"""
import sys; sys.path[:0] = {sys.path}
import numpy, tvm, tvm_tile
from fake_hip import fake_hip
presence = fake_hip().present()
fake = presence.__enter__()
model = fake.model(tvm_tile.load("model.tvmtile"))
y = model(tvm.runtime.tensor(numpy.load("image.npy"), tvm.rocm(0)))
print(y.numpy().sum())
"""
        command = [sys.executable, "-W", "ignore", "-c", program]
        run = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
        assert (run.returncode, run.stderr) == (0, "")
        assert float(run.stdout) == pytest.approx(1, abs=1e-5)


class TestMemory:
    def test_later_calls_allocate_nothing(self, fake: FakeHip, model: CompiledModel) -> None:
        image = tvm.runtime.tensor(IMAGE, tvm.rocm(0))
        for _ in range(2):  # the machine keeps the last result
            model(image)
        fake.reset()
        for _ in range(3):
            model(image)
        assert fake.count("hipMalloc") == fake.count("hipFree") == 0

    def test_what_nobody_uses_is_freed_when_memory_is_full(self, fake: FakeHip) -> None:
        fake.reset(capacity=1 << 40)
        large = tvm.runtime.empty((1 << 20,), "uint8", tvm.rocm(0))
        del large
        fake.fail("hipMalloc", 2)
        kept = tvm.runtime.empty((1 << 19,), "uint8", tvm.rocm(0))
        assert (fake.count("hipMalloc"), fake.count("hipFree") > 0) == (3, True)
        kept.copyfrom(np.ones(1 << 19, "uint8"))
        assert kept.numpy().all()

    def test_no_elements(self, fake: FakeHip) -> None:
        tensor = tvm.runtime.empty((0, 4), "float32", tvm.rocm(0))
        assert tensor.numpy().shape == (0, 4)

    def test_a_device_attribute_that_the_code_generator_asks_for(self, fake: FakeHip) -> None:
        gpu = tvm.rocm(0)
        assert (gpu.exist, tvm.rocm(1).exist) == (True, False)
        assert (gpu.max_threads_per_block, gpu.warp_size) == (1024, 64)
        assert gpu.max_shared_memory_per_block == 65536


class TestStreams:
    def test_kernels_run_on_the_null_stream(self, fake: FakeHip, model: CompiledModel) -> None:
        model(IMAGE)
        assert launched(fake) == {"(nil)"}

    def test_or_on_the_current_one(self, fake: FakeHip, model: CompiledModel) -> None:
        stream = fake.library.fake_stream()
        with tvm_ffi.use_raw_stream(tvm.rocm(0), stream):
            y = model(IMAGE)
        assert launched(fake) == {hex(stream)}
        np.testing.assert_allclose(y, expected(IMAGE), rtol=1e-5)

    def test_a_copy_to_the_host_waits_for_any_stream(
        self, fake: FakeHip, model: CompiledModel
    ) -> None:
        image = tvm.runtime.tensor(IMAGE, tvm.rocm(0))
        with tvm_ffi.use_raw_stream(tvm.rocm(0), fake.library.fake_stream()):
            y = model(image)
        np.testing.assert_allclose(y.numpy(), expected(IMAGE), rtol=1e-5)

    def test_a_copy_on_the_gpu_is_made_on_the_current_one(self, fake: FakeHip) -> None:
        stream, image = fake.library.fake_stream(), tvm.runtime.tensor(IMAGE, tvm.rocm(0))
        with tvm_ffi.use_raw_stream(tvm.rocm(0), stream):
            copy = tvm.runtime.empty(IMAGE.shape, "float32", tvm.rocm(0)).copyfrom(image)
        assert f"hipMemcpyAsync {IMAGE.nbytes} 3 {stream:#x}" in fake.calls
        np.testing.assert_array_equal(copy.numpy(), IMAGE)


class TestMemoryOfStreams:
    """Work waits in its stream until somebody waits for that stream: see `fake_hip.c`."""

    @pytest.fixture
    def on_stream(self, fake: FakeHip) -> Any:
        streams = [fake.library.fake_stream() for _ in range(2)]
        return lambda n: tvm_ffi.use_raw_stream(tvm.rocm(0), streams[n])

    def test_only_its_stream_gets_it_again(self, on_stream: Any) -> None:
        with on_stream(0):
            first = address(empty())
            assert address(empty()) == first
        with on_stream(1):
            assert address(empty()) != first
        assert address(empty()) != first
        with on_stream(0):
            assert address(empty()) == first

    def test_whatever_stream_is_current_when_it_comes_back(self, on_stream: Any) -> None:
        with on_stream(0):
            one, two = empty(), empty()
            addresses = {address(one), address(two)}
        with on_stream(1):
            del one
            assert address(empty()) not in addresses
        del two
        assert address(empty()) not in addresses
        with on_stream(0):
            one, two = empty(), empty()
        assert {address(one), address(two)} == addresses

    def test_later_calls_allocate_nothing(
        self, fake: FakeHip, model: CompiledModel, on_stream: Any
    ) -> None:
        image = tvm.runtime.tensor(IMAGE, tvm.rocm(0))

        def calls() -> None:
            with on_stream(0):
                results = [model(image) for _ in range(3)]
            results.clear()  # where the null stream is current, as for torch's tensors

        for _ in range(2):
            calls()
        fake.reset()
        calls()
        assert fake.count("hipMalloc") == fake.count("hipFree") == 0

    def test_calls_on_two_streams_leave_each_other_alone(
        self, fake: FakeHip, model: CompiledModel, on_stream: Any
    ) -> None:
        images = [IMAGE * scale for scale in (1, -1, 2, 3)]
        inputs = [tvm.runtime.tensor(image, tvm.rocm(0)) for image in images]
        with on_stream(0):
            model(inputs[0])  # its result is given back in the next call
        with on_stream(1):
            results = [model(x) for x in inputs[1:]]
        # The worst order: what was enqueued first runs last.
        with on_stream(1):
            wait(fake)
        with on_stream(0):
            wait(fake)
        for image, y in zip(images[1:], results, strict=True):
            np.testing.assert_allclose(y.numpy(), expected(image), rtol=1e-5)

    def test_all_of_it_goes_back_when_memory_is_full(self, fake: FakeHip, on_stream: Any) -> None:
        with on_stream(0):
            kept = address(empty())
        fake.reset(capacity=fake.in_use)
        with on_stream(1):
            empty(1 << 21)
        assert f"hipFree {kept:#x}" in fake.calls


def empty(size: int = 1 << 22) -> Any:
    return tvm.runtime.empty((size,), "uint8", tvm.rocm(0))


def address(tensor: Any) -> int:
    return tensor.data_ptr()


def wait(fake: FakeHip) -> None:
    """Wait for the current stream."""
    Hip(fake.library).synchronize_stream(current_stream(0))


class TestTime:
    def test_between_events(self, fake: FakeHip, model: CompiledModel) -> None:
        # The fake's kernels take a millisecond each.
        timing = model.time(IMAGE, repeats=5)
        assert timing.samples == pytest.approx([len(model.program.kernels) * 1e-3] * 5)
        assert fake.live[1] == 0

    def test_waits_for_what_other_streams_do(self, fake: FakeHip, model: CompiledModel) -> None:
        image = tvm.runtime.tensor(IMAGE, tvm.rocm(0))
        model(image)
        fake.reset()
        model.time(image, repeats=1)
        names = [call.split()[0] for call in fake.calls]
        assert names.index("hipDeviceSynchronize") < names.index("hipModuleLaunchKernel")

    def test_of_torch_arrays(self, model: CompiledModel) -> None:
        timing = model.time(torch.from_numpy(IMAGE), repeats=2)
        assert timing.median_s == pytest.approx(len(model.program.kernels) * 1e-3)
