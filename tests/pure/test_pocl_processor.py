"""The name of a processor that PoCL's compiler does not know, in what stands for PoCL's device."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace

import pytest

from tvm_tile.build.pocl_processor import name_processor


def named(*texts: bytes | None) -> list[bytes | None]:
    """The texts that a device's words point to, once it was looked at; ``None`` is no pointer."""
    kept = [None if text is None else ctypes.create_string_buffer(text, 32) for text in texts]
    words = (ctypes.c_uint64 * 300)(*(0 if own is None else ctypes.addressof(own) for own in kept))
    name_processor(SimpleNamespace(int_ptr=ctypes.addressof(words)))
    return [ctypes.string_at(word) if word else None for word in words[: len(texts)]]


def test_an_unknown_processor_gets_the_name_of_a_known_one() -> None:
    *others, name = named(b"pthread", None, b"generic", b"x86_64-unknown-linux-gnu", b"generic")
    assert others == [b"pthread", None, b"generic", b"x86_64-unknown-linux-gnu"]
    assert name in (b"skylake-avx512", b"haswell", b"sandybridge", b"x86-64")


@pytest.mark.parametrize(
    "texts",
    [
        (b"x86_64-unknown-linux-gnu", b"znver3"),
        (b"aarch64-unknown-linux-gnu", b"generic"),
        (b"x86_64-unknown-linux-gnu", None, b"generic"),
    ],
)
def test_all_else_stays(texts: tuple[bytes | None, ...]) -> None:
    assert named(*texts) == list(texts)
