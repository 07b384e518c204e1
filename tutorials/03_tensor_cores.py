"""Lesson 3: a product on Hopper's tensor cores, from its axes to the kernel.

Run it with `python tutorials/03_tensor_cores.py`. It compiles for an H200 and needs no GPU; with an
H100 or H200 it runs what it has compiled.
"""

from __future__ import annotations

import math
import re

import torch
from tvm import IRModule, relax, tirx

import tvm_tile
from tvm_tile.build import Builder, Program
from tvm_tile.graph.extract import extract
from tvm_tile.graph.tile_graph import Access, AffineIndex, Axis, Operator, Tensor
from tvm_tile.stages.fusing import fuse
from tvm_tile.tile.products.warpgroup import WarpgroupTile, construct_warpgroup
from tvm_tile.tile.units.product import Product, find_product

device = tvm_tile.find_device("nvidia/h200")
ROWS, COLUMNS, DEPTH = 2048, 4096, 1024

# 1. The product: a layer of a transformer, in half precision, with its sums in float32. TVM makes
#    one function of it and its activation.


def layer() -> IRModule:
    """`gelu(x @ weight.T + bias)`."""
    builder = relax.BlockBuilder()
    shapes = {"x": (ROWS, DEPTH), "weight": (COLUMNS, DEPTH), "bias": (COLUMNS,)}
    x, weight, bias = inputs = [
        relax.Var(name, relax.TensorType(shape, "float16")) for name, shape in shapes.items()
    ]
    with builder.function("main", inputs):
        with builder.dataflow():
            sums = relax.op.matmul(x, relax.op.permute_dims(weight), out_dtype="float32")
            active = relax.op.nn.gelu(relax.op.add(sums, relax.op.astype(bias, "float32")))
            output = builder.emit_output(relax.op.astype(active, "float16"))
        builder.emit_func_output(output)
    return builder.get()


fused = fuse(layer(), device).mod
(func,) = (f for f in fused.functions.values() if isinstance(f, tirx.PrimFunc))

# 2. Its roles. A matrix unit multiplies rows by columns and sums over a depth. Which axis plays
#    which role follows from the operands that it indexes, not from the operator's name.


def describe(product: Product) -> None:
    """The roles of a product's axes."""

    def text(*axes: Axis) -> str:
        return " ".join(f"{axis.name} ({axis.extent})" for axis in axes) or "none"

    print(f"  rows     {text(*product.left.free)}")
    print(f"  columns  {text(*product.right.free)}")
    print(f"  depth    {text(product.depth)}")
    print(f"  steps    {text(*product.steps)}")
    print(f"  batch    {text(*product.batch)}")


graph = extract(func)
assert graph is not None
(reduction,) = graph.reductions
product = find_product(reduction)
assert product is not None
print(f"{reduction.name}, {product.flops / 1e9:.1f} GFLOP:")
describe(product)
# The depth of both operands is contiguous: PyTorch stores weights by columns. If it were not, the
# instructions could transpose the operand while they read it, without a copy.
assert product.left.is_depth_major
assert product.right.is_depth_major

# 3. Its tiles. The hardware leaves few: an instruction has 64 rows and up to 256 columns, a chunk
#    is 128 bytes deep, a copy fetches at most 256 elements along a dimension, and the ring of
#    stages must fit into shared memory. The model of the device ranks all of them.

tiles = construct_warpgroup(product, device, 10**6)
best, worst = tiles[0], tiles[-1]


