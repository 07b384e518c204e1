"""Lesson 1: one call compiles a model, and what you can do with the result.

Run it with `python tutorials/01_one_call.py`. It needs no GPU: `device="emulated"` runs the very
kernels that an H200 would get, on the CPU.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import tvm_tile

# 1. A model. Any ONNX file will do; this one is made here: a convolution, its activation, a
#    pooling, and a classifier.

generator = np.random.default_rng(0)
weights = {
    "filters": generator.standard_normal((8, 3, 3, 3)).astype("float32") / 5,
    "classes": generator.standard_normal((8, 10)).astype("float32"),
}
graph = helper.make_graph(
    [
        helper.make_node("Conv", ["image", "filters"], ["edges"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["edges"], ["active"]),
        helper.make_node("GlobalAveragePool", ["active"], ["pooled"]),
        helper.make_node("Flatten", ["pooled"], ["features"]),
        helper.make_node("MatMul", ["features", "classes"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["probabilities"], axis=-1),
    ],
    "classifier",
    # The batch is a name, not a number: its size is open until we compile.
    [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 3, 32, 32])],
    [helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["batch", 10])],
    [numpy_helper.from_array(value, name) for name, value in weights.items()],
)
model_proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
model_proto.ir_version = 10
onnx.checker.check_model(model_proto)

# 2. One call. `inputs` fixes the sizes that the model leaves open. Nothing is tuned: a model of the
#    device ranks the possible tiles of each kernel, and the best one is written.

model = tvm_tile.compile(model_proto, device="emulated", inputs={"image": (4, 3, 32, 32)})

# 3. Call it. NumPy, PyTorch or any other DLPack tensors go in, the same kind comes back.

image = generator.standard_normal((4, 3, 32, 32)).astype("float32")
probabilities = model(image)
assert isinstance(probabilities, np.ndarray)
assert probabilities.shape == (4, 10)
np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-5)

# Arguments are checked before anything runs. Every error says what is required, what was
# found, and what to do.

try:
    model(image[:1])
except tvm_tile.InputError as error:
    print(f"As it should be, refused:\n{error}\n")
else:
    raise AssertionError("a wrong shape must be refused")

# 4. Ask what a run takes: which parts of the model take most, what bounds them, what fell back to
#    TVM's own schedules, and why. `explain("all")` tells everything.

print(model.explain())

# 5. Save it. The file holds machine code and weights: loading it needs no compiler.

with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "classifier.tvmtile"
    model.save(path)
    loaded = tvm_tile.load(path)
np.testing.assert_array_equal(loaded(image), probabilities)
print("\nThe saved model gives the same answer.")
