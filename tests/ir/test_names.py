"""Kernels know what the user's model calls that which they compute, through every stage."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R

import tvm_tile
from tvm_tile import Open, Options
from tvm_tile.graph.functions import bindings_of
from tvm_tile.graph.user_names import handed_on, named, names_of, united
from tvm_tile.stages.forced import Forced

DEVICE = "nvidia/h200"
WITHOUT_CACHE = Options(cache=False)

pytestmark = pytest.mark.filterwarnings("ignore")  # of torch.export


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = torch.nn.Conv2d(16, 16, 3, padding=1)
        self.bn1 = torch.nn.BatchNorm2d(16)
        self.conv2 = torch.nn.Conv2d(16, 16, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.conv2(torch.relu(self.bn1(self.conv1(x)))) + x)


class Images(torch.nn.Module):
    """Few channels become as many as tensor cores take; all become the last dimension."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = torch.nn.Conv2d(3, 16, 7, 2, 3)
        self.block = Block()
        self.grouped = torch.nn.Conv2d(16, 16, 3, groups=16)
        self.head = torch.nn.Linear(16, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(
            self.grouped(self.block(torch.nn.functional.relu6(self.stem(x)))).mean((2, 3))
        )


class Attention(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        for name in ("query", "key", "value", "out"):
            self.add_module(name, torch.nn.Linear(64, 64))
        self.norm = torch.nn.LayerNorm(64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (part(x).unflatten(-1, (4, 16)).transpose(1, 2) for part in self.parts())
        mixed = torch.nn.functional.scaled_dot_product_attention(q, k, v)
        return self.norm(x + self.out(mixed.transpose(1, 2).flatten(2)))

    def parts(self) -> tuple[Any, ...]:
        return self.query, self.key, self.value


class Recurrent(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = torch.nn.LSTM(32, 32, 2)
        self.head = torch.nn.Linear(32, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.lstm(x)[0][-1])


class Cell(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = torch.nn.Linear(32, 64), torch.nn.Linear(64, 32)
        self.norm = torch.nn.LayerNorm(32)

    def forward(self, h: torch.Tensor) -> torch.Tensor:
        return self.norm(h + self.down(torch.relu(self.up(h))))


class Loop(torch.nn.Module):
    """Its body's operators have names of nodes that the model itself has, too."""

    def __init__(self) -> None:
        super().__init__()
        self.cells = torch.nn.ModuleList([Cell(), Cell()])
        self.head = torch.nn.Linear(32, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        def more(i: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
            return (i < 8) & (h.abs().amax() < 100)

        def step(i: torch.Tensor, h: torch.Tensor) -> tuple[torch.Tensor, ...]:
            chosen = torch.cond(i < 4, self.cells[1], lambda h: h * 2, (h,))
            return i + 1, self.cells[0](chosen)

        start = torch.zeros((), dtype=torch.int64), x
        return self.head(torch.while_loop(more, step, start)[1])


def compiled(model: Any, *inputs: torch.Tensor, **more: Any) -> tvm_tile.CompiledModel:
    examples = {"example_inputs": inputs} if inputs else {}
    return tvm_tile.compile(model, DEVICE, **{"options": WITHOUT_CACHE, **examples, **more})


def calls(model: tvm_tile.CompiledModel) -> list[tuple[str, ...]]:
    """What each different call computes; of a model all of whose kernels are known."""
    kernels = model.report.kernels
    assert all(kernel.names for kernel in kernels)
    return sorted(names for kernel in kernels for names in kernel.names)


def layers(model: torch.nn.Module) -> set[str]:
    """Paths of the modules that have weights of their own."""
    return {path for path, own in model.named_modules() if list(own.parameters(recurse=False))}


@pytest.mark.parametrize(
    ("dtype", "options"),
    [
        (torch.float32, {"tf32": True}),
        (torch.float16, {}),
        (torch.float32, {"low_bit": True}),
        (torch.float32, {"control": "kernel"}),
    ],
    ids=["tf32", "float16", "low-bit", "in-kernels"],
)
@pytest.mark.parametrize(
    ("model", "shape"),
    [
        (Images(), (1, 3, 28, 28)),
        (Attention(), (1, 128, 64)),
        (Recurrent(), (5, 1, 32)),
        (Loop(), (3, 32)),
    ],
    ids=["images", "attention", "recurrent", "loop"],
)
@pytest.mark.bank(4)
def test_each_kernel_is_named_and_no_layer_is_forgotten(
    model: torch.nn.Module, shape: tuple[int, ...], dtype: torch.dtype, options: dict[str, Any]
) -> None:
    model = copy.deepcopy(model).eval().to(dtype)
    options = {"options": Forced(cache=False, **options)}
    assert set(united(calls(compiled(model, torch.randn(shape).to(dtype), **options)))) >= (
        layers(model)
    )


def test_each_of_equal_layers_is_named_though_they_are_one_kernel() -> None:
    model = torch.nn.Sequential(Block(), Block()).eval()
    found = compiled(model, torch.randn(1, 16, 28, 28))
    products = [kernel for kernel in found.report.kernels if kernel.calls == 2]
    told = [kernel.names for kernel in products]
    assert (("0.conv1", "0.bn1", "0.relu"), ("1.conv1", "1.bn1", "1.relu")) in told
    assert (("0.conv2", "0.add", "0.relu"), ("1.conv2", "1.add", "1.relu")) in told


def test_products_side_by_side_are_all_named() -> None:
    model = torch.nn.Sequential(Attention(), Attention()).half().eval()
    found = calls(compiled(model, torch.randn(1, 128, 64).half()))
    parts = ("query", "key", "value", "out", "norm", "scaled_dot_product_attention")
    assert {f"{layer}.{part}" for layer in "01" for part in parts} <= set(united(found))
    # No kernel of one layer is said to be of the other.
    assert all(len({name[0] for name in names}) == 1 for names in found)


def test_operators_of_regions_are_named_by_whose_parameters_they_read() -> None:
    on_host = Forced(control="host", cache=False)
    model = compiled(Loop().eval(), torch.zeros(3, 32), options=on_host)
    # All but the first look whether there is anything to do, and the head.
    told = model.explain()
    assert f"{len(model.report.kernels) - 2} kernels are in loops of the host that end when" in told
    assert "4 kernels are in branches of the host" in told
    found = set(sum(calls(model), ()))
    cells = {f"cells.{n}.{layer}" for n in (0, 1) for layer in ("up", "down", "norm")}
    assert found >= {*cells, "head"}
    assert found - cells - {"head", "while_loop.cond"} <= {
        f"while_loop.{name}" for name in ("lt", "abs", "amax", "and", "add", "relu")
    } | {f"while_loop.cond.{name}" for name in ("relu", "add", "mul")}
    assert {"while_loop.relu", "while_loop.cond.relu", "while_loop.cond.mul"} <= found


def test_what_is_left_out_in_front_of_an_output_is_nobodys() -> None:
    """The importer returns another variable than the one that has the value."""
    shape = [4, 64]
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w"], ["scores"]),
            helper.make_node("Softmax", ["scores"], ["probabilities"], axis=-1),
        ],
        "classifier",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, [4, 10])],
        [numpy_helper.from_array(np.ones((64, 10), "float32"), "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    assert sorted(calls(compiled(model))) == [("probabilities",), ("scores",)]


def test_a_module_that_is_broken_down_keeps_its_name() -> None:
    found = compiled(Recurrent().eval(), torch.randn(5, 1, 32))
    assert {name for names in calls(found) for name in names} <= {"lstm", "select", "head"}


def test_a_program_that_was_broken_down_before_is_named_by_its_modules() -> None:
    program = torch.export.export(
        torch.nn.Sequential(Block(), Block()).eval(), (torch.randn(1, 16, 28, 28),)
    )
    whole = compiled(program.run_decompositions())
    flat = set(united(calls(whole)))
    assert {"0.conv1", "0.conv2", "1.conv1", "1.conv2", "0.add", "1.add"} <= flat


def split_model(names: bool, rows: int | str = 64) -> onnx.ModelProto:
    """Two products of the halves of an input, one behind Gelu, which has a definition."""

    def node(kind: str, inputs: list[str], outputs: list[str], **attributes: Any) -> Any:
        name = f"/{kind}" if names else ""
        return helper.make_node(kind, inputs, outputs, name=name, **attributes)

    rng = np.random.default_rng(0)
    weights = numpy_helper.from_array(rng.standard_normal((64, 64)).astype("float32"), "weights")
    nodes = [
        node("Split", ["x"], ["a", "b"], axis=1, num_outputs=2),
        node("MatMul", ["a", "weights"], ["c"]),
        node("Gelu", ["c"], ["d"]),
        node("Mul", ["d", "b"], ["e"]),
        node("Softmax", ["e"], ["y"]),
    ]
    kinds = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, 128])]
    results = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [rows, 64])]
    graph = helper.make_graph(nodes, "split", kinds, results, [weights])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


@pytest.mark.parametrize("has_names", [True, False])
def test_nodes_of_onnx_are_named_by_name_or_by_what_they_make(has_names: bool) -> None:
    found = {name for names in calls(compiled(split_model(has_names))) for name in names}
    kinds = {"/Split", "/MatMul", "/Gelu", "/Mul", "/Softmax"}
    assert found == (kinds if has_names else {"a", "c", "d", "e", "y"})


def test_variables_of_relax_are_names() -> None:
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((64, 64), "float32")) -> R.Tensor((64, 64), "float32"):
            with R.dataflow():
                product = R.matmul(x, x)
                act = R.nn.relu(product)
                R.output(act)
            return act

    assert calls(compiled(Module)) == [("product", "act")]


