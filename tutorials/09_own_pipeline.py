"""Lesson 9: a Relax pipeline of your own, with three passes of ours.

Run it with `python tutorials/09_own_pipeline.py`. It builds for an H200 and needs no GPU. Our
passes stand between TVM's, and the result builds with `tvm.compile`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
from tvm import IRModule, relax
from tvm.relax import op, transform

import tvm_tile
from tvm_tile.passes import FuseTiles, ReadTransposed, ScheduleTiles

DEVICE = tvm_tile.find_device("nvidia/h200")
TARGET = tvm.target.Target({"kind": "cuda", "arch": "sm_90a"}, host="llvm")

# 1. A module in Relax: attention of one head of 64 channels, 256 queries and keys, in float16. The
#    keys are transposed for the product.

builder = relax.BlockBuilder()
q, k, v = (relax.Var(name, relax.TensorType((1, 256, 64), "float16")) for name in "qkv")
with builder.function("main", [q, k, v]):
    with builder.dataflow():
        keys = builder.emit(op.permute_dims(k, [0, 2, 1]))
        scores = builder.emit(op.matmul(q, keys, out_dtype="float32"))
        weights = builder.emit(op.nn.softmax(op.multiply(scores, relax.const(0.125, "float32"))))
        half = builder.emit(op.astype(weights, "float16"))
        mixed = builder.emit(op.matmul(half, v, out_dtype="float32"))
        result = builder.emit_output(op.astype(mixed, "float16"))
    builder.emit_func_output(result)
attention = builder.get()

# 2. TVM's own way from operators to fused loops. This is how many kernels it makes:


def fused(first: list[Any], last: list[Any]) -> IRModule:
    """`attention` behind TVM's fusion, with passes of ours before and behind it."""
    stages = [
        *first,
        transform.LegalizeOps(),
        transform.AnnotateTIROpPattern(),
        transform.FuseOps(),
        transform.FuseTIR(),
        *last,
        transform.DeadCodeElimination(),
    ]
    with TARGET:
        return tvm.transform.Sequential(stages)(attention)


def kernels(mod: IRModule) -> list[str]:
    """Names of the functions that become kernels."""
    return sorted(
        v.name_hint for v, f in mod.functions_items() if not isinstance(f, relax.Function)
    )


print("TVM's own:       ", *kernels(fused([], [])))

# 3. The first pass works on operators. ReadTransposed makes the product read the keys as they lie:
#
#      before: keys = permute_dims(k); scores = matmul(q, keys)
#      after:  scores[b, i, j] = sum(q[b, i, c] * k[b, j, c])

read = fused([ReadTransposed()], [])
print("ReadTransposed:  ", *kernels(read))
assert "transpose" not in kernels(read)

# 4. The second works on loops. FuseTiles joins functions that TVM's fusion leaves apart, where the
#    model of the device predicts less time: here a product, the softmax of its rows and the next
#    product:
#
#      before: scores = call_tir(f, (q, k)); w = call_tir(g, (scores,)); ... call_tir(h, (w, v))
#      after:  call_tir(joined, (q, k, v))

joined = fused([ReadTransposed()], [FuseTiles(DEVICE)])
print("FuseTiles:       ", *kernels(joined))
assert len(kernels(joined)) == 1

# 5. So far all functions are plain TensorIR, and build anywhere. On the CPU, next to NumPy:

rng = np.random.default_rng(0)
arrays = [rng.standard_normal((1, 256, 64)).astype("float16") for _ in range(3)]
machine = relax.VirtualMachine(tvm.compile(joined, "llvm"), tvm.cpu())
found = machine["main"](*map(tvm.runtime.tensor, arrays)).numpy()
q64, k64, v64 = (array.astype("float64") for array in arrays)
exponents = np.exp(q64 @ k64.transpose(0, 2, 1) / 8)
expected = exponents / exponents.sum(-1, keepdims=True) @ v64
print(f"largest difference from NumPy: {np.abs(found - expected).max():.1e}")
assert np.allclose(found, expected, atol=2e-3)

# 6. The third chooses tiles. ScheduleTiles takes the place of `dl.ApplyDefaultSchedule` in TVM's
#    pipeline, and leaves its predictions in the functions' attributes. By default it schedules for
#    CUDA cores, and TVM builds the kernels. With tensor_cores=True it may write a kernel thread by
#    thread (in TVM's dialect TIRx), which only the TIR pipeline "tvm_tile" builds. The one kernel
#    here is written so.


def own_pipeline(mod: IRModule) -> IRModule:
    """From operators to the calls of TVM's virtual machine."""
    scheduled = ScheduleTiles(DEVICE, tensor_cores=True)(mod)
    return relax.get_pipeline("default_build")(scheduled)


executable = tvm.compile(
    joined,
    TARGET,
    relax_pipeline=tvm.transform.module_pass(lambda mod, _: own_pipeline(mod), opt_level=0),
    tir_pipeline="tvm_tile",
)


def texts(module: Any) -> list[str]:
    """The CUDA texts of all kernels of a runtime module."""
    own = [module.inspect_source("cuda")] if module.kind == "cuda" else []
    return own + [text for imported in module.imports for text in texts(imported)]


(text,) = texts(executable.mod)
print(f"one kernel of {len(text.splitlines())} lines, with {text.count('wgmma')} x wgmma in them")
assert "wgmma" in text

# 7. All passes of ours at once. TVM knows them as pipelines by name, without an import, and they
#    build the kernels of `tvm_tile.compile`, byte by byte.

executable = tvm.compile(attention, TARGET, relax_pipeline="tvm_tile_full", tir_pipeline="tvm_tile")
model = tvm_tile.compile(attention, DEVICE)
ours = {kernel.source for kernel in model.program.kernels}
assert {text.partition("\n")[2] for text in texts(executable.mod)} == ours
print(f"the same {len(ours)} kernels as tvm_tile.compile's")
