"""Lesson 16: the first day with a new GPU, from installing to running on another machine.

Run it with `python tutorials/16_first_day.py`. It needs no GPU: what runs is emulated, and what is
compiled for an H200 is saved for it. All times are predictions, unless there is such a GPU.

Install the package with the compiler for your GPU, `cuda` or `rocm`, and with what your models come
from: `pip install -e '.[cuda,torch,emulate]'` in a checkout. Compiling needs neither a toolkit nor
a GPU; running needs a driver.
"""

from __future__ import annotations

import copy
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional

import tvm_tile
from tvm_tile import CompiledModel, Options

# 1. A model of yours: the feed-forward part of a transformer's layer, in float32, which is
#    PyTorch's default.


class FeedForward(nn.Module):
    """Norm, two linear layers with an activation between them, and what came in added."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.wide = nn.Linear(width, 4 * width)
        self.narrow = nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.narrow(functional.gelu(self.wide(self.norm(x))))


def compiled(module: nn.Module, device: str, x: torch.Tensor, options: Options) -> CompiledModel:
    """Leave out ``device`` where a GPU is: that one is taken."""
    model: CompiledModel = tvm_tile.compile(module, device, example_inputs=(x,), options=options)
    return model


# 2. Is it right? That takes no GPU: the emulated device runs the kernels on the CPU, for which a
#    small model is enough. `verify` compares each kernel with NumPy, and the whole with PyTorch.
#    What cannot be compiled would have been refused by name.

torch.manual_seed(0)
small, rows = FeedForward(64).eval(), torch.randn(16, 64)
here = compiled(small, "emulated", rows, Options(cache=False))
expected = copy.deepcopy(small).double()(rows.double()).detach()
np.testing.assert_allclose(here(rows.numpy()), expected, rtol=1e-4, atol=1e-5)
checked = here.verify()
print(checked.render())
assert checked.is_right

# 3. How fast will it be? Compile it at full size, for the GPU that you will have. No kernel is
#    timed: times come from a model of the device, whose numbers were measured on an H200.

DEVICE = tvm_tile.find_device("nvidia/h200")
ROWS, WIDTH = 2048, 1024
torch.manual_seed(0)
large, x = FeedForward(WIDTH).eval(), torch.zeros(ROWS, WIDTH)
first = compiled(large, DEVICE.name, x, Options(cache=False))
print(first.explain())

# 4. Why is that slow? The table says which parts of your module take the time, by their names, and
#    what bounds them. The norm is bound by bytes: it is as fast as memory lets it be. The linear
#    layers, nearly all of the time, are bound by arithmetic. `explain("kernels")` tells how each is
#    written: the rule `contraction` multiplies on CUDA cores, in float32, as the model says. Tensor
#    cores could do that much faster.

print(first.explain("kernels"))
products = [kernel for kernel in first.report.kernels if kernel.rule == "contraction"]
assert len(products) == 2
assert all(first.report.bound(kernel).value == "arithmetic" for kernel in products)
operations = 2 * ROWS * WIDTH * 4 * WIDTH
print("\nA product's operations alone take")
for unit, rate in (
    ("CUDA cores", dict(DEVICE.peak_flops)["float32"]),
    ("tensor cores", dict(DEVICE.matrix_flops)["tf32"]),
):
    print(f"  {operations / rate * 1e6:5.0f} us on {unit}, at {rate / 1e12:.0f} TFLOP/s")

# 5. What would help? Tensor cores do not multiply float32, but with `tf32` they multiply its upper
#    bits, ten of the mantissa. That is for you to allow, as it costs digits: errors are about a
#    thousandth of the products' magnitudes. (A model in float16 or bfloat16 goes to tensor cores by
#    itself, and reads half as many bytes.) Other options are `low_bit=True` where memory is short,
#    and `topk` to measure some schedules of each kernel, where the GPU is.

second = compiled(large, DEVICE.name, x, Options(cache=False, tf32=True))
print(second.explain())
before, after = (model.report.predicted_seconds for model in (first, second))
print(f"\nOne run: {before * 1e6:.0f} us before, {after * 1e6:.0f} us now")
assert after < before / 4
assert sum(kernel.rule == "wgmma" for kernel in second.report.kernels) == 2

# 6. What do the lost digits cost? Compare with float64 where the GPU is; here, rounding the
#    operands by hand tells as much.


def short(tensor: torch.Tensor) -> torch.Tensor:
    """Without the mantissa's last thirteen bits."""
    return (tensor.view(torch.int32) & ~0x1FFF).view(torch.float32)


rows, matrix = torch.randn(16, WIDTH), large.wide.weight.detach()
exact = rows.double() @ matrix.double().T
lost = (short(rows).double() @ short(matrix).double().T - exact).abs().max() / exact.abs().max()
print(f"\nOf a product's largest sum {float(lost):.1e} is lost.")
assert lost < 1e-2

# 7. Save it. The file holds weights and machine code, no Python: loading it needs this package and
#    a driver, neither PyTorch nor a compiler. The one for the H200 can be explained here, and
#    refuses to run, by name.

folder = tempfile.TemporaryDirectory()
for_h200, for_here = (Path(folder.name, f"{name}.tvmtile") for name in ("h200", "emulated"))
second.save(for_h200)
here.save(for_here)
assert tvm_tile.load(for_h200).explain() == second.explain()
if torch.cuda.is_available() and "H200" in torch.cuda.get_device_name():
    print(f"\nMeasured: {tvm_tile.load(for_h200).time().median_s * 1e6:.0f} us")
else:
    try:
        tvm_tile.load(for_h200)(x)
    except tvm_tile.DeviceError as error:
        print(f"\nAs it should be, refused:\n{error}")

# 8. Load it elsewhere: another process, which knows nothing of the model, and the same numbers.

ELSEWHERE = """
import sys
import numpy, tvm_tile

rows, answer = sys.argv[2:]
model = tvm_tile.load(sys.argv[1])
numpy.save(answer, model(numpy.load(rows)))
"""
files = [Path(folder.name, name) for name in ("rows.npy", "answer.npy")]
rows = torch.randn(16, 64)
np.save(files[0], rows.numpy())
subprocess.run([sys.executable, "-c", ELSEWHERE, for_here, *files], check=True)
np.testing.assert_array_equal(np.load(files[1]), here(rows.numpy()))
print("\nElsewhere it gives the same answer. In a shell: tvm-tile run emulated.tvmtile --time")
folder.cleanup()
