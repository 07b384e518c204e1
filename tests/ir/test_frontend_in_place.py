"""Operators that write become operators that return, wherever schemas tell what is written."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tvm_tile.frontend.torch.decompose import decomposed, decompositions  # noqa: E402
from tvm_tile.frontend.torch.in_place import without_writes  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


class Network(torch.nn.Module):
    """Activations in place, of which one is read again, and a sum into another."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = torch.nn.Conv2d(4, 4, 3, padding=1)
        self.norm = torch.nn.BatchNorm2d(4)

    def forward(self, x: Any) -> Any:
        made = self.norm(self.convolution(x)).relu_()
        first = made.mean((2, 3))
        made += x
        return made.relu_().flatten(1), first


class Cache(torch.nn.Module):
    """A step of a decoder: rows of a cache, and a count that is handed on before it is written."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("keys", torch.zeros(8, 4))
        self.register_buffer("count", torch.zeros(1, dtype=torch.int64))

    def forward(self, x: Any) -> Any:
        self.keys.index_copy_(0, self.count, x)
        before = self.count.to(torch.int64)
        at = before + 1
        before.add_(1)
        x.mul_(2)
        return self.keys.sum(0), at, x + self.count


class Part(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        y = x * 2
        y[1].relu_()
        return y


class ReadAsAView(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        y = x * 2
        row = y[1]
        y.relu_()
        return row + 1


class ReadAfterwards(torch.nn.Module):
    """Dropout hands on its operand, though its schema does not say so."""

    def forward(self, x: Any) -> Any:
        y = x * 2
        same = torch.nn.functional.dropout(y, training=False)
        y.relu_()
        return same + 1


class Rounded(torch.nn.Module):
    """The sum is rounded to the type of what is written."""

    def forward(self, x: Any) -> Any:
        return x.half().add_(x)


class Weight(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(2, 2), requires_grad=False)

    def forward(self, x: Any) -> Any:
        self.weight.mul_(2)
        return x + self.weight


def exported(module: Any, shape: tuple[int, ...]) -> Any:
    return torch.export.export(module.eval(), (torch.ones(shape),))


@pytest.mark.parametrize(("module", "shape"), [(Network(), (2, 4, 6, 6)), (Cache(), (1, 4))])
def test_it_becomes_what_pytorch_makes_of_it(module: Any, shape: tuple[int, ...]) -> None:
    program = exported(module, shape)
    before = str(program.graph), str(program.graph_signature)
    found, expected = decomposed(program), program.run_decompositions(decompositions())
    assert described(found) == described(expected)
    assert (str(program.graph), str(program.graph_signature)) == before


def described(program: Any) -> tuple[list[Any], list[Any]]:
    """The nodes of a program, copies of nothing left out, and what it returns."""
    nodes = [
        (str(node.target), str(node.meta.get("val")))
        for node in program.graph.nodes
        if node.op != "output" and "clone" not in str(node.target)
    ]
    return nodes, [(spec.kind, spec.target) for spec in program.graph_signature.output_specs]


def test_state_and_inputs_are_written_at_the_end() -> None:
    found = without_writes(exported(Cache(), (1, 4)))
    assert found is not None
    assert sorted(found.graph_signature.buffers_to_mutate.values()) == ["count", "keys"]
    assert list(found.graph_signature.user_inputs_to_mutate.values()) == ["x"]
    module, x = Cache(), torch.full((1, 4), 3.0)
    expected = x.clone()
    ours, step = [], found.module()
    for _ in range(2):
        ours += step(x)
    theirs = [result for _ in range(2) for result in module(expected)]
    for one, other in zip([*ours, x], [*theirs, expected], strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("module", [Part(), ReadAsAView(), ReadAfterwards(), Rounded(), Weight()])
def test_what_schemas_do_not_tell_is_left_to_pytorch(module: Any) -> None:
    assert without_writes(exported(module, (2, 2))) is None
