"""Copies through shared memory and in vectors: all their tiles compute what the CPU does."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import pytest
import tvm
import tvm_ffi
from kernel_cases import boolean, case, i8, i32
from kernels import Case, Input, prim_functions, written_errors
from tvm import ir, tirx
from tvm.relax import op

import tvm_tile
from tvm_tile import Options, compat
from tvm_tile.build.tir_passes import lower_module
from tvm_tile.device import find_device
from tvm_tile.device.detect import resolve_device
from tvm_tile.graph.extract import extract
from tvm_tile.schedule.rule import Scheduled, Task
from tvm_tile.schedule.s_tir.transpose import _read, schedule_transpose, write_transpose
from tvm_tile.tile.moves.transpose import construct_transpose

pytestmark = pytest.mark.bank(6)

GPU = tvm.cuda(0).exist
cuda = [pytest.mark.cuda, pytest.mark.skipif(not GPU, reason="needs an NVIDIA GPU")]
emulated = pytest.mark.skipif(not find_spec("pyopencl"), reason="needs pyopencl")
DEVICES = [pytest.param("emulated", marks=emulated), pytest.param("auto", marks=cuda)]
H200 = find_device("nvidia/h200")
ACCESSES = (ir.TensorLoad, tirx.BufferStore)


def f16(*shape: int) -> Input:
    return Input(shape, "float16")


def i16(*shape: int) -> Input:
    return Input(shape, "int16")


def emulable(entry: Case) -> Case:
    """The emulated device has no half precision."""
    inputs = (Input(i.shape, i.dtype.replace("float16", "float32")) for i in entry.inputs)
    return replace(entry, inputs=tuple(inputs))


def to_nhwc(x: Any) -> Any:
    return op.permute_dims(x, [0, 2, 3, 1])


def to_nchw(x: Any) -> Any:
    return op.permute_dims(x, [0, 3, 1, 2])


def pixel_shuffle(x: Any) -> Any:
    """Of an image in NHWC, by two, to NCHW."""
    n, h, w, c = (int(extent) for extent in x.ty.shape)
    parts = op.reshape(x, (n, h, w, c // 4, 2, 2))
    return op.reshape(op.permute_dims(parts, [0, 3, 1, 4, 2, 5]), (n, c // 4, 2 * h, 2 * w))


def channel_shuffle(x: Any, y: Any) -> Any:
    n, c, h, w = (int(extent) for extent in x.ty.shape)
    both = op.reshape(op.concat((x, y), 1), (n, 2, c, h, w))
    groups = op.permute_dims(both, [0, 2, 1, 3, 4])
    parts = op.split(op.reshape(groups, (n, 2 * c, h, w)), 2, 1)
    return op.nn.relu(parts[0]), op.exp(parts[1])


def shuffle_to_nchw(x: Any, y: Any) -> Any:
    """Of images in NHWC, channels of the two in turns, in NCHW."""
    n, h, w, c = (int(extent) for extent in x.ty.shape)
    both = op.concat([op.expand_dims(x, 1), op.expand_dims(y, 1)], 1)
    return op.reshape(op.permute_dims(both, [0, 4, 1, 2, 3]), (n, 2 * c, h, w))


def roll(x: Any, shift: int) -> Any:
    parts = op.split(x, [shift], 1)
    return op.concat((parts[1], parts[0]), 1)


CASES = (
    case("even", "", lambda x: op.permute_dims(x, [1, 0]), f16(128, 192)),
    case("prime", "", lambda x: op.permute_dims(x, [1, 0]), f16(61, 131)),
    case("ragged", "", lambda x: op.permute_dims(x, [1, 0]), f16(104, 72)),
    case("one_row", "", lambda x: op.permute_dims(x, [1, 0]), (1, 40)),
    case("batches", "", lambda x: op.permute_dims(x, [0, 2, 1]), (3, 40, 36)),
    case("int8", "", lambda x: op.permute_dims(x, [1, 0]), i8(96, 80)),
    case("int16", "", lambda x: op.permute_dims(x, [1, 0]), i16(96, 80)),
    case("int16_images", "", to_nhwc, i16(2, 24, 14, 14)),
    case("int16_concat", "", lambda *x: op.concat(x, -1), i16(40, 32), i16(40, 64), i16(40, 8)),
    case("int16_shuffle", "", pixel_shuffle, i16(2, 6, 10, 32)),
    case("int32", "", lambda x: op.permute_dims(x, [1, 0]), i32(33, 68)),
    case("bool", "", lambda x: op.permute_dims(x, [1, 0]), boolean(48, 64)),
    case("cast", "", lambda x: op.astype(op.permute_dims(x, [1, 0]), "float32"), f16(72, 40)),
    case("nhwc", "", to_nhwc, f16(2, 24, 14, 14)),
    case("nchw_odd", "", to_nchw, f16(2, 7, 9, 13)),
    case("three_channels_padded", "",
         lambda x: to_nhwc(op.nn.pad(x, [0, 0, 0, 5, 1, 1, 1, 1])), f16(2, 3, 15, 18)),
    case("add", "", lambda x, y: op.add(to_nchw(x), y), f16(2, 8, 10, 24), f16(2, 24, 8, 10)),
    case("bias_relu", "", lambda x, b: op.nn.relu(op.add(to_nchw(x), b)),
         (2, 8, 6, 20), (1, 20, 1, 1)),
    case("both_across", "", lambda x, y: op.multiply(to_nchw(x), op.exp(to_nchw(y))),
         f16(1, 8, 6, 24), f16(1, 8, 6, 24)),
    case("pixel_shuffle", "", pixel_shuffle, f16(2, 6, 10, 32)),
    case("pixel_shuffle_odd", "", pixel_shuffle, f16(1, 5, 7, 12)),
    case("pixel_shuffle_add", "", lambda x, y: op.add(pixel_shuffle(x), to_nchw(y)),
         f16(1, 6, 8, 32), f16(1, 12, 16, 8)),
    case("heads", "", lambda x: op.permute_dims(op.reshape(x, (2, 49, 3, 12, 8)), [2, 0, 3, 1, 4]),
         f16(2, 49, 288)),
    case("window_partition", "",
         lambda x: op.reshape(op.permute_dims(op.reshape(x, (2, 2, 7, 2, 7, 24)),
                                              [0, 1, 3, 2, 4, 5]), (8, 49, 24)),
         f16(2, 14, 14, 24)),
    case("channel_shuffle", "", channel_shuffle, f16(2, 12, 14, 14), f16(2, 12, 14, 14)),
    case("shuffle_to_nchw_odd", "", shuffle_to_nchw, f16(2, 28, 28, 58), f16(2, 28, 28, 58)),
    case("concat_aligned", "", lambda *x: op.concat(x, -1), f16(40, 32), f16(40, 64), f16(40, 8)),
    case("concat_misaligned", "", lambda *x: op.concat(x, -1), f16(40, 9), f16(40, 15)),
    case("concat_of_transposed", "", lambda x, y: op.concat((to_nchw(x), y), 1),
         f16(2, 6, 8, 20), f16(2, 12, 6, 8)),
    case("roll", "", lambda x: roll(x, 8), f16(3, 24, 16)),
    case("roll_misaligned", "", lambda x: roll(x, 3), f16(30, 24)),
    case("pad_aligned", "", lambda x: op.nn.pad(x, [0, 0, 8, 16]), f16(20, 40)),
    case("pad_misaligned", "", lambda x: op.nn.pad(x, [0, 0, 1, 3]), f16(20, 44)),
    case("slice", "", lambda x: op.strided_slice(x, [1], [3], [39], [2]), f16(40, 64)),
    case("rank6", "", lambda x: op.permute_dims(x, [0, 5, 3, 1, 4, 2]), f16(2, 3, 4, 8, 3, 6)),
)  # fmt: skip


def tasks(entry: Case, device: Any) -> list[Task]:
    found = []
    for func in prim_functions(entry, device).values():
        graph = extract(func)
        assert graph is not None
        found.append(Task(func, graph, device))
    return found


def all_tiles(task: Task) -> list[Scheduled]:
    """Every distinct way of moving a function's outputs."""
    outputs = [output for _, output in _read(task) or ()]
    choices = [construct_transpose(output.copy, task.device) for output in outputs]
    assert choices, "the rule reads it"
    return [write_transpose(task.func, outputs, tiles) for tiles in zip(*choices, strict=False)]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("entry", CASES, ids=[entry.name for entry in CASES])
