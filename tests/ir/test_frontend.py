"""Front doors: every kind of model arrives as Relax operators, or is refused with a reason."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx.helper as oh
import pytest
import tvm
from onnx import TensorProto
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R

from tvm_tile.errors import (
    DynamicShapeError,
    ModelError,
    ModelFileError,
    UnsupportedOperatorError,
)
from tvm_tile.frontend import Imported, import_model
from tvm_tile.frontend.onnx import import_onnx
from tvm_tile.graph.signature import Signature

FLOAT = TensorProto.FLOAT


def run(imported: Imported, *arrays: np.ndarray) -> list[np.ndarray]:
    """Outputs of TVM's own CPU build."""
    executable = tvm.compile(imported.mod, "llvm")
    machine = relax.VirtualMachine(executable, tvm.cpu())
    outputs = machine["main"](*[tvm.runtime.tensor(array) for array in arrays])
    return [o.numpy() for o in ([outputs] if hasattr(outputs, "numpy") else outputs)]


def operators(imported: Imported) -> list[str]:
    """Names of the Relax operators in ``main``, in order."""
    names: list[str] = []

    def visit(node: Any) -> None:
        if isinstance(node, relax.Call):
            names.append(getattr(node.op, "name", str(node.op)).removeprefix("relax."))

    relax.analysis.post_order_visit(imported.mod["main"], visit)
    return names


def onnx_model(
    nodes: list[Any],
    inputs: dict[str, tuple[Any, ...] | None],
    outputs: list[str],
    weights: dict[str, np.ndarray] | None = None,
    opset: int = 18,
    dtype: int = FLOAT,
) -> onnx.ModelProto:
    graph = oh.make_graph(
        nodes,
        "net",
        [oh.make_tensor_value_info(name, dtype, shape) for name, shape in inputs.items()],
        [oh.make_tensor_value_info(name, dtype, None) for name in outputs],
        [onnx.numpy_helper.from_array(array, name) for name, array in (weights or {}).items()],
    )
    return oh.make_model(graph, opset_imports=[oh.make_opsetid("", opset)], ir_version=9)


def relu(*shape: Any) -> onnx.ModelProto:
    return onnx_model([oh.make_node("Relu", ["x"], ["y"], name="act")], {"x": shape}, ["y"])