def facts(tile: WarpgroupTile) -> str:
    """What decides: rounds of blocks, how much of them is wanted, operations for each byte."""
    turns = -(-tile.tiles // tile.grid)
    blocks = max(tile.grid, device.multi_processor_count)  # a multiprocessor may hold several
    places = turns * blocks * tile.block_rows * tile.width
    wanted = ROWS * COLUMNS / places
    lines = math.prod(tile.rows) + math.prod(tile.columns)
    per_byte = 2 * tile.block_rows * tile.width / (lines * 2)
    return f"{turns:3d} rounds, {wanted:4.0%} wanted, {per_byte:4.0f} FLOP a byte"


print(f"\n{len(tiles)} tiles, ranked without a GPU:")
for tile in (*tiles[:4], worst):
    print(f"  {tile.seconds * 1e6:6.1f} us  {facts(tile)}  {tile.describe()}")
print(
    "Rounds of 132 blocks should be full, and a byte from the second-level cache should feed many"
)
print("operations. Small tiles fill rounds well and starve; large ones feed well and may leave the")
print("last round half empty.\n")
assert best.seconds < worst.seconds
assert best.shared_bytes <= device.memory(tvm_tile.device.MemoryLevel.SHARED).capacity

# 4. The pipeline. One thread of a block, the producer, only asks the copy engine (TMA) for chunks;
#    the consumers, warpgroups of 128 threads, only multiply. Between them is a ring of stages in
#    shared memory, each with two barriers: `full` counts the bytes that arrive, `empty` the
#    consumers that have read them.
#
#        producer                      stage                        consumers
#    wait(empty[s])  ◀───────────────────────────────────────────  arrive(empty[s])
#    expect(full[s], bytes)      ┌───────────────────┐                    ▲
#    copy(left box)   ──TMA────▶ │ left: 64 deep     │ ──wgmma──▶  sums += left @ right
#    copy(right box)  ──TMA────▶ │ right: 64 deep    │ ──wgmma──▶         ▲
#                                └───────────────────┘                    │
#                            the copies arrive on full[s] ──────▶  wait(full[s])
#    s = next(s)                                                   s = next(s)


def draw(stages: int, latency: int = 6, chunks: int = 10) -> int:
    """Each stage over time: `-` on its way, `=` there, `#` multiplied. Returns the time."""
    ends: list[int] = []
    lines = [""] * stages
    for chunk in range(chunks):
        asked = ends[chunk - stages] if chunk >= stages else 0
        start = max(asked + latency, ends[-1] if ends else 0)
        ends.append(start + 2)
        line = lines[chunk % stages].ljust(asked) + "-" * latency
        lines[chunk % stages] = line.ljust(start, "=") + "##"
    print(f"  {stages} stages, {chunks} chunks in {ends[-1]} ticks")
    print("\n".join(f"    |{line}" for line in lines))
    return ends[-1]


print("A ring hides the way from memory, if it is long enough:")
assert draw(2) > draw(4)
print(f"Here it has {best.stages} stages of {best.depth} elements.\n")

# 5. The kernel. It is TensorIR as always, but written out in full instead of scheduled: a
#    persistent kernel, whose blocks take tiles until none is left.

choice, *_ = tvm_tile.schedule(func, device)
assert choice.rule.name == "wgmma"
program = Builder(device).build_functions({"layer": choice.func})["layer"]
assert isinstance(program, Program), program
(kernel,) = program.kernels
assert kernel.binary.startswith(b"\x7fELF")

print(f"{choice.grid} blocks of {choice.block} threads, {len(kernel.binary) >> 10} KiB. Its PTX:")
for role, instruction in (
    ("both wait", "mbarrier.try_wait"),
    ("producer expects", "mbarrier.arrive.expect_tx"),
    ("and copies a box", "cp.async.bulk.tensor"),
    ("consumers multiply", "wgmma.mma_async"),
    ("wait for all but one", "wgmma.wait_group.sync.aligned 1"),
    ("and give its stage back", "mbarrier.arrive.shared"),
):
    found = re.search(rf"{re.escape(instruction)}[^;\n]*", kernel.source)
    assert found is not None, instruction
    print(f"  {role + ':':27s}{found.group()[:66]}")

# 6. The epilogue. What follows the sums is an expression of a sum and its place: bias, activation
#    and rounding are computed on the way from registers to memory. Any other element-wise operators
#    would do.

value, *_ = (line.strip() for line in choice.func.script().splitlines() if "T.erf" in line)
print(
    f"\nWhat is stored of a sum, the first of four neighbours:\n  {value[:94]}\n  ...{value[-94:]}"
)

# 7. A convolution is a product, too. Its rows are the output places of all images, its depth the
#    channels, and each element of the window is a step that begins its copies elsewhere. Outside of
#    the image the copy engine fills in zeros: padding is free, and no patches are laid out in
#    memory.


def convolution(images: int, size: int, channels: int, filters: int) -> Operator:
    """3x3, padded by one, channels last: `Y[n,y,x,f] += X[n,y+p-1,x+q-1,c] * W[f,p,q,c]`."""

    def at(*names: str) -> AffineIndex:
        return AffineIndex(tuple((name, 1) for name in names), 1 - len(names))

    extents = {"n": images, "y": size, "x": size, "f": filters, "p": 3, "q": 3, "c": channels}
    data = Tensor("X", (images, size, size, channels), "float16")
    weights = Tensor("W", (filters, 3, 3, channels), "float16")
    output = Tensor("Y", (images, size, size, filters), "float16")
    return Operator(
        "conv2d",
        tuple(Axis(name, extent, name in "pqc") for name, extent in extents.items()),
        (
            Access(data, (at("n"), at("y", "p"), at("x", "q"), at("c"))),
            Access(weights, tuple(map(at, "fpqc"))),
        ),
        Access(output, tuple(map(at, "nyxf"))),
        flops=2,
    )


implicit = find_product(convolution(32, 28, 128, 256))
assert implicit is not None
tile, *_ = construct_warpgroup(implicit, device, 1)
print(f"\nA convolution, {implicit.flops / 1e9:.1f} GFLOP:")
describe(implicit)
print(f"  {tile.seconds * 1e6:.1f} us predicted: {tile.describe()}")
print(
    "  its boxes start at", ", ".join(str(i.offset) for i in implicit.left.indices), "of the image"
)

# 8. Channels first. Most models have that layout, in which the depth is not contiguous. It is
#    changed once for the whole model: one permutation at each end, none between.

torch.manual_seed(0)
network = torch.nn.Sequential(
    torch.nn.Conv2d(64, 128, 3, padding=1),
    torch.nn.ReLU(),
    torch.nn.Conv2d(128, 64, 3, padding=1, stride=2),
).half()
images = torch.randn(4, 64, 28, 28).half()
model = tvm_tile.compile(network.eval(), device, example_inputs=(images,))
print("\nTwo convolutions of PyTorch's:")
for report in model.report.kernels:
    print(f"  {report.rule:12s}{report.seconds * 1e6:5.1f} us  {report.tile}")
rules = [report.rule for report in model.report.kernels]
assert len(rules) == 4
assert rules.count("wgmma") == 2

# 9. Run it, where there is a GPU of that kind. Others have no wgmma: products go to the rule for a
#    warp's instructions, mma, and on the oldest GPUs to the rule for CUDA cores, as float32 does on
#    all.

if torch.cuda.is_available() and torch.cuda.get_device_capability() == (9, 0):
    with torch.no_grad():
        expected = network.cuda()(images.cuda())
    difference = (model(images.cuda()) - expected).abs().max() / expected.abs().max()
    assert difference < 5e-3
    print(f"\nOn this GPU: the same as PyTorch, but for {difference:.1e} of the largest value.")
else:
    print("\nNo H100 or H200 here: compiled, not run.")
