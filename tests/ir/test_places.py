"""Places of views: equal to those that PyTorch's own views of numbered elements show."""

from __future__ import annotations

import itertools
import random

import pytest
import torch

from bench.random_state import view
from tvm_tile.frontend.torch.places import Places, ViewStep, is_same_view, places_of, view_of

_ATEN = torch.ops.aten
WHOLE = ViewStep(_ATEN.slice.Tensor, (("dim", 0), ("start", 0), ("end", 99)))
ROW = ViewStep(_ATEN.select.int, (("dim", 0), ("index", -1)))
PART = ViewStep(_ATEN.slice.Tensor, (("dim", 0), ("start", -99), ("end", 5), ("step", 2)))


def numbers(places: Places, shape: tuple[int, ...]) -> list[int]:
    """The number of each element of a view, in order."""
    strides = torch.empty(shape).stride()
    return [
        sum(p * s for p, s in zip(places.at(index), strides, strict=True))
        for index in itertools.product(*map(range, places.shape))
    ]


@pytest.mark.parametrize("seed", range(200))
def test_places_are_those_of_pytorch(seed: int) -> None:
    text, shape = view(random.Random(seed))
    name, rest = (
        text[: 3 if text.startswith("s.") else 1],
        text[3 if text.startswith("s.") else 1 :],
    )
    extents = {"s.a": (4, 3), "s.b": (4, 3), "s.c": (6, 4, 3), "y": (4, 3)}[name]
    numbered = torch.arange(torch.Size(extents).numel()).view(extents)
    chosen = eval(f"numbered{rest}", {"numbered": numbered})
    strided = torch.empty(extents, device="meta").as_strided(
        chosen.shape, chosen.stride(), chosen.storage_offset()
    )
    places = places_of(extents, strided)
    if places is None:  # a dimension that runs through several
        assert ".view(-1)" in rest
        return
    assert places.shape == shape == tuple(chosen.shape)
    assert numbers(places, extents) == chosen.flatten().tolist()


def test_steps_that_make_no_view_are_told() -> None:
    turned = ViewStep(_ATEN.permute.default, (("dims", [1, 0]),))
    flat = ViewStep(_ATEN.view.default, (("size", [-1]),))
    assert view_of((2, 3), (turned, flat)) is None
    assert view_of((2, 3), (flat,)) is not None


def test_elements_that_share_a_place_have_no_places() -> None:
    twice = torch.empty(4, device="meta").as_strided((2, 3), (1, 1))
    assert places_of((4,), twice) is None
    assert places_of((4,), torch.empty(1, device="meta").expand(3)) is None


def test_equal_views_are_known_however_they_are_written() -> None:
    assert is_same_view(view_of((3, 4), (WHOLE,)), view_of((3, 4), ()))
    assert not is_same_view(view_of((3, 4), (ROW,)), view_of((3, 4), ()))
    one = view_of((3, 4), (ROW, PART))
    assert one is not None
    assert tuple(one.shape) == (2,)
    assert not is_same_view(one, None)
