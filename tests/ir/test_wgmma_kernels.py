"""Kernels for Hopper's tensor cores, as far as they go without a GPU: text and machine code."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from joined import joined_function, only
from kernel_bodies import mm
from kernels import Case, offers, prim_functions, rules_of
from tvm import te, tirx
from wgmma_cases import TF32_CASES, WGMMA_CASES, conv_case, product_case

import tvm_tile
from tvm_tile.build import Builder, Program
from tvm_tile.build.cubin import resources_of
from tvm_tile.device import find_device, with_tf32
from tvm_tile.device.device import STATIC_SHARED_LIMIT
from tvm_tile.graph.extract import extract
from tvm_tile.graph.tile_graph import element_size
from tvm_tile.schedule import Scheduled, candidates, schedule
from tvm_tile.schedule.rule import Task
from tvm_tile.schedule.tensor_cores.found import find_in
from tvm_tile.schedule.tensor_cores.work import store_work
from tvm_tile.schedule.wgmma import schedule_wgmma
from tvm_tile.tile.products.store_work import StoreWork
from tvm_tile.tile.products.warpgroup_tile import WarpgroupTile
from tvm_tile.tile.rules import WGMMA

pytestmark = pytest.mark.bank(4)

H200 = find_device("nvidia/h200")
ROUNDING = with_tf32(H200)
BY_NAME = {entry.name: entry for entry in (*WGMMA_CASES, *TF32_CASES)}
# So few rows, or columns, that the rule for matrix-vector products comes first.
VECTORS = {"NT_1x1000x512_float16", "fp8_1x50x1024"}
CANDIDATES, EVERY = 8, 1000
DOUBLE = replace(product_case("NT", 64, 64, 64), name="double", body=mm("NT", out_dtype="float64"))
NAMES = (
    "NN_264x520x1032_float16",
    "NT_128x256x512_bfloat16",
    "TN_72x136x200_float16",
    "TT_128x256x512_float16",
    "bias_gelu",
    "heads",
    "float32_output",
    "conv_3x3_stride",
    "conv_bias_relu",
    "e4m3_by_e5m2",
    "e5m2_200x136x400",
    "int8_64x72x4096",  # whose sum a cluster shares
    "int8_conv_requantized",
    "shallow_silu",  # whose ring alone is within the static limit
    "tf32_bias_relu",
    "uint8_200x136x400",
    "uint8_by_int8",
)
# An operand's dtype -> depth of an instruction, and PTX's names of the sums' and its own dtype.
INSTRUCTIONS = {
    "float16": (16, "f32", "f16"),
    "bfloat16": (16, "f32", "bf16"),
    "float32": (8, "f32", "tf32"),
    "float8_e4m3fn": (32, "f32", "e4m3"),
    "float8_e5m2": (32, "f32", "e5m2"),
    "int8": (32, "s32", "s8"),
    "uint8": (32, "s32", "u8"),
}
TENSOR_MAP = re.compile(
    r'cuTensorMapEncodeTiled", (?P<map>\w+), "(?P<dtype>\w+)", (?P<rank>\d+), \w+\.data, '
    r"(?P<numbers>[\d, ]+)\)"
)


def choices(entry: Case, count: int = 1) -> tuple[Scheduled, ...]:
    """The rule's first choices for a case, which is joined whether that pays or not."""
    func = joined_function(entry, ROUNDING, schedule_wgmma)
    return candidates(Task(func, extract(func), ROUNDING), count, (WGMMA,))


@pytest.mark.parametrize("name", BY_NAME)
def test_the_rule_takes(name: str) -> None:
    """Whether or not another one is predicted to be faster."""
    assert name in VECTORS or choices(BY_NAME[name])


@pytest.mark.parametrize("name", sorted(set(BY_NAME) - VECTORS))
def test_barriers_expect_what_the_copies_bring(name: str) -> None:
    found = choices(BY_NAME[name], CANDIDATES)
    assert found
    for choice in found:
        text = choice.func.script()
        (expected,) = re.findall(r'T\.uint32\((\d+)\), "arrive", "expect_tx"', text)
        assert int(expected) == sum(
            copies(text, match["map"]) * box_bytes(match) for match in TENSOR_MAP.finditer(text)
        )


def copies(text: str, tensor_map: str) -> int:
    """How many boxes of a tensor the producer asks for in a chunk."""
    asked = [line for line in text.splitlines() if "T.ptx.cp(" in line]
    return sum(f"address_of({tensor_map}))" in line for line in asked)


