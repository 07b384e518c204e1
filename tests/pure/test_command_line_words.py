"""Words of the command line: what is suggested, sizes, tables and exit statuses."""

from __future__ import annotations

import argparse
import re

import pytest

from tvm_tile import errors
from tvm_tile.cli.cache import size
from tvm_tile.cli.capabilities import Capability
from tvm_tile.cli.doctor import rows_of
from tvm_tile.cli.output import print_table
from tvm_tile.cli.parser import build_parser
from tvm_tile.cli.status import ExitStatus, status_of
from tvm_tile.errors.closest import closest, did_you_mean


def test_the_closest_name_is_meant_in_any_case() -> None:
    assert closest("Image", ["tokens", "images"]) == "images"
    assert closest("weights", ["tokens", "images"]) is None
    assert did_you_mean("imges", ["images"], "say so") == "did you mean images? Otherwise say so"
    assert did_you_mean("x", [], "say so") == "say so"


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["complie", "m.onnx"], "compile"),
        (["completion", "bsh"], "bash"),
        (["cache", "cler"], "clear"),
    ],
)
def test_a_misspelt_word_is_refused_with_the_one_that_is_like_it(
    words: list[str], meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit_:
        build_parser().parse_args(words)
    assert exit_.value.code == ExitStatus.USAGE
    assert capsys.readouterr().err.endswith(f"did you mean {meant}?\n")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0),
        ("4096", 4096),
        ("500M", 500_000_000),
        ("1g", 10**9),
        ("1GB", 10**9),
        ("1GiB", 2**30),
        ("1.5Ki", 1536),
        ("2T", 2 * 10**12),
    ],
)
def test_sizes_have_units(text: str, expected: int) -> None:
    assert size(text) == expected


@pytest.mark.parametrize("text", ["", "G", "-1", "1iB", "1X", "1 G", "1e9", "nan"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=re.escape(repr(text))):
        size(text)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (errors.VerificationError, 1),
        (errors.ModelFileError, 2),
        (errors.DynamicShapeError, 2),
        (errors.OptionError, 2),
        (errors.UnknownDeviceError, 2),
        (errors.SavedModelError, 2),
        (errors.UnsupportedOperatorError, 3),
        (errors.BuildError, 3),
        (errors.BoundError, 3),
        (errors.CompilerNotFoundError, 4),
        (errors.DeviceAbsentError, 4),
        (errors.DeviceMemoryError, 4),
        (errors.InstallationError, 4),
    ],
)
def test_the_exit_status_tells_whose_fault_it_is(
    error: type[errors.TileError], status: int
) -> None:
    assert status_of(error("a", "b", "c")) == status


def test_every_error_of_ours_has_a_status_and_others_are_faults() -> None:
    for kind in errors.ALL_ERRORS:
        assert status_of(kind("a", "b", "c")) not in (ExitStatus.RIGHT, ExitStatus.FAULT)
    assert status_of(KeyError("x")) is ExitStatus.FAULT
    assert status_of(PermissionError("x")) is ExitStatus.USAGE


def test_a_remedy_is_below_what_it_is_for(capsys: pytest.CaptureFixture[str]) -> None:
    found = [Capability("one", True, "there"), Capability("other", False, "gone", "get it")]
    print_table(list(rows_of(found)), names=3)
    assert capsys.readouterr().out.splitlines() == [
        "ok  one    there",
        "--  other  gone",
        "           remedy: get it",
    ]
