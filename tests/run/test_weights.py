"""Weights as inputs whose memory mostly stays: on the CPU, with graphs that record and replay."""

from __future__ import annotations

import copy
import random
import threading
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import tvm
from fake_graphs import FakeGraphs, emulated_with_graphs, fake_graphs
from torch import Tensor, nn
from torch_backend_cases import drawn
from torch_backend_models import perceptron
from torch_backend_runs import backend
from tvm import relax
from weight_changes import WEIGHT_CHANGES, steps

import tvm_tile
from tvm_tile.errors import InputError, ModelError, RunError
from tvm_tile.runtime import weights
from tvm_tile.stages.forced import Forced

pytestmark = pytest.mark.skipif(not find_spec("pyopencl"), reason="needs pyopencl")


@pytest.fixture(autouse=True)
def graphs() -> Iterator[FakeGraphs]:
    torch._dynamo.reset()
    with fake_graphs() as found:
        yield found


class Deep(nn.Module):
    """Enough kernels in a row for a graph."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.linear, self.last = (nn.Linear(5, 5) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        x = torch.softmax(self.first(x), -1)
        return self.last(torch.softmax(self.linear(x), -1)) * 2


def compiled(model: Any, **options: Any) -> Any:
    return torch.compile(model, backend=backend(lambda _: None, emulated_with_graphs()), **options)


def assert_same_calls(run: Any, model: Any, count: int = 3) -> None:
    for seed in range(count):
        x = drawn(4, 5, seed=seed)
        torch.testing.assert_close(run(x), model(x))


@torch.no_grad()
def test_copies_of_a_compiled_model_share_its_code_and_not_its_weights(graphs: FakeGraphs) -> None:
    model = Deep()
    run = compiled(model)
    assert_same_calls(run, model)
    other = copy.deepcopy(run)
    steps(other)
    for _ in range(3):
        assert_same_calls(run, model, 1)
        assert_same_calls(other, other._orig_mod, 1)
    assert len(graphs.captured) == 2
    assert len(graphs.replayed) == 7


@torch.no_grad()
def test_blocks_of_one_class_share_a_program(graphs: FakeGraphs) -> None:
    blocks = [Deep() for _ in range(6)]
    for block in blocks:
        block.compile(backend=backend(lambda _: None, emulated_with_graphs()))
    whole, eager = nn.Sequential(*blocks), nn.Sequential(*map(copy.copy, blocks))
    for block in eager:
        block._compiled_call_impl = None
    assert_same_calls(whole, eager)
    assert len(graphs.captured) == 6


@torch.no_grad()
def test_no_weight_is_kept_alive() -> None:
    model = Deep()
    run = compiled(model)
    storage = model.linear.weight.untyped_storage()
    before = torch._C._storage_Use_Count(storage._cdata)
    assert_same_calls(run, model)
    assert torch._C._storage_Use_Count(storage._cdata) == before


@torch.no_grad()
def test_weights_of_too_many_places_are_copied(
    graphs: FakeGraphs, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(weights, "_MOST_PLACES", 3)
    model = Deep()
    run = compiled(model)
    for _ in range(6):
        model.load_state_dict({k: v * 1.5 for k, v in model.state_dict().items()}, assign=True)
        assert_same_calls(run, model, 2)
        steps(model)
        assert_same_calls(run, model, 1)
    assert len(graphs.captured) == 4  # of three places, and of the program's own
    assert caplog.text.count("weights lay in 3 places: further ones are copied") == 1


@torch.no_grad()
def test_two_threads_call_two_copies() -> None:
    model = Deep()
    run = compiled(model)
    other = copy.deepcopy(run)
    steps(other)
    assert_same_calls(run, model)
    errors: list[BaseException] = []

    def work(run: Any, model: Any) -> None:
        try:
            with torch.no_grad():
                assert_same_calls(run, model, 40)
        except BaseException as error:
            errors.append(error)

    pairs = ((run, model), (other, other._orig_mod))
    threads = [threading.Thread(target=work, args=pair) for pair in pairs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors


@torch.no_grad()
def test_weights_of_open_sizes() -> None:
    model = Deep()
    run = compiled(model, dynamic=True)
    for rows in (4, 6, 4, 6):
        x = drawn(rows, 5)
        torch.testing.assert_close(run(x), model(x))
        WEIGHT_CHANGES["replaced"](model)


@pytest.mark.parametrize("seed", range(3))
def test_random_changes_between_calls(seed: int) -> None:
    rng = random.Random(seed)
    torch.manual_seed(seed)
    models = [Deep()]
    runs = [compiled(models[0])]
    changes = list(WEIGHT_CHANGES.values())
    for number in range(50):
        at = rng.randrange(len(models))
        with torch.no_grad():
            assert_same_calls(runs[at], models[at], rng.choice((1, 1, 2)))
        if rng.random() < 0.7:
            rng.choice(changes)(models[at])
            for parameter in models[at].parameters():  # none may grow beyond bounds
                parameter.data.clamp_(-3, 3)
        if number % 20 == 10:
            runs.append(copy.deepcopy(runs[at]))
            models.append(runs[-1]._orig_mod)


def test_training_reads_the_weights_of_each_step() -> None:
    torch.manual_seed(0)
    theirs = perceptron()
    ours = copy.deepcopy(theirs)
    run = compiled(ours)
    for seed in range(4):
        x = drawn(7, 6, seed=seed)
        for model, call in ((theirs, theirs), (ours, run)):
            torch.manual_seed(seed)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            optimizer.zero_grad()
            call(x).square().sum().backward()
            optimizer.step()
        if seed == 1:
            for model in (theirs, ours):
                WEIGHT_CHANGES["loaded by assignment"](model)
    for one, other in zip(ours.state_dict().values(), theirs.state_dict().values(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


# --- tvm_tile.compile ----------------------------------------------------------------------------


def relax_chain(num_input: int | None = None) -> tvm.IRModule:
    """``softmax(softmax(x @ a) @ b) @ a``."""
    builder = relax.BlockBuilder()
    x, a, b = (relax.Var(name, relax.TensorType((4, 4), "float32")) for name in "xab")
    with builder.function("main", [x, a, b]):
        with builder.dataflow():
            y = builder.emit(relax.op.nn.softmax(relax.op.matmul(x, a)))
            y = builder.emit(relax.op.nn.softmax(relax.op.matmul(y, b)))
            y = builder.emit_output(relax.op.matmul(y, a))
        builder.emit_func_output(y)
    mod = builder.get()
    if num_input is not None:
        mod["main"] = mod["main"].with_attr("num_input", num_input)
    return mod


def chain(x: Any, a: Any, b: Any) -> Any:
    y = torch.softmax(torch.as_tensor(x) @ torch.as_tensor(a), -1)
    return torch.softmax(y @ torch.as_tensor(b), -1) @ torch.as_tensor(a)


def compile_chain(**options: Any) -> Any:
    no_welding = Forced(weld=False, cache=False)
    mod = relax_chain(options.pop("num_input", None))
    return tvm_tile.compile(mod, emulated_with_graphs(), options=no_welding, **options)


def squares(seed: int) -> list[np.ndarray]:
    return [drawn(4, 4, seed=3 * seed + i).numpy().copy() for i in range(3)]


@pytest.mark.parametrize("said", [{"weights": 2}, {"num_input": 1}])
def test_arrays_of_other_libraries_are_read_anew_each_time(said: dict[str, int]) -> None:
    model = compile_chain(**said)
    assert model.program.weights == 2
    for seed in range(4):
        values = squares(seed)
        np.testing.assert_allclose(model(*values), chain(*values), rtol=1e-5)
        tensors = [torch.from_numpy(value) for value in values]
        torch.testing.assert_close(model(*tensors), chain(*tensors))
        mixed = [values[0], *tensors[1:]]
        np.testing.assert_allclose(model(*mixed), chain(*values), rtol=1e-5)
    assert model.time(*squares(0), repeats=2).median_s > 0
    assert model.time(*map(torch.from_numpy, squares(0)), repeats=2).median_s > 0


def test_a_saved_model_knows_its_weights(tmp_path: Path) -> None:
    model = compile_chain(weights=1)
    model.save(tmp_path / "chain.tvmtile")
    loaded = tvm_tile.load(tmp_path / "chain.tvmtile")
    assert loaded.program == model.program
    for seed in range(3):
        values = squares(seed)
        np.testing.assert_allclose(loaded(*values), chain(*values), rtol=1e-5)


def test_weights_of_other_shapes_are_refused() -> None:
    model = compile_chain(weights=2)
    x, a, b = map(torch.from_numpy, squares(0))
    with pytest.raises(InputError, match="shape"):
        model(x, a, b[:3])
    with pytest.raises(RunError, match="shape"):
        model.call_torch([x, a, b[:3]])
    torch.testing.assert_close(model(x, a, b), chain(x, a, b))


@pytest.mark.parametrize(
    "said", [{"weights": -1}, {"weights": 3}, {"weights": 4}, {"num_input": 0}, {"num_input": -1}]
)
def test_one_input_at_least_is_no_weight(said: dict[str, int]) -> None:
    with pytest.raises(ModelError, match="one input at least is none"):
        compile_chain(**said)