def box_bytes(match: re.Match[str]) -> int:
    """Of one box, whose extents are within what the driver accepts."""
    rank, size = int(match["rank"]), element_size(match["dtype"])
    numbers = [int(number) for number in match["numbers"].split(",")]
    spans, steps = numbers[2 * rank - 1 : 3 * rank - 1], numbers[3 * rank - 1 : 4 * rank - 1]
    assert all(stride % 16 == 0 for stride in numbers[rank : 2 * rank - 1])
    assert all(1 <= span <= 256 for span in spans)
    assert all(1 <= step <= 8 for step in steps)
    assert spans[0] * size == 128
    assert steps[0] == 1
    return size * math.prod(-(-span // step) for span, step in zip(spans, steps, strict=True))


@pytest.mark.parametrize(
    ("name", "wide"),
    [
        ("masked", "half4"),
        ("bias_gelu", "half4"),
        ("shallow_shuffle", "half2"),
        ("bias_residual_relu", "half4"),
        ("float32_output", "float4"),
        ("int8_requantized", "int"),  # four bytes
        ("int8_residual", "int"),
    ],
)
def test_neighbours_are_stored_together(name: str, wide: str) -> None:
    (choice,) = choices(BY_NAME[name])
    built = Builder(H200).build_functions({"product": choice.func})["product"]
    assert isinstance(built, Program), str(built)
    (kernel,) = built.kernels
    start = f"*({wide}*)("
    stores = [line for line in kernel.source.splitlines() if line.strip().startswith(start)]
    assert stores
    assert "ushort4*)" not in kernel.source  # TVM's vectors of bools are twice as wide as these


def dynamic_bytes(func: tirx.PrimFunc) -> int:
    """Shared memory that a launch asks for, besides what the kernel declares."""
    (size,) = re.findall(r'\((\d+),\), "uint8", scope="shared\.dyn"', func.script())
    return int(size)


@pytest.mark.parametrize("name", NAMES)
def test_the_first_choice_becomes_machine_code(name: str) -> None:
    (choice,) = choices(BY_NAME[name])
    built = Builder(H200).build_functions({"product": choice.func})["product"]
    assert isinstance(built, Program), str(built)
    (kernel,) = built.kernels
    assert kernel.binary.startswith(b"\x7fELF")
    assert kernel.arg_types.count("tensormap") == 2
    left, right = (INSTRUCTIONS[entry.dtype] for entry in BY_NAME[name].inputs[:2])
    dtypes = rf"k{left[0]}\.{left[1]}\.{left[2]}\.{right[2]}"
    assert re.search(rf"wgmma\.mma_async\S*\.m64n\d+{dtypes}", kernel.source)
    assert "cp.async.bulk.tensor" in kernel.source
    # All threads of a block meet once, when the barriers are there: then the roles part.
    body = kernel.source.rsplit("__launch_bounds__", 1)[-1]
    assert body.count("cta_sync()") == 1
    # TVM's runtime asks for more than the static limit only where the dynamic part exceeds it.
    declared, dynamic = resources_of(kernel.binary).shared, dynamic_bytes(choice.func)
    assert dynamic > STATIC_SHARED_LIMIT or declared + dynamic <= STATIC_SHARED_LIMIT


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("bias_residual_relu", StoreWork(operations=3, read_bytes=106128, loads=2)),
        ("shallow_silu", StoreWork(operations=27, read_bytes=80, loads=1)),
        ("shallow_odd", StoreWork(is_wide=False, is_ragged=True)),
        ("shallow_shuffle", StoreWork(is_wide=False)),
        ("NN_264x520x1032_float16", StoreWork()),
    ],
)
def test_work_for_each_sum(name: str, expected: StoreWork) -> None:
    (func,) = prim_functions(BY_NAME[name], H200, only(schedule_wgmma, H200)).values()
    found = find_in(Task(func, extract(func), H200), {"float16"})
    assert found is not None
    assert store_work(found.epilogue, found.product) == expected


@pytest.mark.parametrize("name", ["shallow_silu", "shallow_stem"])
def test_as_many_blocks_fit_as_the_tile_says(name: str) -> None:
    """One tile for each number of blocks a multiprocessor, the widest, as machine code."""
    (func,) = prim_functions(BY_NAME[name], H200).values()
    found: dict[int, tuple[WarpgroupTile, Any]] = {}
    for choice in schedule_wgmma(Task(func, extract(func), H200), EVERY):
        assert isinstance(choice.write, partial)
        tile: WarpgroupTile = choice.write.args[-1]
        if tile.blocks not in found or tile.registers > found[tile.blocks][0].registers:
            found[tile.blocks] = (tile, choice)
    assert set(found) == {1, 2, 3, 4, 5, 6}
    funcs = {f"at{n}": choice().func for n, (_, choice) in found.items()}
    built = Builder(H200).build_functions(funcs)
    for blocks, (tile, _) in found.items():
        program = built[f"at{blocks}"]
        assert isinstance(program, Program), str(program)
        (kernel,) = program.kernels
        resources = resources_of(kernel.binary)
        threads = blocks * tile.block_size
        assert resources.registers >= tile.width // 2
        assert resources.registers * threads <= H200.registers_per_multi_processor
        assert resources.stack == 0  # nothing is spilled
        shared = resources.shared + dynamic_bytes(funcs[f"at{blocks}"])
        assert shared <= tile.shared_bytes + 1024  # which the driver keeps
        moved = tuple(
            map(int, re.findall(r"setmaxnreg\.\w+\.sync\.aligned\.u32 (\d+)", kernel.source))
        )
        assert sorted(set(moved)) == list(tile.division or ())


