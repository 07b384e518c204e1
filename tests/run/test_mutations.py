"""A fixed few of the damaged and forged files of ``python -m bench.mutations``."""

from __future__ import annotations

import pytest

from bench.mutations.judge import CACHE, FILES, Judge

pytestmark = pytest.mark.bank(4)


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Judge:
    return Judge(tmp_path_factory.mktemp("mutations"))


@pytest.mark.parametrize("kind", FILES)
def test_saved_models(judge: Judge, kind: str) -> None:
    outcomes = {judge(kind, seed).partition(":")[0] for seed in range(40)}
    assert "refused" in outcomes
    assert outcomes <= {"refused", "right" if FILES[kind].runs else "harmless"}


def test_cache_entries(judge: Judge) -> None:
    assert {judge(CACHE, seed) for seed in range(10)} == {"right"}
