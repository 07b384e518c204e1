"""`tvm.compile` with both pipelines of ours builds what `tvm_tile.compile` builds."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import tvm
import tvm_ffi
from plug_in_models import models
from test_plug_in import INSTALLED, walk
from tvm import relax
from tvm.relax import op
from tvm.target import Target

import tvm_tile
from tvm_tile import compat
from tvm_tile.build.in_tvm import compile_marked
from tvm_tile.build.program import Kernel
from tvm_tile.frontend import import_model
from tvm_tile.plug_in import full_pipeline
from tvm_tile.registered import MARK
from tvm_tile.stages.fusing import fuse

pytestmark = [
    pytest.mark.bank(6),
    pytest.mark.skipif(not INSTALLED, reason="tvm_tile is on the path, not installed"),
]

TARGET = Target({"kind": "cuda", "arch": "sm_90a"}, host="llvm")
BOTH = {"relax_pipeline": "tvm_tile_full", "tir_pipeline": "tvm_tile"}
# Of each model's kernels one at least is of such a rule.
RULES = {"resnet": ("wgmma", "mma"), "bert": ("chain", "warp_attention"), "mixed": ("persistent",)}


@functools.cache
def compiled(name: str) -> tuple[Any, tvm_tile.CompiledModel]:
    """A model in Relax, and compiled by us."""
    model, inputs = models()[name]
    mod = import_model(model, example_inputs=inputs).mod
    return mod, tvm_tile.compile(mod, "nvidia/h200")


@functools.cache
def scheduled(name: str) -> Any:
    """A model behind our Relax pipeline."""
    with TARGET:
        return full_pipeline()(compiled(name)[0])


@functools.cache
def built(name: str) -> Any:
    """A model as TVM's executable."""
    return tvm.compile(scheduled(name), TARGET, relax_pipeline=None, tir_pipeline="tvm_tile")


def texts(executable: Any) -> dict[str, str]:
    """The first lines of an executable's CUDA texts, by what follows them."""
    found = [m.inspect_source("cuda") for m in walk(executable.mod) if m.kind == "cuda"]
    return {rest: first for first, _, rest in (text.partition("\n") for text in found)}


@contextmanager
def runtime(made: dict[str, tuple[bytes, str]]) -> Iterator[None]:
    """As where TVM's CUDA runtime has found a driver: texts are compiled at once."""
    one = tvm.te.create_prim_func([tvm.te.compute((1,), lambda i: 1.0, name="one")])

    def create(code: bytes, form: str, functions: Any, _source: Any) -> Any:
        assert form == "cuda"
        compile_text = tvm_ffi.get_global_func("tvm_callback_cuda_compile")
        text = bytes(code).decode()
        (name,) = functions
        made[str(name)] = bytes(compile_text(text)), text
        return tvm.tirx.build(one, "llvm")

    name = "ffi.Module.create.cuda"
    former = tvm_ffi.get_global_func(name, allow_missing=True)
    tvm_ffi.register_global_func(name, create, override=True)
    try:
        yield
    finally:
        if former is None:
            tvm_ffi.registry.remove_global_func(name)
        else:
            tvm_ffi.register_global_func(name, former, override=True)


def calls(text: str) -> list[str]:
    """What a program calls, in order, but for what takes constants out of the tuple that ours gets
    them in, and lets go of them."""
    called = re.findall(r"^  call +(\S+)", text, re.MULTILINE)
    about_tuples = ("tuple_getitem", "null_value", "check_shape_info")
    return [name for name in called if not name.endswith(about_tuples)]


@pytest.mark.parametrize("name", RULES)
def test_kernels_and_calls_are_those_of_compile(name: str) -> None:
    _, ours = compiled(name)
    assert not {kernel.rule for kernel in ours.report.kernels}.isdisjoint(RULES[name])
    executable = built(name)
    assert set(texts(executable)) == {kernel.source for kernel in ours.program.kernels}
    assert calls(executable.as_text()) == calls(compat.load_vm(ours.program.vm)["as_text"]())
    assert "cuda_graph.run_or_capture" in executable.as_text()


@pytest.mark.parametrize("name", ["bert", "mixed"])
def test_machine_code_is_that_of_compile(name: str) -> None:
    _, ours = compiled(name)
    mod = scheduled(name)
    made: dict[str, tuple[bytes, str]] = {}
    with runtime(made):
        tvm.compile(mod, TARGET, relax_pipeline=None, tir_pipeline="tvm_tile")
    kernels: dict[str, Kernel] = {kernel.name: kernel for kernel in ours.program.kernels}
    assert set(made) == set(kernels)
    for symbol, (binary, text) in made.items():
        assert binary == kernels[symbol].binary
        assert text.partition("\n")[2] == kernels[symbol].source


def test_a_library_built_without_a_driver_has_what_a_driver_needs(tmp_path: Path) -> None:
    """The bytes that TVM's CUDA runtime reads: names, arguments, launches, text."""
    _, ours = compiled("mixed")
    path = tmp_path / "model.so"
    executable = built("mixed")
    executable.export_library(str(path))
    library = path.read_bytes()
    lines = texts(executable)
    for kernel in ours.program.kernels:
        text = f"{lines[kernel.source]}\n{kernel.source}".encode()
        launch = kernel.name, kernel.arg_types, kernel.launch_params
        assert compat.serialize_kernel(*launch, "cuda", text) in library


