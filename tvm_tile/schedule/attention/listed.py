"""Attention whose tiles of keys a table lists, as its function says it.

The table is a parameter of the function that nothing reads but the kernel: what it leaves out the
mask hides. It was made of constants that the function is called with, and is right for these only.
"""

from __future__ import annotations

from dataclasses import replace

from tvm import tirx

from tvm_tile.schedule.attention.find import AttentionMatch, bytes_of
from tvm_tile.schedule.attention.seen import Seen, find_seen
from tvm_tile.schedule.listed import with_parameter
from tvm_tile.tile.attention.key_tiles import KeyTiles

LISTED = "tvm_tile.listed_keys"
"""Attribute of a function: the place of the table among its parameters, then rows, keys, parts and
lengths as of :class:`KeyTiles`."""


def with_table(func: tirx.PrimFunc, place: int, tiles: KeyTiles) -> tirx.PrimFunc:
    """A function with a table as one more parameter, in front of which there are ``place``."""
    shape = (len(tiles.lengths), tiles.width)
    table = tirx.decl_buffer(shape, "int32", name="listed")
    told = [place, tiles.rows, tiles.keys, tiles.parts, *tiles.lengths]
    return with_parameter(func, place, table).with_attr(LISTED, told)


def has_table(func: tirx.PrimFunc) -> bool:
    """Whether a function has a table, which is right for the constants that it is called with."""
    return LISTED in (func.attrs or {})


def with_listed(found: AttentionMatch, func: tirx.PrimFunc) -> AttentionMatch:
    """What a function computes, with the tiles of keys that its table lists, if it has one."""
    if not has_table(func):
        return found
    place, rows, keys, parts, *lengths = map(int, func.attrs[LISTED])
    seen = find_seen(found.weights)
    assert seen is not None
    tiles = KeyTiles(rows, keys, tuple(lengths), parts)
    return listed(found, seen, tiles, str(func.params[place].name))


def listed(found: AttentionMatch, seen: Seen, tiles: KeyTiles, table: str) -> AttentionMatch:
    """A match that walks through the tiles of a table only, of which some hide keys."""
    read = bytes_of(seen.weights.tensors | seen.condition.tensors, found.params)
    own, keys = seen.weights.element, found.chain.keys.name
    is_asked = keys in seen.condition.names_read
    asked = 1.0 if keys in own.names_read else tiles.share_of_parts * is_asked
    chain = replace(found.chain, listed=tiles, beside=read, asked=asked)
    return replace(found, chain=chain, weights=seen.weights, seen=seen.condition, table=table)
