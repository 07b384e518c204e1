"""Lesson 15: one linear layer, from float16 to codes of 4 bits, and what its kernel is then.

Run it with `python tutorials/15_few_bits.py`. It needs no GPU: it runs on the emulated device, and
compiles for an H100, of which all times are predictions. Where a GPU is, it measures, too.
"""

from __future__ import annotations

from typing import cast

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn
from torch.nn import functional

import tvm_tile
from tvm_tile import CompiledModel, Options
from tvm_tile.torch.coded_linear import CodedLinear

KEEP, FOLD = (Options(cache=False, low_bit=kept) for kept in (True, False))
GROUP = 128
device = tvm_tile.find_device("nvidia/h100")

# 1. A layer of a language model, `x @ weight.T`. A step of one token reads each weight once, and
#    multiplies it once: the step takes as long as reading does. So codes of 4 bits, with a scale
#    for each 128 of them, are to be read in place of numbers of 16 bits.


def layer(width: int, dtype: torch.dtype) -> nn.Linear:
    """A square one, with weights as large models have them: small and normal."""
    made = nn.Linear(width, width, bias=False, dtype=dtype).eval()
    nn.init.normal_(made.weight, std=0.02)
    return made


def rounded(module: nn.Module) -> CodedLinear:
    """The layer with codes: `quantize` rounds to nearest, which calibrated methods do better."""
    return cast(CodedLinear, tvm_tile.quantize(module, "int4", group=GROUP))


WIDTH = 4096
torch.manual_seed(0)
large = layer(WIDTH, torch.float16)
large_codes = rounded(large)
print(f"{WIDTH} x {WIDTH}, as bytes, and as time at an H100's bandwidth:")
for name, module in ("float16", large), ("int4", large_codes):
    size = sum(tensor.nbytes for tensor in module.state_dict().values())
    print(f"  {name:8} {size / 1e6:6.2f} MB  {size / device.read_bandwidth * 1e6:5.2f} us")

# 2. What is lost by it? A group's scale is its largest magnitude divided by 7, so that no weight is
#    off by more than half a scale. That is a property of codes, not of the compiler.

WIDTH_HERE = 512
small = layer(WIDTH_HERE, torch.float32)
small_codes = rounded(small)
matrix = small_codes.matrix
off = (small_codes.weight - small.weight.detach()).abs().reshape(WIDTH_HERE, -1, GROUP)
assert (off <= 0.5001 * matrix.scales).all()
lost = off.square().sum().sqrt() / small.weight.detach().norm()
print(f"\nRounded to nearest: codes {tuple(matrix.packed.shape)} {matrix.packed.dtype},")
print(f"  scales {tuple(matrix.scales.shape)}, {float(lost):.1%} of the weights' norm is lost")

# 3. The layer stays a module of PyTorch's: shifts, a subtraction, a product with scales, and a
#    linear layer. A compiler that folds constants has float numbers again; ours keeps codes where
#    that is predicted to be no slower, and decodes them on the device, to the same bits. `low_bit`
#    is for those who know better: `True` saves memory whatever it costs, as on this device, which
#    has no kernel that multiplies codes, and `False` folds.

x = torch.randn(3, WIDTH_HERE)


def compiled(module: nn.Module, options: Options = KEEP, rows: int = 3) -> CompiledModel:
    """A module for the emulated device, which has no float16."""
    example = (torch.zeros(rows, WIDTH_HERE),)
    model: CompiledModel = tvm_tile.compile(
        module, "emulated", example_inputs=example, options=options
    )
    return model


def check(model: CompiledModel, weight: torch.Tensor) -> None:
    """Raise if it is not what float64 numbers give of the decoded weight."""
    expected = x.double() @ weight.double().T
    np.testing.assert_allclose(np.asarray(model(x.numpy())), expected, rtol=1e-4, atol=1e-5)


def told(model: CompiledModel, *topics: str) -> str:
    """Lines of `explain("all")` that begin with one of these words, and those below them."""
    lines, is_told = [], False
    for line in model.explain("all").splitlines():
        is_told = line.startswith(topics) or (is_told and line.startswith(" "))
        lines += [line] if is_told else []
    return "\n".join(lines)


def constant_bytes(model: CompiledModel) -> int:
    """Of the program's constants: what lies in device memory, and in the file of `save`."""
    return sum(len(constant.data) for constant in model.program.constants)


kept, folded = compiled(small_codes), compiled(small_codes, FOLD)
for model in kept, folded:
    check(model, small_codes.weight)
print(f"\nKept {constant_bytes(kept)} bytes, folded {constant_bytes(folded)}:")
print(told(kept, "kept as codes"))
assert constant_bytes(kept) < constant_bytes(folded) / 7

# 4. Weights arrive in many ways. The compiler finds codes by values, not by the names of operators:
#    it evaluates what a weight is computed from, and follows the values from where integers become
#    floating-point numbers. Here are the same codes three times: words of eight codes in PyTorch,
#    shifted apart as GPTQ does it; ONNX's int4 with DequantizeLinear; ONNX Runtime's MatMulNBits.


