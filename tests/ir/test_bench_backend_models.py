"""The table of architectures behind torch.compile, and surveys that go on where they stopped."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest

from bench.backend_models.check import Verdict, make_worker
from bench.backend_models.report import page
from bench.survey import Survey, add_arguments

RIGHT = Verdict("timm/a", "right", "", 1e-7, 1, 1, 97, (), 1.0, "0")
IN_PART = replace(
    RIGHT, architecture="timm/b", compiled=1, eager=("2 x aten.i: no converter", "1 x aten.j: why")
)


def revived(line: dict[str, object]) -> Verdict:
    return Verdict(**{**line, "eager": tuple(line["eager"])})


def died(key: str, why: str, seconds: float) -> Verdict:
    return replace(RIGHT, architecture=key, status="died", detail=why)


def begin() -> Callable[[str], Verdict]:
    def work(job: str) -> Verdict:
        if job == "timm/dies":
            os._exit(3)
        return replace(RIGHT, architecture=job, seconds=2.0)

    return work


def test_the_page_counts_operators() -> None:
    text = page({one.key: one for one in (RIGHT, IN_PART)})
    assert "| 2 | 2 | 0 | 0 | 98 | 3 | 97.03 % | 1 |" in text
    assert "| aten.i: no converter | timm/b | 2 |" in text


def test_a_survey_does_what_is_left_and_outlives_a_process(tmp_path: Path) -> None:
    parser = argparse.ArgumentParser()
    add_arguments(parser, tmp_path / "found.jsonl")
    survey = Survey(revived, str, died, good=frozenset({"right"}))
    keys = ["timm/a", "timm/dies"]
    survey.run(begin, keys, parser.parse_args(["--workers", "1"]))
    found = survey.read(tmp_path / "found.jsonl")
    assert found["timm/a"].seconds == 2.0
    assert found["timm/dies"].status == "died"
    assert "code 3" in found["timm/dies"].detail
    survey.run(begin, [*keys, "timm/c"], parser.parse_args(["--workers", "1"]))
    assert list(survey.read(tmp_path / "found.jsonl")) == ["timm/a", "timm/c", "timm/dies"]


@pytest.mark.whole
@pytest.mark.filterwarnings("ignore")  # other people's deprecations
@pytest.mark.skipif(not find_spec("pyopencl"), reason="needs pyopencl")
def test_an_architecture_is_right_and_whole() -> None:
    verdict = make_worker("0")("transformers/vit_msn")
    assert verdict.status == "right"
    assert verdict.compiled > 20
    assert verdict.eager == ()