class TestOnnx:
    def test_reads_a_file_and_keeps_names(self, tmp_path: Path) -> None:
        onnx.save(relu(2, 3), tmp_path / "small.onnx")
        imported = import_model(tmp_path / "small.onnx")
        assert imported.name == "small"
        assert imported.inputs == (Signature("x", (2, 3), "float32"),)
        assert imported.outputs == (Signature("y", (2, 3), "float32"),)

    def test_takes_a_string_path_and_a_proto(self, tmp_path: Path) -> None:
        onnx.save(relu(2, 3), tmp_path / "small.onnx")
        assert import_model(str(tmp_path / "small.onnx")).inputs == import_model(relu(2, 3)).inputs

    def test_leaves_the_given_proto_alone(self) -> None:
        model = relu("n", 3)
        before = model.SerializeToString()
        import_model(model, inputs={"x": (2, 3)})
        assert model.SerializeToString() == before

    def test_names_that_are_no_identifiers_survive(self) -> None:
        model = onnx_model([oh.make_node("Relu", ["0.x"], ["y/1"])], {"0.x": (2,)}, ["y/1"])
        imported = import_model(model)
        assert (imported.inputs[0].name, imported.outputs[0].name) == ("0.x", "y/1")

    def test_an_unused_input_stays_an_input(self) -> None:
        nodes = [oh.make_node("Relu", ["x"], ["y"])]
        imported = import_model(onnx_model(nodes, {"unused": (1,), "x": (2,)}, ["y"]))
        assert [s.name for s in imported.inputs] == ["unused", "x"]
        (output,) = run(imported, np.zeros(1, np.float32), np.array([-1, 1], np.float32))
        np.testing.assert_array_equal(output, [0, 1])

    def test_weights_are_constants_and_shape_arithmetic_is_gone(self) -> None:
        nodes = [
            oh.make_node("Shape", ["x"], ["s"]),
            oh.make_node("Gather", ["s", "zero"], ["n"]),
            oh.make_node("Concat", ["n", "rest"], ["to"], axis=0),
            oh.make_node("Reshape", ["x", "to"], ["flat"]),
            oh.make_node("MatMul", ["flat", "w"], ["y"]),
        ]
        weights = {
            "zero": np.array([0]),
            "rest": np.array([-1]),
            "w": np.arange(8, dtype=np.float32).reshape(4, 2),
        }
        imported = import_model(
            onnx_model(nodes, {"x": ("n", 2, 2)}, ["y"], weights), inputs={"x": (3, 2, 2)}
        )
        assert operators(imported) == ["reshape", "matmul"]
        x = np.ones((3, 2, 2), np.float32)
        np.testing.assert_allclose(run(imported, x)[0], x.reshape(3, 4) @ weights["w"])

    def test_a_constant_branch_is_taken(self) -> None:
        branches = {
            f"{name}_branch": oh.make_graph(
                [oh.make_node(op, ["x"], [name])],
                name,
                [],
                [oh.make_tensor_value_info(name, FLOAT, None)],
            )
            for name, op in (("then", "Neg"), ("else", "Relu"))
        }
        nodes = [oh.make_node("If", ["flag"], ["y"], **branches)]
        model = onnx_model(nodes, {"x": (2,)}, ["y"])
        model.graph.input.append(oh.make_tensor_value_info("flag", TensorProto.BOOL, ()))
        imported = import_onnx(model, constants={"flag": np.array(True)})
        assert [s.name for s in imported.inputs] == ["x"]
        assert operators(imported) == ["negative"]

    def test_an_operator_defined_through_others_is_expanded(self) -> None:
        nodes = [oh.make_node("Celu", ["x"], ["y"], alpha=2.0)]
        imported = import_model(onnx_model(nodes, {"x": (4,)}, ["y"]))
        x = np.array([-3, -1, 0, 2], np.float32)
        expected = np.maximum(x, 0) + np.minimum(0, 2 * (np.exp(x / 2) - 1))
        np.testing.assert_allclose(run(imported, x)[0], expected, rtol=1e-6)

    def test_half_precision_accumulates_in_float32(self) -> None:
        nodes = [oh.make_node("MatMul", ["x", "w"], ["y"])]
        weights = {"w": np.ones((4096, 1), np.float16)}
        model = onnx_model(nodes, {"x": (1, 4096)}, ["y"], weights, dtype=TensorProto.FLOAT16)
        imported = import_model(model)
        assert imported.outputs[0].dtype == "float16"
        # In float16, 2048 + 1 is 2048.
        assert run(imported, np.ones((1, 4096), np.float16))[0].item() == 4096