class Words(nn.Module):
    """Eight codes an int32."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("words", matrix.packed.view(torch.int32))
        self.register_buffer("scales", matrix.scales)
        self.register_buffer("shifts", torch.arange(0, 32, 4, dtype=torch.int32))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        codes = (self.words.unsqueeze(-1) >> self.shifts) & 15
        groups = codes.reshape(WIDTH_HERE, -1, GROUP).float() - 8
        return functional.linear(x, (groups * self.scales).flatten(1))


def from_onnx(nodes: list[onnx.NodeProto], codes: onnx.TensorProto) -> CompiledModel:
    """A model that makes `y` of `x`, `codes` and `scales`."""
    shape = (WIDTH_HERE, WIDTH_HERE // GROUP)
    scales = numpy_helper.from_array(matrix.scales.numpy().reshape(shape), "scales")
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, x.shape) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "layer", ends[:1], ends[1:], [codes, scales])
    domains = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    model: CompiledModel = tvm_tile.compile(
        helper.make_model(graph, opset_imports=domains, ir_version=10), "emulated", options=KEEP
    )
    return model


packed = matrix.packed.numpy()
# ONNX's int4 is signed: a code less 8 is the code with its highest bit flipped.
signed = helper.make_tensor(
    "codes", TensorProto.INT4, (WIDTH_HERE, WIDTH_HERE), (packed ^ 0x88).tobytes(), raw=True
)
dequantize = [
    helper.make_node("DequantizeLinear", ["codes", "scales"], ["w"], axis=1, block_size=GROUP),
    helper.make_node("Gemm", ["x", "w"], ["y"], transB=1),
]
by_blocks = [
    helper.make_node(
        "MatMulNBits",
        ["x", "codes", "scales"],
        ["y"],
        domain="com.microsoft",
        **{"K": WIDTH_HERE, "N": WIDTH_HERE, "bits": 4, "block_size": GROUP},
    )
]
arrived = {
    "PyTorch, shifted words": compiled(Words()),
    "DequantizeLinear": from_onnx(dequantize, signed),
    "MatMulNBits": from_onnx(by_blocks, numpy_helper.from_array(packed, "codes")),
}
print("\nThe same codes:")
for name, model in arrived.items():
    check(model, small_codes.weight)
    (weight,) = model.report.coded
    print(f"  {name:24} {weight.format}")
    assert weight == kept.report.coded[0]

# 5. What is folded, although it arrives as codes. Kernels decode what products read, and only by
#    `(code - zero) * scale + offset`: weights that are computed otherwise are folded. (So are
#    matrices below 16 KiB.)


class AlsoRead(nn.Module):
    """A layer of codes whose weight is looked at besides, as for a norm."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = small_codes

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight = self.inner.weight
        return functional.linear(x, weight) + weight.square().sum(1)


class Powers(Words):
    """Codes that are exponents."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        codes = (self.words.unsqueeze(-1) >> self.shifts) & 15
        return functional.linear(x, torch.exp2(-codes.reshape(WIDTH_HERE, -1).float()))


print("\nFolded:")
for module in AlsoRead(), Powers():
    (weight,) = compiled(module).report.coded
    print(f"  {type(module).__name__:10} {weight.reason}")
    assert weight.format is None

# 6. For an H100, in float16, which need not be here. At 1 and 16 rows one kernel does it all: it
#    reads codes into registers, turns them into float16 there, and hands these to the tensor cores,
#    even for one row, so that a weight costs little but its decoding. Codes do not pass through
#    shared memory: a warp has 16 rows of the matrix, or a few times that, and a part of the sum,
#    and a lane loads 16 bytes, 32 codes that lie side by side. At 256 rows each weight is used 256
#    times, so that tensor cores decide, not bytes. Codes are copied to shared memory with the rows,
#    a warpgroup decodes those of the next step while the products of this one run, and each decoded
#    weight meets all rows of the tile.


def on_h100(module: nn.Module, rows: int) -> CompiledModel:
    """A layer for so many rows, codes where that is no slower."""
    example = (torch.zeros(rows, WIDTH, dtype=torch.float16),)
    model: CompiledModel = tvm_tile.compile(module, device, example_inputs=example, cache=False)
    return model


ROWS = (1, 16, 256)
pairs = {rows: (on_h100(large, rows), on_h100(large_codes, rows)) for rows in ROWS}
print("\nOn an H100, predicted with a cold cache:")
for rows, models in pairs.items():
    for name, model in zip(("float16", "int4"), models, strict=True):
        for kernel in model.report.kernels:
            size = f"{kernel.traffic / 1e6:5.1f} MB"
            print(
                f"  {rows:3} rows, {name:7} {kernel.seconds * 1e6:5.1f} us {size}"
                f"  {kernel.rule}: {kernel.tile}"
            )
for rows in (1, 16):
    whole, codes = ([k.seconds for k in model.report.kernels] for model in pairs[rows])
    assert len(codes) == 1
    assert sum(codes) < sum(whole)
    assert pairs[rows][1].report.kernels[0].rule == "coded"
assert [k.rule for k in pairs[256][1].report.kernels] == ["coded_warpgroup"]

# 7. `explain("all")` tells the same: what was joined and what that saves, or why not, how each
#    matrix is kept, and why so.

print("\nAt 16 rows, the report says of it:")
print(told(pairs[16][1], "joined:", "kept as codes"))
print("\nAt 256 rows:")
print(told(pairs[256][1], "left apart:", "kept as codes"))

# 8. With such a GPU, measured times, and the same numbers as in PyTorch.

if torch.cuda.is_available() and torch.cuda.get_device_capability() == (9, 0):
    print("\nMeasured:")
    for rows, models in pairs.items():
        times = [model.time().median_s * 1e6 for model in models]
        print(f"  {rows:3} rows: float16 {times[0]:.1f} us, int4 {times[1]:.1f} us")
        halves = torch.randn(rows, WIDTH, dtype=torch.float16)
        expected = halves.double() @ large_codes.weight.double().T
        found = models[1](halves.cuda()).double().cpu()
        torch.testing.assert_close(found, expected, rtol=1e-2, atol=1e-2)
