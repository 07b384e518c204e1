"""Shapes and extents as words of the command line."""

from __future__ import annotations

import argparse

import pytest

from tvm_tile.cli.shapes import named_extent, named_shape
from tvm_tile.graph.open_extents import Open


@pytest.mark.parametrize(
    ("text", "name", "shape"),
    [
        ("images=1x3x320x320", "images", (1, 3, 320, 320)),
        ("x=7", "x", (7,)),
        ("scalar=", "scalar", ()),
        ("tokens=1x[1:4096]", "tokens", (1, Open(1, 4096))),
        ("tokens=1x[n=1:4096]", "tokens", (1, Open(1, 4096, name="n"))),
        ("x=[32:512:32]x2", "x", (Open(32, 512, step=32), 2)),
        ("x=[h=32:512:32]x[w=1:2]", "x", (Open(32, 512, "h", 32), Open(1, 2, "w"))),
        ("a=b=1x[n=1:2]", "a=b", (1, Open(1, 2, "n"))),
        ("a[0]=3", "a[0]", (3,)),
    ],
)
def test_a_shape_has_numbers_and_ranges(text: str, name: str, shape: tuple[object, ...]) -> None:
    assert named_shape(text) == (name, shape)


@pytest.mark.parametrize(
    "text",
    [
        *("x", "=1", "x=-1", "x=1x", "x=1xx2", "x=1,2", "x=1x[", "x=1x[1:4", "x=[]", "x=[4]"),
        *("x=[:4]", "x=[1:]", "x=[1:4:]", "x=[1:4:2:1]", "x=[n:4]", "x=[=1:4]", "x=[1n=1:4]"),
        *("x=[1:4]2", "x=2[1:4]", "x=[-1:4]", "x=[1:4]x", "x=[[1:4]]", "x=[1 : 4]"),
    ],
)
def test_a_malformed_shape_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=r"NAME=1x\[n=1:4096\]"):
        named_shape(text)


def test_an_extent_has_a_name_and_a_value() -> None:
    assert named_extent("n=128") == ("n", 128)
    assert named_extent("tokens.1=3") == ("tokens.1", 3)


@pytest.mark.parametrize("text", ["n", "n=", "=3", "n=-3", "n=3.0", "n=x", "n=[1:2]"])
def test_a_malformed_extent_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="NAME=128"):
        named_extent(text)
