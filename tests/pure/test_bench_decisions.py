"""The texts of decisions, on records made by hand."""

from __future__ import annotations

from dataclasses import replace

from bench.compare.record import Compiled, Kernel
from bench.decisions import text

SUM = Kernel("add_0f3a99c1", "add", "elementwise", "block 64", 8, 64, 2, 0.1 + 0.2, "", ("c3",))
JOINED = replace(SUM, name="x", operators="gates_49da4f3e gates1_17656dd3 mul", calls=1)
COMPILED = Compiled(
    "shallow", "two", "float32", 1, "ok", 1.0, predicted_s=1e-5, kernels=(SUM, JOINED), host="h1"
)
TEXT = """\
1 of gates gates1 mul | elementwise | block 64 | 8 x 64 | 0.30000000000000004 s
2 of add | elementwise | block 64 | 8 x 64 | 0.30000000000000004 s
shallow two float32 batch 1: ok, 1e-05 s
"""


def test_a_text_has_all_digits_and_no_hash() -> None:
    assert text(COMPILED) == TEXT


def test_a_text_depends_on_no_order_and_no_duration() -> None:
    other = replace(COMPILED, kernels=(JOINED, SUM), seconds=2.0, host="h2")
    assert text(other) == TEXT


def test_a_fallback_is_told() -> None:
    refused = replace(SUM, fallback="no rule takes it")
    assert " s | no rule takes it\n" in text(replace(COMPILED, kernels=(refused,)))