def test_all_tiles_compute_what_the_cpu_does(entry: Case, device: str) -> None:
    chosen = resolve_device(device)
    given = emulable(entry) if device == "emulated" else entry
    for task in tasks(given, chosen):
        written = all_tiles(task)
        found = [*written[:6], *written[6::7]]
        errors = written_errors(task.func, found, chosen)
        wrong = [
            f"{item.tile}: {e}" for item, e in zip(found, errors, strict=True) if not e <= 1e-3
        ]
        assert not wrong


def vector_indices(scheduled: Scheduled) -> list[Any]:
    """The indices of all accesses of a schedule's kernels to several elements at once."""
    mod = tvm.IRModule({"main": scheduled.func.with_attr("global_symbol", "main")})
    found: list[Any] = []
    entries = [(kind, lambda node: found.extend(node.indices)) for kind in ACCESSES]
    for kernel in lower_module(mod, compat.make_target(H200)).kernels:
        for func in kernel.module.functions.values():
            tvm_ffi.structural_walk(func.body, entries, order="pre")
    return [index for index in found if "x" in str(index.ty.dtype)]


@pytest.mark.parametrize("entry", CASES, ids=[entry.name for entry in CASES])
def test_elements_of_a_vector_are_neighbours(entry: Case) -> None:
    """Else an index is computed for each: NVRTC refuses eight, and four are moved one by one."""
    for task in tasks(entry, H200):
        written = all_tiles(task)
        for scheduled in (written[0], *written[1::4]):
            indices = vector_indices(scheduled)
            apart = [i for i in indices if not isinstance(i, tirx.Ramp) or int(i.stride) != 1]
            assert not apart, scheduled.tile


