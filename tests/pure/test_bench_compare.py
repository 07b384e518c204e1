"""What counts as a difference between two commits, on records made by hand."""

from __future__ import annotations

import math
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from bench.compare.changes import (
    Kind,
    compare,
    compare_all,
    compare_times,
    geometric_mean,
    is_changed,
    pair,
    predicted_ratio,
)
from bench.compare.command import to_time
from bench.compare.record import Compiled, Kernel, append, plain_name, read
from bench.compare.report import differences, page
from bench.compare.timing import Timed
from bench.compare.trees import NoSuchCommit, committed, working
from bench.protocol import Times
from bench.workload import Workload

MATMUL = Kernel(
    "matmul_0f3a99c1", "matmul", "mma", "block 32 by 32", 4, 128, 1, 1e-5, "", ("a1", "b2")
)
RELU = Kernel("relu_77b0d2e4", "relu", "elementwise", "block 64", 8, 64, 2, 2e-6, "", ("c3",))
BEFORE = Compiled(
    "gemm", "V0", "float16", None, "ok", 1.0, 1.4e-5, kernels=(MATMUL, RELU), host="h1"
)


def kinds(after: Compiled, before: Compiled = BEFORE) -> list[Kind]:
    return [change.kind for change in compare(before, after)]


def with_matmul(**facts: object) -> Compiled:
    return replace(BEFORE, kernels=(replace(MATMUL, **facts), RELU))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("before", "after", "changed"),
    [
        (1.0, 1.0, False),
        (1.0, 1.02, False),
        (1.02, 1.0, False),
        (1.0, 1.0201, True),
        (1.0201, 1.0, True),
        (1.0, 0.981, False),
        (1.0, 0.98, True),  # it was 2.04 % more
        (0.0, 0.0, False),
        (0.0, 1e-9, True),
        (1.0, math.nan, True),
        (math.inf, math.inf, False),
    ],
)
def test_times_differ_by_more_than_two_percent_of_the_smaller(
    before: float, after: float, changed: bool
) -> None:
    assert is_changed(before, after) == changed


def test_the_same_twice() -> None:
    # What compiling took is no difference.
    assert kinds(replace(BEFORE, seconds=9.0)) == []


@pytest.mark.parametrize(
    ("facts", "kind"),
    [
        ({"rule": "wgmma"}, Kind.RULE),
        ({"tile": "block 64 by 32"}, Kind.TILE),
        ({"grid": 2}, Kind.TILE),
        ({"block": 256}, Kind.TILE),
        ({"fallback": "no rule takes it"}, Kind.FALLBACK),
        ({"calls": 2}, Kind.CALLS),
        ({"texts": ("a1", "b3")}, Kind.TEXT),
        ({"texts": ("a1",)}, Kind.TEXT),
        ({"seconds": 1.03e-5}, Kind.PREDICTED),
    ],
)
def test_one_difference_of_a_kernel(facts: dict[str, object], kind: Kind) -> None:
    (change,) = compare(BEFORE, with_matmul(**facts))
    assert (change.kind, change.kernel, change.title) == (kind, MATMUL.name, "gemm V0 float16")


def test_a_prediction_that_differs_little_is_none() -> None:
    assert kinds(with_matmul(seconds=1.02e-5)) == []


def test_of_texts_those_that_differ_are_told() -> None:
    (change,) = compare(BEFORE, with_matmul(texts=("a1", "b3", "d4")))
    assert change.texts == (("b2", "b3"), ("", "d4"))


def test_kernels_that_came_and_went() -> None:
    other = replace(RELU, name="tanh_11111111")
    assert kinds(replace(BEFORE, kernels=(MATMUL, other))) == [Kind.CAME, Kind.WENT]


def test_a_kernel_of_a_function_that_is_written_otherwise_is_the_same_kernel() -> None:
    (change,) = compare(BEFORE, with_matmul(name="matmul_22222222"))
    assert (change.kind, change.before, change.after) == (
        Kind.FUNCTION,
        "matmul_0f3a99c1",
        "matmul_22222222",
    )


def test_kernels_are_paired_by_name_first() -> None:
    one, two, three = (replace(MATMUL, name=f"matmul_{n}{n}{n}{n}0000") for n in (1, 2, 3))
    assert pair((one, two), (two, three)) == ((two, two), (one, three))
    assert pair((one,), (one, two)) == ((one, one), (None, two))
    assert pair((one, two), (two,)) == ((two, two), (one, None))


def test_names_without_hashes() -> None:
    assert plain_name("matmul_0f3a99c1") == "matmul"
    assert plain_name("fused_matmul1_add_2_0f3a99c1") == "fused_matmul1_add"
    assert plain_name("coscheduled_b1f4901fbb30edf5") == "coscheduled"
    assert plain_name("zero_2_counters") == "zero_2_counters"


def test_host_code_counts_where_the_kernels_are_the_same() -> None:
    assert kinds(replace(BEFORE, host="h2")) == [Kind.HOST]
    assert kinds(replace(with_matmul(texts=("a1", "b3")), host="h2")) == [Kind.TEXT]
    # A prediction is not in the code.
    predicted = replace(with_matmul(seconds=2e-5), host="h2")
    assert kinds(predicted) == [Kind.PREDICTED, Kind.HOST]