def test_names_are_kept_with_open_extents_and_in_files(tmp_path: Path) -> None:
    found = compiled(split_model(True, "n"), inputs={"x": (Open(1, 64), 128)})
    flat = {name for names in calls(found) for name in names}
    assert {"/MatMul", "/Gelu", "/Softmax"} <= flat
    found.save(tmp_path / "model.tvmtile")
    loaded = tvm_tile.load(tmp_path / "model.tvmtile")
    assert calls(loaded) == calls(found)
    assert loaded.explain() == found.explain()


def unary(*kinds: Any) -> relax.Function:
    """A module that does one operator behind the other."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((8, 8), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            value = x
            for kind in kinds:
                value = builder.emit(kind(value))
            result = builder.emit_output(value)
        builder.emit_func_output(result)
    return builder.get()


def values_of(mod: Any) -> list[tuple[Any, Any]]:
    return [pair for pair in bindings_of(mod["main"].body) if isinstance(pair[1], relax.Call)]


def test_a_value_that_is_gone_leaves_its_name_to_what_took_it_in() -> None:
    made = unary(relax.op.exp, relax.op.negative, relax.op.tanh)
    before = named(made, {var: (f"n{n}",) for n, (var, _) in enumerate(values_of(made))})
    after = handed_on(before, unary(relax.op.sin))
    ((_, value),) = values_of(after)
    assert names_of(value) == ("n0", "n1", "n2")


def test_what_is_computed_on_the_way_to_a_value_has_its_name() -> None:
    made = unary(relax.op.exp, relax.op.negative, relax.op.tanh)
    *_, (last, _) = values_of(made)
    found = values_of(named(made, {last: ("act",)}))
    assert [names_of(value) for _, value in found] == [("act",)] * 3


def test_operators_of_relay_are_named_by_their_places() -> None:
    text = """#[version = "0.0.5"]
def @main(%x: Tensor[(8, 16), float32], %w: Tensor[(32, 16), float32]) {
  %0 = nn.dense(%x, %w, units=None);
  nn.relu(%0)
}
"""
    found = calls(compiled(tvm_tile.RelayText(text)))
    assert found == [("nn.dense at line 3, column 8", "nn.relu at line 4, column 3")]