class TestOnnxErrors:
    @pytest.mark.parametrize("name", ["missing.onnx", "."])
    def test_no_such_file(self, tmp_path: Path, name: str) -> None:
        with pytest.raises(ModelFileError, match="existing file"):
            import_model(tmp_path / name)

    @pytest.mark.parametrize("content", [b"", b"not a model", b"\x08\x07" * 40])
    def test_not_a_model(self, tmp_path: Path, content: bytes) -> None:
        (tmp_path / "bad.onnx").write_bytes(content)
        with pytest.raises(ModelFileError, match=r"bad\.onnx"):
            import_model(tmp_path / "bad.onnx")

    def test_truncated_file(self, tmp_path: Path) -> None:
        path = tmp_path / "half.onnx"
        data = relu(2, 3).SerializeToString()
        path.write_bytes(data[: len(data) // 2])
        with pytest.raises(ModelFileError):
            import_model(path)

    def test_violates_the_specification(self) -> None:
        nodes = [oh.make_node("Relu", ["nowhere"], ["y"])]
        with pytest.raises(ModelFileError, match="nowhere"):
            import_model(onnx_model(nodes, {"x": (2,)}, ["y"]))

    def test_open_extents_are_named_with_the_remedy(self) -> None:
        with pytest.raises(DynamicShapeError) as caught:
            import_model(relu("batch", 3, None))
        assert "'x' (batch, 3, ?)" in caught.value.current
        assert "inputs={'x': (1, 3, 1)}" in caught.value.remedy

    def test_unknown_rank(self) -> None:
        model = onnx_model([oh.make_node("Relu", ["x"], ["y"])], {"x": None}, ["y"])
        with pytest.raises(DynamicShapeError, match="unknown rank"):
            import_model(model)
        assert import_model(model, inputs={"x": (2, 5)}).outputs[0].shape == (2, 5)

    def test_a_named_extent_is_settled_for_all_inputs(self) -> None:
        nodes = [oh.make_node("Add", ["a", "b"], ["y"])]
        model = onnx_model(nodes, {"a": ("n", 2), "b": ("n", 2)}, ["y"])
        imported = import_model(model, inputs={"a": (5, 2)})
        assert [s.shape for s in imported.inputs] == [(5, 2), (5, 2)]
        with pytest.raises(ModelError, match="n = 5"):
            import_model(model, inputs={"a": (5, 2), "b": (6, 2)})

    @pytest.mark.parametrize(
        "sizes", [{"z": (2, 3)}, {"x": (2, 3, 4)}, {"x": (2, 4)}, {"x": (-1, 3)}]
    )
    def test_sizes_that_contradict_the_model(self, sizes: dict[str, tuple[int, ...]]) -> None:
        with pytest.raises(ModelError):
            import_model(relu("n", 3), inputs=sizes)

    def test_all_unsupported_operators_at_once_with_their_nodes(self) -> None:
        nodes = [
            oh.make_node("Det", ["x"], ["d"], name="first"),
            oh.make_node("Mystery", ["x"], ["m"], name="second", domain="some.where"),
            oh.make_node("Add", ["d", "m"], ["y"]),
        ]
        model = onnx_model(nodes, {"x": (3, 3)}, ["y"])
        model.opset_import.append(oh.make_opsetid("some.where", 1))
        with pytest.raises(UnsupportedOperatorError) as caught:
            import_model(model)
        assert caught.value.current == "Det (nodes first); some.where::Mystery (nodes second)"

    def test_an_unsupported_form_names_the_node(self, capsys: pytest.CaptureFixture[str]) -> None:
        nodes = [oh.make_node("Reshape", ["x", "to"], ["y"], name="shaper")]
        model = onnx_model(nodes, {"x": (4,)}, ["y"])
        model.graph.input.append(oh.make_tensor_value_info("to", TensorProto.INT64, (2,)))
        model.graph.node.insert(0, oh.make_node("TopK", ["x", "k"], ["v", "i"], name="best"))
        model.graph.input.append(oh.make_tensor_value_info("k", TensorProto.INT64, (1,)))
        model.graph.output.append(oh.make_tensor_value_info("v", FLOAT, None))
        with pytest.raises(UnsupportedOperatorError, match=r"best|shaper"):
            import_model(model)
        assert capsys.readouterr().out == ""


@I.ir_module
class Symbolic:
    @R.function
    def main(x: R.Tensor(("n", 4), "float32"), y: R.Tensor(("n", 4), "float32")):
        with R.dataflow():
            z = R.add(x, y)
            R.output(z)
        return z


class TestRelax:
    def test_symbolic_extents_are_bound(self) -> None:
        imported = import_model(Symbolic, inputs={"x": (3, 4)})
        assert [s.shape for s in (*imported.inputs, *imported.outputs)] == [(3, 4)] * 3

    def test_symbolic_extents_without_values(self) -> None:
        with pytest.raises(DynamicShapeError, match="'x'"):
            import_model(Symbolic)

    @pytest.mark.parametrize(
        "sizes",
        [{"q": (3, 4)}, {"x": (3,)}, {"x": (3, 5)}, {"x": (3, 4), "y": (2, 4)}, {"x": (-1, 4)}],
    )
    def test_sizes_that_contradict_the_module(self, sizes: dict[str, tuple[int, ...]]) -> None:
        with pytest.raises(ModelError):
            import_model(Symbolic, inputs=sizes)

    def test_needs_main(self) -> None:
        with pytest.raises(ModelError, match="main"):
            import_model(tvm.IRModule({"other": Symbolic["main"]}))

    def test_other_kinds_are_refused(self) -> None:
        with pytest.raises(ModelError, match=r"builtins\.int"):
            import_model(3)


def batch_norm_inputs() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    constants = {name: rng.uniform(0.5, 1.5, 3).astype(np.float32) for name in "gbmv"}
    constants["w"] = rng.standard_normal((3, 2, 3, 3)).astype(np.float32)
    return {name: relax.const(value) for name, value in constants.items()}


class TestFold:
    @pytest.mark.parametrize("behind_convolution", [True, False])
    def test_batch_norm_with_known_statistics(self, behind_convolution: bool) -> None:
        c = batch_norm_inputs()
        x = relax.Var("x", relax.TensorType((1, 2 if behind_convolution else 3, 5, 5), "float32"))
        builder = relax.BlockBuilder()
        with builder.function("main", [x]):
            with builder.dataflow():
                data = builder.emit(relax.op.nn.conv2d(x, c["w"])) if behind_convolution else x
                norm = relax.op.nn.batch_norm(
                    data, c["g"], c["b"], c["m"], c["v"], axis=1, training=False
                )
                out = builder.emit_output(builder.emit(norm)[0])
            builder.emit_func_output(out)
        mod = builder.get()
        imported = import_model(mod)
        expected = ["nn.conv2d", "add"] if behind_convolution else ["multiply", "add"]
        assert operators(imported) == expected
        array = np.random.default_rng(1).standard_normal([int(e) for e in x.ty.shape])
        array = array.astype(np.float32)
        before = Imported(mod, "before", imported.inputs, imported.outputs)
        np.testing.assert_allclose(
            run(imported, array)[0], run(before, array)[0], rtol=1e-5, atol=1e-5
        )


torch = pytest.importorskip("torch")


class Classifier(torch.nn.Module):
    """Convolution, batch norm, pooling, linear: each with a bias."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = torch.nn.Conv2d(3, 8, 3, padding=1)
        self.norm = torch.nn.BatchNorm2d(8)
        self.linear = torch.nn.Linear(8, 5)
        self.dropout = torch.nn.Dropout()

    def forward(self, image: Any) -> Any:
        features = torch.relu(self.norm(self.convolution(image)))
        return torch.softmax(self.linear(self.dropout(features.mean((2, 3)))), -1)


class Attention(torch.nn.Module):
    """Self-attention, with a mask or causal."""

    def __init__(self, causal: bool = False) -> None:
        super().__init__()
        self.causal = causal

    def forward(self, q: Any, mask: Any = None) -> Any:
        return torch.nn.functional.scaled_dot_product_attention(
            q, q, q, attn_mask=mask, is_causal=self.causal
        )


class TestTorch:
    def test_a_module_and_its_export_give_the_same(self) -> None:
        image = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))
        module = Classifier().eval()
        program = torch.export.export(module, (image,))
        expected = module(image).detach().numpy()
        for imported in (import_model(module, example_inputs=(image,)), import_model(program)):
            assert imported.inputs == (Signature("image", (2, 3, 8, 8), "float32"),)
            np.testing.assert_allclose(run(imported, image.numpy())[0], expected, rtol=1e-5)

    def test_is_exported_for_inference_and_stays_in_training_mode(self) -> None:
        module = Classifier().train()
        module.norm.eval()
        imported = import_model(module, example_inputs=(torch.ones(1, 3, 4, 4),))
        assert (module.training, module.dropout.training, module.norm.training) == (
            True,
            True,
            False,
        )
        assert operators(imported).count("nn.batch_norm") == 0

    @pytest.mark.parametrize(
        ("dtype", "limit"), [(torch.float16, 2e-3), (torch.bfloat16, 2e-2)], ids=str
    )
    def test_half_precision(self, dtype: Any, limit: float) -> None:
        module = Classifier().eval()
        image = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))
        expected = module(image).detach().numpy()
        imported = import_model(module.to(dtype), example_inputs=(image.to(dtype),))
        name = str(dtype).removeprefix("torch.")
        assert {s.dtype for s in (*imported.inputs, *imported.outputs)} == {name}
        stored = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16}[name]
        (output,) = run(imported, image.numpy().astype(stored))
        error = np.linalg.norm(output.astype(np.float32) - expected) / np.linalg.norm(expected)
        assert error < limit

    @pytest.mark.parametrize("kind", ["plain", "causal", "bool", "float"])
    def test_attention(self, kind: str) -> None:
        generator = torch.Generator().manual_seed(0)
        q = torch.randn(2, 3, 6, 4, generator=generator)
        mask = torch.rand(2, 1, 6, 6, generator=generator) > 0.4
        mask[0, 0, 2] = False  # a row in which everything is masked gives 0
        masks = {"bool": (mask,), "float": (torch.where(mask, 0.0, -torch.inf),)}
        inputs = (q, *masks.get(kind, ()))
        module = Attention(causal=kind == "causal")
        imported = import_model(module, example_inputs=inputs)
        (output,) = run(imported, *(t.numpy() for t in inputs))
        np.testing.assert_allclose(output, module(*inputs).numpy(), rtol=1e-5, atol=1e-6)

    def test_linear_layers_keep_their_rank(self) -> None:
        module = torch.nn.Linear(4, 6)
        imported = import_model(module, example_inputs=(torch.ones(2, 3, 4),))
        assert operators(imported) == ["matmul", "add"]

    @pytest.mark.parametrize(
        "make",
        [
            lambda: torch.nn.Conv1d(4, 6, 3, padding=1, groups=2),
            lambda: torch.nn.Conv2d(4, 6, 3, stride=2, dilation=2),
            lambda: torch.nn.Conv3d(4, 6, 2, bias=False),
            lambda: torch.nn.ConvTranspose1d(4, 6, 3, stride=2, output_padding=1),
            lambda: torch.nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1),
        ],
        ids=["1d", "2d", "3d", "transposed 1d", "transposed 2d"],
    )
    def test_convolutions(self, make: Callable[[], Any]) -> None:
        module = make().eval()
        rank = module.weight.ndim - 2
        x = torch.randn(2, 4, *(7,) * rank, generator=torch.Generator().manual_seed(0))
        imported = import_model(module, example_inputs=(x,))
        with torch.no_grad():
            expected = module(x).numpy()
        np.testing.assert_allclose(run(imported, x.numpy())[0], expected, rtol=1e-4, atol=1e-5)

    def test_counting_booleans(self) -> None:
        class Count(torch.nn.Module):
            def forward(self, x: Any) -> Any:
                return (x > 0).cumsum(-1)

        x = torch.tensor([[1.0, -1.0, 2.0, 3.0]])
        imported = import_model(Count(), example_inputs=(x,))
        np.testing.assert_array_equal(run(imported, x.numpy())[0], [[1, 1, 2, 3]])

    def test_several_outputs(self) -> None:
        class Both(torch.nn.Module):
            def forward(self, x: Any) -> Any:
                return {"sum": x + 1, "rest": (x - 1, x * 2)}

        imported = import_model(Both(), example_inputs=(torch.ones(2),))
        assert [s.name for s in imported.outputs] == ["output0", "output1", "output2"]

    def test_dynamic_extents(self) -> None:
        program = torch.export.export(
            torch.nn.Linear(4, 2),
            (torch.ones(3, 4),),
            dynamic_shapes={"input": {0: torch.export.Dim("n")}},
        )
        with pytest.raises(DynamicShapeError, match="'input'"):
            import_model(program)
        assert import_model(program, inputs={"input": (7, 4)}).outputs[0].shape == (7, 2)

    def test_unsupported_operator(self) -> None:
        class Sorted(torch.nn.Module):
            def forward(self, x: Any) -> Any:
                return torch.linalg.inv(x)

        with pytest.raises(UnsupportedOperatorError, match="linalg_inv"):
            import_model(Sorted(), example_inputs=(torch.eye(3),))

    def test_not_exportable(self) -> None:
        class Branches(torch.nn.Module):
            def forward(self, x: Any) -> Any:
                return x if x.sum() > 0 else -x

        with pytest.raises(ModelError, match="exportable"):
            import_model(Branches(), example_inputs=(torch.ones(3),))

    def test_example_inputs_are_needed(self) -> None:
        with pytest.raises(ModelError, match="example inputs"):
            import_model(Classifier())


def test_no_model_library_is_loaded_before_a_model_needs_it() -> None:
    # TVM itself imports torch where that is installed.
    code = (
        "import sys, tvm_tile.frontend as f; "
        "assert not {'onnx', 'onnxslim', 'tvm_tile.frontend.torch'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