def test_the_time_of_a_run() -> None:
    (change,) = compare(BEFORE, replace(BEFORE, predicted_s=2.8e-5))
    assert (change.kind, change.kernel, change.ratio) == (Kind.PREDICTED_RUN, "", 2.0)


def test_what_does_not_compile_is_compared_by_its_reason() -> None:
    failed = replace(BEFORE, status="BuildError: no", kernels=(), host="")
    assert kinds(failed) == [Kind.STATUS]
    assert kinds(BEFORE, failed) == [Kind.STATUS]
    assert kinds(failed, failed) == []
    assert predicted_ratio(BEFORE, failed) is None


def test_only_workloads_of_both_are_compared() -> None:
    other = replace(BEFORE, workload="V1")
    found = compare_all({BEFORE.key: BEFORE}, {other.key: other})
    assert found == ()


def test_measured_times() -> None:
    assert compare_times(BEFORE, 1.0, 1.01) == ()
    (change,) = compare_times(BEFORE, 1.0, 0.5)
    assert (change.kind, change.ratio) == (Kind.MEASURED, 0.5)


def test_what_is_timed() -> None:
    first, second = (Workload("gemm", name, "matmul", "float16", None, ()) for name in ("V0", "V1"))
    text = compare(BEFORE, with_matmul(texts=("a1", "b3")))
    prediction = compare(BEFORE, with_matmul(seconds=2e-5))
    assert to_time("changed", (first, second), text) == [first]
    assert to_time("changed", (first, second), prediction) == []
    assert to_time("all", (first, second), ()) == [first, second]
    assert to_time(None, (first, second), text) == []


def test_ratios() -> None:
    assert geometric_mean([]) is None
    assert geometric_mean([2.0, 0.5]) == pytest.approx(1.0)
    assert predicted_ratio(BEFORE, replace(BEFORE, predicted_s=2.8e-5)) == pytest.approx(2.0)
    assert predicted_ratio(BEFORE, with_matmul(fallback="no rule takes it")) is None


def test_the_page() -> None:
    after = replace(with_matmul(seconds=2e-5, texts=("a1", "b3")), predicted_s=2.8e-5)
    before, both = {BEFORE.key: BEFORE}, {after.key: after}
    workload = Workload("gemm", "V0", "matmul", "float16", None, ())
    timed = (
        Timed(workload, Times((1e-3,)), Times((5e-4,))),
        Timed(workload, None, None, "after: wrong"),
    )
    lines = list(page(before, both, compare_all(before, both), timed))
    assert lines[:3] == [
        "gemm: 1 workloads, 2 kernels; 1 workloads are other code, 1 kernels have other texts, "
        "1 other predictions",
        "  predicted times of a run: 2.0000 of before, geometric mean of 1",
        "  measured times of a run: 0.5000 of before, geometric mean of 1",
    ]
    assert "  gemm V0 float16: matmul_0f3a99c1: 10.00 us -> 20.00 us (2.000)" in lines
    assert "  gemm V0 float16: after: wrong" in lines


def test_each_pair_of_texts_is_shown_once(tmp_path: Path) -> None:
    for name, text in (("b2", "same\nold\n"), ("b3", "same\nnew\n")):
        (tmp_path / f"{name}.txt").write_text(text)
    after = with_matmul(texts=("a1", "b3"))
    changes = (*compare(BEFORE, after), *compare(BEFORE, replace(after, dtype="bfloat16")))
    assert list(differences(changes, tmp_path)) == [
        "# gemm V0 float16: matmul_0f3a99c1",
        "# gemm V0 bfloat16: matmul_0f3a99c1",
        "--- b2",
        "+++ b3",
        "@@ -1,2 +1,2 @@",
        " same",
        "-old",
        "+new",
    ]


def test_records_are_read_as_written_the_last_of_each(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "file.jsonl"
    append(path, replace(BEFORE, seconds=5.0))
    append(path, BEFORE)
    assert read(path) == {BEFORE.key: BEFORE}


def test_the_package_at_a_commit_and_as_it_lies_there(tmp_path: Path) -> None:
    def git(*arguments: str) -> None:
        author = ("-c", "user.name=a", "-c", "user.email=a@b")
        subprocess.run(("git", "-C", str(tmp_path), *author, *arguments), check=True)

    module = tmp_path / "tvm_tile" / "module.py"
    module.parent.mkdir()
    module.write_text("one")
    git("init", "--quiet")
    git("add", ".")
    git("commit", "--quiet", "-m", "first")
    first = committed("HEAD", tmp_path)
    assert working(tmp_path).digest == first.digest
    module.write_text("two")
    (module.parent / "new.py").write_text("new")
    second = working(tmp_path)
    assert second.digest != first.digest
    for number, (tree, texts) in enumerate(((first, {"one"}), (second, {"two", "new"}))):
        folder = tmp_path / f"extracted{number}"
        tree.extract(folder)
        assert {path.read_text() for path in (folder / "tvm_tile").iterdir()} == texts
    with pytest.raises(NoSuchCommit):
        committed("no such commit", tmp_path)
