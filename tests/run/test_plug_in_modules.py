"""Relax modules of all kinds pass through both Relax pipelines: they compute what TVM's build does.

Kernels run on the emulated device, beside a build of the same module for the CPU by TVM alone.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import tvm
import tvm_ffi
from cpu_build import CPU
from onnx import helper, numpy_helper
from plug_in_models import models
from tvm import relax, tirx
from tvm.relax import op
from tvm.relax.frontend import nn as tvm_nn
from tvm.relax.frontend.onnx import from_onnx as relax_from_onnx
from tvm.relax.frontend.torch import from_exported_program as relax_from_torch
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

from tvm_tile import Options, compat, find_device
from tvm_tile.build import Builder
from tvm_tile.frontend import import_model
from tvm_tile.frontend.prepare import prepare
from tvm_tile.pipeline import lower
from tvm_tile.plug_in import blocks_pipeline
from tvm_tile.runtime.launch import load_program

pytestmark = pytest.mark.bank(10)

EMULATED = find_device("emulated")
_RNG = np.random.default_rng(0)
N = tirx.Var("n", "int64")

Array = Any


def full(mod: Any) -> Any:
    """The stages of the pipeline "tvm_tile_full", whose kernels TVM has no runtime for here."""
    return lower(prepare(mod), EMULATED, Options(cache=False), Builder(EMULATED)).mod


def blocks(mod: Any) -> Any:
    with compat.make_target(EMULATED):
        return blocks_pipeline()(mod)


PIPELINES = [full, blocks]
TARGET = tvm.target.Target({"kind": "cuda", "arch": "sm_90a"}, host="llvm")


def run(mod: Any, function: str, *inputs: Array) -> tuple[Array, ...]:
    if "main" not in (
        var.name_hint for var in mod.get_global_vars()
    ):  # which programs of ours have
        mod = mod.clone()
        mod["main"] = mod[function].with_attr("global_symbol", "main")
    loaded = load_program(Builder(EMULATED).build(mod), "emulated")
    return outputs(loaded.machine, function, *inputs)


def expected(mod: Any, function: str, *inputs: Array) -> tuple[Array, ...]:
    machine = relax.VirtualMachine(tvm.compile(mod, CPU), tvm.cpu())
    return outputs(machine, function, *inputs)


def outputs(machine: Any, function: str, *inputs: Array) -> tuple[Array, ...]:
    found = machine[function](*map(tvm.runtime.tensor, inputs))
    return tuple(_flat(found))


def _flat(value: Any) -> list[Array]:
    return (
        [value.numpy()] if hasattr(value, "numpy") else [a for part in value for a in _flat(part)]
    )


def same(found: tuple[Array, ...], wanted: tuple[Array, ...]) -> None:
    for own, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-4, atol=1e-5)


def of(*shape: Any, dtype: str = "float32") -> relax.TensorType:
    return relax.TensorType(shape, dtype)


INDICES = of(5, dtype="int64")
OPEN: dict[str, tuple[Callable[..., Any], tuple[relax.TensorType, ...]]] = {
    "product": (lambda x, w: op.nn.relu(op.matmul(x, w)), (of(N, 64), of(64, 32))),
    "softmax": (lambda x: op.nn.softmax(x, 0), (of(N, 8),)),
    "argmax": (lambda x: op.argmax(x, -1), (of(N, 8),)),
    "topk": (lambda x: op.topk(x, 3, -1), (of(N, 8),)),
    "sort": (lambda x: op.sort(x, 0, False), (of(N, 8),)),
    "cumsum": (lambda x: op.cumsum(x, 0), (of(N, 8),)),
    "take": (lambda x, i: op.take(x, i, axis=0), (of(N, 8), INDICES)),
    "scatter": (
        lambda x, i, v: op.scatter_elements(x, op.expand_dims(i, 1), v, axis=0),
        (of(N, 1), INDICES, of(5, 1)),
    ),
    "group_norm": (lambda x, g: op.nn.group_norm(x, g, g, 2, 1, [2]), (of(3, 8, N), of(8))),
    "max_pool": (lambda x: op.nn.max_pool2d(x, (3, 3), (2, 2)), (of(1, 4, N, N),)),
    "transposed": (
        lambda x, w: op.nn.conv2d_transpose(x, w, (2, 2)),
        (of(1, 4, N, 6), of(4, 2, 3, 3)),
    ),
}


@pytest.mark.parametrize(
    ("name", "pipeline"), [(name, PIPELINES[n % 2]) for n, name in enumerate(OPEN)]
)
def test_open_extents(name: str, pipeline: Callable[[Any], Any]) -> None:
    build, types = OPEN[name]
    builder = relax.BlockBuilder()
    variables = [relax.Var(f"x{i}", ty) for i, ty in enumerate(types)]
    with builder.function("main", variables):
        with builder.dataflow():
            result = builder.emit_output(builder.emit(build(*variables)))
        builder.emit_func_output(result)
    loaded = load_program(Builder(EMULATED).build(pipeline(builder.get())), "emulated")
    machine = relax.VirtualMachine(tvm.compile(builder.get(), CPU), tvm.cpu())
    for size in (6, 17, 300 if name in ("softmax", "product", "sort") else 33):
        inputs = [_drawn(ty, size) for ty in types]
        same(outputs(loaded.machine, "main", *inputs), outputs(machine, "main", *inputs))


def _drawn(ty: relax.TensorType, size: int) -> Array:
    shape = [int(e) if isinstance(e, tirx.IntImm) else size for e in ty.shape]
    if str(ty.dtype) == "int64":
        return _RNG.permutation(6)[: shape[0]].astype("int64")
    return _RNG.standard_normal(shape).astype("float32")


@pytest.mark.parametrize(
    ("name", "pipeline"), [("resnet", blocks), ("bert", blocks), ("mixed", full)]
)
def test_models(name: str, pipeline: Callable[[Any], Any]) -> None:
    model, inputs = models(torch.float32)[name]
    with torch.no_grad():
        wanted = model(*inputs).numpy()
    mod = import_model(model, example_inputs=inputs).mod
    (found,) = run(pipeline(mod), "main", *(tensor.numpy() for tensor in inputs))
    np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-4)


class Layers(tvm_nn.Module):
    """Two entries of one model; eight rows, whose sums several threads add up one after another."""

    def __init__(self) -> None:
        self.up, self.down = tvm_nn.Linear(64, 128), tvm_nn.Linear(128, 64)

    def prefill(self, x: tvm_nn.Tensor) -> tvm_nn.Tensor:
        return self.down(tvm_nn.op.gelu(self.up(x)))

    def decode(self, x: tvm_nn.Tensor) -> tvm_nn.Tensor:
        return tvm_nn.op.softmax(self.down(tvm_nn.op.relu(self.up(x))))


Stock = tuple[Any, dict[str, Callable[..., Any]]]
"""A module as TVM makes it, and what its functions compute."""


def by_export_tvm() -> Stock:
    rows = {"x": tvm_nn.spec.Tensor((8, 64), "float32")}
    mod, *_ = Layers().export_tvm({"prefill": rows, "decode": rows})

    def layers(activation: Any, x: Any, up: Any, first: Any, down: Any, last: Any) -> Any:
        return F.linear(activation(F.linear(x, up, first)), down, last)

    return mod, {
        "prefill": lambda *given: layers(F.gelu, *given),
        "decode": lambda *given: F.softmax(layers(F.relu, *given), -1),
    }


def perceptron() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))


def by_exported_program() -> Stock:
    net = perceptron().eval()
    program = torch.export.export(net, (torch.zeros(8, 64),))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # TVM asks PyTorch in a deprecated way
        return relax_from_torch(program), {"main": net}


def by_onnx() -> Stock:
    net = perceptron()
    nodes = [
        helper.make_node("Gemm", ["x", "0.weight", "0.bias"], ["a"], transB=1),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Gemm", ["b", "2.weight", "2.bias"], ["y"], transB=1),
    ]
    ends = [helper.make_tensor_value_info(n, 1, s) for n, s in (("x", (8, 64)), ("y", (8, 10)))]
    weights = net.state_dict().items()
    tensors = [numpy_helper.from_array(value.numpy(), name) for name, value in weights]
    graph = helper.make_graph(nodes, "layers", ends[:1], ends[1:], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    mod = relax_from_onnx(model, keep_params_in_input=True)
    # The model's own names of them, as "0.weight", are no identifiers.
    names = [str(param.name).replace("_", ".") for param in mod["main"].params[1:]]

    def layers(x: Any, *values: Any) -> Any:
        return torch.func.functional_call(net, dict(zip(names, values, strict=True)), x)

    return mod, {"main": layers}


@pytest.mark.parametrize("make", [by_export_tvm, by_exported_program, by_onnx])
def test_modules_that_tvm_makes(make: Callable[[], Stock]) -> None:
    """Under whatever names their functions have."""
    mod, functions = make()
    for pipeline in PIPELINES:
        made = pipeline(mod)
        for function, computed in functions.items():
            inputs = [0.3 * _drawn(param.ty, 0) for param in mod[function].params]
            with torch.no_grad():
                wanted = computed(*map(torch.from_numpy, inputs)).numpy()
            same(run(made, function, *inputs), (wanted,))


@pytest.mark.parametrize(
    "stages",
    [
        {"relax_pipeline": "tvm_tile"},
        {"relax_pipeline": "tvm_tile_full", "tir_pipeline": "tvm_tile"},
    ],
)
def test_several_functions_are_built_for_a_gpu(stages: dict[str, str]) -> None:
    mod, functions = by_export_tvm()
    text = tvm.compile(mod, TARGET, **stages).as_text()
    assert all(f"@{function}:" in text for function in functions)


@I.ir_module
class Calls:
    """Functions of others, of the module's, and branches."""

    @T.prim_func(s_tir=True)
    def given(
        a: T.Buffer((T.int64(16), T.int64(16)), "float32"),
        b: T.Buffer((T.int64(16), T.int64(16)), "float32"),
    ):
        for i, j in T.grid(T.int64(16), T.int64(16)):
            with T.sblock("given"):
                vi, vj = T.axis.remap("SS", [i, j])
                b[vi, vj] = a[vi, vj] * T.float32(3)

    @R.function
    def main(x: R.Tensor((16, 16), "float32"), w: R.Tensor((16, 16), "float32")):
        with R.dataflow():
            y = R.matmul(x, w)
            z = R.call_dps_packed("test.plug_in.add", (y, x), out_ty=R.Tensor((16, 16), "float32"))
            u = R.call_pure_packed("test.plug_in.same", z, ty_args=R.Tensor((16, 16), "float32"))
            s = R.nn.softmax(R.add(u, w))
            R.output(s, u)
        return s, u

    @R.function(pure=False)
    def tells(x: R.Tensor((16, 16), "float32")):
        y = R.exp(x)
        _ = R.call_packed("test.plug_in.note", y, ty_args=R.Tuple)
        z = R.add(y, y)
        return z

    @R.function
    def outer(x: R.Tensor((16, 16), "float32"), c: R.Tensor((), "bool")):
        cls = Calls
        if c:  # noqa: SIM108
            y = cls.inner(x)
        else:
            y = R.negative(x)
        with R.dataflow():
            z = R.call_tir(cls.given, (y,), out_ty=R.Tensor((16, 16), "float32"))
            s = R.sum(z, axis=1)
            R.output(s)
        return s

    @R.function(private=True)
    def inner(x: R.Tensor((16, 16), "float32")) -> R.Tensor((16, 16), "float32"):
        with R.dataflow():
            y = R.tanh(x)
            R.output(y)
        return y


