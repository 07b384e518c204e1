"""Processes: forked after use, interrupted, and growth over load, call and delete."""

from __future__ import annotations

import gc
import resource
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scheduled import compile_model
from tvm.relax import op

from tvm_tile.runtime import load
from tvm_tile.runtime.drivers import emulate

X = np.linspace(-2, 2, 6 * 16, dtype="float32").reshape(6, 16)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("saved") / "m.tvmtile"
    compile_model(lambda x: op.nn.softmax(op.nn.relu(x), axis=-1), (X.shape,)).save(path)
    return path


# In a process of its own: pytest's must not be forked with TVM's threads in it.
FORKS = """
import os, sys
import numpy as np
import tvm_tile
from tvm_tile import DeviceError
import tvm

def in_child(work):
    pid = os.fork()
    if not pid:
        try:
            work()
        except BaseException as error:
            print(type(error).__name__, error, flush=True)
            os._exit(3)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

x = np.linspace(-2, 2, 96, dtype="float32").reshape(6, 16)
early = tvm_tile.load(sys.argv[1])
assert in_child(lambda: early(x)) == 0, "loaded before, called for the first time in the child"
expected = early(x)
late = tvm_tile.load(sys.argv[1])

def refused(work):
    def check():
        try:
            work()
        except DeviceError as error:
            assert "spawn" in error.remedy, error
        else:
            raise AssertionError("it ran")
    return check

assert in_child(refused(lambda: early(x))) == 0, "called before"
assert in_child(refused(lambda: late(x))) == 0, "another model of the same device"
assert in_child(refused(lambda: early.time(x))) == 0, "timed"
early._held.lock.acquire()
assert in_child(refused(lambda: early(x))) == 0, "forked while a thread calls it"
early._held.lock.release()
assert in_child(lambda: (early.explain(), early.save(sys.argv[1] + ".2"))) == 0, "saved"
assert np.array_equal(early(x), expected), "the parent goes on"
"""


def test_a_fork_after_use_is_refused_and_does_not_hang(saved: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORKS, str(saved)],
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_loading_and_dropping_a_model_again_and_again_does_not_grow(saved: Path) -> None:
    def turns(count: int) -> None:
        for _ in range(count):
            load(saved)(X)
        gc.collect()

    turns(10)
    before = _resident_bytes()
    turns(60)
    assert (_resident_bytes() - before) / 60 < 100e3  # it was a megabyte


def _resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def test_models_of_one_host_code_live_side_by_side(saved: Path) -> None:
    one, two = load(saved), load(saved)
    expected = one(X)
    np.testing.assert_array_equal(two(X), expected)
    del one
    gc.collect()
    np.testing.assert_array_equal(two(X), expected)


def test_models_of_one_kernel_in_several_threads(
    saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slowly(handle: Any) -> Any:
        time.sleep(0.001)  # between two arguments, another thread has its turn
        return shared_pointer(handle)

    shared_pointer = emulate._shared_pointer
    monkeypatch.setattr(emulate, "_shared_pointer", slowly)
    inputs = [X, -X, 2 * X]
    models = [load(saved) for _ in inputs]
    expected = [model(x) for model, x in zip(models, inputs, strict=True)]

    def wrong(number: int) -> int:
        model, x = models[number], inputs[number]
        return sum(not np.array_equal(model(x), expected[number]) for _ in range(10))

    with ThreadPoolExecutor(len(inputs)) as pool:
        assert list(pool.map(wrong, range(len(inputs)))) == [0, 0, 0]


def test_ctrl_c_within_a_kernel_is_a_keyboard_interrupt(
    saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pyopencl

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    model = load(saved)
    expected = model(X)
    with monkeypatch.context() as patched:
        patched.setattr(pyopencl, "enqueue_nd_range_kernel", interrupt)
        with pytest.raises(KeyboardInterrupt):
            model(X)
    np.testing.assert_array_equal(model(X), expected)
