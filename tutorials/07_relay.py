"""Lesson 7: a Relay program of 2021 on a GPU of 2026, and what was different then.

Run it with `python tutorials/07_relay.py`. It needs no GPU.

Until 2025, models in TVM were programs of Relay, saved as text or JSON next to a file of
parameters. TVM itself reads none of them any more. `tvm_tile.compile` does.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import tvm

import tvm_tile
from tvm_tile.frontend import from_relay

# 1. What people have. `print(mod.astext(show_meta_data=True))` of TVM 0.8 wrote this: a
#    classifier of images, its weights in a file of their own.

PROGRAM = """\
#[version = "0.0.5"]
def @main(%image: Tensor[(?, 3, 16, 16), float32], %stem.weight: Tensor[(8, 3, 3, 3), float32],
          %stem.bias: Tensor[(8), float32], %fc.weight: Tensor[(10, 8), float32])
          -> Tensor[(?, 10), float32] {
  %0 = nn.conv2d(%image, %stem.weight, padding=[1, 1, 1, 1], channels=8, kernel_size=[3, 3]);
  %1 = nn.bias_add(%0, %stem.bias);
  %2 = nn.relu(%1);
  %3 = nn.global_avg_pool2d(%2);
  %4 = nn.batch_flatten(%3);
  %5 = nn.dense(%4, %fc.weight, units=10);
  nn.softmax(%5)
}
"""
generator = np.random.default_rng(0)
weights = {
    "stem.weight": generator.standard_normal((8, 3, 3, 3)).astype("float32") / 5,
    "stem.bias": generator.standard_normal(8).astype("float32"),
    "fc.weight": generator.standard_normal((10, 8)).astype("float32"),
}
folder = tempfile.TemporaryDirectory()
program_file, weights_file = (Path(folder.name) / f"model.{kind}" for kind in ("relay", "params"))
program_file.write_text(PROGRAM)
weights_file.write_bytes(tvm.runtime.save_param_dict(weights))

# 2. One call. The kind of file is known by its content; JSON (`tvm.ir.save_json`) and archives in
#    the Model Library Format go the same way. `inputs` settles what the program leaves open (`?`).

shape = {"image": (2, 3, 16, 16)}
model = tvm_tile.compile(program_file, "emulated", params=weights_file, inputs=shape)
image = generator.standard_normal(shape["image"]).astype("float32")
probabilities = model(image)
assert [signature.name for signature in model.inputs] == ["image"]
assert probabilities.shape == (2, 10)
np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-5)
assert not any(kernel.fallback for kernel in model.report.kernels)
print(model.explain())

# A program at hand needs no file. On the command line it is
#     tvm-tile compile model.relay --params model.params --input image=2x3x16x16

text = tvm_tile.RelayText(PROGRAM)
same = tvm_tile.compile(text, "emulated", params=weights, inputs=shape)
np.testing.assert_array_equal(same(image), probabilities)

# 3. What is refused. Parameters without a value become inputs. A value or a size that contradicts
#    the program's shapes is an error. (A batch without a size is 1, as the report says.)

try:
    tvm_tile.compile(text, "emulated", params=weights, inputs={"image": (2, 1, 16, 16)})
except tvm_tile.ModelError as error:
    print(error)

# 4. What was different then. Relay's `round` rounded halves away from zero, as C does; today's
#    Relax rounds them to even, as NumPy does. Integers were divided as in C, `take` clipped its
#    indices, `resize` had other coefficients. With today's meanings a quantised model would
#    silently be another one. Here it computes what it computed then.

ROUNDED = """\
#[version = "0.0.5"]
def @main(%x: Tensor[(4), float32], %n: Tensor[(4), int32]) {
  %0 = round(%x);
  %1 = divide(%n, 2);
  (%0, %1)
}
"""
rounded = tvm_tile.compile(tvm_tile.RelayText(ROUNDED), "emulated")
halves = np.array([0.5, 1.5, 2.5, -2.5], "float32")
then, quotients = rounded(halves, np.array([7, -7, 6, -6], "int32"))
np.testing.assert_array_equal(then, [1, 2, 3, -3])  # np.round says 0, 2, 2, -2
np.testing.assert_array_equal(quotients, [3, -3, 3, -3])  # -7 // 2 is -4 in Python

# 5. For a pipeline of your own there is plain Relax.

relax_module = from_relay(text, params=weights, inputs=shape)
print(relax_module["main"])
assert isinstance(relax_module, tvm.IRModule)
folder.cleanup()
