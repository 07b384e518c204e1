"""PyTorch modules and exported programs arrive as Relax operators."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.cpu_build import operators, run
from tvm_tile.errors import DynamicShapeError, ModelError, UnsupportedOperatorError
from tvm_tile.frontend import import_model
from tvm_tile.graph.signature import Signature

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

    def test_weights_of_an_unrolled_loop_are_one_constant(self) -> None:
        class Loop(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.linear = torch.nn.Linear(4, 4, bias=False)

            def forward(self, x: Any) -> Any:
                for _ in range(3):
                    x = torch.tanh(self.linear(x))
                return x

        torch.manual_seed(1)
        module, x = Loop().eval(), torch.linspace(-1, 1, 8).reshape(2, 4)
        imported = import_model(module, example_inputs=(x,))
        text = imported.mod.script(show_meta=False)
        used = re.findall(r"R\.permute_dims\((metadata\S+),", text)
        assert (len(set(used)), text.count("R.matmul(")) == (1, 3)
        expected = module(x).detach().numpy()
        np.testing.assert_allclose(run(imported, x.numpy())[0], expected, rtol=1e-5)

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
        assert operators(imported) == ["permute_dims", "matmul", "add"]

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

    @pytest.mark.parametrize("dim", [0, 1, -1])
    @pytest.mark.parametrize("index", [0, -1, -2])
    def test_selecting_from_the_end(self, dim: int, index: int) -> None:
        class Select(torch.nn.Module):
            def forward(self, x: Any) -> Any:
                return x.select(dim, index)

        x = torch.arange(24.0).reshape(2, 3, 4)
        imported = import_model(Select(), example_inputs=(x,))
        assert operators(imported) == ["strided_slice", "squeeze"]
        np.testing.assert_array_equal(run(imported, x.numpy())[0], x.select(dim, index))

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


class _Difference(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x - 2 * y


def test_one_tensor_as_two_examples_stays_two_inputs() -> None:
    x = torch.randn(3)
    imported = import_model(_Difference(), example_inputs=(x, x))
    (found,) = run(imported, np.full(3, 5, np.float32), np.ones(3, np.float32))
    assert found.tolist() == [3, 3, 3]


def test_a_program_exported_with_one_tensor_as_two_inputs_is_refused() -> None:
    x = torch.randn(3)
    with pytest.raises(ModelError, match="a tensor of its own for each input"):
        import_model(torch.export.export(_Difference(), (x, x)))
