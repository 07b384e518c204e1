"""TVM finds the pipelines through the entry point, and pays nothing for them."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

INSTALLED = any(
    entry.value == "tvm_tile._autoload:register"
    for entry in importlib.metadata.entry_points(group="tvm.backends")
)


@pytest.mark.skipif(not INSTALLED, reason="tvm_tile is on the path, but not installed")
def test_import_tvm_registers_the_pipelines_lazily() -> None:
    code = (
        "import sys, tvm; from tvm.relax.pipeline import PIPELINE_MAP; "
        "assert {'tvm_tile', 'tvm_tile_full'} <= set(PIPELINE_MAP); "
        "from tvm.tirx.compilation_pipeline import PIPELINE_MAP as tir; assert 'tvm_tile' in tir; "
        "loaded = {name for name in sys.modules if name.startswith('tvm_tile.')}; "
        "assert loaded <= {'tvm_tile._autoload', 'tvm_tile._version', 'tvm_tile.compat', "
        "'tvm_tile.errors', 'tvm_tile.errors.closest', 'tvm_tile.files', "
        "'tvm_tile.files.scratch', 'tvm_tile.registered', "
        "'tvm_tile.registered.host_functions', 'tvm_tile.registered.philox', "
        "'tvm_tile.device', 'tvm_tile.device.device', 'tvm_tile.device.cuda', "
        "'tvm_tile.device.rocm', 'tvm_tile.device.emulated'}, loaded"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.skipif(not INSTALLED, reason="tvm_tile is on the path, but not installed")
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("arch", ["sm_90a", "sm_90", "sm_80"])
def test_tvm_compile_takes_the_pipeline_by_name(arch: str, dtype: str) -> None:
    import tvm
    from tvm import relax

    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((64, 32), dtype))
    w = relax.Var("w", relax.TensorType((32, 128), dtype))
    with builder.function("main", [x, w]):
        with builder.dataflow():
            product = builder.emit(relax.op.matmul(x, w))
            result = builder.emit_output(relax.op.nn.relu(product))
        builder.emit_func_output(result)
    target = tvm.target.Target({"kind": "cuda", "arch": arch}, host="llvm")
    with target:
        executable = tvm.compile(builder.get(), target, relax_pipeline="tvm_tile")
    sources = [
        module.inspect_source("cuda") for module in walk(executable.mod) if module.kind == "cuda"
    ]
    assert len(sources) == 1
    assert sources[0].count('extern "C" __global__') == 2  # its declaration and itself


@pytest.mark.skipif(not INSTALLED, reason="tvm_tile is on the path, but not installed")
def test_numbers_are_computed_as_written() -> None:
    """TVM's simplifier would take 1e8 off again before it is added, and its maximum NaN for 0."""
    import tvm
    from tvm import relax

    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((64,), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            large = relax.const(1e8, "float32")
            rounded = relax.op.subtract(relax.op.add(x, large), large)
            result = builder.emit_output(relax.op.nn.relu(rounded))
        builder.emit_func_output(result)
    target = tvm.target.Target({"kind": "cuda", "arch": "sm_90"}, host="llvm")
    with target:
        executable = tvm.compile(builder.get(), target, relax_pipeline="tvm_tile")
    (source,) = (
        module.inspect_source("cuda") for module in walk(executable.mod) if module.kind == "cuda"
    )
    assert source.count("1.000000e+08") == 2
    assert "== second" in source  # which NaN is not


def walk(module: Any) -> Iterator[Any]:
    yield module
    for imported in module.imports:
        yield from walk(imported)
