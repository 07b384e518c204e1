"""A name for the processor that PoCL's compiler does not know, as it is older than the processor.

LLVM calls such a processor ``generic``, a name that its own compiler of C refuses: each program
would fail to build. PoCL 3.0, the newest on PyPI (2022), has no setting for the name; it keeps it
in what its handle of a device points to, behind the name of the target::

    ...; char *llvm_target_triplet; char *llvm_cpu; ...
"""

from __future__ import annotations

import ctypes
import itertools
from pathlib import Path
from typing import Any

_TRIPLE, _UNKNOWN = b"x86_64-", b"generic\0"
_WORD, _MOST_WORDS = 8, 256  # of the structure that are looked at
# The processors that PoCL's libraries of functions were compiled for, newest first, by what marks
# those that have all that these have.
_KNOWN = (("avx512vl", b"skylake-avx512"), ("avx2", b"haswell"), ("avx", b"sandybridge"))
_OLDEST = b"x86-64"


def name_processor(device: Any) -> None:
    """Call an unknown x86 processor by the name of the newest that it is like.

    Args:
        device: PoCL's, as pyopencl has it, before any program is built for it.
    """
    parts = _readable()

    def points_to(address: int, text: bytes) -> bool:
        is_known = any(start <= address < end - _WORD for start, end in parts)
        return is_known and ctypes.string_at(address, len(text)) == text

    first = int(device.int_ptr)
    places = [first + _WORD * number for number in range(_MOST_WORDS)]
    words = [
        ctypes.c_uint64.from_address(place).value
        for place in itertools.takewhile(lambda at: points_to(at, b""), places)
    ]
    for place, (triple, name) in zip(places[1:], itertools.pairwise(words), strict=False):
        if points_to(triple, _TRIPLE) and points_to(name, _UNKNOWN):
            ctypes.c_uint64.from_address(place).value = _copied(_name())


def _readable() -> list[tuple[int, int]]:
    """Parts of this process's memory that may be read: first byte, and behind the last one."""
    maps = Path("/proc/self/maps")
    lines = [line.split() for line in maps.read_text().splitlines()] if maps.exists() else []
    ends = [own[0].split("-") for own in lines if own[1].startswith("r")]
    return [(int(start, 16), int(end, 16)) for start, end in ends]


def _name() -> bytes:
    """The newest processor that this one has all of."""
    text = Path("/proc/cpuinfo").read_text()
    flags = next((line.split() for line in text.splitlines() if line.startswith("flags")), [])
    return next((name for flag, name in _KNOWN if flag in flags), _OLDEST)


def _copied(text: bytes) -> int:
    """The address of a copy that PoCL may free."""
    copy = ctypes.CDLL(None).strdup
    copy.restype, copy.argtypes = ctypes.c_void_p, [ctypes.c_char_p]
    return int(copy(text))
