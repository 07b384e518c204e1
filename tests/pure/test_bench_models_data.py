"""The model suites' workloads are those of their sources; nothing is built."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter

import pytest

from bench.suites import control_flow, models, rnn
from bench.suites.model_suite import numbers
from bench.workload import Workload

# name -> batch sizes, as the papers measured them.
EXPECTED = {
    models: dict.fromkeys(
        (
            *("mobilenet_v2", "bert_base", "vit_small", "swin_tiny", "conformer", "mobilevit_s"),
            *("nafnet", "resnet50", "shufflenet_v2"),
        ),
        (1, 64),
    )
    | dict.fromkeys(("bsrn", "restormer", "nerf"), (1,)),
    rnn: dict.fromkeys(("resnext29", "lstm"), (1, 4, 16, 64))
    | dict.fromkeys(("nasnet", "nasnet_imagenet", "inception_v3"), (1,))
    | dict.fromkeys(("deepspeech2", "seq2seq"), (1,))
    | {"alexnet": (1, 64)},
    control_flow: dict.fromkeys(("lstm", "nasrnn", "attention", "seq2seq", "blockdrop"), (1, 64))
    | dict.fromkeys(("skipnet", "rae"), (1,)),
}
DTYPES = {models: ("float32", "float16"), rnn: ("float32",), control_flow: ("float32",)}
SUITES = pytest.mark.parametrize("suite", EXPECTED, ids=lambda suite: suite.__name__[13:])


@SUITES
def test_workloads_are_the_papers(suite: object) -> None:
    found = {(w.name, w.dtype, w.batch) for w in suite.workloads()}
    expected = {
        (name, dtype, batch)
        for name, batches in EXPECTED[suite].items()
        for dtype in DTYPES[suite]
        for batch in batches
    }
    assert found == expected


@SUITES
def test_workloads_are_unique_and_name_their_suite(suite: object) -> None:
    workloads = suite.workloads()
    counts = Counter(str(workload) for workload in workloads)
    assert set(counts.values()) == {1}
    assert {f"bench.suites.{w.suite}" for w in workloads} == {suite.__name__}
    assert all(list(w.sizes) == sorted(w.sizes) for w in workloads)


@SUITES
def test_source_names_repository_and_paper(suite: object) -> None:
    assert "nnfusion" in suite.SOURCE or "nox-410/Welder" in suite.SOURCE
    assert "OSDI" in suite.SOURCE


def sizes(suite: object, name: str) -> Workload:
    return next(workload for workload in suite.workloads() if workload.name == name)


def test_sizes_of_the_recurrent_networks() -> None:
    lstm, deep_speech, seq2seq = (sizes(rnn, n) for n in ("lstm", "deepspeech2", "seq2seq"))
    assert (lstm.size("layers"), lstm.size("steps"), lstm.size("hidden")) == (10, 100, 256)
    assert (deep_speech.size("layers"), deep_speech.size("frames")) == (7, 300)
    assert (seq2seq.size("encoder_layers"), seq2seq.size("decoder_layers")) == (8, 4)
    assert sizes(control_flow, "lstm").size("steps") == 64
    assert sizes(control_flow, "nasrnn").size("steps") == 1000


def test_lists_among_sizes() -> None:
    assert numbers(sizes(models, "restormer").size("blocks")) == (4, 6, 6, 8)
    assert sum(numbers(sizes(control_flow, "skipnet").size("blocks"))) == 33


def test_listing_workloads_imports_no_library() -> None:
    program = (
        "import sys\n"
        "from bench.suites import control_flow, models, rnn\n"
        "[suite.workloads() for suite in (control_flow, models, rnn)]\n"
        "assert not {'torch', 'tvm', 'jax', 'timm', 'transformers'} & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
