"""What machine code takes, beside what was predicted, and how explain() tells it."""

from __future__ import annotations

from dataclasses import replace

from tvm_tile.device import find_device
from tvm_tile.report.compiled import KernelReport
from tvm_tile.report.machine_code import with_resources
from tvm_tile.report.resources import Resources
from tvm_tile.report.shown import Report

MI300X, RX7900XTX = find_device("amd/mi300x"), find_device("amd/rx7900xtx")
PRODUCT = KernelReport(
    "product", "matmul", "contraction", 16, 256, "tile", 1e-5, 1e6, "", registers=60,
    shared_bytes=8192,
)  # fmt: skip
TAKEN = Resources(64, 0, 8192, spilled=0, accumulation=16, scalar=24, warp=64, most_threads=256)


def resident(taken: Resources, device: object = MI300X, kernel: KernelReport = PRODUCT) -> int:
    (found,) = with_resources((kernel,), {kernel.name: (taken,)}, device)  # type: ignore[arg-type]
    assert found.resources == (taken,)
    return found.resident


def test_blocks_of_a_unit_are_what_registers_memory_and_threads_let_in() -> None:
    assert resident(TAKEN) == 8  # 8 waves of each SIMD by threads and by registers, LDS for 8
    assert resident(replace(TAKEN, registers=65)) == 7  # given by eights: 72
    assert resident(replace(TAKEN, shared=20000)) == 3
    assert resident(replace(TAKEN, shared=70000)) == 0
    # RDNA gives registers by 24, and has half as many threads.
    assert resident(TAKEN, RX7900XTX) == 4
    assert resident(replace(TAKEN, registers=97), RX7900XTX) == 3


def test_what_is_not_known_stays_unknown() -> None:
    assert with_resources((PRODUCT,), {}, MI300X) == (PRODUCT,)
    fallen = replace(PRODUCT, block=0)
    assert resident(TAKEN, kernel=fallen) == 0


def rendered(*kernels: KernelReport) -> list[str]:
    return Report("amd/mi300x", kernels, ()).render().splitlines()


def test_explain_has_a_line_for_each_kernel() -> None:
    (kernel,) = with_resources((PRODUCT,), {"product": (replace(TAKEN, spilled=3),)}, MI300X)
    lines = rendered(kernel)
    start = lines.index("machine code, of each kernel (predicted):")
    assert lines[start + 1].split() == [
        *("vgpr", "agpr", "sgpr", "lds", "spilled", "stack", "blocks", "a", "unit", "kernel")
    ]
    assert lines[start + 2].split() == [
        *("64", "(60)", "16", "24", "8192", "(8192)", "3", "0", "8", "product")
    ]


def test_predictions_are_for_the_main_kernel() -> None:
    adding = replace(TAKEN, registers=12, shared=0, accumulation=0, most_threads=64)
    for own in ((TAKEN, adding), (adding, TAKEN)):
        (kernel,) = with_resources((PRODUCT,), {"product": own}, MI300X)
        assert (kernel.main, kernel.resident) == (TAKEN, 8)
        lines = {line.split()[0]: line.split() for line in rendered(kernel)}
        assert lines["64"][1] == "(60)"
        assert lines["12"] == ["12", "0", "24", "0", "0", "0", "-", "product"]


def test_explain_says_nothing_where_the_code_does_not() -> None:
    cubin = Resources(64, 0, 8192)
    (kernel,) = with_resources((PRODUCT,), {"product": (cubin,)}, find_device("nvidia/h200"))
    assert not [line for line in rendered(PRODUCT, kernel) if "machine code" in line]


def test_a_report_comes_back_from_json() -> None:
    (kernel,) = with_resources((PRODUCT,), {"product": (TAKEN, TAKEN)}, MI300X)
    report = Report("amd/mi300x", (kernel,), ())
    assert Report.from_json(report.to_json()) == report
