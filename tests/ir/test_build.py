"""From scheduled modules to bytes; no GPU is needed."""

from __future__ import annotations

import importlib.metadata
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from scheduled import relax_module, schedule
from tvm import relax, te, tirx
from tvm.relax import op
from tvm.script import tirx as T

import tvm_tile
import tvm_tile.build.cuda
from tvm_tile import compat
from tvm_tile.build import (
    Builder,
    Program,
    machine_code,
    rename_by_content,
)
from tvm_tile.build.aliasing import find_copied_outputs
from tvm_tile.build.cuda import compile_cuda
from tvm_tile.build.naming import readable_name
from tvm_tile.build.tir_passes import lower_module
from tvm_tile.device import find_device
from tvm_tile.errors import BuildError, CompilerNotFoundError, InstallationError
from tvm_tile.files.store import Store
from tvm_tile.runtime.launch import load_functions

H200 = find_device("nvidia/h200")
EMULATED = find_device("emulated")
KERNEL = 'extern "C" __global__ void k(float* x) {{ x[threadIdx.x] = {}; }}'


def two_layers(x: Any, weights: Any) -> Any:
    return op.nn.softmax(op.nn.relu(op.matmul(x, weights)), axis=-1)


def add_one(dtype: str = "float32", threads: int | None = 64) -> Any:
    """A PrimFunc of 256 elements, bound to blocks and threads unless ``threads`` is None."""
    x = te.placeholder((256,), dtype, name="x")
    y = te.compute((256,), lambda i: x[i] + tvm.tirx.const(1, dtype), name="y")
    tiled = tvm.s_tir.Schedule(te.create_prim_func([x, y]))
    if threads is not None:
        (loop,) = tiled.get_loops(tiled.get_sblock("y"))
        block, thread = tiled.split(loop, [None, threads])
        tiled.bind(block, "blockIdx.x")
        tiled.bind(thread, "threadIdx.x")
    return tiled.mod["main"]


class TestProgram:
    def test_every_cuda_kernel_becomes_a_cubin(self) -> None:
        seen: list[tuple[int, int]] = []
        mod = schedule(relax_module(two_layers, ((4, 16), (16, 32))), H200.name)
        builder = Builder(H200, workers=2, on_kernel=lambda _name, *progress: seen.append(progress))
        program = builder.build(mod)
        assert len(program.kernels) == 3
        for kernel in program.kernels:
            assert kernel.binary.startswith(b"\x7fELF")
            assert f"{kernel.name}(" in kernel.source
            assert set(kernel.arg_types) == {"handle"}
            assert "blockIdx.x" in kernel.launch_params
        assert seen == [(1, 3), (2, 3), (3, 3)]
        assert program.copied_outputs == ()

    def test_code_generation_leaves_tvms_compile_callback_as_it_was(self) -> None:
        before = tvm.get_global_func("tvm_callback_cuda_compile")
        lowered = lower_module(named(add_one()), compat.make_target(H200))
        assert "__global__" in compat.generate_source(lowered.kernels[0])
        assert tvm.get_global_func("tvm_callback_cuda_compile").same_as(before)

    def test_bfloat16_in_shared_memory_is_widened_by_shifts(self) -> None:
        @T.prim_func(s_tir=True)
        def twice(x: T.Buffer((64,), "bfloat16"), y: T.Buffer((64,), "float32")) -> None:
            staged = T.alloc_buffer((64,), "bfloat16", scope="shared")
            for _ in T.thread_binding(1, thread="blockIdx.x"):
                for i in T.thread_binding(64, thread="threadIdx.x"):
                    with T.sblock("stage"):
                        v = T.axis.spatial(64, i)
                        staged[v] = x[v]
                for i in T.thread_binding(64, thread="threadIdx.x"):
                    with T.sblock("add"):
                        v = T.axis.spatial(64, i)
                        y[v] = T.Cast("float32", staged[63 - v]) + T.Cast("float32", x[v])

        program = Builder(H200).build_functions({"f": twice})["f"]
        assert isinstance(program, Program)
        source = program.kernels[0].source
        assert source.count("<< (uint)16") == 1
        assert "((float)x_ptr[" in source

    def test_nothing_compiles_twice(self, monkeypatch: pytest.MonkeyPatch) -> None:
        compiled: list[str] = []

        def count(source: str, arch: str, **_: bool) -> bytes:
            compiled.append(arch)
            return b"machine code"

        monkeypatch.setattr(machine_code, "compile_cuda", count)
        mod = schedule(relax_module(two_layers, ((4, 16), (16, 32))), H200.name)
        builder = Builder(H200)
        assert builder.find_failures(mod) == {}
        assert builder.build(mod).kernels[0].binary == b"machine code"
        assert compiled == ["sm_90a"] * 3

    def test_a_model_without_kernels_builds(self) -> None:
        program = Builder(EMULATED).build(schedule(relax_module(lambda x: x, ((2, 2),))))
        assert (program.language, program.host, program.kernels) == ("opencl", b"", ())

    def test_every_amd_kernel_becomes_a_code_object(self) -> None:
        mod = schedule(relax_module(two_layers, ((4, 16), (16, 32))), "amd/mi300x")
        program = Builder(find_device("amd/mi300x")).build(mod)
        assert (program.language, program.arch, len(program.kernels)) == ("rocm", "gfx942", 3)
        for kernel in program.kernels:
            assert kernel.binary.startswith(b"\x7fELF")


