"""Operators are broken down as PyTorch breaks them down, each kind of them once."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tvm_tile.frontend.torch import decompose  # noqa: E402
from tvm_tile.frontend.torch.broken_down import BrokenDown  # noqa: E402
from tvm_tile.frontend.torch.decompose import decomposed, decompositions  # noqa: E402
from tvm_tile.graph.latest import Latest  # noqa: E402

# Deprecations inside PyTorch's own decompositions; the importer ignores them, too.
pytestmark = pytest.mark.filterwarnings("ignore")
CHUNK = torch.ops.aten.chunk.default


class Repeated(torch.nn.Module):
    """Operators that are broken down: with one result, several, none of their own, equal ones."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = torch.nn.Conv2d(4, 4, 3, padding=1)
        self.pointwise = torch.nn.Conv2d(4, 4, 1)
        self.norm = torch.nn.BatchNorm2d(4)
        self.dropout = torch.nn.Dropout()

    def forward(self, input: Any) -> Any:
        for _ in range(3):
            # Two of one tensor, which are of two kinds.
            both = self.convolution(input) + self.pointwise(input)
            left, right = self.norm(both).chunk(2, dim=1)
            input = torch.cat([right, self.dropout(left)], 1)
        scale = input.new_zeros(4, 1, 1) + 2
        return (input * scale).flatten(1), torch.stack([left, right])


class Writing(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        doubled = x * 2
        doubled[1:].relu_()  # a part, of which the operators' schemas do not tell
        return doubled.chunk(2)


class Plain(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        return torch.relu(x) + 1


def exported(module: Any, shape: tuple[int, ...], **options: Any) -> Any:
    return torch.export.export(module.eval(), (torch.ones(shape),), **options)


def operators(program: Any) -> list[tuple[str, str]]:
    """Operators with what they return, without copies, which PyTorch puts where nothing is left."""
    return [
        (str(node.target), str(node.meta["val"]))
        for node in program.graph.nodes
        if node.op == "call_function" and "clone" not in str(node.target)
    ]


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The operators of each program that PyTorch is asked to break down, none known before."""
    monkeypatch.setattr(decompose, "_KNOWN", Latest(8))
    asked: list[list[str]] = []
    original = torch.export.ExportedProgram.run_decompositions

    def noted(self: Any, *args: Any) -> Any:
        calls = self.graph.find_nodes(op="call_function", target=CHUNK)
        asked.append([str(node.target) for node in calls])
        return original(self, *args)

    monkeypatch.setattr(torch.export.ExportedProgram, "run_decompositions", noted)
    return asked


def test_it_becomes_what_pytorch_makes_of_it() -> None:
    program = exported(Repeated(), (2, 4, 6, 6))
    found, expected = decomposed(program), program.run_decompositions(decompositions())
    assert operators(found) == operators(expected)
    assert found.graph_signature.user_inputs == expected.graph_signature.user_inputs == ("input",)


def test_it_computes_the_same() -> None:
    module = Repeated()
    found = decomposed(exported(module, (2, 4, 6, 6)))
    x = torch.randn(2, 4, 6, 6, generator=torch.Generator().manual_seed(0))
    for output, expected in zip(found.module()(x), module(x), strict=True):
        torch.testing.assert_close(output, expected)


def test_the_program_is_left_alone() -> None:
    program = exported(Repeated(), (2, 4, 6, 6))
    before, signature = str(program.graph), str(program.graph_signature)
    decomposed(program)
    assert (str(program.graph), str(program.graph_signature)) == (before, signature)


def test_equal_operators_are_broken_down_once(runs: list[list[str]]) -> None:
    program = exported(Repeated(), (2, 4, 6, 6))
    assert len(program.graph.find_nodes(op="call_function", target=CHUNK)) == 3
    decomposed(program)
    assert runs == [[str(CHUNK)]]


def test_what_is_known_of_another_program_is_not_asked_again(runs: list[list[str]]) -> None:
    first = decomposed(exported(Repeated(), (2, 4, 6, 6)))
    again = decomposed(exported(Repeated(), (2, 4, 6, 6)))
    assert len(runs) == 1
    assert operators(again) == operators(first)
    decomposed(exported(Repeated(), (2, 4, 8, 6)))  # other extents
    assert len(runs) == 2


def test_what_is_known_depends_on_the_type_of_new_tensors(runs: list[list[str]]) -> None:
    for dtype in (torch.float32, torch.float64):
        torch.set_default_dtype(dtype)
        try:
            decomposed(exported(Repeated(), (2, 4, 6, 6)))
        finally:
            torch.set_default_dtype(torch.float32)
    assert len(runs) == 2


def test_the_oldest_is_forgotten() -> None:
    known: Latest[Any] = Latest(2)
    part = BrokenDown((), (), ())
    for kind in "abc":
        known.keep(kind, part)
    assert [known.find(kind) is part for kind in "abc"] == [False, True, True]


@pytest.mark.parametrize("dtypes", [("float32", "float32"), ("float16", "float32")])
@pytest.mark.parametrize("training", [False, True])
def test_batch_norms_are_what_pytorch_makes_of_them(training: bool, dtypes: Any) -> None:
    class Norm(torch.nn.Module):
        def forward(self, x: Any, row: Any) -> Any:
            return torch.nn.functional.batch_norm(x, row, row, row, row, training)

    x, row = (getattr(torch, dtype) for dtype in dtypes)
    inputs = torch.ones(2, 4, 3, dtype=x), torch.ones(4, dtype=row)
    program = torch.export.export(Norm().eval(), inputs)
    found, expected = decomposed(program), program.run_decompositions(decompositions())
    assert operators(found) == operators(expected)


def test_nothing_to_break_down(runs: list[list[str]]) -> None:
    program = exported(Plain(), (4, 4))
    assert decomposed(program) is program
    assert runs == []


def test_writing_into_operands_and_open_sizes_are_left_to_pytorch(runs: list[list[str]]) -> None:
    for program in (
        exported(Writing(), (4, 4)),
        exported(Repeated(), (2, 4, 6, 6), dynamic_shapes=({0: torch.export.Dim("batch")},)),
    ):
        runs.clear()
        count = len(program.graph.find_nodes(op="call_function", target=CHUNK))
        found = decomposed(program)
        assert runs == [[str(CHUNK)] * count]
        assert not any("chunk" in name for name, _ in operators(found))


@pytest.mark.parametrize("causal", [False, True])
def test_attention_is_spelled_out(causal: bool) -> None:
    class Attention(torch.nn.Module):
        def forward(self, q: Any) -> Any:
            return torch.nn.functional.scaled_dot_product_attention(q, q, q, is_causal=causal)

    program = exported(Attention(), (1, 2, 8, 4))
    found, expected = decomposed(program), program.run_decompositions(decompositions())
    assert operators(found) == operators(expected)
