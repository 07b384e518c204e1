"""Attention whose tiles of keys a table lists: the table, the kernel's text, and a model's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chain_bodies import attention, band, constant, masked
from emulated import arguments, built, guarded, is_intact
from joined import joined_function
from kernels import Case, Input, relative_difference
from tvm import ir, relax
from tvm.relax import op
from warp_emulator import COMPILER, emulate, tensor_maps

import tvm_tile
from tvm_tile.build.cubin import resources_of
from tvm_tile.device import find_device
from tvm_tile.frontend import import_model
from tvm_tile.graph.extract import extract
from tvm_tile.passes.ir.rewriter import elements_in
from tvm_tile.passes.weld.list_keys import best_table
from tvm_tile.schedule import Scheduled, Task
from tvm_tile.schedule.attention.find import AttentionMatch, find_chain
from tvm_tile.schedule.attention.listed import with_table
from tvm_tile.schedule.attention.seen import find_seen, granules_of
from tvm_tile.schedule.chain import schedule_chain
from tvm_tile.schedule.listed import settlers_of
from tvm_tile.stages.fusing import fuse
from tvm_tile.tile.attention.band import Band

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.bank(4)

H200 = find_device("nvidia/h200")
SQUARE, LONGER, EVEN = (300, 300), (200, 500), (256, 512)
RNG = np.random.default_rng(7)


def of_documents(scores: Any, dtype: str, own: Any) -> Any:
    """Documents one behind the other, each row seeing what is before it in its own."""
    same = op.equal(op.expand_dims(own, 1), op.expand_dims(own, 0))
    keep = op.logical_and(relax.const(band(SQUARE, 0, None)), same)
    return op.where(keep, scores, constant(-np.inf, dtype))


def with_padding(scores: Any, dtype: str, keep: Any, padding: Any) -> Any:
    """Two masks, one behind the other."""
    return masked(masked(scores, dtype, keep), dtype, padding)


def blocks(sizes: tuple[int, int], share: float, heads: int = 1) -> np.ndarray:
    """Random blocks of 64, the first keys of all rows, and a few single keys."""
    granules = RNG.random((heads, -(-sizes[0] // 64), -(-sizes[1] // 64))) < share
    mask = np.repeat(np.repeat(granules, 64, 1), 64, 2)[:, : sizes[0], : sizes[1]]
    mask |= RNG.random(mask.shape) < 1e-4
    mask[:, :, :3] = True
    return mask[None]


def case(body: Any, sizes: tuple[int, int], *others: Input, heads: int = 3) -> Case:
    rows, keys = sizes
    shapes = ((2, heads, rows, 64), (2, heads, keys, 64), (2, heads, keys, 64))
    inputs = [Input(shape, "float16") for shape in shapes]
    return Case("", "chain", attention(0.125, body, rounded=False), (*inputs, *others))


DOCUMENTS = np.repeat(np.arange(5), [10, 100, 50, 128, 12]).astype("int32")
MASKS: dict[str, tuple[Any, tuple[int, int], dict[int, np.ndarray], tuple[Input, ...]]] = {
    "documents": (of_documents, SQUARE, {0: DOCUMENTS}, (Input((300,), "int32"),)),
    "blocks": (masked, LONGER, {0: blocks(LONGER, 0.3)}, (Input((1, 1, *LONGER), "bool"),)),
    "of heads": (masked, LONGER, {0: blocks(LONGER, 0.2, 3)}, (Input((1, 3, *LONGER), "bool"),)),
    "padding": (
        with_padding,
        LONGER,
        {0: blocks(LONGER, 0.3)},
        (Input((1, 1, *LONGER), "bool"), Input((2, 1, 1, LONGER[1]), "bool")),
    ),
}
WHOLE = np.array([[1, 0, 1, 0], [0, 1, 0, 0]], bool)  # of blocks of 128, none of which is asked
MASKS["whole"] = (
    masked,
    EVEN,
    {0: np.repeat(np.repeat(WHOLE, 128, 0), 128, 1)[None, None]},
    (Input((1, 1, *EVEN), "bool"),),
)
EMULATED = [
    ("whole", (128, 128), 3),
    ("documents", (64, 64), 20),  # blocks take several items
    ("documents", (128, 128), 3),
    ("blocks", (64, 128), 3),
    ("blocks", (128, 64), 3),
    ("of heads", (128, 128), 3),
    ("padding", (128, 64), 3),
]


def prepared(name: str, heads: int = 3) -> tuple[Any, dict[str, np.ndarray]]:
    """The function of a mask, and what is known, by its parameters' names."""
    body, sizes, known, others = MASKS[name]
    func = joined_function(case(body, sizes, *others, heads=heads), H200, schedule_chain)
    others_of = [p for p in func.params if str(p.ty.dtype) in ("bool", "int32")]
    shapes = {place: array.shape for place, array in known.items()}
    found = {}
    for place, shape in shapes.items():
        (param,) = (p for p in others_of if tuple(map(int, p.ty.shape)) == shape)
        found[str(param.name)] = known[place]
    return func, found


def matched(func: Any) -> AttentionMatch:
    graph = extract(func)
    assert graph is not None
    found = find_chain(Task(func, graph, H200))
    assert found is not None
    return found