@pytest.fixture
def noted() -> Any:
    """What the module's impure function is told of."""
    told: list[Array] = []

    def add(a: Any, b: Any, out: Any) -> None:
        out.copyfrom(a.numpy() + b.numpy())

    functions = {"add": add, "same": lambda a: a, "note": lambda a: told.append(a.numpy())}
    for name, function in functions.items():
        tvm_ffi.register_global_func(f"test.plug_in.{name}", function, override=True)
    yield told
    for name in functions:
        tvm_ffi.registry.remove_global_func(f"test.plug_in.{name}")


@pytest.mark.parametrize("pipeline", PIPELINES)
def test_functions_and_foreign_calls(pipeline: Callable[[Any], Any], noted: list[Array]) -> None:
    mod = pipeline(Calls)
    x, w = (_RNG.standard_normal((16, 16)).astype("float32") for _ in range(2))
    same(run(mod, "main", x, w), expected(Calls, "main", x, w))
    for condition in (True, False):
        inputs = x, np.array(condition)
        same(run(mod, "outer", *inputs), expected(Calls, "outer", *inputs))
    same(run(mod, "tells", x), (2 * np.exp(x),))
    (seen,) = noted
    np.testing.assert_allclose(seen, np.exp(x), rtol=1e-5)


def test_they_are_built_for_a_gpu_with_all_their_functions() -> None:
    pipelines = {"relax_pipeline": "tvm_tile_full", "tir_pipeline": "tvm_tile"}
    executable = tvm.compile(Calls, TARGET, **pipelines)
    text = executable.as_text()
    for name in ("main", "tells", "outer"):
        assert f"@{name}:" in text
    for name in ("add", "same", "note"):
        assert f"@test.plug_in.{name} packed_func" in text


def test_modules_that_are_linked_stay_linked() -> None:
    compute = tvm.te.compute((4,), lambda i: 1.0, name="foreign")
    foreign = tvm.tirx.build(tvm.te.create_prim_func([compute]), "llvm")
    mod = Calls.with_attr("external_mods", [foreign])
    pipelines = {"relax_pipeline": "tvm_tile_full", "tir_pipeline": "tvm_tile"}
    executable = tvm.compile(mod, TARGET, **pipelines)
    assert any(module.same_as(foreign) for module in executable.mod.imports)
