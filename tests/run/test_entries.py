"""Entries of one model have their constants and state in common; programs hold no weights."""

from __future__ import annotations

import re
import threading
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import tvm
from torch import Tensor, nn

import tvm_tile
from tvm_tile.errors import InputError, ModelError, SavedModelError

pytestmark = pytest.mark.skipif(not find_spec("pyopencl"), reason="needs pyopencl")

OPTIONS = tvm_tile.Options(cache=False)


class Decoder(nn.Module):
    """A cell with a memory of its last rows, read by a whole prompt or by one step."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Linear(24, 32), nn.Linear(32, 24)
        self.register_buffer("rows", torch.zeros(5, 24))
        self.register_buffer("count", torch.zeros(1, dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        self.rows.copy_(torch.cat([self.rows, x])[-5:])
        self.count.add_(x.shape[0])
        return self.second(torch.relu(self.first(x))) + self.rows.sum(0) * self.count


def exported(module: nn.Module, rows: int) -> Any:
    return torch.export.export(module.eval(), (torch.randn(rows, 24),))


@pytest.fixture(scope="module")
def entries() -> tvm_tile.CompiledEntries:
    module = Decoder()
    programs = {"prompt": exported(module, 4), "step": exported(module, 1)}
    return tvm_tile.compile(programs, "emulated", options=OPTIONS)


def as_numpy(result: Any) -> np.ndarray:
    return result if isinstance(result, np.ndarray) else np.asarray(result.numpy())


def assert_equal_turns(entries: tvm_tile.CompiledEntries, seed: int) -> None:
    """A prompt and three steps, by PyTorch and by the entries."""
    module = Decoder().eval()
    generator = torch.Generator().manual_seed(seed)
    for name, rows in (("prompt", 4), ("step", 1), ("step", 1), ("prompt", 4), ("step", 1)):
        x = torch.randn(rows, 24, generator=generator)
        torch.testing.assert_close(entries[name](x), module(x))
    np.testing.assert_allclose(entries.state["rows"].numpy(), module.rows.numpy())
    assert entries.state["count"].numpy() == 11


def test_what_one_writes_the_other_reads(entries: tvm_tile.CompiledEntries) -> None:
    for seed in range(2):
        entries.reset()
        assert_equal_turns(entries, seed)
    states = [entries[name].state["rows"].data_ptr() for name in entries]
    assert len(set(states)) == 1
    assert entries.state["rows"].data_ptr() == states[0]


def test_arrays_of_any_library(entries: tvm_tile.CompiledEntries) -> None:
    entries.reset()
    x = torch.randn(1, 24)
    wanted = entries["step"](x)
    for given in (x.numpy(), tvm.runtime.tensor(x.numpy())):
        entries.reset()
        np.testing.assert_allclose(as_numpy(entries["step"](given)), wanted, rtol=1e-6)


def test_weights_are_held_once(entries: tvm_tile.CompiledEntries) -> None:
    one, other = (entries[name].program for name in ("prompt", "step"))
    assert one.constants
    assert set(one.constants) == set(other.constants)
    assert sum(len(c.data) for c in one.constants) == 2 * 24 * 32 * 4
    for program in (one, other):
        assert all(bytes(constant.data) not in program.vm for constant in program.constants)
    assert re.search(r"constants: 0\.01 MB, 0\.01 MB less than apart", entries.explain("all"))


def test_saved_and_loaded(entries: tvm_tile.CompiledEntries, tmp_path: Path) -> None:
    path = tmp_path / "decoder.tvmtile"
    entries.save(path)
    loaded = tvm_tile.CompiledEntries.load(path)
    assert list(loaded) == ["prompt", "step"]
    assert_equal_turns(loaded, seed=7)
    # From where it stands now.
    loaded.save(tmp_path / "later.tvmtile", state=True)
    later = tvm_tile.CompiledEntries.load(tmp_path / "later.tvmtile")
    x = torch.randn(1, 24)
    torch.testing.assert_close(later["step"](x), loaded["step"](x))
    assert path.read_bytes().count(bytes(entries["step"].program.constants[0].data)) == 1


def test_a_file_says_whether_it_has_entries(
    entries: tvm_tile.CompiledEntries, tmp_path: Path
) -> None:
    entries.save(tmp_path / "entries.tvmtile")
    with pytest.raises(SavedModelError, match="prompt, step"):
        tvm_tile.load(tmp_path / "entries.tvmtile")
    entries["step"].save(tmp_path / "one.tvmtile")
    with pytest.raises(SavedModelError, match=r"use tvm_tile\.load"):
        tvm_tile.CompiledEntries.load(tmp_path / "one.tvmtile")
    x = torch.randn(1, 24)
    torch.testing.assert_close(tvm_tile.load(tmp_path / "one.tvmtile")(x), Decoder()(x))


def test_wrong_entries(entries: tvm_tile.CompiledEntries) -> None:
    with pytest.raises(InputError, match="prompt, step"):
        entries["later"]
    with pytest.raises(ModelError, match="mapping from names"):
        tvm_tile.compile({}, "emulated")
    with pytest.raises(ModelError, match="mapping from names"):
        tvm_tile.compile({3: exported(Decoder(), 1)}, "emulated")  # type: ignore[dict-item]
    with pytest.raises(ModelError, match="say themselves"):
        tvm_tile.compile({"a": Decoder()}, "emulated", example_inputs=(torch.ones(1, 24),))  # type: ignore[call-overload]


def test_entries_that_disagree_on_their_state() -> None:
    module, other = Decoder(), Decoder()
    other.count += 1
    with pytest.raises(ModelError, match=r"'b' keeps it so, 'a' keeps other values"):
        tvm_tile.compile({"a": exported(module, 1), "b": exported(other, 1)}, "emulated")


def test_threads_take_turns(entries: tvm_tile.CompiledEntries) -> None:
    entries.reset()

    def run(name: str, rows: int) -> None:
        for _ in range(20):
            entries[name](torch.zeros(rows, 24))

    threads = [threading.Thread(target=run, args=one) for one in (("prompt", 4), ("step", 1))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert entries.state["count"].numpy() == 100


class TestConstants:
    """Of one model: its weights are not copied until it is on a device."""

    @pytest.fixture
    def module(self) -> nn.Module:
        torch.manual_seed(1)
        return nn.Sequential(nn.Embedding(64, 16), nn.Softmax(-1), nn.Embedding(2, 16)).eval()[:2]

    def test_they_are_the_models_own_memory(self, module: nn.Module) -> None:
        model = tvm_tile.compile(
            torch.export.export(module, (torch.zeros(3, dtype=torch.int64),)), "emulated"
        )
        (constant,) = model.program.constants
        assert np.asarray(constant.data).ctypes.data == module[0].weight.data_ptr()

    @pytest.mark.parametrize("use", ["call", "save"])
    def test_weights_that_change_before_they_are_needed(
        self, module: nn.Module, use: str, tmp_path: Path
    ) -> None:
        tokens = torch.tensor([3, 1, 63])
        model = tvm_tile.compile(torch.export.export(module, (tokens,)), "emulated")
        module[0].weight.data[40, 3] += 1
        with pytest.raises(ModelError, match="has been written to since"):
            model(tokens) if use == "call" else model.save(tmp_path / "m.tvmtile")
        assert not list(tmp_path.iterdir())

    def test_weights_that_change_later(self, module: nn.Module) -> None:
        tokens = torch.tensor([3, 1, 63])
        model = tvm_tile.compile(torch.export.export(module, (tokens,)), "emulated")
        before = model(tokens)
        module[0].weight.data += 1
        torch.testing.assert_close(model(tokens), before)

    @pytest.mark.parametrize("dtype", [torch.bool, torch.int8, torch.int64, torch.float64])
    def test_every_type(self, dtype: torch.dtype, tmp_path: Path) -> None:
        values = torch.randint(0, 2, (40, 70)).to(dtype)

        class Picked(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.register_buffer("values", values.clone())

            def forward(self, rows: Tensor) -> Tensor:
                return self.values[rows]

        rows = torch.tensor([39, 0, 7])
        model = tvm_tile.compile(torch.export.export(Picked(), (rows,)), "emulated")
        assert len(model.program.constants) == 1
        model.save(tmp_path / "m.tvmtile")
        for one in (model, tvm_tile.load(tmp_path / "m.tvmtile")):
            torch.testing.assert_close(one(rows), values[rows])