def written(func: Any, size: tuple[int, int], known: dict[str, np.ndarray]) -> Any:
    """The function with a table of tiles of a size, the table, and the best kernel of it."""
    match = matched(func)
    seen = find_seen(match.weights)
    assert seen is not None
    granules = granules_of(match.chain, seen.condition, known)
    assert granules is not None
    tiles, table = granules.tiles(*size)
    func = with_table(func, len(func.params) - 1, tiles)
    assert not settlers_of(func)  # which are of matrices with lists of chunks
    graph = extract(func)
    assert graph is not None
    choice = schedule_chain(Task(func, graph, H200), 1)[0]()
    assert isinstance(choice, Scheduled)
    return func, table, choice


@pytest.mark.skipif(COMPILER is None, reason="needs g++")
@pytest.mark.parametrize(("name", "size", "heads"), EMULATED)
def test_the_text_computes_what_the_cpu_does(
    name: str, size: tuple[int, int], heads: int, tmp_path: Path
) -> None:
    """The reference walks through all keys: what the table leaves out weighs nothing."""
    func, known = prepared(name, heads)
    func, table, choice = written(func, size, known)
    of = arguments(func, {**known, str(func.params[-2].name): table})
    memory = {n: guarded(a, is_output=n in of.outputs) for n, a in of.given.items()}
    arrays = {n: inside for n, (_, inside) in memory.items()}
    kernel = built(choice, H200, only_text=True)
    maps = tensor_maps(choice.func.script(), arrays)
    emulate(
        kernel, choice.grid, choice.block, arrays, tmp_path, late=True, backward=False, maps=maps
    )
    for n in of.outputs:
        assert relative_difference(arrays[n].reshape(of.wanted[n].shape), of.wanted[n]) < 4e-3
        assert is_intact(memory[n][0])


@pytest.mark.parametrize("name", MASKS)
def test_granules_are_those_of_the_mask(name: str) -> None:
    func, known = prepared(name)
    match = matched(func)
    seen = find_seen(match.weights)
    assert seen is not None
    found = granules_of(match.chain, seen.condition, known)
    assert found is not None
    (mask,) = known.values()
    if name == "documents":
        mask = (mask[:, None] == mask[None]) & band(SQUARE, 0, None)
    mask = mask.reshape(-1, *mask.shape[-2:])
    padded = np.pad(mask, [(0, 0), *[(0, -extent % 64) for extent in mask.shape[1:]]])
    by = padded.reshape(len(mask), padded.shape[1] // 64, 64, -1, 64)
    assert np.array_equal(found.seen, by.any((0, 2, 4)))
    whole = by.all((0, 2, 4)) & (name != "padding")  # of which nothing is known
    assert np.array_equal(found.whole, whole)


def compiled(mask: Any, rows: int) -> Any:
    """A model of one attention, whose mask is a constant."""

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("mask", torch.from_numpy(mask))

        def forward(self, q: Any, k: Any, v: Any) -> Any:
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, self.mask)

    q, k, v = (torch.randn(1, 8, rows, 64).half() for _ in range(3))
    return tvm_tile.predict(Model(), "nvidia/h200", example_inputs=(q, k, v))


@pytest.mark.parametrize("share", [0.1, 0.5])
def test_a_model_takes_its_share_of_the_time(share: float) -> None:
    """Masks of whole blocks; those of nothing, and of all, have no table."""
    own = RNG.random((16, 16)) < share
    own |= np.eye(16, dtype=bool)
    mask = np.repeat(np.repeat(own, 128, 0), 128, 1)
    dense = torch.ones(2048, 2048, dtype=torch.bool)
    (whole,) = compiled(dense.numpy(), 2048).kernels
    (found,) = compiled(mask, 2048).kernels
    assert found.rule == "chain"
    assert found.seconds < own.mean() * whole.seconds / 0.85 + 5e-6


def test_registers_suffice() -> None:
    func, known = prepared("documents")
    found = best_table(func, known, H200)
    assert found is not None
    for size in ((64, 128), (128, 64), (128, 128)):
        _, _, choice = written(func, size, known)
        resources = resources_of(built(choice, H200).binary)
        assert resources.stack == 0
        assert resources.registers * choice.block <= 65536


@pytest.mark.parametrize("kind", ["mask", "distances"])
def test_large_masks_of_small_tensors_are_no_constants(kind: str) -> None:
    """Nor are they made by kernels of their own, though several layers take them."""

    class Model(torch.nn.Module):
        def forward(self, q: Any, k: Any, v: Any) -> Any:
            own, place = torch.arange(2048) // 700, torch.arange(2048)
            mask = (own[:, None] == own[None]) & (place[:, None] >= place[None])
            mask = mask | (place < 9)
            if kind == "distances":
                mask = (place[None] - place[:, None]).half() * 0.125
            q = torch.nn.functional.scaled_dot_product_attention(q, k, v, mask)
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, mask)

    q, k, v = (torch.randn(1, 8, 2048, 64).half() for _ in range(3))
    mod = fuse(import_model(Model(), example_inputs=(q, k, v)).mod, H200).mod
    for func in mod.functions.values():
        if not isinstance(func, relax.Function):
            matched(func)  # nothing else is left
    sizes: list[int] = []

    def visit(expr: Any) -> None:
        if isinstance(expr, ir.Constant):
            sizes.append(elements_in(expr))

    relax.analysis.post_order_visit(mod["main"], visit)
    assert max(sizes, default=0) < 1 << 16


def test_bands_are_part_of_what_is_seen() -> None:
    match = matched(prepared("documents")[0])
    assert match.chain.band == Band(None, 0)