class TestFailures:
    def test_only_the_function_that_fails_is_named(self) -> None:
        mod = tvm.IRModule({"good": add_one(), "half": add_one("float16")})
        failures = Builder(EMULATED).find_failures(mod)
        assert list(failures) == ["half"]
        assert "float16 kernels cannot be emulated" in str(failures["half"])

    def test_an_unscheduled_function_is_named(self) -> None:
        failures = Builder(H200).find_failures(tvm.IRModule({"loose": add_one(threads=None)}))
        assert re.search(r"loose[\s\S]*schedule every loop", str(failures["loose"]))

    def test_build_raises_what_find_failures_lists(self) -> None:
        mod = schedule(relax_module(op.nn.relu, ((8, 8),), "float16"))
        with pytest.raises(BuildError, match="float16"):
            Builder(EMULATED).build(mod)


class TestFunctions:
    def test_each_becomes_a_program_of_its_own(self) -> None:
        functions = {"good": add_one(), "other": add_one(threads=32), "bad": add_one(threads=None)}
        built = Builder(H200).build_functions(functions)
        assert list(built) == list(functions)
        assert isinstance(built["bad"], BuildError)
        for name in ("good", "other"):
            program = built[name]
            assert isinstance(program, Program)
            assert [kernel.name for kernel in program.kernels] == [f"{name}_kernel"]
            assert (program.vm, program.host != b"") == (b"", True)

    def test_they_are_called_by_their_names(self) -> None:
        program = Builder(EMULATED).build_functions({"plus_one": add_one()})["plus_one"]
        assert isinstance(program, Program)
        functions = load_functions(program, "emulated")
        x, y = (tvm.runtime.tensor(np.full(256, v, "float32")) for v in (3, 0))
        functions["plus_one"](x, y)
        assert (y.numpy() == 4).all()

    def test_machine_code_is_kept_for_the_next_builder(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store = Store(tmp_path, "1")
        first = Builder(H200, store=store).build_functions({"f": add_one()})["f"]
        monkeypatch.setattr(machine_code, "compile_cuda", lambda *_, **__: b"new")
        again = Builder(H200, store=store).build_functions({"f": add_one()})["f"]
        assert isinstance(first, Program)
        assert isinstance(again, Program)
        assert again.kernels == first.kernels
        other = Builder(H200, store=store).build_functions({"f": add_one(threads=32)})["f"]
        assert isinstance(other, Program)
        assert other.kernels[0].binary == b"new"


class TestCuda:
    def test_products_contract_into_sums_only_where_allowed(self) -> None:
        source = KERNEL.format("x[0] * x[1] + x[2]")
        fused, apart = (compile_cuda(source, "sm_90a", contract=c) for c in (True, False))
        assert fused != apart

    def test_lean_headers_serve_tvms_kernels(self) -> None:
        source = compat.generate_source(
            lower_module(named(add_one("float16")), compat.make_target(H200)).kernels[0]
        )
        cubin, log = tvm_tile.build.cuda._run_nvrtc(
            source, "sm_90a", (), tvm_tile.build.cuda._LEAN_HEADERS
        )
        assert (cubin is not None, log) == (True, "")

    def test_kernels_that_need_more_get_the_real_headers(self) -> None:
        source = "#include <cuda/std/limits>\n" + KERNEL.format(
            "cuda::std::numeric_limits<float>::max()"
        )
        assert compile_cuda(source, "sm_90a").startswith(b"\x7fELF")

    def test_infinity_is_known_to_nvrtc_too(self) -> None:
        assert compile_cuda(KERNEL.format("INFINITY + NAN"), "sm_80").startswith(b"\x7fELF")

    def test_the_compilers_words_reach_the_user(self) -> None:
        with pytest.raises(BuildError, match='"no_such_name" is undefined'):
            compile_cuda(KERNEL.format("no_such_name"), "sm_90a")

    def test_without_nvrtc_nvcc_is_used(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
    ) -> None:
        nvcc = tmp_path / "nvcc"
        nvcc.write_text('#!/bin/sh\nwhile [ "$1" != -o ]; do shift; done\necho "$*" > "$2"\n')
        nvcc.chmod(0o755)
        monkeypatch.setattr(tvm_tile.build.cuda, "nvrtc_architectures", lambda: ())
        monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
        assert b"kernel.cubin" in compile_cuda(KERNEL.format("1"), "sm_90a")
        nvcc.write_text("#!/bin/sh\necho no such luck >&2\nexit 1\n")
        with pytest.raises(BuildError, match="no such luck"):
            compile_cuda(KERNEL.format("1"), "sm_90a")
        nvcc.write_text("#!/bin/sh\necho Unsupported gpu architecture >&2\nexit 1\n")
        with pytest.raises(CompilerNotFoundError, match="code for sm_70"):
            compile_cuda(KERNEL.format("1"), "sm_70")

    def test_without_any_compiler_the_remedy_is_a_package(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
    ) -> None:
        monkeypatch.setattr(tvm_tile.build.cuda, "nvrtc_architectures", lambda: ())
        monkeypatch.setenv("PATH", str(tmp_path))
        with pytest.raises(CompilerNotFoundError, match="pip install"):
            compile_cuda(KERNEL.format("1"), "sm_90a")
        with pytest.raises(CompilerNotFoundError):
            Builder(H200).find_failures(tvm.IRModule({"f": add_one()}))

    def test_gpus_that_nvrtc_has_dropped_need_an_older_nvcc(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
    ) -> None:
        monkeypatch.setenv("PATH", str(tmp_path))
        with pytest.raises(
            CompilerNotFoundError, match=r"sm_50[\s\S]*NVRTC for .*90[\s\S]*CUDA 12"
        ):
            compile_cuda(KERNEL.format("1"), "sm_50")


def named(function: Any) -> Any:
    return tvm.IRModule({"f": function.with_attr("global_symbol", "f")})


def test_kernels_are_serialized_as_tvm_does_it() -> None:
    """Without a driver TVM packs CUDA text, in the form that machine code takes too."""
    from tvm.tirx.build import codegen_build

    lowered = lower_module(named(add_one()), compat.make_target(H200))
    (kernel,) = lowered.kernels
    host = codegen_build(lowered.host, tvm.target.Target("llvm"))
    device = codegen_build(kernel.module, kernel.target)
    host.import_module(device)
    packed = tvm.get_global_func("runtime.ModulePackImportsToTensor")(host).numpy().tobytes()
    source = device.inspect_source("cuda").encode()
    ours = compat.serialize_kernel(
        kernel.name, kernel.arg_types, kernel.launch_params, "cuda", source
    )
    if b"cubin" in packed:  # a driver is in reach: TVM has compiled it
        ours = ours[ours.index(kernel.name.encode()) : -len(source) - 8]
    assert ours in packed


class TestNames:
    def test_calls_follow_the_new_names(self) -> None:
        mod = schedule(relax_module(two_layers, ((4, 16), (16, 32))))
        names = {var.name_hint for var in mod.get_global_vars()} - {"main"}
        assert names
        assert all(len(name.rpartition("_")[2]) == 8 for name in names)
        main = str(mod["main"])
        assert all(f"{name}(" in main for name in names)
        assert all(mod[name].attrs["global_symbol"] == name for name in names)

    def test_renaming_twice_changes_nothing(self) -> None:
        mod = schedule(relax_module(two_layers, ((4, 16), (16, 32))))
        assert tvm_ffi.structural_equal(rename_by_content(mod), mod)

    def test_long_names_are_bounded_and_no_two_are_alike(self) -> None:
        layers = [f"lv{'_squeeze' * 60}{'_add' * n}" for n in (1, 2, 2)]
        mod = schedule(relax_module(two_layers, ((4, 16), (16, 32))))
        func = next(f for f in mod.functions.values() if isinstance(f, tirx.PrimFunc))
        many = tvm.IRModule({tvm.ir.GlobalVar(f"{n}{k}"): func for k, n in enumerate(layers)})
        names = [str(var.name_hint) for var in rename_by_content(many).get_global_vars()]
        assert len(set(names)) == len(layers)
        assert all(len(name) <= 64 and name.startswith("lv_squeeze_squeeze") for name in names)

    def test_names_are_identifiers(self) -> None:
        assert readable_name("a/b:0.ü", 20) == "a_b_0__"
        assert readable_name("0", 20) == "n0"
        assert readable_name("fused" + "_add" * 40, 30) == "fused_add_add_add_and_37_more"
        assert len(readable_name("x" * 300, 30)) == 30

    def test_parameters_have_no_words_of_kernels_and_no_names_of_others(self) -> None:
        names = ["float4", "__global", "max", "x.y", "x_y", "T_add", "", "x" * 999]
        inputs = [relax.Var(name, relax.TensorType((4, 8), "float32")) for name in names]
        builder = relax.BlockBuilder()
        with builder.function("main", inputs):
            with builder.dataflow():
                total: Any = inputs[0]
                for value in inputs[1:]:
                    total = builder.emit(op.add(op.tanh(total), value))
                output = builder.emit_output(total)
            builder.emit_func_output(output)
        model = tvm_tile.compile(builder.get(), "emulated")
        arrays = [np.full((4, 8), 0.1 * n, "float32") for n in range(len(names))]
        expected = arrays[0]
        for array in arrays[1:]:
            expected = np.tanh(expected) + array
        np.testing.assert_allclose(model(*arrays), expected, rtol=1e-4)

    def test_names_tell_contents_apart(self) -> None:
        def name(shape: tuple[int, ...]) -> str:
            mod = schedule(relax_module(op.nn.relu, (shape,)))
            return min(var.name_hint for var in mod.get_global_vars() if var.name_hint != "main")

        assert name((4, 4)) == name((4, 4)) != name((4, 8))


class TestCopiedOutputs:
    """Positions that share memory with an input, a constant, or another output."""

    def copied(self, body: Any) -> tuple[int, ...]:
        return find_copied_outputs(schedule(relax_module(body, ((4, 4),))))

    def test_computed_outputs_are_the_callers_own(self) -> None:
        assert self.copied(lambda x: (op.nn.relu(x), op.exp(x))) == ()

    def test_inputs_constants_and_views_are_not(self) -> None:
        constant = relax.const([[1.0, 2.0]], "float32")
        assert self.copied(lambda x: (op.nn.relu(x), x, constant)) == (1, 2)

    def test_one_tensor_twice_is_owned_once(self) -> None:
        mod = relax_module(op.nn.relu, ((4, 4),))
        builder = relax.BlockBuilder()
        x = relax.Var("x", relax.TensorType((4, 4), "float32"))
        with builder.function("main", [x]):
            y = builder.emit(op.nn.relu(x))
            builder.emit_func_output(relax.Tuple([y, y]))
        mod = builder.get()
        assert find_copied_outputs(schedule(mod)) == (1,)


class TestInstallation:
    def test_the_installed_packages_serve(self) -> None:
        compat.check_installation()

    @pytest.mark.parametrize(
        ("tvm_version", "ffi_version", "culprit"),
        [
            ("0.27.0.post1", "0.1.15.post2", "apache-tvm-ffi"),
            ("0.27.0.post1", "0.1.15", "apache-tvm-ffi"),
            ("0.28.0", "0.1.14.post1", "apache-tvm"),
            ("0.27.0.post10", "0.1.14.post1", "apache-tvm"),
        ],
    )
    def test_packages_that_crash_together_are_refused(
        self, monkeypatch: pytest.MonkeyPatch, tvm_version: str, ffi_version: str, culprit: str
    ) -> None:
        versions = {"apache-tvm": tvm_version, "apache-tvm-ffi": ffi_version}
        monkeypatch.setattr(importlib.metadata, "version", versions.__getitem__)
        with pytest.raises(InstallationError, match=f"^{culprit} must.*[\\s\\S]*pip install"):
            compat.check_installation()

    def test_a_missing_package_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def missing(name: str) -> str:
            raise importlib.metadata.PackageNotFoundError(name)

        monkeypatch.setattr(importlib.metadata, "version", missing)
        with pytest.raises(InstallationError, match="not installed"):
            compat.check_installation()


def test_static_shared_memory_beyond_the_limit_is_refused_before_the_driver_would() -> None:
    array = "__shared__ alignas(64) float tile_ptr[{}];"
    text = 'extern "C" __global__ void k(float* x) {{ {} tile_ptr[0] = x[0]; x[0] = tile_ptr[0]; }}'
    with pytest.raises(BuildError, match="52000 bytes"):
        compile_cuda(text.format(array.format(13000)), "sm_90a")
    assert compile_cuda(text.format(array.format(12000)), "sm_90a")