@pytest.mark.parametrize(
    ("entry", "rules"),
    [
        (product_case("NT", 64, 64, 64, dtype="float32"), "contraction"),
        (DOUBLE, "contraction"),
        (product_case("NT", 64, 64, 100), "mma"),  # strides of 200 bytes
        (product_case("NT", 1, 1000, 512), "matvec"),
        # Windows that leave an image of one line, or one place, on either side.
        (conv_case("line", (4, 1, 14, 64), (40, 3, 3, 64), padding=1), "contraction"),
        (conv_case("place", (4, 1, 1, 64), (40, 3, 3, 64), padding=(0, 0, 2, 2)), "contraction"),
    ],
    ids=lambda value: value.name if isinstance(value, Case) else "",
)
def test_what_goes_elsewhere(entry: Case, rules: str) -> None:
    (offered,) = (offers(func, H200) for func in prim_functions(entry, H200).values())
    assert rules in offered
    assert "wgmma" not in offered or entry.name in VECTORS


@pytest.mark.parametrize("name", [entry.name for entry in TF32_CASES])
def test_float32_stays_exact_unless_allowed(name: str) -> None:
    assert set(rules_of(BY_NAME[name], H200).split()).isdisjoint(("wgmma", "mma"))


@pytest.mark.parametrize("tf32", [True, False])
def test_users_allow_tf32(tf32: bool) -> None:
    """A layer whose weights importers leave transposed."""
    layer, options = torch.nn.Linear(512, 1024), tvm_tile.Options(tf32=tf32, cache=False)
    inputs = (torch.zeros(1024, 512),)
    model = tvm_tile.compile(layer, "nvidia/h200", example_inputs=inputs, options=options)
    (kernel,) = model.report.kernels
    assert (kernel.rule == "wgmma") == tf32


def sum_of_products(dtype: str, cast: str, sums: str) -> tirx.PrimFunc:
    """A product of matrices of ``dtype``, its factors cast, added up in ``sums``."""
    left, right = (te.placeholder((64, 64), dtype, name=name) for name in ("left", "right"))
    k = te.reduce_axis((0, 64), "k")

    def element(i: Any, j: Any) -> Any:
        factors = left[i, k].astype(cast) * right[j, k].astype(cast)
        return te.sum(factors.astype(sums), axis=k)

    return te.create_prim_func([left, right, te.compute((64, 64), element)])


@pytest.mark.parametrize(
    ("dtype", "cast", "sums", "is_taken"),
    [
        ("int8", "int32", "int32", True),
        ("int8", "int16", "int16", False),  # wraps around
        ("int8", "int8", "int8", False),
        ("int8", "float32", "float32", False),
        ("float32", "float32", "float32", True),
        ("float32", "float16", "float16", False),  # rounded to less
        ("float16", "float64", "float64", False),
    ],
)
def test_sums_are_those_of_the_instructions(
    dtype: str, cast: str, sums: str, is_taken: bool
) -> None:
    func = sum_of_products(dtype, cast, sums)
    graph = extract(func)
    assert graph is not None
    assert bool(schedule_wgmma(Task(func, graph, ROUNDING), 1)) == is_taken


@pytest.mark.parametrize("device", ["nvidia/a100", "emulated"])
def test_other_devices(device: str) -> None:
    entry = BY_NAME["NT_128x256x512_bfloat16"]
    assert "wgmma" not in rules_of(entry, find_device(device))


def windowed(outside: float, first: int = 1, behind: int = 65) -> tirx.PrimFunc:
    """A convolution along 64 places, padded with ``outside`` where no place is."""
    image = te.placeholder((64, 64), "float16", name="image")
    weight = te.placeholder((32, 3, 64), "float16", name="weight")

    def padded(y: Any, c: Any) -> Any:
        is_inside = tirx.And(y >= first, y < behind)
        return tirx.if_then_else(is_inside, image[y - 1, c], tirx.const(outside, "float16"))

    ring = te.compute((66, 64), padded, name="ring")
    p, c = te.reduce_axis((0, 3), "p"), te.reduce_axis((0, 64), "c")
    out = te.compute(
        (64, 32),
        lambda y, f: te.sum(
            ring[y + p, c].astype("float32") * weight[f, p, c].astype("float32"), axis=[p, c]
        ),
    )
    return te.create_prim_func([image, weight, out])


def test_zeros_around_an_image_are_left_to_the_copies() -> None:
    func = windowed(0)
    assert candidates(Task(func, extract(func), H200), 1, (WGMMA,))


@pytest.mark.parametrize(
    "func",
    [windowed(1), windowed(0, first=2), windowed(0, behind=64)],
    ids=["ones around it", "its first place hidden", "its last place hidden"],
)
def test_other_padding_is_not(func: tirx.PrimFunc) -> None:
    assert all(choice.rule != WGMMA for choice in schedule(func, H200))
