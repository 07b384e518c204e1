"""Set the least weights of linear layers to zero, by a pattern: for trying and measuring.

Weights are chosen by their magnitude alone. Methods that look at data, or train what is left, lose
less; what they make is compiled, too.
"""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from tvm_tile.errors import ModelError, OptionError
from tvm_tile.errors.arguments import check_count, check_share

_PATTERN = re.compile(r"(\d+):(\d+)")
_MATRIX = 2  # extents of a block


def prune(
    module: nn.Module,
    pattern: str | None = None,
    *,
    blocks: Sequence[int] | None = None,
    density: float | None = None,
) -> nn.Module:
    """A copy of a module whose linear layers have zeros in the place of their least weights.

    Layers are pruned one by one. Blocks of zeros, and two of four halves, are left out by kernels
    where ``Options(zeros="skip")`` lets them; of other patterns all numbers are multiplied.

    Args:
        module: module with ``nn.Linear`` layers; it stays as it is.
        pattern: ``"2:4"``, say: of each four neighbours that are summed up, the two of the greatest
            magnitude are kept. Left out where ``blocks`` is given.
        blocks: extents of a block, outputs by inputs, such as ``(64, 64)``.
        density: share of each layer's blocks that is kept, at most 1, of the greatest sums of
            squares; rounded up to whole blocks. It goes with ``blocks``.

    Raises:
        ModelError: the argument is no module, or has no linear layers.
        OptionError: the pattern is none, or there are both it and blocks.
    """
    if not isinstance(module, nn.Module):
        kind = f"{type(module).__module__}.{type(module).__qualname__}"
        raise ModelError("prune takes a torch.nn.Module", kind, "pass the module itself")
    kept = None if pattern is None else _pattern(pattern)
    if (kept is None) == (blocks is None) or (blocks is None) != (density is None):
        raise OptionError(
            "prune takes a pattern, or blocks and their density",
            f"pattern={pattern!r}, blocks={blocks!r}, density={density!r}",
            'prune(module, "2:4"), or prune(module, blocks=(64, 64), density=0.25)',
        )
    box = () if blocks is None else _box(blocks)
    if density is not None:
        check_share("density", density, "use 0.25 for a quarter of the blocks")
        if density > 1:
            remedy = "use 0.25 for a quarter of the blocks"
            raise OptionError("density must be at most 1", repr(density), remedy)
    pruned = copy.deepcopy(module)
    layers = [own for own in pruned.modules() if isinstance(own, nn.Linear)]
    if not layers:
        remedy = "pass a module with linear layers; other weights are not pruned"
        raise ModelError("a module to prune has nn.Linear layers", "none", remedy)
    with torch.no_grad():
        for weight in {id(layer.weight): layer.weight for layer in layers}.values():
            mask = _some_of_each(weight, *kept) if kept else _blocks(weight, box, density or 0)
            weight.masked_fill_(~mask, 0)
    return pruned


def _pattern(text: str) -> tuple[int, int]:
    """How many of how many neighbours are kept."""
    found = _PATTERN.fullmatch(str(text))
    kept, of = (int(found[1]), int(found[2])) if found else (0, 0)
    if not 0 < kept <= of:
        raise OptionError(
            "a pattern tells how many of some neighbours are kept", repr(text)[:200], '"2:4"'
        )
    return kept, of


def _box(blocks: Sequence[int]) -> tuple[int, ...]:
    if not isinstance(blocks, tuple | list) or len(blocks) != _MATRIX:
        raise OptionError("blocks are of two extents", repr(blocks)[:200], "blocks=(64, 64)")
    for extent in blocks:
        check_count("an extent of a block", extent, 1, "blocks=(64, 64)")
    return tuple(blocks)


def _some_of_each(weight: Tensor, kept: int, of: int) -> Tensor:
    """True for the greatest of each row's neighbours."""
    rows, depth = weight.shape
    groups = nn.functional.pad(weight.abs().float(), (0, -depth % of)).reshape(rows, -1, of)
    places = groups.topk(kept, dim=2).indices
    mask = torch.zeros_like(groups, dtype=torch.bool).scatter_(2, places, True)
    return mask.reshape(rows, -1)[:, :depth]


def _blocks(weight: Tensor, box: Sequence[int], density: float) -> Tensor:
    """True for the blocks of the greatest sums of squares."""
    (rows, depth), (high, wide) = weight.shape, box
    padded = nn.functional.pad(weight.float().square(), (0, -depth % wide, 0, -rows % high))
    sums = padded.reshape(-(-rows // high), high, -(-depth // wide), wide).sum((1, 3))
    kept = sums.reshape(-1).topk(math.ceil(sums.numel() * density)).indices
    mask = torch.zeros_like(sums, dtype=torch.bool).reshape(-1).index_fill_(0, kept, True)
    whole = mask.reshape(sums.shape).repeat_interleave(high, 0).repeat_interleave(wide, 1)
    return whole[:rows, :depth]
