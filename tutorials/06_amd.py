"""Lesson 6: one model for three AMD GPUs, on a machine that has none.

Run it with `python tutorials/06_amd.py`. It needs the extra `rocm`, a compiler from PyPI, and no
ROCm. All times are predictions: no AMD GPU has run our kernels yet.
"""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

import torch
from torch import nn

import tvm_tile
from tvm_tile.build.hip import assembly_of
from tvm_tile.tile.units.matrix_layout import layout_of

# 1. Three chips. A compute unit of CDNA (Instinct) runs waves of 64 threads, and multiplies
#    float16, int8 and even float32 on its matrix cores (MFMA). RDNA (Radeon) runs waves of 32, and
#    has matrix instructions (WMMA) for float16 and int8. Records hold these facts, and code asks
#    them, never whose GPU it is.

CHIPS = [tvm_tile.find_device(name) for name in ("amd/mi300x", "amd/rx7900xtx", "amd/rx9070xt")]
for chip in CHIPS:
    halves = [i for i in chip.matrix_instructions if i.in_dtype == "float16"]
    shapes = ", ".join("x".join(map(str, i.shape)) for i in halves)
    floats = [i for i in chip.matrix_instructions if i.in_dtype == "float32"]
    print(f"{chip.name}: waves of {chip.warp_size}, {chip.multi_processor_count} compute units,")
    print(f"  {halves[0].intrinsic} of {shapes}{', float32 too' if floats else ''}")

# 2. One instruction, three layouts. To multiply 16x16x16 in float16, each of 64 lanes holds four
#    numbers of an operand; each of 32 lanes holds eight, or sixteen of which each is held twice.

for chip in CHIPS:
    found = (i for i in chip.matrix_instructions if (i.in_dtype, i.shape) == ("float16", (16,) * 3))
    layout = layout_of(next(found), chip.warp_size)
    assert layout is not None
    print(f"{chip.name}: {layout.held} numbers a lane, each held by {layout.copies}")
    assert layout.held * chip.warp_size == 16 * 16 * layout.copies

# 3. A block of a network: convolutions with what follows them, a normalization, a product. This
#    machine compiles it three times, to models that can be saved.


class Block(nn.Module):
    """(1, 64, 28, 28) to (1, 1000)."""

    def __init__(self) -> None:
        super().__init__()
        self.widen = nn.Conv2d(64, 128, 3, padding=1)
        self.mix = nn.Conv2d(128, 128, 1)
        self.norm = nn.LayerNorm(128)
        self.head = nn.Linear(128, 1000)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Two convolutions, the mean over places, and scores."""
        x = torch.relu(self.widen(x))
        x = torch.nn.functional.gelu(self.mix(x)) + x
        return torch.softmax(self.head(self.norm(x.mean((2, 3)))), dim=-1)


torch.manual_seed(0)
example = (torch.randn(1, 64, 28, 28).half(),)
models = {
    chip.name: tvm_tile.compile(Block().half().eval(), chip, example_inputs=example)
    for chip in CHIPS
}

# 4. What differs, and why. A wave of 64 needs other tiles than one of 32, and 304 compute units
#    another number of blocks than 64. RDNA allocates registers in units of 24, and its compiler
#    loads further ahead. `explain("kernels")` shows the figures of the machine code beside those
#    that were predicted.

for chip in CHIPS:
    model = models[chip.name]
    assert not model.report.fallbacks
    print()
    print(model.explain("kernels"))
    for kernel in model.report.kernels:
        for taken in kernel.resources:
            assert taken.warp == chip.warp_size
            assert not taken.spilled
    on_matrix_cores = [k for k in model.report.kernels if k.rule == "matrix_cores"]
    assert on_matrix_cores

# 5. The kernels are HIP. TVM writes CUDA text, and a prelude of ours defines in HIP what that uses.
#    The assembly has the matrix instructions and, ahead of each barrier, a wait for what was
#    written to shared memory, which TVM's own code generator for ROCm leaves out.

for chip in CHIPS:
    model = models[chip.name]
    name = next(k.name for k in model.report.kernels if k.rule == "matrix_cores")
    kernel = next(k for k in model.program.kernels if k.name.startswith(name))
    lines = [line.strip() for line in assembly_of(kernel.source, model.program.arch).splitlines()]
    instructions = [line for line in lines if re.match(r"v_(mfma|wmma)", line)]
    barriers = [n for n, line in enumerate(lines) if re.match(r"s_barrier(_signal)?\b", line)]
    print(f"\n{chip.name}: {len(instructions)} matrix instructions, such as")
    print(f"  {instructions[0]}")
    print(f"and {len(barriers)} barriers, the first behind")
    assert instructions
    for number, barrier in enumerate(barriers):
        wait = max(n for n, line in enumerate(lines[:barrier]) if re.match(r"s_wait.*\b0", line))
        if number == 0:
            print(f"  {lines[wait]}")
        assert not any(re.match("ds_(write|store)", line) for line in lines[wait:barrier])

# 6. A saved model holds the machine code (HSACO). With ROCm, `tvm_tile.load` runs it through
#    `libamdhip64`; no compiler and no ROCm build of TVM is needed. Here a call says what is
#    missing.

with tempfile.TemporaryDirectory() as folder:
    file = Path(folder) / "block.tvmtile"
    models["amd/mi300x"].save(file)
    model = tvm_tile.load(file)
    print(f"\n{model!r}, {file.stat().st_size / 1e6:.1f} MB")
    try:
        print(model(*example).shape)
    except tvm_tile.TileError as error:
        print(error)
