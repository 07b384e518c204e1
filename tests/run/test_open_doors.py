"""Open extents through every front door, compared with the models' own runtimes, emulated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from torch.export import Dim, ExportedProgram
from tvm.script import ir as I
from tvm.script import relax as R

import tvm_tile
from tvm_tile import DynamicShapeError, InputError, ModelError, Open
from tvm_tile.compiling import schedule

RNG = np.random.default_rng(0)
IDS = 10


class Norm(torch.nn.Module):
    """Rows of 16 numbers, and as many of 8."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(16, 8)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.softmax(self.linear(x), -1) + y


class Pairs(torch.nn.Module):
    """Sums of pairs."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.reshape(-1, 2).sum(1)


def norm(rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(rows, 16), torch.randn(rows, 8)


def exported(dim: Any) -> ExportedProgram:
    return torch.export.export(Norm().eval(), norm(4), dynamic_shapes=({0: dim}, {0: dim}))


def compiled(model: Any, **arguments: Any) -> tvm_tile.CompiledModel:
    found: tvm_tile.CompiledModel = tvm_tile.compile(model, "emulated", **arguments)
    return found


def check(
    model: Callable[..., Any],
    program: Callable[..., Any],
    inputs: Callable[[int], Sequence[torch.Tensor]],
    extents: Sequence[int],
) -> None:
    """Compare calls of each extent; the greatest first, so that memory holds what is beyond."""
    for extent in sorted(extents, reverse=True):
        values = inputs(extent)
        torch.testing.assert_close(model(*values), program(*values).detach())


@pytest.fixture(scope="module")
def program() -> ExportedProgram:
    return exported(Dim("n", min=1, max=32))


@pytest.fixture(scope="module")
def model(program: ExportedProgram) -> tvm_tile.CompiledModel:
    return compiled(program)


class TestExportedPrograms:
    def test_ranges_are_the_programs(
        self, program: ExportedProgram, model: tvm_tile.CompiledModel
    ) -> None:
        assert str(model.inputs[0]) == "x: float32[n, 16]"
        assert str(model.outputs[0]) == "output0: float32[n, 8]"
        assert "open extent n from 1 to 32" in model.explain("all")
        check(model, program.module(), norm, (1, 2, 17, 31, 32))

    def test_it_is_verified_next_to_the_program(self, model: tvm_tile.CompiledModel) -> None:
        found = model.verify()
        assert found.is_right, found.render()
        assert [check.name for check in found.outputs] == [
            f"output0 at n = {extent}" for extent in (32, 1, 11)
        ]

    def test_a_call_names_the_symbol_its_range_and_the_value(
        self, model: tvm_tile.CompiledModel
    ) -> None:
        with pytest.raises(InputError, match=r"n from 1 to 32[\s\S]*n = 33"):
            model(*norm(33))
        with pytest.raises(InputError, match=r"extents n[\s\S]*3 in input 'x', 4 in input 'y'"):
            model(norm(3)[0], norm(4)[1])
        with pytest.raises(InputError, match="x"):
            model(torch.randn(3, 15), torch.randn(3, 8))

    def test_a_user_narrows_a_range_names_it_or_gives_a_number(
        self, program: ExportedProgram
    ) -> None:
        narrow = compiled(program, inputs={"y": (Open(4, 12, name="rows", step=4), 8)})
        assert str(narrow.inputs[0]) == "x: float32[rows, 16]"
        check(narrow, program.module(), norm, (4, 8, 12))
        with pytest.raises(InputError, match="in steps of 4"):
            narrow(*norm(6))
        static = compiled(program, inputs={"x": (5, 16)})
        assert [one.shape for one in static.inputs] == [(5, 16), (5, 8)]
        assert not any(one.open_axes for one in static.inputs)

    def test_a_file_is_as_the_program_is(self, program: ExportedProgram, tmp_path: Path) -> None:
        torch.export.save(program, tmp_path / "norm.pt2")
        check(compiled(tmp_path / "norm.pt2"), program.module(), norm, (1, 9, 32))

    def test_a_range_without_an_end_may_be_given_one(self) -> None:
        unbounded = exported(Dim("m"))
        assert [one.shape for one in compiled(unbounded).inputs] == [(1, 16), (1, 8)]
        bounded = compiled(unbounded, inputs={"x": (Open(1, 9), 16)})
        check(bounded, unbounded.module(), norm, (1, 5, 9))

    def test_a_multiple_has_steps(self) -> None:
        half = Dim("half", min=2, max=16)
        pairs = torch.export.export(Pairs(), (torch.randn(8),), dynamic_shapes=({0: 2 * half},))
        found = compiled(pairs)
        check(found, pairs.module(), lambda n: (torch.randn(n),), (4, 10, 32))
        with pytest.raises(InputError, match="in steps of 2"):
            found(torch.randn(5))

    @pytest.mark.parametrize(
        ("extents", "found"),
        [
            ({"x": (Open(1, 64), 16)}, "n from 1 to 32"),
            ({"x": (Open(1, 8), 16), "y": (Open(1, 9), 8)}, "n=1:8 and n=1:9"),
            ({"x": (Open(1, 8), 16), "y": (3, 8)}, "n=1:8 and 3"),
            ({"x": (Open(1, 8), Open(1, 16))}, "give 16"),
            ({"x": (Open(8, 1), 16)}, "least and a greatest"),
        ],
    )
    def test_a_contradicting_range_is_refused(
        self, program: ExportedProgram, extents: Any, found: str
    ) -> None:
        with pytest.raises(DynamicShapeError, match=found):
            compiled(program, inputs=extents)

    def test_wrong_names_and_ranks_are_refused_as_ever(self, program: ExportedProgram) -> None:
        for extents in ({"z": (Open(1, 8), 16)}, {"x": (Open(1, 8),)}):
            with pytest.raises(ModelError, match=r"z|\(8,\)"):
                compiled(program, inputs=extents)

    def test_a_static_program_has_no_open_extents(self) -> None:
        static = torch.export.export(Norm().eval(), norm(4))
        with pytest.raises(DynamicShapeError, match=r"1:8 for 4 in 'x'[\s\S]*dynamic_shapes"):
            compiled(static, inputs={"x": (Open(1, 8), 16)})

    def test_an_expression_of_another_extent_is_refused_by_name(self) -> None:
        class Both(torch.nn.Module):
            def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
                return x.reshape(-1, 2).sum(1) + y

        half, values = Dim("half", min=2, max=16), (torch.randn(8), torch.randn(4))
        both = torch.export.export(Both(), values, dynamic_shapes=({0: 2 * half}, {0: half}))
        with pytest.raises(DynamicShapeError, match=r"2\*s\d+ in 'x'"):
            compiled(both)
        assert [one.shape for one in compiled(both, inputs={"y": (4,)}).inputs] == [(8,), (4,)]

    def test_entries_may_have_open_extents(self, program: ExportedProgram) -> None:
        static = torch.export.export(Norm().eval(), norm(4))
        entries = tvm_tile.compile({"open": program, "static": static}, "emulated")
        check(entries["open"], program.module(), norm, (1, 32))
        check(entries["static"], static.module(), norm, (4,))

    def test_kernels_can_be_read(self, program: ExportedProgram) -> None:
        assert any("n" in text for text in schedule(program, "emulated").values())


class Attention(torch.nn.Module):
    """A block of a transformer whose shapes are computed from those of its inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(IDS, 16)
        self.places = torch.nn.Embedding(32, 16)
        self.norm = torch.nn.LayerNorm(16)
        self.heads = torch.nn.Linear(16, 48)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        batch, tokens = ids.shape
        x = self.table(ids) + self.places(torch.arange(tokens))
        heads = self.heads(self.norm(x)).view(batch, tokens, 3, 2, 8).permute(2, 0, 3, 1, 4)
        query, key, value = heads.unbind(0)
        scores = query @ key.transpose(2, 3) - (1 - mask[:, None, None, :]) * 1e4
        whole = (torch.softmax(scores, -1) @ value).transpose(1, 2).reshape(batch, tokens, 16)
        return x + whole


