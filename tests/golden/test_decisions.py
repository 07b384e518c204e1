"""What is decided of three networks for an H200, beside what was: the texts of `bench decisions`.

After a wanted change: ``pytest tests/golden --update-golden``, then read ``git diff``; all twelve
networks, for more devices, are ``python -m bench decisions --update``.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.compare.process import Worker
from bench.compare.record import key_of
from bench.compare.requests import Describe
from bench.compare.trees import ROOT
from bench.decisions import DEVICES, FOLDER, file_name, text
from bench.suites.shallow import workloads

pytest.importorskip("torch")
WORKLOADS = {workload.name: workload for workload in workloads()}
LIMIT_S = 300.0


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    """A process of its own, as it makes no machine code from then on."""
    found = Worker(ROOT, tmp_path_factory.mktemp("log") / "log", LIMIT_S)
    yield found
    found.end()


# Attention and its norms; convolutions, also depthwise; steps of a recurrent network.
@pytest.mark.parametrize("name", ["conformer", "shufflenet_v2", "lstm"])
def test_decisions(
    name: str, worker: Worker, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    device = "nvidia/h200"
    found = worker.ask(Describe(WORKLOADS[name], device, tmp_path, machine_code=False))
    path = FOLDER / file_name(found.key, device)
    if request.config.getoption("--update-golden"):
        path.write_text(text(found), encoding="utf-8")
    assert text(found) == path.read_text(encoding="utf-8"), "if wanted: pytest --update-golden"


def test_every_text_has_a_network() -> None:
    kept = {path.relative_to(FOLDER) for path in FOLDER.rglob("*.*")}
    keys = [key_of(workload) for workload in WORKLOADS.values()]
    assert kept == {Path(file_name(key, device)) for key in keys for device in DEVICES}
