"""Models that keep state: calls and what is left behind equal PyTorch's, one after the other."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import tvm
from kept_models import ROWS, WIDTH, Kept, check, compiled, places, values

import tvm_tile
from bench.random_state import differences
from tvm_tile.errors import InputError, TileError

pytestmark = pytest.mark.bank(4)


def count(kept: Any, x: Any) -> Any:
    kept.count += 1
    return x * kept.count


def average(kept: Any, x: Any) -> Any:
    """The old value is returned, too, a copy in PyTorch and a name in a program."""
    old = kept.mean.clone()
    kept.mean.mul_(0.9).add_(0.1 * x.mean(0))
    return old, x - kept.mean


def exchange(kept: Any, x: Any) -> Any:
    old = kept.mean.clone()
    kept.mean.copy_(kept.other)
    kept.other.copy_(old)
    return x + kept.mean, kept.other


def clear(kept: Any, x: Any) -> Any:
    """Two buffers get a constant, one after it was read."""
    y = x + kept.mean
    kept.mean.zero_()
    kept.other.fill_(2.0)
    return y


def one_row(kept: Any, x: Any, at: Any) -> Any:
    kept.cache.index_copy_(2, at, x)
    return kept.cache.sum(-1)


def read_and_written(kept: Any, x: Any, at: Any) -> Any:
    """Rows depend on what was there before, which is read first."""
    before = kept.cache[:, :, at]
    kept.cache[:, :, at] = before * 0.5 + x
    return before


def written_twice(kept: Any, x: Any, at: Any) -> Any:
    kept.cache[:, :, at] = x
    kept.cache[:, 0] = x[:, 0, :1]
    kept.cache.index_copy_(2, at, x + 1)
    return kept.cache


def read_later(kept: Any, x: Any, at: Any) -> Any:
    """The old value is returned, so that nothing may be written in place."""
    before = kept.cache.clone()
    kept.cache[:, :, at] = x
    return before


@pytest.mark.parametrize("function", [count, average, exchange, clear])
def test_buffers(function: Any) -> None:
    ours = check(function, values(5, WIDTH))
    assert ours.state
    assert "copied whole in each call: " in ours.explain("all")


@pytest.mark.parametrize("function", [one_row, read_and_written, written_twice, read_later])
def test_caches(function: Any) -> None:
    ours = check(function, values(2, 3, 1, WIDTH), places(1))
    assert ("written in place: cache" in ours.explain("all")) == (function is not read_later)


GPU = tvm.cuda(0).exist


@pytest.mark.cuda
@pytest.mark.skipif(not GPU, reason="needs an NVIDIA GPU")
@pytest.mark.parametrize(
    ("function", "draws"),
    [
        *((function, (values(5, WIDTH),)) for function in (count, average, exchange, clear)),
        *(
            (function, (values(2, 3, rows, WIDTH), places(rows)))
            for function in (one_row, read_and_written, written_twice)
            for rows in (1, 5)
        ),
    ],
)
def test_on_a_gpu_in_cuda_graphs(function: Any, draws: Any) -> None:
    """More calls than are captured, with PyTorch's tensors there and NumPy's here in turns."""
    theirs = Kept(function).eval()
    ours = tvm_tile.compile(
        copy.deepcopy(theirs), "auto", example_inputs=tuple(draw() for draw in draws)
    )
    for call in range(12):
        inputs = [draw() for draw in draws]
        if len(inputs) > 1 and call % 2:
            inputs[1] = torch.randperm(ROWS)[: len(inputs[1])]  # of equal ones PyTorch takes any
        elif len(inputs) > 1:
            inputs[1] = torch.arange(ROWS)[call % 3 : call % 3 + len(inputs[1])]
        with torch.no_grad():
            expected = theirs(*inputs)
        found = ours(*(tensor.cuda() if call % 3 else tensor.numpy() for tensor in inputs))
        expected = expected if isinstance(expected, tuple) else (expected,)
        found = found if isinstance(found, tuple) else (found,)
        for own, wanted in zip(found, expected, strict=True):
            torch.testing.assert_close(torch.as_tensor(own).cpu(), wanted)
        torch.cuda.synchronize()
        buffers = dict(theirs.named_buffers())
        for name, tensor in ours.state.items():
            torch.testing.assert_close(torch.from_numpy(tensor.numpy()), buffers[name])


RNG = np.random.default_rng(7)


def _random_indices() -> tuple[list[Any], tuple[int, ...]]:
    """Integer indices of some axes, equal ones and negative ones among them, and the shape of what
    they choose."""
    shape = (2, 3, ROWS, WIDTH)
    rank = int(RNG.integers(1, 3))
    broadcast = tuple(int(n) for n in RNG.integers(1, 4, rank))
    axes = sorted(RNG.choice(4, int(RNG.integers(1, 4)), replace=False))
    index: list[Any] = [slice(None)] * (max(axes) + 1)
    for axis in axes:
        own = tuple(1 if RNG.random() < 0.3 else n for n in broadcast)
        index[axis] = torch.from_numpy(RNG.integers(-shape[axis], shape[axis], own))
    return index, tuple(torch.empty(shape)[tuple(index)].shape)


@pytest.mark.parametrize("_", range(6))
def test_random_places_in_place(_: int) -> None:
    """``cache[index] = x`` for random indices; of equal places the last update wins, on any GPU."""
    index, shape = _random_indices()
    tensors = [i for i in index if isinstance(i, torch.Tensor)]
    shape = shape[int(RNG.integers(0, len(shape) + 1)) :]  # what is in front is broadcast
    x = torch.randn(shape)

    def put(kept: Any, x: Any, *at: Any) -> Any:
        left = iter(at)
        where = tuple(i if isinstance(i, slice) else next(left) for i in index)
        kept.cache[where] = x
        return kept.cache * 1

    model = Kept(put).eval()
    cache = model.cache.clone().numpy()
    ours = compiled(model, x, *tensors)
    ours(x, *tensors)
    where = tuple(i if isinstance(i, slice) else i.numpy() for i in index)
    cache[where] = x.numpy()  # NumPy's order is defined
    np.testing.assert_array_equal(ours.state["cache"].numpy(), cache)
    assert any("write_rows" in kernel.name for kernel in ours.report.kernels)
    assert not ours.report.fallbacks


@pytest.mark.parametrize("at", [[0, 9, 3], [9, -9, 20], [-1, 100, 7], [50]])
def test_places_out_of_bounds_are_left_out(at: list[int]) -> None:
    ours = compiled(Kept(one_row).eval(), torch.zeros(2, 3, len(at), WIDTH), torch.tensor(at))
    cache = ours.state["cache"].numpy()
    x = np.random.default_rng(0).standard_normal((2, 3, len(at), WIDTH)).astype("float32")
    ours(x, np.array(at))
    for row, place in enumerate(at):
        if -ROWS <= place < ROWS:
            cache[:, :, place] = x[:, :, row]
    np.testing.assert_array_equal(ours.state["cache"].numpy(), cache)


def test_state_is_read_written_and_reset() -> None:
    ours = compiled(Kept(one_row).eval(), torch.zeros(2, 3, 1, WIDTH), torch.tensor([0]))
    first = ours.state["cache"].numpy()
    x = np.ones((2, 3, 1, WIDTH), "float32")
    ours(x, np.array([5]))
    assert not np.array_equal(ours.state["cache"].numpy(), first)
    torch.from_dlpack(ours.state["cache"])[0, 0, 0] = 7.0  # the very memory
    assert (ours.state["cache"].numpy()[0, 0, 0] == 7).all()
    ours.state["cache"] = torch.zeros(2, 3, ROWS, WIDTH)
    np.testing.assert_allclose(ours(x, np.array([1])).sum(), 2 * 3 * WIDTH)
    ours.reset()
    np.testing.assert_array_equal(ours.state["cache"].numpy(), first)
    assert "cache" in ours.state
    assert "cash" not in ours.state
    with pytest.raises(InputError, match="state: cache"):
        ours.state["cash"]
    with pytest.raises(InputError, match="shape"):
        ours.state["cache"] = np.zeros(3, "float32")
    with pytest.raises(InputError, match="keeps its state"):
        del ours.state["cache"]
    kept = ours.state["cache"].numpy()
    part = torch.from_dlpack(ours.state["cache"])[:, :, :1]
    with pytest.raises(InputError, match="model's state"):
        ours(part, np.array([4]))
    np.testing.assert_array_equal(ours.state["cache"].numpy(), kept)
    ours(part.clone(), np.array([4]))
    assert list(ours.state) == ["cache"]


def test_times_and_verification_leave_the_state_as_it_is() -> None:
    ours = check(count, values(5, WIDTH), calls=2)
    ours.time(torch.ones(5, WIDTH), repeats=2)
    model = Kept(average).eval()
    averaging = compiled(model, torch.ones(5, WIDTH))
    averaging(torch.ones(5, WIDTH))
    before = averaging.state["mean"].numpy()
    assert averaging.verify().is_right
    np.testing.assert_array_equal(averaging.state["mean"].numpy(), before)
    assert (model.mean == 1).all()
    assert int(ours.state["count"].numpy()) == 2


@pytest.mark.parametrize("now", [False, True])
def test_saved_models_have_their_state(now: bool, tmp_path: Path) -> None:
    ours = compiled(Kept(count).eval(), torch.ones(2))
    x = np.ones(2, "float32")
    for _ in range(3):
        ours(x)
    ours.save(tmp_path / "model.tvmtile", state=now)
    loaded = tvm_tile.load(tmp_path / "model.tvmtile")
    assert loaded.effects.state[0].signature == ours.effects.state[0].signature
    np.testing.assert_array_equal(loaded(x), [4, 4] if now else [1, 1])
    loaded.reset()
    np.testing.assert_array_equal(loaded(x), [4, 4] if now else [1, 1])


def test_a_cache_of_zeros_takes_no_room_in_a_file(tmp_path: Path) -> None:
    model = Kept(one_row).eval()
    model.cache = torch.zeros(2, 3, 4096, 64)
    ours = compiled(model, torch.zeros(2, 3, 1, 64), torch.tensor([0]))
    ours.save(tmp_path / "model.tvmtile")
    assert (tmp_path / "model.tvmtile").stat().st_size < 1e6
    assert not tvm_tile.load(tmp_path / "model.tvmtile").state["cache"].numpy().any()


def test_memory_that_other_weights_share_is_refused() -> None:
    def change(kept: Any, x: Any) -> Any:
        kept.mean.add_(1)
        return x + kept.other

    model = Kept(change).eval()
    base = torch.zeros(6)
    model.mean, model.other = base[:4], base[2:]
    with pytest.raises(TileError) as caught:
        compiled(model, torch.ones(4))
    assert "memory of its own" in caught.value.remedy


def test_a_cache_that_an_object_holds_besides() -> None:
    """As transformers' static caches are: buffers that layers reach through Python's objects."""

    def remember(kept: Any, input: Any, at: Any) -> Any:
        kept.holder["cache"].index_copy_(2, at, input)
        kept.holder["count"].add_(1)
        return kept.cache.sum(-1) + kept.holder["count"]

    theirs = Kept(remember).eval()
    theirs.holder = {"cache": theirs.cache, "count": theirs.count}
    x, at = torch.randn(2, 3, 1, WIDTH), torch.tensor([3])
    program = torch.export.export(theirs, (x, at))
    ours = tvm_tile.compile(program, "emulated")
    for _ in range(2):
        with torch.no_grad():
            torch.testing.assert_close(ours(x, at), theirs(x, at))
    assert set(ours.state) == {"cache", "count"}


@pytest.mark.parametrize("seed", range(1000, 1004))
def test_random_programs_of_buffers(seed: int) -> None:
    assert list(differences(seed)) == []


def test_half_precision() -> None:
    def keep(kept: Any, x: Any) -> Any:
        kept.cache[:, :, 1:2] = x
        return kept.cache.sum()

    for dtype in (torch.float16, torch.bfloat16):
        model = Kept(keep).eval().to(dtype)
        shapes = torch.zeros(2, 3, 1, WIDTH, dtype=dtype)
        ours = tvm_tile.compile(model, "nvidia/h200", example_inputs=(shapes,))
        assert [s.signature.dtype for s in ours.effects.state] == [str(dtype).split(".")[1]]
        assert len(ours.effects.state[0].initial) == 2 * model.cache.numel()
