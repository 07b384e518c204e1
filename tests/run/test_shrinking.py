"""A failing graph becomes a small one that fails in the same way."""

from __future__ import annotations

from bench.fuzz.graph import Call, Graph, Tensor
from bench.fuzz.judge import Settings, Verdict
from bench.fuzz.record import Finding, Tally, page, reproducer, signature
from bench.fuzz.shrink import shrink

GRAPH = Graph(
    "torch",
    "float32",
    (Tensor("x0", (6, 34), order=(1, 0)), Tensor("c1", (34, 12)), Tensor("x2", (12,))),
    (
        Call("F.relu(x0)", ("v0",)),
        Call("v0 @ c1", ("v1",)),
        Call("torch.split(v1, [5, 7], 1)", ("v2", "v3")),
        Call("torch.cumsum(v3, -1)", ("v4",)),
        Call("v4.abs() + 1", ("v5",)),
        Call("torch.sigmoid(x2)", ("v6",)),
    ),
    ("v5", "v6", "v2"),
)
SETTINGS = Settings("emulated", weld=False, coschedule=False)
WRONG = Verdict("wrong", "kernels: rules row", "output 0")


def judge(graph: Graph, settings: Settings) -> Verdict:
    """A device on which a cumulative sum is wrong unless kernels are welded."""
    has_sum = any(call.operator == "torch.cumsum" for call in graph.calls)
    return WRONG if has_sum and not settings.weld else Verdict("right")


def test_what_is_not_needed_goes() -> None:
    graph, settings, verdict = shrink(GRAPH, SETTINGS, WRONG, judge, limit_s=60)
    assert list(graph.lines()) == ["v4 = torch.cumsum(x93, -1)"]
    assert [tensor.shape for tensor in graph.tensors] == [(1, 1)]
    assert graph.outputs == ("v4",)
    assert settings == Settings("emulated", weld=False)
    assert verdict == WRONG
    assert signature(graph, settings, verdict) == "emulated wrong kernels: torch.cumsum"


def test_results_are_kept_as_they_are() -> None:
    finding = Finding("emulated wrong kernels: torch.cumsum", (5,), "abc", GRAPH, SETTINGS, WRONG)
    assert Finding.from_data(finding.to_data()) == finding
    tally = Tally("emulated", "torch", "abc").with_verdict(WRONG, 2.0)
    tally = tally.with_verdict(Verdict("refused", "UnsupportedOperatorError: erfc"), 1.0)
    text = page([tally], [finding])
    assert "| emulated | torch | abc | 2 | 0 | 0 | 1 | 1 | 0 | 0 | 0 | 1.5 |" in text
    assert "| 1 | UnsupportedOperatorError: erfc |" in text
    assert "v2, v3 = torch.split(v1, [5, 7], 1)" in text


def test_a_reproducer_runs() -> None:
    names: dict[str, object] = {}
    lines = ["import torch", "import torch.nn.functional as F", *reproducer(GRAPH)]
    exec("\n".join([*lines, "outputs = Model(c1)(x0, x2)"]), names)
    outputs = names["outputs"]
    assert isinstance(outputs, tuple)
    assert [tuple(output.shape) for output in outputs] == [(6, 7), (12,), (6, 5)]
