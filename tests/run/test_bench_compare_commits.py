"""Two commits of a repository, compiled and timed in processes of their own."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from bench.compare.changes import Kind, compare_all
from bench.compare.collect import Collection
from bench.compare.process import NotStarted, Worker
from bench.compare.record import Compiled, key_of
from bench.compare.timing import Pairs
from bench.compare.trees import ROOT, Tree, committed, working
from bench.workload import Workload
from tests.fake_bench import workloads

pytest.importorskip("torch")
SUMS = workloads()
BROKEN = Workload("tests.fake_bench", "broken", "elementwise", "float32", None, (("size", 8),))
LIMIT_S = 300.0


@pytest.fixture(scope="module")
def trees(tmp_path_factory: pytest.TempPathFactory) -> tuple[Tree, Tree]:
    """The package committed as it is, and beside it one whose GPU starts kernels more slowly."""
    root = tmp_path_factory.mktemp("repository")
    shutil.copytree(
        ROOT / "tvm_tile", root / "tvm_tile", ignore=shutil.ignore_patterns("__pycache__")
    )
    for command in (("init", "-q"), ("add", "."), ("commit", "-q", "-m", "first")):
        author = ("-c", "user.name=a", "-c", "user.email=a@b")
        subprocess.run(("git", "-C", str(root), *author, *command), check=True)
    record = root / "tvm_tile" / "device" / "records" / "nvidia_h200.json"
    facts = json.loads(record.read_text())
    facts["device"]["launch_latency"] *= 10
    record.write_text(json.dumps(facts))
    return committed("HEAD", root), working(root)


@pytest.mark.whole
def test_a_slower_start_is_another_prediction_of_the_same_text(
    trees: tuple[Tree, Tree], tmp_path: Path
) -> None:
    collection = Collection((*SUMS, BROKEN), "nvidia/h200", False, 1, LIMIT_S, tmp_path, "")
    said: list[str] = []
    before, after = (collection.collect(tree, said.append) for tree in trees)
    assert [record.status for record in before.values()][:2] == ["ok", "ok"]
    # The sums differ in the number of blocks, which is no part of a kernel's text.
    assert len(list(collection.texts.iterdir())) == 1
    kinds = {change.kind for change in compare_all(before, after)}
    assert Kind.PREDICTED in kinds
    assert kinds <= {Kind.PREDICTED, Kind.PREDICTED_RUN}
    # What crashes is told, and not kept.
    assert before[key_of(BROKEN)].status.startswith("crashed")
    said.clear()
    again = collection.collect(trees[0], said.append)
    assert said[0].endswith(": 1 workloads to compile")
    assert again == before


@pytest.mark.whole
def test_both_are_timed_in_turns(trees: tuple[Tree, Tree], tmp_path: Path) -> None:
    folders = (tmp_path / "before", tmp_path / "after")
    for tree, folder in zip(trees, folders, strict=True):
        tree.extract(folder)
    said: list[str] = []
    pairs = Pairs(folders, "emulated", tmp_path / "log", LIMIT_S, 1, said.append)
    right, broken = pairs.times((SUMS[0], BROKEN))
    assert right.reason == ""
    assert right.before is not None
    assert right.after is not None
    assert len(right.before.samples) == len(right.after.samples) >= 15
    assert broken.reason.startswith("crashed")
    assert len(said) == 2


def test_without_a_gpu_nothing_is_timed_for_one(trees: tuple[Tree, Tree], tmp_path: Path) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("a GPU is here")
    trees[0].extract(tmp_path)
    pairs = Pairs((tmp_path, tmp_path), "nvidia/h200", tmp_path / "log", LIMIT_S, 1, print)
    (found,) = pairs.times(SUMS[:1])
    assert found.reason == "before: times are taken on a GPU, and none is here"


def test_a_package_that_cannot_be_imported_ends_the_comparison(tmp_path: Path) -> None:
    (tmp_path / "tvm_tile").mkdir()
    (tmp_path / "tvm_tile" / "__init__.py").write_text("raise ImportError")
    with pytest.raises(NotStarted, match="cannot be imported: crashed"):
        Worker(tmp_path, tmp_path / "log", LIMIT_S)
    assert "ImportError" in (tmp_path / "log").read_text()


def test_records_tell_workloads_apart() -> None:
    assert len({key_of(own) for own in (*SUMS, BROKEN)}) == 3
    assert Compiled.failed(BROKEN, "why\nnot").status == "why not"
