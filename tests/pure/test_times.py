"""Predicted times are the device's: none above a chip's peaks, and latencies by its own clock."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import pytest
from operators import (
    access,
    axes,
    column_sum,
    conv_nhwc,
    depthwise,
    einsum,
    elementwise,
    index,
    letters,
    matmul,
    row_sum,
)

from tvm_tile.calibrate.fit import numbers_of
from tvm_tile.device import Device, MemoryLevel, devices, find_device
from tvm_tile.errors import DeviceRecordError
from tvm_tile.graph.rowwise import Combine, Rows, Scan, Sort
from tvm_tile.graph.tile_graph import Access, AffineIndex, Axis, Operator, Tensor
from tvm_tile.plan.place import flag_seconds
from tvm_tile.tile.attention.chain import Chain, connect, with_axes_of
from tvm_tile.tile.attention.warpgroups import construct_chain
from tvm_tile.tile.coded.few_vectors import CodedProduct, construct_coded
from tvm_tile.tile.coded.warpgroup import construct_coded_warpgroup
from tvm_tile.tile.construct import construct_contraction
from tvm_tile.tile.cost import arithmetic_slots
from tvm_tile.tile.few_rows.few_vectors import find_matvec
from tvm_tile.tile.few_rows.gates import GateProduct, Gates, construct_gates
from tvm_tile.tile.few_rows.matvec import construct_matvec
from tvm_tile.tile.moves.plain import construct_plain
from tvm_tile.tile.moves.transpose import Copy, Source, construct_transpose
from tvm_tile.tile.products.halo import construct_halo
from tvm_tile.tile.products.halo_tile import Halo, Row
from tvm_tile.tile.products.matrix_cores import construct_matrix_cores
from tvm_tile.tile.products.mma import construct_mma
from tvm_tile.tile.products.warpgroup import construct_warpgroup
from tvm_tile.tile.rows.held_rows import construct_held, find_held_rows
from tvm_tile.tile.rows.reduce import construct_reduction, construct_window
from tvm_tile.tile.rows.rows import construct_rows
from tvm_tile.tile.rows.scan import construct_scan
from tvm_tile.tile.rows.sort import construct_sort
from tvm_tile.tile.tile import Tile
from tvm_tile.tile.time import ALONE, Part, Work, seconds_of
from tvm_tile.tile.units.product import Product, find_product
from tvm_tile.tile.windows.strips import construct_strips

EVERY = 10**6
H200 = find_device("nvidia/h200")
ESTIMATED = tuple(d for d in devices() if d.is_estimated and not d.is_emulated)


@dataclass(frozen=True, slots=True)
class Case:
    """Something to compute, and all of its tiles on a device.

    ``flops`` are those of CUDA cores where ``dtype`` is empty, else of matrix units for it;
    ``traffic`` is the bytes that cross global memory at least.
    """

    name: str
    flops: float
    traffic: float
    tiles: Callable[[Device], Iterable[Tile]]
    dtype: str = ""

    def seconds(self, device: Device) -> list[float]:
        return [tile.seconds for tile in self.tiles(device)]


def operator_case(
    name: str, operator: Operator, tiles: Callable[[Operator, Device], Iterable[Tile]]
) -> Case:
    return Case(
        f"{name} {operator.name} {[axis.extent for axis in operator.axes]}",
        operator.total_flops,
        operator.traffic,
        lambda device: tiles(operator, device),
    )


def product_case(name: str, construct: Callable[..., tuple], operator: Operator) -> Case:
    product = found(operator)
    return Case(
        f"{name} {operator.name} {[axis.extent for axis in operator.axes]}",
        product.flops,
        product.traffic,
        lambda device: construct(product, device, EVERY),
        product.left.tensor.dtype,
    )


def found(operator: Operator) -> Product:
    product = find_product(operator)
    assert product is not None
    return product


def attention(length: int) -> Chain:
    sizes = {"b": 2, "h": 12, "q": length, "k": length, "d": 64}
    first = einsum("bhqd", "bhkd", "bhqk", **sizes)
    wide = replace(first.write.tensor, dtype="float32")
    first = replace(first, write=replace(first.write, tensor=wide))
    extents = {"b": 2, "h": 12, "i": length, "j": length, "n": 64}
    handed = access("C", wide.shape, *letters("bhij"))
    values = access("V", (2, 12, length, 64), *letters("bhjn"), dtype="float16")
    write = access("O", (2, 12, length, 64), *letters("bhin"), dtype="float16")
    second = Operator("values", axes("j", **extents), (handed, values), write, 2)
    named = with_axes_of(first, second)
    assert named is not None
    chain = connect(first, named)
    assert chain is not None
    return chain


def bottleneck(size: int, channels: int) -> Halo:
    rows = (Row(2), Row(size, 3), Row(size, 3))
    reached, windows, depth = 2 * (size + 2) ** 2, 2 * size**2, channels // 4
    first = einsum("pd", "cd", "pc", p=reached, c=channels, d=depth)
    second = einsum("pd", "cd", "pc", p=windows, c=depth, d=channels)
    traffic = 2 * reached * depth + 2 * windows * depth
    return Halo(found(first), rows, channels, (0,), True, found(second), 2, 2, traffic)


def flat(order: str, extents: dict[str, int]) -> Access:
    terms, stride = [], 1
    for name in reversed(order):
        terms.append((name, stride))
        stride *= extents[name]
    return Access(Tensor(order, (stride,), "float32"), (AffineIndex(tuple(terms), 0),))


def transposed(rows: int, columns: int) -> Case:
    extents = {"a": rows, "b": columns}
    source = Source((flat("ba", extents),), frozenset())
    copy = Copy(tuple(Axis(n, e) for n, e in extents.items()), (source,), flat("ab", extents))
    return Case(
        f"transpose {extents}",
        0.0,
        8 * rows * columns,
        lambda device: construct_transpose(copy, device),
    )


def held(rows: int, length: int) -> Case:
    row, j, k = index(i=1), index(j=1), index(k=1)
    read = access("x", (rows, length), row, k)
    write = access("s", (rows,), row)
    total = Operator("total", axes("k", i=rows, k=length), (read,), write, 1)
    reads = (access("x", (rows, length), row, j), access("s", (rows,), row))
    y = access("y", (rows, length), row, j)
    scaled = Operator("scaled", axes("", i=rows, j=length), reads, y, 2)
    own = find_held_rows(scaled, [total], frozenset("i"))
    assert own is not None

    def again(device: Device) -> tuple[Tile, ...]:
        return construct_rows(scaled, [total], frozenset("i"), device)

    def once(device: Device) -> tuple[Tile, ...]:
        return construct_held(own, device)

    return Case(
        f"rows {rows} x {length}",
        3 * rows * length,
        8 * rows * length,
        lambda device: again(device) + once(device),
    )


def matvec_tiles(operator: Operator, device: Device) -> tuple[Tile, ...]:
    product = find_matvec(operator, device)
    assert product is not None
    return construct_matvec(operator, product, device)


def few_rows(rows: int, columns: int, depth: int) -> Operator:
    x = access("x", (rows, depth), index(m=1), index(k=1), dtype="float16")
    w = access("w", (columns, depth), index(n=1), index(k=1), dtype="float16")
    y = access("y", (rows, columns), index(m=1), index(n=1))
    return Operator("few_rows", axes("k", m=rows, n=columns, k=depth), (x, w), y, 2)


def cell(units: int, vectors: int) -> Case:
    gates = Gates((GateProduct(4, units, 4), GateProduct(4, units, 4)), units, vectors, 60, 8192)
    return Case(
        f"gates {units} x {vectors}",
        2 * 8 * units * units * vectors,
        gates.weights,
        lambda device: construct_gates(gates, device, EVERY),
    )


def coded(vectors: int, rows: int, depth: int, bits: int) -> Case:
    product = CodedProduct(vectors, rows, depth, bits, 128, rows * depth // 128 * 2)
    return Case(
        f"coded {vectors} x {rows} x {depth} x {bits}",
        2 * vectors * rows * depth,
        product.code_bytes + product.beside,
        lambda device: construct_coded(product, device),
        "float16",
    )


def coded_warpgroup(vectors: int, rows: int, depth: int, bits: int) -> Case:
    product = CodedProduct(vectors, rows, depth, bits, 128, rows * depth // 128 * 2, 4)
    return Case(
        f"coded_warpgroup {vectors} x {rows} x {depth} x {bits}",
        2 * vectors * rows * depth,
        product.code_bytes + product.beside,
        lambda device: construct_coded_warpgroup(product, 1, device),
        "float16",
    )


def matrix_cases() -> Iterator[Case]:
    for m, n, k in ((64, 64, 64), (16384, 16384, 16384), (128, 768, 3072)):
        operator = einsum("mk", "nk", "mn", m=m, n=n, k=k)
        for name, construct in (
            ("wgmma", construct_warpgroup),
            ("mma", construct_mma),
            ("matrix_cores", construct_matrix_cores),
        ):
            yield product_case(name, construct, operator)
    for name, construct in (("wgmma", construct_warpgroup), ("mma", construct_mma)):
        yield product_case(name, construct, conv_nhwc(8, (56, 56), 64, 128))
    for length in (197, 4096):
        chain = attention(length)
        yield Case(
            f"chain {length}",
            chain.flops,
            chain.traffic,
            lambda device, chain=chain: construct_chain(chain, device, EVERY),
            "float16",
        )
    for size, channels in ((14, 96), (56, 192)):
        halo = bottleneck(size, channels)
        assert halo.second is not None
        yield Case(
            f"halo {size}",
            halo.first.flops + halo.second.flops,
            halo.traffic,
            lambda device, halo=halo: construct_halo(halo, device, EVERY),
            "float16",
        )

    yield from (coded(1, 4096, 4096, 4), coded(32, 28672, 8192, 2), coded(16, 4096, 14336, 8))
    many = ((33, 4096, 4096, 4), (512, 28672, 8192, 2), (4096, 4096, 14336, 8))
    yield from (coded_warpgroup(*sizes) for sizes in many)


def core_cases() -> Iterator[Case]:
    for extents in ((64, 64, 64), (4096, 4096, 4096)):
        yield operator_case(
            "contraction",
            matmul(*extents),
            lambda o, d: construct_contraction(o, d, 64),
        )
    for windows in (depthwise(64, 14, 3), depthwise(512, 112, 5)):
        yield operator_case("window", windows, lambda o, d: construct_strips(o, d, o.traffic))
    for sums in (row_sum(64, 197), row_sum(8192, 8192), column_sum(8192, 8192)):
        yield operator_case("reduction", sums, lambda o, d: construct_reduction(o, d))
    yield operator_case("few points", row_sum(1 << 20, 4), lambda o, d: construct_window(o, d))
    for maps in (elementwise(17, 33), elementwise(8192, 8192)):
        yield operator_case("elementwise", maps, lambda o, d: construct_plain(o, d))
    for rows in (few_rows(1, 4096, 4096), few_rows(8, 512, 16384)):
        yield operator_case("matvec", rows, matvec_tiles)
    yield from (transposed(96, 197), transposed(8192, 4096))
    yield from (held(64, 768), held(32768, 1024))
    yield from (cell(256, 1), cell(2048, 16))
    for shape in ((16, 300), (4096, 8192)):
        elements = shape[0] * shape[1]
        scan = Scan(Combine.SUM, Rows(shape, 1), "float32", "float32")
        yield Case(
            f"scan {shape}",
            elements,
            8 * elements,
            lambda device, scan=scan: [construct_scan(scan, device)],
        )
        sort = Sort(Rows(shape, 1), shape[1], "float32", False, True, None)
        yield Case(
            f"sort {shape}",
            0.0,
            8 * elements,
            lambda device, sort=sort: [construct_sort(sort, device)],
        )


CASES = (*matrix_cases(), *core_cases())


@pytest.mark.parametrize("device", ESTIMATED, ids=lambda device: device.name)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_no_prediction_is_above_a_chips_peaks(case: Case, device: Device) -> None:
    rates = dict(device.matrix_flops if case.dtype else device.peak_flops)
    bandwidth = max(device.memory(MemoryLevel.GLOBAL).bandwidth, device.read_bandwidth)
    tiles = tuple(case.tiles(device))
    for tile in tiles:
        assert tile.seconds >= case.flops / rates[case.dtype or "float32"]
    works = [tile.work for tile in tiles if tile.work is not None]
    assert len(works) == len(tiles)
    if works:
        assert seconds_of(works, device, ALONE).min() >= case.traffic / bandwidth


@pytest.mark.parametrize("family", sorted({case.name.partition(" ")[0] for case in CASES}))
def test_every_family_has_tiles_on_some_device(family: str) -> None:
    own = [case for case in CASES if case.name.partition(" ")[0] == family]
    assert all(any(case.seconds(device) for device in (H200, *ESTIMATED)) for case in own)


def twice_as_fast(device: Device) -> Device:
    """With everything at twice the clock, memory and launches too."""
    early = device.dependent_launches
    return replace(
        device,
        clock=2 * device.clock,
        memories=tuple(replace(m, bandwidth=2 * m.bandwidth) for m in device.memories),
        peak_flops=tuple((dtype, 2 * rate) for dtype, rate in device.peak_flops),
        matrix_flops=tuple((dtype, 2 * rate) for dtype, rate in device.matrix_flops),
        read_bandwidth=2 * device.read_bandwidth,
        l2_bandwidth=2 * device.l2_bandwidth,
        launch_latency=device.launch_latency / 2,
        stream_launch_latency=device.stream_launch_latency / 2,
        dependent_launches=early and replace(early, ahead_seconds=early.ahead_seconds / 2),
    )


@pytest.mark.parametrize("name", ["nvidia/h200", "nvidia/a100", "amd/mi300x"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_at_twice_the_clock_everything_takes_half_the_time(case: Case, name: str) -> None:
    device = find_device(name)
    slow, fast = case.seconds(device), case.seconds(twice_as_fast(device))
    assert fast == pytest.approx([seconds / 2 for seconds in slow], rel=1e-9)


def test_a_multiprocessor_of_64_lanes_takes_two_slots_an_instruction() -> None:
    assert arithmetic_slots(find_device("nvidia/a100")) == 2
    assert arithmetic_slots(find_device("nvidia/rtx4090")) == 1


def test_measured_times_are_the_h100s_and_the_h200s_alone() -> None:
    measured = {device.name for device in devices() if not device.is_estimated}
    assert measured == {"nvidia/h100", "nvidia/h200"}


@pytest.mark.parametrize("device", devices(), ids=lambda device: device.name)
def test_no_more_than_all_of_a_rate_is_reached(device: Device) -> None:
    shares = {name: own for name, own in numbers_of(device.times.chip).items() if "_share" in name}
    assert shares
    assert all(0 < share <= 1 for share in shares.values())


def test_warps_and_waves_reach_all_of_the_rate_where_there_are_no_warpgroups() -> None:
    for device in ESTIMATED:
        chip = device.times.chip
        if chip.group_unit is None:
            units = [unit for unit in (chip.warp_unit, chip.wave_unit) if unit is not None]
            used = chip.wave_unit if device.kernel_language == "rocm" else chip.warp_unit
            assert used in units
            assert used.rate_share == 1


@pytest.mark.parametrize(
    ("unit", "case"),
    [("group", "wgmma"), ("warp", "mma"), ("group", "chain"), ("warp", "halo"), ("warp", "coded"),
     ("group", "coded_warpgroup"), ("wave", "matrix_cores")],
)  # fmt: skip
def test_units_without_times_are_refused_by_name(unit: str, case: str) -> None:
    device = find_device("amd/mi300x") if unit == "wave" else H200
    chip = replace(device.times.chip, **{f"{unit}_unit": None})
    without = replace(device, times=replace(device.times, chip=chip))
    found = next(own for own in CASES if own.name.partition(" ")[0] == case)
    with pytest.raises(DeviceRecordError, match="must have the parameters of their time model"):
        found.seconds(without)


def test_flags_take_half_the_time_at_twice_the_clock() -> None:
    assert flag_seconds(twice_as_fast(H200)) == pytest.approx(flag_seconds(H200) / 2)


def test_a_warp_too_many_waits_for_its_scheduler() -> None:
    busy = Part(operations=2.0**20)
    whole, uneven = (
        Work(blocks=132, resident=1, warps=warps, parts=(busy,), read=0, written=0)
        for warps in (8, 9)
    )
    even = replace(uneven, blocks=4 * 132, resident=4)
    seconds = seconds_of([whole, uneven, even], H200)
    # Of nine warps one scheduler has three, of four times as many each has nine.
    assert seconds[1] > 1.1 * seconds[0]
    assert seconds[2] < 4 * 1.02 * seconds[0]