def test_a_text_that_was_kept_compiles_as_ours_when_it_is_loaded() -> None:
    """TVM's runtime hands it to the function in its registry that compiles texts."""
    _, ours = compiled("resnet")
    lines = texts(built("resnet"))
    assert len(set(lines.values())) > 1  # quotients rounded, and not
    kernels = {kernel.source: kernel for kernel in ours.program.kernels}
    compile_text = tvm_ffi.get_global_func("tvm_callback_cuda_compile")
    for line in set(lines.values()):
        source = next(source for source, own in lines.items() if own == line)
        text = f"{line}\n{source}"
        assert text.startswith(MARK)
        assert bytes(compile_text(text)) == compile_marked(text) == kernels[source].binary


def product(dtype: str = "float16", size: int = 256) -> Any:
    builder = relax.BlockBuilder()
    x, w = (relax.Var(name, relax.TensorType((size, size), dtype)) for name in "xw")
    with builder.function("main", [x, w]):
        with builder.dataflow():
            product = op.matmul(x, op.permute_dims(w))
            result = builder.emit_output(op.nn.relu(product))
        builder.emit_func_output(result)
    return builder.get()


def test_both_are_asked_for_by_name() -> None:
    ours = tvm_tile.compile(product(), "nvidia/h200")
    executable = tvm.compile(product(), TARGET, **BOTH)
    assert set(texts(executable)) == {kernel.source for kernel in ours.program.kernels}


def test_device_and_options_are_those_of_the_pass() -> None:
    mod = product("float32", 1024)
    options = tvm_tile.Options(tf32=True, cuda_graph=False)
    ours = tvm_tile.compile(mod, "nvidia/h100", options=options)
    pipeline = full_pipeline("nvidia/h100", options)
    executable = tvm.compile(mod, TARGET, relax_pipeline=pipeline, tir_pipeline="tvm_tile")
    assert set(texts(executable)) == {kernel.source for kernel in ours.program.kernels}
    assert any("mma" in text and "tf32" in text for text in texts(executable))


def test_one_function_with_its_schedule() -> None:
    """As `tvm_tile.schedule` gives it, of either of TVM's dialects."""
    for dtype, dialect in (("float16", "mma"), ("float32", "fma")):
        fused = fuse(product(dtype), tvm_tile.find_device("nvidia/h200")).mod
        (func,) = (f for f in fused.functions.values() if isinstance(f, tvm.tirx.PrimFunc))
        choice, *_ = tvm_tile.schedule(func, "nvidia/h200", topk=1)
        named = choice.func.with_attr("global_symbol", "product")
        library = tvm.tirx.build(named, TARGET, pipeline="tvm_tile")
        (kernels,) = library.imports
        text = kernels.inspect_source("cuda")
        assert text.startswith(MARK)
        assert ("mma" in text) == (dialect == "mma")
        assert compile_marked(text)


def test_functions_of_shapes_alone() -> None:
    """A module without a kernel, whose extents are computed on the host."""
    builder = relax.BlockBuilder()
    n = tvm.tirx.Var("n", "int64")
    x = relax.Var("x", relax.TensorType((n, 4), "float32"))
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(relax.ShapeExpr((n * 2, 2))))
    for pipeline in ("tvm_tile_full", "default_build"):
        stages = {"relax_pipeline": pipeline, "tir_pipeline": "tvm_tile"}
        executable = tvm.compile(builder.get(), TARGET, **stages)
        assert "shape_func" in executable.as_text()


def test_the_host_is_the_targets() -> None:
    host = {"kind": "llvm", "mtriple": "aarch64-linux-gnu"}
    target = Target({"kind": "cuda", "arch": "sm_90a"}, host=host)
    executable = tvm.compile(product(), target, **BOTH)
    (code,) = (m.inspect_source("ll") for m in walk(executable.mod) if m.kind == "llvm")
    assert 'target triple = "aarch64-linux-gnu"' in code


def test_other_builds_of_tvm_are_as_before() -> None:
    """Also in a process that has built with pipelines of ours."""
    target = Target({"kind": "cuda", "arch": "sm_80"}, host="llvm")
    tvm.compile(product(size=16), TARGET, **BOTH)
    default = tvm.compile(product("float32", 16), target)
    (text,) = (m.inspect_source("cuda") for m in walk(default.mod) if m.kind == "cuda")
    assert not text.startswith(MARK)


class TestRefusals:
    def test_the_full_pipeline_without_its_tir_pipeline(self) -> None:
        with pytest.raises(tvm_tile.BuildError, match='goes with the TIR pipeline "tvm_tile"'):
            tvm.compile(product(), TARGET, relax_pipeline="tvm_tile_full")

    def test_the_tir_pipeline_behind_what_is_for_tvms(self) -> None:
        with pytest.raises(tvm_tile.BuildError, match='relax_pipeline="tvm_tile_full"'):
            tvm.compile(product(), TARGET, relax_pipeline="tvm_tile", tir_pipeline="tvm_tile")

    def test_other_gpus(self) -> None:
        amd = Target({"kind": "rocm", "mcpu": "gfx942"}, host="llvm")
        with pytest.raises(tvm_tile.BuildError, match='device="amd/mi300x"'):
            tvm.compile(product(), amd, **BOTH)

    def test_no_gpu(self) -> None:
        with pytest.raises(tvm_tile.UnknownDeviceError):
            tvm.compile(product(), Target("llvm"), **BOTH)

    def test_loops_on_no_thread(self) -> None:
        """What is to be scheduled is the Relax pipeline's."""
        with pytest.raises(tvm_tile.BuildError, match="loops run on the host"):
            tvm.compile(product(), TARGET, relax_pipeline="default_build", tir_pipeline="tvm_tile")
