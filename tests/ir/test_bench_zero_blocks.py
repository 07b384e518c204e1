"""The measurement of blocks of zeros, as far as it goes without a GPU."""

from __future__ import annotations

import pytest

from bench.zero_blocks import main


def test_it_compiles_what_it_measures(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--self-test"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert ["of the chunks" in line for line in lines] == [False, True, True, True, False]
    assert ["2:4 of the rows" in line for line in lines] == [False, False, False, False, True]
