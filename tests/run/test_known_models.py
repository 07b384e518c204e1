"""A model that was compiled before comes out of the cache, unless anything about it has changed."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from scheduled import relax_module
from torch import nn
from tvm.relax import op

import tvm_tile
from tvm_tile import CompiledModel, Open, Options
from tvm_tile.errors import InputError
from tvm_tile.frontend import asked
from tvm_tile.stages import known_models, opened_store
from tvm_tile.stages.forced import Forced

X = np.random.default_rng(0).standard_normal((4, 8)).astype("float32")


@pytest.fixture(autouse=True)
def unchanged_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever edits the package while its tests run turns its cache off; not here."""
    monkeypatch.setattr(opened_store, "_own_fingerprint", lambda: "the code under test")


@pytest.fixture
def compiled(tmp_path: Path) -> Callable[..., CompiledModel]:
    def compile_it(model: Any, device: Any = "emulated", **said: Any) -> Any:
        return tvm_tile.compile(model, device, cache=tmp_path / "cache", **said)

    return compile_it


def is_known(model: CompiledModel) -> bool:
    return [stage.name for stage in model.report.stages] == ["read from the cache"]


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.relu(self.first(x)))


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls.add_(1)
        return x + self.calls


def product(weight: np.ndarray, batch: Any = 4) -> onnx.ModelProto:
    value = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("MatMul", ["x", "w"], ["y"], name="layer")],
        "product",
        [value("x", onnx.TensorProto.FLOAT, (batch, 8))],
        [value("y", onnx.TensorProto.FLOAT, (batch, 8))],
        [onnx.numpy_helper.from_array(weight, "w")],
    )
    imports = [onnx.helper.make_opsetid("", 17)]
    return onnx.helper.make_model(graph, opset_imports=imports, ir_version=9)


WEIGHT = np.random.default_rng(1).standard_normal((8, 8)).astype("float32")


def test_a_module_comes_back_and_verifies(compiled: Callable[..., CompiledModel]) -> None:
    module = Layers().eval()
    first = compiled(module, example_inputs=(torch.from_numpy(X),))
    second = compiled(module, example_inputs=(torch.from_numpy(X),))
    assert (is_known(first), is_known(second)) == (False, True)
    np.testing.assert_array_equal(first(X), second(X))
    assert first.explain("kernels").splitlines()[2:] == second.explain("kernels").splitlines()[2:]
    assert second.verify().is_right
    assert second.verifier is not None
    assert second.verifier.scripts() == first.verifier.scripts()


def test_a_changed_weight_is_another_model(compiled: Callable[..., CompiledModel]) -> None:
    module = Layers().eval()
    given = {"example_inputs": (torch.from_numpy(X),)}
    compiled(module, **given)
    with torch.no_grad():
        module.first.weight[0, 0] += 1
        second = compiled(module, **given)
        assert not is_known(second)
        np.testing.assert_allclose(second(X), module(torch.from_numpy(X)), rtol=1e-5, atol=1e-5)
    assert is_known(compiled(module, **given))


@pytest.mark.parametrize("kind", ["file", "proto", "external", "pt2", "program", "relax", "relay"])
def test_models_of_each_kind(
    kind: str, tmp_path: Path, compiled: Callable[..., CompiledModel]
) -> None:
    said: dict[str, Any] = {}
    if kind in ("file", "external"):
        path = tmp_path / "model.onnx"
        beside = {"save_as_external_data": True, "size_threshold": 0} if kind == "external" else {}
        onnx.save(product(WEIGHT), path, location="weights", **beside)
        models = [path, str(path)]
    elif kind == "proto":
        models = [product(WEIGHT), product(WEIGHT)]
    elif kind == "relax":
        models = [
            relax_module(lambda x: op.nn.relu(op.multiply(x, op.add(x, x))), ((4, 8),))
            for _ in range(2)
        ]
    elif kind == "relay":
        tensor = "Tensor[(4, 8), float32]"
        main = f"def @main(%x: {tensor}, %w: {tensor}) {{ add(%x, %w) }}"
        text = f'#[version = "0.0.5"]\n{main}'
        models = [tvm_tile.RelayText(text)] * 2
        said = {"params": {"w": X}}
    else:
        torch.manual_seed(0)
        program = torch.export.export(Layers().eval(), (torch.from_numpy(X),))
        models = [program, program]
        if kind == "pt2":
            torch.export.save(program, tmp_path / "model.pt2")
            models = [tmp_path / "model.pt2"] * 2
    first, second = (compiled(model, **said) for model in models)
    assert (is_known(first), is_known(second)) == (False, True)
    np.testing.assert_array_equal(np.asarray(first(X)), np.asarray(second(X)))


def test_weights_beside_a_file_count(
    tmp_path: Path, compiled: Callable[..., CompiledModel]
) -> None:
    path = tmp_path / "model.onnx"
    for weight in (WEIGHT, WEIGHT + 1):
        onnx.save(product(weight), path, save_as_external_data=True, location="w", size_threshold=0)
        model = compiled(path)
        assert not is_known(model)
        np.testing.assert_allclose(model(X), X @ weight, rtol=1e-5, atol=1e-5)


