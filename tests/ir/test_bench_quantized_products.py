"""The benchmark of products of codes, as far as that goes without a GPU."""

from __future__ import annotations

import pytest

from bench.quantized_products import main


def test_all_its_products_build_and_those_of_integers_are_right(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["--self-test"]) == 0
    lines = capsys.readouterr().out.splitlines()
    scaled = [line for line in lines if line.startswith(("int8", "fp8"))]
    assert len(scaled) == 3
    assert all("wgmma" in line for line in scaled)