LARGE = (
    case("transpose", "", lambda x: op.permute_dims(x, [1, 0]), f16(2048, 1024)),
    case("concat", "", lambda *x: op.concat(x, -1), f16(8192, 96), f16(8192, 32)),
    case("padded", "", lambda x: to_nhwc(op.nn.pad(x, [0, 0, 0, 5, 1, 1, 1, 1])),
         f16(8, 3, 254, 254)),
)  # fmt: skip


@pytest.mark.parametrize("entry", LARGE, ids=[entry.name for entry in LARGE])
def test_large_copies_are_taken_and_gain_a_lot(entry: Case) -> None:
    (task,) = tasks(entry, H200)
    (choice,) = schedule_transpose(task, 1)
    scheduled = choice()
    assert scheduled is not None
    assert scheduled.seconds < 1.5 * task.graph.traffic / 4.2e12 + 2e-6


def test_a_chain_without_transposes_is_left_to_the_rule_for_those() -> None:
    entry = case("relu", "", lambda x, y: op.nn.relu(op.add(x, y)), f16(4096, 512), f16(4096, 512))
    (task,) = tasks(entry, H200)
    assert not schedule_transpose(task, 1)


def test_computed_values_that_are_chosen_build() -> None:
    """Their loads are vectors, their arithmetic is not: TVM has no vectors of eight numbers in
    float32, though loops of them."""
    torch = pytest.importorskip("torch")

    class Joined(torch.nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            gelu = torch.nn.functional.gelu(x[..., 64:], approximate="tanh")
            return torch.cat([y, gelu], -1)

    def compiled(device: str, inputs: tuple[torch.Tensor, ...]) -> tvm_tile.CompiledModel:
        options = Options(cache=False)
        return tvm_tile.compile(Joined(), device, example_inputs=inputs, options=options)

    shapes = ((4, 512, 1600), (4, 512, 512))
    halves = tuple(torch.zeros(shape, dtype=torch.bfloat16) for shape in shapes)
    report = compiled("nvidia/h200", halves).report
    assert report.fallbacks == ()
    assert [kernel.tile for kernel in report.kernels] == ["block 2048, store 8, load 8x8"]
    if find_spec("pyopencl"):
        inputs = tuple(torch.randn(shape) for shape in shapes)
        expected = Joined()(*(value.double() for value in inputs))
        found = torch.as_tensor(compiled("emulated", inputs)(*inputs))
        torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-5)