def test_whatever_is_said_differently_is_a_miss(
    monkeypatch: pytest.MonkeyPatch, compiled: Callable[..., CompiledModel]
) -> None:
    model = product(WEIGHT, "batch")
    assert not is_known(compiled(model))
    assert is_known(compiled(model))
    assert not is_known(compiled(model, inputs={"x": (2, 8)}))
    assert not is_known(compiled(model, inputs={"x": (Open(1, 4), 8)}))
    assert is_known(compiled(model, inputs={"x": (Open(1, 4), 8)}))
    assert not is_known(compiled(model, options=Forced(weld=False)))
    assert not is_known(compiled(model, verify=True))
    assert not is_known(compiled(model, "nvidia/h200"))
    assert not is_known(compiled(model, "nvidia/h200", tf32=True))
    assert is_known(compiled(model, "nvidia/h200", options=Forced(tf32=True, parallel_builds=1)))
    renamed = product(WEIGHT, "batch")
    renamed.graph.node[0].name = "other"
    assert not is_known(compiled(renamed))
    monkeypatch.setattr(known_models, "_version", lambda library: f"another {library}")
    assert not is_known(compiled(model))
    monkeypatch.setattr(opened_store, "_own_fingerprint", lambda: "other code")
    assert not is_known(compiled(model))
    assert is_known(compiled(model))


def test_a_damaged_entry_is_made_anew(
    tmp_path: Path, compiled: Callable[..., CompiledModel]
) -> None:
    compiled(product(WEIGHT))
    (entry,) = (path for path in (tmp_path / "cache" / "models").rglob("*") if path.is_file())
    whole = entry.read_bytes()
    changed = whole[:200] + bytes([whole[200] ^ 1]) + whole[201:]
    another = bytes(32) + whole[32:]
    for damaged in (whole[:-1], b"", changed, another):
        entry.write_bytes(damaged)
        again = compiled(product(WEIGHT))
        assert not is_known(again)
        np.testing.assert_allclose(again(X), X @ WEIGHT, rtol=1e-5, atol=1e-5)
    assert is_known(compiled(product(WEIGHT)))


def test_entries_come_back_together_with_their_state(
    compiled: Callable[..., Any],
) -> None:
    x = torch.from_numpy(X)
    program = torch.export.export(Counting(), (x,))
    wide = torch.export.export(Counting(), (x.repeat(2, 1),))
    for round_ in range(2):
        entries = compiled({"narrow": program, "wide": wide})
        assert all(is_known(model) == bool(round_) for model in entries.values())
        assert torch.equal(entries["narrow"](x), x + 1)
        assert torch.equal(entries["wide"](x.repeat(2, 1)), x.repeat(2, 1) + 2)


def test_what_changes_while_it_is_compiled_is_not_kept(
    monkeypatch: pytest.MonkeyPatch, compiled: Callable[..., CompiledModel]
) -> None:
    answers = iter((b"before", b"after", b"before", b"before"))
    monkeypatch.setattr(asked, "digest_of", lambda *_: next(answers))
    compiled(product(WEIGHT))
    assert not is_known(compiled(product(WEIGHT)))


def test_what_would_fill_the_cache_is_not_kept(compiled: Callable[..., CompiledModel]) -> None:
    for _ in range(2):
        assert not is_known(compiled(product(WEIGHT), cache_bytes=600))


def test_an_open_module_is_compiled_each_time(compiled: Callable[..., CompiledModel]) -> None:
    module, given = Layers().eval(), (torch.from_numpy(X),)
    for _ in range(2):
        sizes = {"x": (Open(1, 4), 8)}
        assert not is_known(compiled(module, example_inputs=given, inputs=sizes))


def test_nothing_keeps_a_model_for_its_verification(
    compiled: Callable[..., CompiledModel],
) -> None:
    for _ in range(2):
        torch.manual_seed(0)
        known = compiled(Layers().eval(), example_inputs=(torch.from_numpy(X),))
    gc.collect()
    with pytest.raises(InputError, match="nobody holds that any more"):
        known.verify()


def test_without_a_cache_nothing_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asked, "digest_of", lambda *_: pytest.fail("it was"))
    tvm_tile.compile(product(WEIGHT), "emulated", options=Options(cache=False))


def test_a_graph_behind_torch_compile_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TVM_TILE_CACHE", str(tmp_path))
    module, found = Layers().eval(), []
    original = tvm_tile.compiling.compile

    def watched(*args: Any, **named: Any) -> Any:
        found.append(original(*args, **named))
        return found[-1]

    monkeypatch.setattr(tvm_tile.compiling, "compile", watched)
    for _ in range(2):
        torch.compiler.reset()
        options = {"device": "emulated"}
        with torch.no_grad():
            run = torch.compile(module, backend="tvm_tile", options=options)
            got = run(torch.from_numpy(X))
            torch.testing.assert_close(got, module(torch.from_numpy(X)))
    assert [is_known(model) for model in found] == [False, True]
