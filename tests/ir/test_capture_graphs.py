"""Memory that functions keep between runs: run on the CPU, TVM's two graph builtins in Python."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R

from tvm_tile.passes.lower.capture_graphs import CaptureGraphs
from tvm_tile.passes.lower.outline_branches import OutlineBranches

_PREFIX = "vm.builtin.cuda_graph."


@pytest.fixture
def memory() -> Iterator[dict[int, Any]]:
    """What the virtual machine would keep, by its place."""
    kept: dict[int, Any] = {}
    names = [_PREFIX + "get_cached_alloc", _PREFIX + "run_or_capture"]
    former = {name: tvm.get_global_func(name, allow_missing=True) for name in names}
    invoke = tvm.get_global_func("vm.builtin.invoke_closure")

    def allocate(context: Any, make: Any, place: int) -> Any:
        if place not in kept:
            kept[place] = invoke(context, make)
        return kept[place]

    def run(context: Any, captured: Any, arguments: Any, _: int, *__: Any) -> Any:
        return invoke(context, captured, *arguments)

    for name, function in zip(names, (allocate, run), strict=True):
        tvm_ffi.register_global_func(name, function, override=True)
    yield kept
    for name, function in former.items():
        if function is None:
            tvm_ffi.registry.remove_global_func(name)
        else:
            tvm_ffi.register_global_func(name, function, override=True)


@I.ir_module
class Nested:
    """``main`` needs ``kept`` behind its call of ``inner``."""

    @R.function(private=True)
    def inner(x: R.Tensor((8, 8), "float32")) -> R.Tensor((8, 8), "float32"):
        a = R.matmul(x, x)
        b = R.nn.softmax(a)
        c = R.matmul(b, x)
        d = R.add(c, b)
        return d

    @R.function
    def main(x: R.Tensor((8, 8), "float32")) -> R.Tensor((8, 8), "float32"):
        cls = Nested
        a = R.matmul(x, x)
        kept = R.nn.softmax(a)
        made = cls.inner(kept)
        b = R.matmul(kept, made)
        c = R.add(b, kept)
        return c


@I.ir_module
class Recursive:
    """``main`` calls itself once, and needs ``kept`` behind that."""

    @R.function
    def main(again: R.Tensor((), "bool"), x: R.Tensor((8, 8), "float32")) -> R.Tensor(
        (8, 8), "float32"
    ):
        cls = Recursive
        a = R.matmul(x, x)
        kept = R.nn.softmax(a)
        if again:
            made = cls.main(R.const(False), kept)
            y = made
        else:
            y = kept
        b = R.matmul(kept, y)
        c = R.add(b, kept)
        return c


@I.ir_module
class Loop:
    """Each iteration runs the captured ``body`` again; ``main`` needs ``kept`` behind the loop."""

    @R.function(private=True)
    def body(x: R.Tensor((8, 8), "float32")) -> R.Tensor((8, 8), "float32"):
        a = R.matmul(x, x)
        b = R.nn.softmax(a)
        c = R.matmul(b, x)
        d = R.add(c, b)
        return d

    @R.function(private=True)
    def loop(n: R.Tensor((), "int64"), x: R.Tensor((8, 8), "float32")) -> R.Tensor(
        (8, 8), "float32"
    ):
        cls = Loop
        if R.greater(n, R.const(0, "int64")):
            left = R.subtract(n, R.const(1, "int64"))
            y = cls.body(x)
            r: R.Tensor((8, 8), "float32") = cls.loop(left, y)
            out = r
        else:
            out = x
        return out

    @R.function
    def main(n: R.Tensor((), "int64"), x: R.Tensor((8, 8), "float32")) -> R.Tensor(
        (8, 8), "float32"
    ):
        cls = Loop
        a = R.matmul(x, x)
        kept = R.nn.softmax(a)
        made: R.Tensor((8, 8), "float32") = cls.loop(n, kept)
        b = R.matmul(kept, made)
        c = R.add(b, kept)
        return c


def run(mod: tvm.IRModule, *arguments: np.ndarray) -> np.ndarray:
    """What ``main`` makes, as a device with CUDA graphs would be told to do it."""
    target = tvm.target.Target("llvm")
    transform = relax.transform
    with target, tvm.transform.PassContext(config={"relax.backend.use_cuda_graph": True}):
        lowered = tvm.transform.Sequential(
            [
                OutlineBranches(),
                transform.LegalizeOps(),
                transform.ToNonDataflow(),
                transform.RemovePurityChecking(),
                transform.CallTIRRewrite(),
                transform.CanonicalizeBindings(),
                transform.StaticPlanBlockMemory(),
                CaptureGraphs(),
                transform.LowerAllocTensor(),
                transform.KillAfterLastUse(),
                transform.LowerRuntimeBuiltin(),
                transform.ComputePrimValue(),
                transform.VMShapeLower(),
                transform.AttachGlobalSymbol(),
            ]
        )(mod)
        built = tvm.compile(lowered, target, relax_pipeline=tvm.transform.Sequential([]))
    machine = relax.VirtualMachine(built, tvm.cpu())
    return machine["main"](*map(tvm.runtime.tensor, arguments)).numpy()


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


X = np.random.default_rng(0).standard_normal((8, 8)).astype("float32")


def test_a_callee_leaves_its_callers_values_alone(memory: dict[int, Any]) -> None:
    kept = softmax(X @ X)
    inner = softmax(kept @ kept)
    expected = kept @ (inner @ kept + inner) + kept
    np.testing.assert_allclose(run(Nested, X), expected, rtol=1e-5)
    assert len(memory) == 2


@pytest.mark.parametrize("again", [False, True])
def test_each_call_of_a_recursive_function_has_its_own_values(
    memory: dict[int, Any], again: bool
) -> None:
    def main(again: bool, x: np.ndarray) -> np.ndarray:
        kept = softmax(x @ x)
        return kept @ (main(False, kept) if again else kept) + kept

    np.testing.assert_allclose(run(Recursive, np.array(again), X), main(again, X), rtol=1e-5)
    assert not memory


@pytest.mark.parametrize("count", [0, 1, 4])
def test_each_iteration_of_a_loop_has_its_own_results(memory: dict[int, Any], count: int) -> None:
    kept = made = softmax(X @ X)
    for _ in range(count):
        b = softmax(made @ made)
        made = b @ made + b
    np.testing.assert_allclose(run(Loop, np.array(count), X), kept @ made + kept, rtol=1e-5)
    assert len(memory) == 1 + bool(count)
