"""Records and page of what models become for GPUs that are not here."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from bench.code.record import FILE, Code, KernelCode, read, store
from bench.report import main as write_report
from bench.report.code import page

KERNEL = KernelCode(
    name="fused_matmul_add", operators="matmul T_add", rule="matrix_cores", calls=3, block=128,
    resident=4, fallback="", on_matrix_units=True, predicted_registers=64, predicted_shared=8192,
    registers=72, register_unit=8, accumulation=0, scalar=20, shared=8192, spilled=0, stack=0,
    warp=64,
)  # fmt: skip
OTHER = replace(
    KERNEL, name="take", operators="T_take", rule="dlight", calls=1, block=0, resident=0,
    fallback="no rule takes it", on_matrix_units=False, predicted_registers=None, registers=16,
    predicted_shared=0, shared=64,
)  # fmt: skip
SLOW = replace(KERNEL, name="slow", rule="contraction", on_matrix_units=False, calls=1)
RECORD = Code(
    "models", "bert", "float16", 1, "amd/mi300x", "ok", 7.5, 2.0, (KERNEL, OTHER, SLOW), "zig",
    "abc", "python -m bench code", "2026-11-22",
)  # fmt: skip


def test_predictions_are_close_within_a_fifth() -> None:
    assert KERNEL.registers_are_close
    assert not replace(KERNEL, predicted_registers=56).registers_are_close
    assert not OTHER.registers_are_close
    few = replace(KERNEL, predicted_registers=4, registers=7)
    assert few.registers_are_close
    assert not few.registers_are_within
    assert not replace(few, registers=9).registers_are_close
    assert KERNEL.shared_is_close
    assert not OTHER.shared_is_close
    assert replace(OTHER, shared=0).shared_is_close


def test_waves_are_those_of_all_blocks() -> None:
    assert (KERNEL.waves, replace(KERNEL, block=96).waves, OTHER.waves) == (8, 8, 0)


def test_products_are_told_by_their_operators() -> None:
    assert KERNEL.is_product
    assert replace(KERNEL, operators="PadInput conv2d_nhwc compute").is_product
    assert not OTHER.is_product


def test_records_are_kept_by_place_and_device(tmp_path: Path) -> None:
    file = tmp_path / FILE
    assert read(file) == {}
    other = replace(RECORD, device="amd/rx9070xt", status="BuildError: no", kernels=())
    for record in (replace(RECORD, seconds=99.0), other, RECORD):
        store(file, record)
    assert read(file) == {RECORD.key: RECORD, other.key: other}


def test_the_page_has_what_was_built_and_what_was_not(tmp_path: Path) -> None:
    failed = replace(RECORD, device="amd/rx9070xt", status="BuildError: no", kernels=())
    text = page([RECORD, failed])
    rows = text.splitlines()
    row = next(row for row in rows if row.startswith("| bert | float16 | amd/mi300x |"))
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    # Three of four launches of products on matrix units; one of three kernels fell back.
    assert cells[3:8] == ["1", "3", "33 %", "5", "75 %"]
    assert cells[11:15] == ["0", "0", "67 %", "67 %"]
    assert "| bert | float16 | amd/mi300x | T_take | no rule takes it |" in text
    assert "| bert | float16 | amd/rx9070xt | BuildError: no |" in text


def test_the_report_writes_the_page(tmp_path: Path) -> None:
    store(tmp_path / FILE, RECORD)
    assert tmp_path / "code.md" in write_report(tmp_path)
