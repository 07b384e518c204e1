"""What users see first: totals, the kernels that take most by their own names, and why."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import product

import pytest

import tvm_tile
from tvm_tile.errors import OptionError
from tvm_tile.report.compiled import KernelReport, Launches, Stage
from tvm_tile.report.limits import Bottleneck, Limits, bound_of, limits_of
from tvm_tile.report.persistent_report import LeftApart
from tvm_tile.report.screen.report_json import json_of
from tvm_tile.report.screen.short_names import folded, short, short_of_calls
from tvm_tile.report.screen.table import Table, lines_of
from tvm_tile.report.shown import Report
from tvm_tile.tile.weld.connect import Decision

H200 = tvm_tile.find_device("nvidia/h200")
NAMES = ("layer1.0.conv2", "layer1.0.bn2", "layer1.0.relu")
KERNEL = KernelReport(
    "fused_conv2d_relu_0f3a99c1", "conv2d relu", "contraction", 56, 128, "block 1x64", 10e-6, 3e6,
    "", calls=2, names=(NAMES, ("layer2.0.conv2",)), flops=1e9, arithmetic_seconds=8e-6,
)  # fmt: skip
FALLBACK = KernelReport("argmax_1", "argmax", "dlight", 0, 0, "", 0.0, 1e6, "no rule takes it")
LIMITS = Limits(4e12, False, 2e-6)


def crowded() -> Report:
    """A report of which there is more than a screen has room for."""
    name = "a/very/long/path" * 20
    kernels = [
        replace(KERNEL, name=f"k{n}", calls=n + 1, names=((f"{name}/{n}", name), (name,)))
        for n in range(300)
    ]
    fallbacks = [replace(FALLBACK, name=f"f{n}", fallback="why " * 99) for n in range(40)]
    joined = Decision(("up", "down"), (), 9e-6, 5e-6, "chain")
    return Report(
        "nvidia/h200",
        (*kernels, *fallbacks),
        ("a note that is long " * 20,) * 30,
        (Stage("fuse", 2.0), Stage("import", 1.0)),
        (joined,) * 50,
        left_apart=(LeftApart("faster alone", ("k1",), 9),),
        launches=Launches(2, 1, 60, 40, 1e-6),
        weights=12_000_000,
        limits=LIMITS,
    )


def test_names_that_begin_alike_are_told_shortly() -> None:
    assert short(NAMES, 60) == "layer1.0.conv2 + bn2 + relu"
    assert short(("/m/conv/Conv", "/m/act/Mul"), 60) == "/m/conv/Conv + act/Mul"
    assert short(("stem.conv", "head.fc"), 60) == "stem.conv + head.fc"
    assert short(("add", "add"), 60) == "add + add"
    assert short((), 60) == ""


def test_names_are_told_as_far_as_there_is_room() -> None:
    assert short(NAMES, 26) == "layer1.0.conv2 + 2 more"
    assert short(("a" * 30 + "b" * 30,), 10) == "aaaa…bbbbb"
    deep = tuple(f"model.encoder.layer.0.attention.self.{part}" for part in ("query", "key"))
    assert short(deep, 60) == "model.encoder.layer.0.attention.self.query + key"
    assert short(deep, 40) == "…0.attention.self.query + key"
    assert all(len(short(own, width)) <= width for own in (NAMES, deep) for width in range(1, 60))


def test_calls_whose_names_differ_in_numbers_are_told_as_one() -> None:
    calls = [(f"layers.{n}.up", f"layers.{n}.relu6") for n in range(16)]
    assert short_of_calls(calls, 60) == "layers.*.up + relu6"
    assert short_of_calls([*calls, ("head",)], 60) == "layers.*.up + relu6, head"
    assert (
        short_of_calls([*calls, ("normalization",), ("head",)], 34)
        == "layers.*.up + relu6, and 2 more"
    )
    assert short_of_calls([("fc1", "relu")], 60) == "fc1 + relu"
    assert short_of_calls([], 60) == ""
    assert folded([("stage1.0.conv1",), ("stage1.12.conv1",)]) == (("stage1.*.conv1",),)


def test_kernels_of_layers_that_are_alike_are_one_row() -> None:
    names = [f"layers.{n}.mlp.up" for n in range(16)]
    alike = [replace(KERNEL, name=f"k{n}", calls=1, names=((own,),)) for n, own in enumerate(names)]
    slower = replace(alike[0], name="slower", seconds=11e-6, names=(("layers.16.mlp.up",),))
    lines = Report("nvidia/h200", (*alike, slower), ()).render("summary").splitlines()
    start = next(n for n, line in enumerate(lines) if line.startswith("share"))
    assert [line.split()[-3:] for line in lines[start + 1 : start + 4]] == [
        ["16", "arithmetic", "layers.*.mlp.up"],
        ["1", "arithmetic", "layers.16.mlp.up"],
        [],
    ]


def test_a_kernel_is_bound_by_what_most_of_its_time_goes_to() -> None:
    assert bound_of(10, 6, 1, 2) is Bottleneck.MEMORY
    assert bound_of(10, 6, 9, 2) is Bottleneck.ARITHMETIC
    assert bound_of(3, 0, 0, 2) is Bottleneck.LAUNCH
    assert bound_of(100, 10, 10, 10) is Bottleneck.LATENCY


def test_what_fits_the_cache_is_limited_by_the_cache() -> None:
    assert limits_of(H200, H200.l2_capacity).bandwidth == H200.l2_bandwidth
    beyond = limits_of(H200, H200.l2_capacity + 1)
    assert not beyond.is_cached
    assert beyond.bandwidth < H200.l2_bandwidth


def test_a_screen_tells_totals_then_what_takes_most() -> None:
    report = Report(
        "nvidia/h200",
        (FALLBACK, KERNEL),
        ("a note",),
        limits=LIMITS,
        weights=5_000_000,
        planned=70_000,
    )
    lines = report.render("summary", timing=(25e-6, 1e-6)).splitlines()
    assert lines[:5] == [
        "nvidia/h200: a run takes at least 22.3 us predicted, 25.0 us measured (spread 1.0 us)",
        "  at best    16.0 us, were each kernel at the 4.00 TB/s of its memory or at the peak of "
        "its units",
        "  moves      7.00 MB to and from memory, computes 2 GFLOP",
        "  launches   3 kernels, one by one",
        "  keeps      5.00 MB of constants and 0.07 MB between kernels in the device's memory",
    ]
    assert lines[6:8] == [
        "share    time     calls  bound by    computes",
        "100.0 %  20.0 us  2      arithmetic  layer1.0.conv2 + bn2 + relu, layer2.0.conv2",
    ]
    assert lines[9:] == [
        "fell back to TVM's schedules: (argmax): no rule takes it",
        "note: a note",
        'more: detail="kernels", "joined", "apart", "memory" or "all"',
    ]


def test_however_much_there_is_to_tell_a_screen_is_one() -> None:
    for sort in ("time", "bytes", "name"):
        for width in (80, 100, 200):
            lines = crowded().parts("summary", sort=sort, timing=(1, 1), width=width)
            assert len(lines) <= 40
            assert max(map(len, lines)) <= width


def test_everything_is_told_in_some_detail() -> None:
    report = crowded()
    told = {name: report.render(name) for name in ("kernels", "joined", "apart", "memory")}
    assert "k299" in told["kernels"]
    assert "50 x up + down" in told["joined"]
    assert "faster alone" in told["apart"]
    assert "12.00 MB" in told["memory"]
    whole = report.render("all")
    assert all(line in whole for name in ("kernels", "joined") for line in told[name].splitlines())


def test_kernels_come_in_the_order_that_was_asked_for() -> None:
    small = replace(KERNEL, name="a", calls=1, traffic=9e9)
    report = Report("emulated", (KERNEL, small), ())
    for sort, first in (("time", KERNEL.name), ("bytes", "a"), ("name", "a")):
        assert first in report.render("kernels", sort=sort).splitlines()[1]


@pytest.mark.parametrize(("name", "value"), [*product(("detail", "sort"), ("", "kernel", None, 1))])
def test_what_there_is_not_is_refused_with_what_there_is(name: str, value: object) -> None:
    with pytest.raises(OptionError, match=f"{name} is one of"):
        crowded().render(**{name: value})


def test_other_programs_are_told_the_same() -> None:
    report = Report("nvidia/h200", (FALLBACK, KERNEL), ("a note",), limits=LIMITS)
    told = json.loads(json_of(report))
    assert (told["version"], told["is_bound"]) == (1, True)
    assert told["predicted_seconds"] == pytest.approx(22.25e-6)
    first, last = told["kernels"]
    assert first["computes"] == [list(NAMES), ["layer2.0.conv2"]]
    assert (first["bound"], first["seconds"]) == ("arithmetic", pytest.approx(20e-6))
    assert (last["bound"], last["seconds"]) == (None, None)
    assert last["fallback"] == "no rule takes it"


def test_columns_are_left_out_before_cells_are_too_short_to_be_read() -> None:
    rows = ("rule", "grid", "kernel", "computes"), ("mma", "16", "k" * 40, "c" * 60)
    table = Table(rows, indent=2, spare=("grid", "kernel"))
    for width, headings in ((None, rows[0]), (48, rows[0]), (47, ("rule", "kernel", "computes"))):
        heading, row = lines_of([table], width)
        assert tuple(heading.split()) == headings
        assert len(row) == (width or 2 + 4 + 4 + 40 + 60 + 6)
        assert row.startswith("  mma ")
    assert list(lines_of([table], 20)) == ["  rule  computes", "  mma   ccccc…cccccc"]
