"""Models that are compiled together: the outputs of each, and what they have in common once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

import tvm_tile
from tvm_tile.errors import ModelError

X = torch.linspace(-1, 1, 2 * 3 * 16 * 16).reshape(2, 3, 16, 16)


def stem() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 32, 3, padding=1), torch.nn.ReLU(), torch.nn.Conv2d(32, 32, 3, padding=1)
    )


def candidate(seed: int) -> torch.nn.Module:
    """A stem that all have, of equal weights, and an own head."""
    own = stem()
    torch.manual_seed(seed)
    head = torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(8192, 5 + seed))
    return torch.nn.Sequential(own, head).eval()


def of_onnx(path: Path, name: str, batch: int | str = "batch") -> Path:
    """A file that multiplies what it is given by a weight."""
    weight = np.random.default_rng(7).standard_normal((8, 4)).astype("float32")
    given = helper.make_tensor_value_info(name, TensorProto.FLOAT, [batch, 8])
    made = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    node = helper.make_node("MatMul", [name, "w"], ["y"])
    graph = helper.make_graph([node], "g", [given], [made], [numpy_helper.from_array(weight, "w")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)]), path)
    return path


def test_each_model_has_its_outputs() -> None:
    models = {"small": candidate(1), "large": candidate(2)}
    both = tvm_tile.compile(tvm_tile.together(models), "emulated", example_inputs=(X,), cache=False)
    assert [own.name.partition(".")[0] for own in both.outputs] == ["small", "large"]
    for found, model in zip(both(X), models.values(), strict=True):
        np.testing.assert_allclose(found.numpy(), model(X).detach().numpy(), rtol=1e-4, atol=1e-5)


def test_what_they_have_in_common_is_computed_once() -> None:
    models = {f"m{seed}": candidate(seed) for seed in (1, 2, 3)}
    oracle = tvm_tile.Oracle("nvidia/h200")
    apart = [oracle(model, example_inputs=(X,)) for model in models.values()]
    whole = oracle(tvm_tile.together(models), example_inputs=(X,))
    flops = [sum(kernel.calls * kernel.flops for kernel in own.kernels) for own in (*apart, whole)]
    heads = sum(2 * 2 * 8192 * (5 + seed) for seed in (1, 2, 3))
    stems = (sum(flops[:3]) - heads) / 3
    assert flops[3] == pytest.approx(stems + heads, rel=0.02)
    assert whole.predicted_seconds < 0.6 * sum(own.predicted_seconds for own in apart)
    stem_bytes = sum(4 * own.numel() for own in stem().parameters())
    assert sum(own.weights for own in apart) - whole.weights >= 2 * stem_bytes


def test_models_of_several_kinds_share_inputs_of_a_name(tmp_path: Path) -> None:
    layer = torch.nn.Linear(8, 3).eval()
    program = torch.export.export(layer, (torch.zeros(4, 8),))
    models = {"a": of_onnx(tmp_path / "a.onnx", "input"), "b": program}
    model = tvm_tile.compile(tvm_tile.together(models), "emulated", cache=False)
    assert [own.name for own in model.inputs] == ["input"]
    x = torch.linspace(-2, 2, 32).reshape(4, 8)
    alone = tvm_tile.compile(models["a"], "emulated", inputs={"input": (4, 8)}, cache=False)
    first, second = model(x)
    np.testing.assert_array_equal(first.numpy(), alone(x).numpy())
    np.testing.assert_allclose(second.numpy(), layer(x).detach().numpy(), rtol=1e-5, atol=1e-6)


class Counter(torch.nn.Module):
    """A number that goes up."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(1))
        self.count: torch.Tensor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count.add_(1)
        return x + self.count


def test_what_cannot_be_together_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="words as names"):
        tvm_tile.together({"a b": torch.nn.ReLU()})
    with pytest.raises(ModelError, match="there is none"):
        tvm_tile.together({})
    with pytest.raises(ModelError, match="keeps state"):
        tvm_tile.predict(tvm_tile.together({"a": Counter()}), "emulated", example_inputs=(X,))
    other = torch.export.export(torch.nn.ReLU(), (torch.zeros(3),))
    models = {"a": of_onnx(tmp_path / "a.onnx", "input", 4), "b": other}
    with pytest.raises(ModelError, match="another name"):
        tvm_tile.predict(tvm_tile.together(models), "emulated")