def token_model(dims: Sequence[Any]) -> onnx.ModelProto:
    """Embeddings times a mask, a product, and a softmax over the tokens."""
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["embedded"]),
        helper.make_node("Unsqueeze", ["mask", "axis"], ["column"]),
        helper.make_node("Mul", ["embedded", "column"], ["masked"]),
        helper.make_node("MatMul", ["masked", "weight"], ["product"]),
        helper.make_node("Softmax", ["product"], ["y"], axis=1),
    ]
    weights = {
        "table": RNG.standard_normal((IDS, 16)).astype("float32"),
        "weight": RNG.standard_normal((16, 4)).astype("float32"),
        "axis": np.array([2]),
    }
    graph = helper.make_graph(
        nodes,
        "tokens",
        [
            helper.make_tensor_value_info("ids", TensorProto.INT64, dims),
            helper.make_tensor_value_info("mask", TensorProto.FLOAT, dims),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    opsets = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def check_tokens(model: tvm_tile.CompiledModel, source: Any, shapes: Sequence[Any]) -> None:
    session = onnxruntime.InferenceSession(source.SerializeToString())
    for shape in shapes:
        ids = RNG.integers(0, IDS, shape)
        mask = RNG.standard_normal(shape).astype("float32")
        wanted = session.run(None, {"ids": ids, "mask": mask})[0]
        np.testing.assert_allclose(model(ids, mask), wanted, rtol=1e-4, atol=1e-5)


class TestOnnx:
    def test_named_dimensions_are_one_extent(self) -> None:
        source = token_model(("batch", "tokens"))
        model = compiled(source, inputs={"ids": (2, Open(1, 20))})
        assert [str(one) for one in model.inputs] == [
            "ids: int64[2, tokens]",
            "mask: float32[2, tokens]",
        ]
        check_tokens(model, source, [(2, 20), (2, 1), (2, 7)])
        found = model.verify()
        assert found.is_right, found.render()
        assert "y at tokens = 1" in {check.name for check in found.outputs}

    def test_two_may_be_open(self) -> None:
        source = token_model(("batch", "tokens"))
        model = compiled(source, inputs={"mask": (Open(1, 3), Open(2, 20, step=2))})
        check_tokens(model, source, [(3, 20), (1, 2), (2, 14), (1, 20), (3, 2)])

    @pytest.mark.filterwarnings("ignore")  # PyTorch's exporter would be another one
    def test_shapes_may_be_computed_from_shapes(self, tmp_path: Path) -> None:
        path, axes = tmp_path / "attention.onnx", {0: "batch", 1: "tokens"}
        examples = torch.zeros(2, 7, dtype=torch.int64), torch.ones(2, 7)
        names = {"ids": axes, "mask": axes}
        torch.onnx.export(
            Attention().eval(),
            examples,
            str(path),
            input_names=list(names),
            dynamic_axes=names,
            dynamo=False,
        )
        model = compiled(path, inputs={"ids": (Open(1, 3), Open(1, 20))})
        check_tokens(model, onnx.load(path), [(3, 20), (1, 1), (2, 17), (3, 1), (1, 20)])

    def test_dimensions_without_a_name_are_given_one(self) -> None:
        source = token_model((2, "?"))
        with pytest.raises(DynamicShapeError, match="'mask'"):
            compiled(source, inputs={"ids": (2, Open(1, 20))})
        apart: Any = {"ids": (2, Open(1, 20)), "mask": (2, Open(1, 20))}
        with pytest.raises(DynamicShapeError, match=r"ids\.1 = 20, mask\.1 = 19[\s\S]*name="):
            compiled(source, inputs=apart)
        equal = Open(1, 20, name="n")
        model = compiled(source, inputs={"ids": (2, equal), "mask": (2, equal)})
        check_tokens(model, source, [(2, 20), (2, 1)])

    def test_what_the_model_says_is_kept_to(self) -> None:
        source = token_model(("batch", "tokens"))
        with pytest.raises(DynamicShapeError, match="ranges such as Open"):
            compiled(source)
        with pytest.raises(DynamicShapeError, match="'batch' for tokens, and another extent"):
            compiled(source, inputs={"ids": (2, Open(1, 4, name="batch"))})
        with pytest.raises(DynamicShapeError, match="batch=1:3 and 2"):
            compiled(source, inputs={"ids": (Open(1, 3), 4), "mask": (2, 4)})
        with pytest.raises(DynamicShapeError, match="1:20 for 8"):
            compiled(token_model((2, 8)), inputs={"ids": (2, Open(1, 20))})


@I.ir_module
class Sums:
    """A Relax module of symbolic rows, whose bound it says."""

    @R.function
    def main(x: R.Tensor(("n", 16), "float32"), y: R.Tensor(("n", 16), "float32")):
        R.func_attr({"tir_var_upper_bound": {"n": 12}})
        with R.dataflow():
            z = R.nn.softmax(R.add(x, y), axis=0)
            R.output(z)
        return z


def softmax(values: np.ndarray, axis: int) -> np.ndarray:
    exponents = np.exp(values)
    return exponents / exponents.sum(axis, keepdims=True)


def rows(count: int) -> np.ndarray:
    return RNG.standard_normal((count, 16)).astype("float32")


class TestRelax:
    def test_bounds_are_the_modules(self) -> None:
        model = compiled(Sums)
        assert str(model.inputs[1]) == "y: float32[n, 16]"
        for count in (12, 1, 5):
            x, y = rows(count), rows(count)
            np.testing.assert_allclose(model(x, y), softmax(x + y, 0), rtol=1e-4, atol=1e-6)
        with pytest.raises(InputError, match="n = 13"):
            model(rows(13), rows(13))

    def test_bounds_may_be_the_users(self) -> None:
        with pytest.raises(DynamicShapeError, match="n from 1 to 12"):
            compiled(Sums, inputs={"x": (Open(1, 13), 16)})
        mod = Sums.clone()
        mod["main"] = mod["main"].without_attr("tir_var_upper_bound")
        model = compiled(mod, inputs={"y": (Open(2, 13, name="rows"), 16)})
        assert str(model.inputs[0]) == "x: float32[rows, 16]"
        assert model.verify().is_right

    def test_numbers_make_it_static(self) -> None:
        assert [one.shape for one in compiled(Sums, inputs={"x": (3, 16)}).inputs] == [(3, 16)] * 2


RELAY = """#[version = "0.0.5"]
def @main(%x: Tensor[(?, 16), float32], %w: Tensor[(4, 16), float32]) {
  %0 = nn.dense(%x, %w, units=None);
  nn.softmax(%0)
}"""


class TestRelay:
    def test_any_extent_has_the_users_range(self) -> None:
        weights = RNG.standard_normal((4, 16)).astype("float32")
        source = tvm_tile.RelayText(RELAY)
        model = compiled(source, params={"w": weights}, inputs={"x": (Open(1, 9, name="n"), 16)})
        for count in (9, 1, 4):
            x = rows(count)
            wanted = softmax(x @ weights.T, 1)
            np.testing.assert_allclose(model(x), wanted, rtol=1e-4, atol=1e-6)

    def test_an_extent_that_the_program_fixes_has_no_range(self) -> None:
        source, params = tvm_tile.RelayText(RELAY), {"w": np.ones((4, 16), "float32")}
        with pytest.raises(DynamicShapeError, match="give 16"):
            compiled(source, params=params, inputs={"x": (3, Open(1, 16))})


class TestModules:
    def test_any_extent_of_an_example_may_be_open(self) -> None:
        module = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3, stride=2, padding=1)).eval()
        sizes: Any = {"input": (Open(1, 3, name="batch"), 3, Open(4, 16, step=4), 8)}
        model = compiled(module, inputs=sizes, example_inputs=(torch.zeros(1, 3, 8, 8),))
        assert str(model.outputs[0]) == "output0: float32[batch, 4, input.2 // 2, 4]"
        for shape in ((3, 3, 16, 8), (1, 3, 4, 8), (2, 3, 12, 8)):
            image = torch.randn(shape)
            torch.testing.assert_close(model(image), module(image).detach())

    def test_an_unknown_argument_is_refused(self) -> None:
        with pytest.raises(ModelError, match="'z' of size"):
            compiled(Norm(), inputs={"z": (Open(1, 2), 16)}, example_inputs=norm(1))

    def test_a_module_with_state_is_refused(self) -> None:
        class Counter(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.register_buffer("calls", torch.zeros(1))

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                self.calls += 1
                return x + self.calls

        with pytest.raises(DynamicShapeError, match="keeps nothing between its calls"):
            compiled(Counter(), inputs={"x": (Open(1, 4),)}, example_inputs=(torch.zeros(2),))
